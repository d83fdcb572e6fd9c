"""Pieces of shards that arrive while samples of others are decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from streamplug.fetch.workers import Job, Workers
from streamplug.read.pieces import Piece

_AT_ONCE = 64
_BYTES_AT_ONCE = 16 << 20
"""Bytes that are fetched at once. With more, all pieces arrive late instead of some early, and memory that
one has left is not there yet for the next."""

_PREPARED = 16
"""Pieces that are prepared ahead, while the bytes of others come."""


class Arriving:
    """Fetches pieces, the first ones first, and keeps each until its samples are decoded."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        fetch: Callable[[Piece], object],
        release: Callable[[Piece], object],
        prepare: Callable[[Piece], object],
    ) -> None:
        """Begin to fetch them; a single one is fetched when it is asked for.

        Args:
            pieces: Of shards that all differ.
            fetch: Fetches one.
            release: Forgets it.
            prepare: Called some time before, so that `fetch` has nothing to wait for first.
        """
        self._fetch, self._release = fetch, release
        self._pieces = {piece.number: piece for piece in pieces}
        self._jobs: dict[int, Job] = {}
        self._workers = Workers(_AT_ONCE, _BYTES_AT_ONCE) if len(pieces) > 1 else None
        if self._workers is not None:
            try:
                self._submit(self._workers, pieces, prepare)
            except BaseException:
                self.stop()
                raise

    def _submit(
        self, workers: Workers, pieces: Sequence[Piece], prepare: Callable[[Piece], object]
    ) -> None:
        prepared = deque(workers.submit(partial(prepare, piece)) for piece in pieces[:_PREPARED])
        for at, piece in enumerate(pieces, _PREPARED):
            work = partial(self._fetch_prepared, piece, prepared.popleft())
            self._jobs[piece.number] = workers.submit(work, piece.weight)
            for later in pieces[at : at + 1]:
                prepared.append(workers.submit(partial(prepare, later)))

    def _fetch_prepared(self, piece: Piece, prepared: Job) -> None:
        prepared.wait()  # it began before
        if prepared.error is not None:
            raise prepared.error
        self._fetch(piece)

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
