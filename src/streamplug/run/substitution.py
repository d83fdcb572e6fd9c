"""Substitution of samples that cannot be read by other samples of their step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, compress
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    DataError,
    DecodeError,
    NotFound,
    StorageError,
    StreamplugError,
    TooManyBadSamplesError,
)
from streamplug.interfaces import SampleSubstituted
from streamplug.plan import Epoch, order_substitutes
from streamplug.read import SHARD_ERRORS
from streamplug.run.feed import Block
from streamplug.types import Int64

if TYPE_CHECKING:
    from streamplug.run.session import Session

T = TypeVar("T")
R = TypeVar("R")
_LOG = logging.getLogger("streamplug.read")
_END = object()

_MAX_CAUSE_CHARACTERS = 1000
_MAX_LISTED_SAMPLES = 5
_MAX_OUTAGES = 3
"""Shards of candidates that may be out of reach after all retries, before the storage is taken to be down."""


@dataclass(frozen=True, slots=True)
class SubstitutionOptions:
    """Validated `on_error` and `max_errors` of `StreamingDataset`."""

    on_error: str = "raise"
    max_errors: float | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "substitute"):
            raise ConfigError(f"on_error={self.on_error!r:.60}: choose one of raise, substitute")
        if self.max_errors is not None and not self.enabled:
            raise ConfigError(
                f"max_errors={self.max_errors!r:.60} without on_error='substitute', which it limits"
            )
        if isinstance(self.max_errors, (float, np.floating)):
            if not 0 < self.max_errors < 1:
                raise ConfigError(
                    f"max_errors={self.max_errors!r:.60}: must be a whole number of samples, or a share of "
                    "a rank's samples of an epoch above 0 and below 1, such as 0.001"
                )
        else:
            object.__setattr__(self, "max_errors", whole_number("max_errors", self.max_errors, 0))

    @property
    def enabled(self) -> bool:
        """Whether samples are substituted."""
        return self.on_error == "substitute"


class Substitution:
    """Substitutes samples of one epoch in one process; several threads may read at once.

    Samples and shards that failed are not tried again. Samples that cannot be decoded, of files that have the
    digest of the index, are not tried in later epochs either.

    Attributes:
        bad_samples: Their errors, of all epochs in this process.
    """

    def __init__(self, session: Session, epoch: int, number: int) -> None:
        """Substitute samples of an epoch in a loop; its number is as that of `Part`."""
        run = session.run
        if run.batch_size is None and not run.counts_batches:
            raise ConfigError(
                "on_error='substitute' takes another sample of the same global batch, and there is no batch "
                "size: give batch_size="
            )
        self._session, self.epoch, self.number = session, epoch, number
        self.bad_samples = session.bad_samples
        # Plan, number and sample ids of a global batch.
        self._latest: tuple[Epoch, int, Int64] | None = None
        # By sample that cannot be read; a copy of the dict, to which other threads may add.
        self._causes = {n: _describe(error) for n, error in self.bad_samples.copy().items()}
        self._distinct: set[int] = set()
        self._listed: list[str] = []
        self._lock = Lock()
        session.reader.remember_failures()

    def read_in_parts(self, block: Block, read: Callable[[Block], T]) -> Iterator[tuple[Block, T]]:
        """Yield a block and what `read` returns; if that fails, batch by batch with substitutes.

        `read` may return an iterator over the batches of the block that reads them one by one.
        """
        try:
            values = None if self._known(block) else read(block)
        except Exception as error:  # noqa: BLE001 - decoders can raise anything
            _raise_others(error)
            values = None
        if values is not None:
            if isinstance(values, Iterator):
                values = cast("T", self._batches(block, values, read))
            yield block, values
            return
        for part in block.split():
            yield part, self.read_batch(part, read)

    def _known(self, block: Block) -> list[tuple[int, DataError]]:
        """Return the samples of a block that are known to be bad, and their errors."""
        bad = self.bad_samples
        if not bad:
            return []
        found = [(n, copy(bad[n])) for n in dict.fromkeys(block.ids.tolist()) if n in bad]
        for sample, error in found:  # which another thread may have found in this epoch
            self._causes.setdefault(sample, _describe(error))
        return found

    def _batches(
        self, block: Block, batches: Iterator[Any], read: Callable[[Block], Any]
    ) -> Iterator[Any]:
        """Yield batches of a block; from the first one that fails on, each is read alone."""
        count = 0
        while True:
            try:
                batch = next(batches, _END)
            except Exception as error:  # noqa: BLE001 - decoders can raise anything
                _raise_others(error)
                break
            if batch is _END:
                return
            yield batch
            count += 1
        for part in block.split()[count:]:
            yield from self.read_batch(part, read)

    def read_batch(
        self,
        block: Block,
        read: Callable[[Block], T],
        probe: Callable[[Block], object] | None = None,
    ) -> T:
        """Return what `read` returns for a block of one batch, with substitutes if it fails.

        `probe` tells by an error which samples cannot be read; the default is `read`.

        Raises:
            TooManyBadSamplesError: If more samples of the epoch were substituted than `max_errors`.
            Exception: The error of a sample for which there is no substitute.
        """
        probe = probe or read
        substitutes = {n: self._choose(block.step, n, e, probe) for n, e in self._known(block)}
        try:
            values = _complete(read(_with_substitutes(block, substitutes)))
        except Exception as error:
            _raise_others(error)
            substitutes = dict(self._substitutes(block, probe))
            if not substitutes:
                raise
            values = _complete(read(_with_substitutes(block, substitutes)))
        for sample, substitute in substitutes.items():
            self._record(block.step, sample, substitute, self._causes[sample])
        return values

    def apply(
        self,
        step: int,
        ids: Sequence[int],
        read: Callable[[Sequence[int]], T],
        use: Callable[[Sequence[int], T], R],
    ) -> R:
        """Return what a user's function returns for samples, with substitutes where it cannot decode one.

        Args:
            step: Step of the samples.
            ids: Ids of one sample, or of all of a batch.
            read: Reads samples by their ids.
            use: The function. It takes the ids of the order, on which random numbers depend, and the samples
                or their substitutes. It is called for each alone first, so that a `DecodeError` is of one.

        Raises:
            Exception: Any other error of the function, or the error of a sample without a substitute.
        """
        results = {sample: self._use_one(step, sample, read, use) for sample in dict.fromkeys(ids)}
        if len(ids) == 1:
            result = results[ids[0]][1]
        else:
            result = use(ids, read([results[sample][0] for sample in ids]))
        for sample, (used, _, cause) in results.items():
            if used != sample:
                self._record(step, sample, used, cause)
        return result

    def _use_one(
        self,
        step: int,
        sample: int,
        read: Callable[[Sequence[int]], T],
        use: Callable[[Sequence[int], T], R],
    ) -> tuple[int, R, str]:
        """Return a sample or the first substitute that a function can decode, what that returns, and why.

        Errors of the function are not remembered: it may fail with the random numbers of one place only.
        """
        first: Exception | None = None
        own = () if sample in self._causes else (sample,)
        readable = self._readable(step, sample, lambda block: read(block.ids.tolist()))
        for candidate in chain(own, readable):
            try:
                result = use([sample], read([candidate]))
            except DecodeError as error:
                first = first or error
            else:
                cause = self._causes.get(sample) or ("" if first is None else _describe(first))
                return candidate, result, cause
        raise first or DecodeError(self._causes[sample])

    def _substitutes(
        self, block: Block, probe: Callable[[Block], object]
    ) -> Iterator[tuple[int, int]]:
        """Yield the samples of a batch that cannot be read, and their substitutes."""
        ids = list(dict.fromkeys(block.ids.tolist()))
        # Decided before any substitute is tried: that, and other threads, add to `_causes`.
        is_known = [sample in self._causes for sample in ids]
        for sample in compress(ids, is_known):
            known = copy(self.bad_samples.get(sample)) or DataError(self._causes[sample])
            yield sample, self._choose(block.step, sample, known, probe)
        untried = [sample for sample, known in zip(ids, is_known) if not known]
        for sample, error in self._failures(block.step, untried, probe):
            yield sample, self._choose(block.step, sample, error, probe)

    def _failures(
        self, step: int, ids: list[int], probe: Callable[[Block], object]
    ) -> Iterator[tuple[int, Exception]]:
        """Yield those of some samples that cannot be read, found by halving, and their errors."""
        error = self._try(step, ids, probe) if ids else None
        if error is None:
            return
        if len(ids) == 1:
            yield ids[0], error
            return
        for half in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
            yield from self._failures(step, half, probe)

    def _try(self, step: int, ids: list[int], probe: Callable[[Block], object]) -> Exception | None:
        """Read samples; return the error, which is noted if it is that of a single one."""
        try:
            _complete(probe(Block.of_batch(step, ids)))
        except Exception as error:  # noqa: BLE001 - decoders can raise anything
            _raise_others(error)
            if len(ids) == 1:
                self._causes[ids[0]] = _describe(error)
                if isinstance(error, DataError) and error.is_as_indexed:
                    self.bad_samples[ids[0]] = copy(error)
            return error
        return None

    def _choose(
        self, step: int, sample: int, error: Exception, probe: Callable[[Block], object]
    ) -> int:
        """Return the first substitute that can be read; raise `error` without one."""
        for candidate in self._readable(step, sample, probe):
            return candidate
        raise error

    def _readable(self, step: int, sample: int, probe: Callable[[Block], object]) -> Iterator[int]:
        """Yield the substitutes of a sample that can be read, in order."""
        planner, outages = self._session.run.planner, set()
        candidates = order_substitutes(sample, self._global_batch(step), planner.streams.first_ids)
        candidates = planner.order_substitutes(sample, candidates)
        for candidate in candidates.tolist():
            if candidate in self._causes:
                continue
            failure = self._try(step, [candidate], probe)
            if failure is None:
                yield int(candidate)
            elif _is_outage(failure):
                outages.add(self._session.reader.locate(candidate)[:2])
            if len(outages) == _MAX_OUTAGES:
                return

    def _global_batch(self, step: int) -> Int64:
        latest, world = self._latest, self._session.world  # another thread may replace the former
        plan = self._session.run.epoch(self.epoch, world)
        number = plan.global_step(world, step)
        if latest is None or latest[0] is not plan or latest[1] != number:
            latest = self._latest = plan, number, plan.global_ids(world, step)
        return latest[2]

    def _record(self, step: int, sample: int, substitute: int, cause: str) -> None:
        """Count, log and emit a substitution; raise `TooManyBadSamplesError` if it exceeds the limit."""
        stream, shard, file, index = self._session.reader.locate(sample)
        place = stream, shard, file, index
        observer = self._session.monitor.observer
        observer.emit(SampleSubstituted(self.epoch, step, sample, substitute, *place, cause))
        with self._lock:
            if sample in self._distinct:
                return
            self._distinct.add(sample)
            named = self._session.reader.describe(sample)
            text = f"sample {sample} ({named}; shard {shard} of stream {stream}): {cause}"
            if len(self._listed) < _MAX_LISTED_SAMPLES:
                self._listed.append(text)
            count = observer.counters.count_in_loop(self.number, len(self._distinct))
        _LOG.warning(
            "%s; sample %d takes its place in step %d of epoch %d",
            text,
            substitute,
            step,
            self.epoch,
        )
        self._check_limit(count)

    def _check_limit(self, count: int) -> None:
        session, limit = self._session, self._session.substitution_options.max_errors
        if limit is None:
            return
        samples = session.run.length(session.world) if 0 < limit < 1 else 1
        if count > limit * samples:
            raise TooManyBadSamplesError(
                f"{count} samples of epoch {self.epoch} could not be read on this rank, more than "
                f"max_errors={limit}; the first of this process: {'; '.join(self._listed)}"
            )


def _with_substitutes(block: Block, substitutes: Mapping[int, int]) -> Block:
    """Return a block of one batch with substitutes for some samples."""
    if not substitutes:
        return block
    ids = [substitutes.get(sample, sample) for sample in block.ids.tolist()]
    return Block.of_batch(block.step, ids)


def _complete(values: T) -> T:
    """Return the values that were read; those of an iterator are read now."""
    return cast("T", iter(list(values))) if isinstance(values, Iterator) else values


def _raise_others(error: Exception) -> None:
    """Raise an error that is not about the data of samples."""
    is_other = isinstance(error, StreamplugError) and not isinstance(error, SHARD_ERRORS)
    if is_other or isinstance(error, (MemoryError, TooManyBadSamplesError)):
        raise error


def _is_outage(error: Exception) -> bool:
    """Return whether an error may be that of all shards, as without a network or with wrong credentials."""
    if isinstance(error, AccessDenied) and error.may_be_missing:
        return False
    return isinstance(error, StorageError) and not isinstance(error, NotFound)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARACTERS]
