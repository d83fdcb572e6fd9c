"""Pieces of shards that arrive while samples of others are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from streamplug.fetch.workers import Job, Workers
from streamplug.read.pieces import Piece

_AT_ONCE = 64
_BYTES_AT_ONCE = 16 << 20
"""Bytes that are fetched at once. With more, all pieces arrive late instead of some early, and memory that
one has left is not there yet for the next."""


class Arriving:
    """Fetches pieces, the first ones first, and keeps each until its samples are decoded."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        fetch: Callable[[Piece], object],
        release: Callable[[Piece], object],
    ) -> None:
        """Begin to fetch them; a single one is fetched when it is asked for."""
        self._fetch, self._release = fetch, release
        self._pieces = {piece.number: piece for piece in pieces}
        self._jobs: dict[int, Job] = {}
        self._workers = Workers(_AT_ONCE, _BYTES_AT_ONCE) if len(pieces) > 1 else None
        if self._workers is not None:
            for piece in pieces:
                work = partial(fetch, piece)
                self._jobs[piece.number] = self._workers.submit(work, piece.weight)

    @contextmanager
    def held(self, number: int) -> Iterator[None]:
        """Have the piece of a shard, if there is one, during a block; afterwards it is forgotten.

        Args:
            number: The shard, over all streams.

        Raises:
            StreamplugError: If it cannot be had.
        """
        piece = self._pieces.get(number)
        if piece is None:
            yield
            return
        job = self._jobs.pop(number, None)
        if job is None:
            self._fetch(piece)
        else:
            job.wait()
            if job.error is not None:
                raise job.error
        yield
        self._release(self._pieces.pop(number))

    def stop(self) -> None:
        """Fetch no more, and forget what was not used."""
        if self._workers is not None:
            self._workers.stop(for_now=True)
        for piece in self._pieces.values():
            self._release(piece)
