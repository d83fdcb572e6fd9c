"""Pieces of shards that arrive while samples of others are decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from streamplug.read.sample_range import FetchGroup, SampleRange
from streamplug.transfer.pool import Job, Workers

_AT_ONCE = 64
"""Pieces that are fetched at once."""

_BYTES_AT_ONCE = 16 << 20
"""Bytes that are fetched at once. With more, all pieces arrive late instead of some early, and memory that
one has left is not there yet for the next."""

_PREPARED = 16
"""Hauls that are prepared ahead, while the bytes of others come."""


class RangeFetcher:
    """Fetches pieces, the first ones first, and keeps each until its samples are decoded."""

    def __init__(
        self,
        groups: Sequence[FetchGroup],
        fetch: Callable[[FetchGroup], object],
        release: Callable[[SampleRange], object],
        prepare: Callable[[FetchGroup], object],
    ) -> None:
        """Begin to fetch them; a single haul is fetched when one of its pieces is asked for.

        Args:
            groups: Pieces of shards that all differ.
            fetch: Fetches one.
            release: Forgets one of its pieces.
            prepare: Called some time before, so that `fetch` has nothing to wait for first.
        """
        self._fetch, self._release = fetch, release
        self._pieces: dict[int, tuple[SampleRange, Job | None]] = {
            piece.number: (piece, None) for haul in groups for piece in haul
        }
        self._alone = groups[0] if len(groups) == 1 else None
        at_once = max(_AT_ONCE // max(map(len, groups), default=1), 1)
        self._workers = Workers(at_once, _BYTES_AT_ONCE) if len(groups) > 1 else None
        if self._workers is not None:
            try:
                self._submit(self._workers, groups, prepare)
            except BaseException:
                self.stop()
                raise

    def _submit(
        self,
        workers: Workers,
        groups: Sequence[FetchGroup],
        prepare: Callable[[FetchGroup], object],
    ) -> None:
        prepared = deque(workers.submit(partial(prepare, haul)) for haul in groups[:_PREPARED])
        for at, haul in enumerate(groups, _PREPARED):
            work = partial(self._fetch_prepared, haul, prepared.popleft())
            job = workers.submit(work, sum(piece.weight for piece in haul))
            self._pieces.update((piece.number, (piece, job)) for piece in haul)
            for later in groups[at : at + 1]:
                prepared.append(workers.submit(partial(prepare, later)))

    def _fetch_prepared(self, haul: FetchGroup, prepared: Job) -> None:
        prepared.wait()  # it began before
        if prepared.error is not None:
            raise prepared.error
        self._fetch(haul)

    @contextmanager
    def held(self, number: int) -> Iterator[None]:
        """Have the piece of a shard, if there is one, during a block; afterwards it is forgotten.

        Args:
            number: The shard, over all streams.

        Raises:
            StreamplugError: If it cannot be had.
        """
        if number not in self._pieces:
            yield
            return
        if self._alone is not None:
            self._fetch(self._alone)
            self._alone = None
        piece, job = self._pieces[number]
        if job is not None:
            job.wait()
            if job.error is not None:
                raise job.error
        yield
        del self._pieces[number]
        self._release(piece)

    def stop(self) -> None:
        """Fetch no more, and forget what was not used."""
        if self._workers is not None:
            self._workers.stop(for_now=True)
        for piece, _ in self._pieces.values():
            self._release(piece)
