"""Samples of archives in a planned order, with their stored bytes as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from streamplug import Stream, StreamingDataset
from streamplug.errors import DataError, EncodeError
from streamplug.index import Index
from streamplug.interfaces import Column, Encoding, Storage
from streamplug.plugin import join, make
from streamplug.read import StreamShards, apply_decoders
from streamplug.run import Loop
from streamplug.source import OpenStream
from streamplug.transfer import Observer
from streamplug_webdataset.names import KEY, URL
from streamplug_webdataset.progress import Progress

ENDLESS = 1 << 42
"""Samples of an unlimited epoch."""
MAX_SAMPLES_LEFT_OUT = 10_000
"""Samples beyond a pass that stages may leave out in a row, as `rsample` may leave out a small pass."""


@dataclass(frozen=True, repr=False)
class Archives(Stream):
    """A stream whose index is read once for all pipelines over it, and whose values are bytes.

    Attributes:
        reads_files: Whether a stage handles files by their names: keys are always read, and names of columns
            mean the extensions of any case.
    """

    reads_files: bool = False
    known: dict[str, tuple[Index, Path | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}  # the data set has it

    def open(self, observer: Observer | None = None) -> OpenStream:
        opened = super().open(observer)
        if not self.reads_files:
            return opened
        return _FileStream(**{f.name: getattr(opened, f.name) for f in fields(opened)})

    def find_index(self, storage: Storage, retries: int) -> tuple[Index, Path | None]:
        if "index" not in self.known:
            index, derived = super().find_index(storage, retries)
            columns = [column for schema in index.schemas for column in schema.columns]
            decoders = {
                c.name: _as_bytes for c in columns if c.name != KEY and c.encoding.size is None
            }
            changed = copy(apply_decoders(index, decoders))
            url = Column(URL, "str", _UrlEncoding(storage))
            changed.schemas = tuple(
                replace(schema, columns=(*schema.columns, url)) for schema in changed.schemas
            )
            self.known["index"] = changed, derived
        return self.known["index"]


class _FileStream(OpenStream):
    """An open stream that reads keys in addition to the columns, whose names may have any case."""

    def check_columns(
        self, columns: Sequence[str] | None, *, allow_unsafe: bool, same: bool = True
    ) -> None:
        super().check_columns(self._stored_columns(columns), allow_unsafe=allow_unsafe, same=same)

    def shards(self, columns: Sequence[str] | None) -> StreamShards:
        stored = self._stored_columns(columns)
        return super().shards(stored if stored is None or KEY in stored else [KEY, *stored])

    def _stored_columns(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """Return the names of columns as the archives have them; unknown names are unchanged."""
        if columns is None:
            return None
        stored_names: dict[str, list[str]] = {}
        for name in {c.name for schema in self.index.schemas for c in schema.columns}:
            stored_names.setdefault(name.lower(), []).append(name)
        found = (sorted(stored_names.get(name.lower(), [name])) for name in columns)
        return list(dict.fromkeys(chain.from_iterable(found)))


class _UrlEncoding(Encoding):
    """URLs of archives, made of their names below the data set."""

    def __init__(self, storage: Storage) -> None:
        self._known: dict[bytes, str] = {}
        self._root = storage.url_of("")

    def encode(self, value: Any) -> bytes:
        raise EncodeError(f"{URL} is not stored: {value!r:.80}")

    def decode(self, data: memoryview) -> str:
        name = bytes(data)
        if name not in self._known:
            self._known[name] = join(self._root, name.decode())
        return self._known[name]


def _as_bytes(_encoding: Encoding) -> Encoding:
    encoding: Encoding = make("encoding", "bytes")
    return encoding


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """Order of the samples of a source.

    Attributes:
        shuffle_block: Shuffle block size in samples; 1 shuffles only archives, None does not shuffle.
        seed: Shuffle seed.
        batch: Samples per step of a rank; None is 1.
        total: Samples of an epoch over all ranks, pass after pass; None is one pass.
        end: Number of these samples after which a loop ends; None is all.
    """

    shuffle_block: int | None = None
    seed: int | None = None
    batch: int | None = None
    total: int | None = None
    end: int | None = None


class ArchiveDataset(StreamingDataset):
    """A data set that reports its progress."""

    def __init__(self, stream: Stream, order: SourceOrder, options: Mapping[str, Any]) -> None:
        """Open a stream in an order."""
        more = dict(options)
        if order.total:
            more |= {"curriculum": {0: [1.0]}, "epoch_size": order.total}
        if order.seed is not None:
            more["shuffle_seed"] = order.seed
        super().__init__(
            streams=[stream],
            shuffle=order.shuffle_block is not None,
            shuffle_block_size=order.shuffle_block,
            batch_size=order.batch,
            **more,
        )
        self._total, self._end = order.total, order.end
        self._is_endless = order.end is None and (order.total or 0) > ENDLESS // 2

    def samples(self, progress: Progress) -> Iterator[dict[str, Any]]:
        """Yield this process's samples of the next epoch, without those that `progress` has counted.

        With a single rank no sample is repeated: the padding of the last batch is left out.

        Raises:
            DataError: If the stages leave out all samples of endless passes.
        """
        skip, progress.used, stop = progress.used, 0, ENDLESS
        bound, position = stop, progress.position
        most_left_out = self.size + MAX_SAMPLES_LEFT_OUT
        for sample in self:
            if progress.epoch is None:
                self._note_start(progress)
                stop = self._own_samples(progress.first)
                bound = min(stop, skip + most_left_out) if self._is_endless else stop
            if progress.used == bound == stop:
                if self._end is not None:
                    return
                continue  # read to the end, so that the epoch is complete
            if progress.used == bound:
                if progress.position == position and not progress.held:
                    raise DataError(
                        f"the stages have left out {most_left_out} samples in a row in this process, more "
                        "than the data set has: the loop could go on without end; see what select() and "
                        "handlers leave out"
                    )
                bound, position = min(stop, bound + most_left_out), progress.position
            progress.used += 1
            if progress.used > skip:
                progress.mark = progress.used
                yield {name: v for name, v in sample.items() if v is not None}
        if progress.epoch is None:
            self._note_start(progress)

    def _note_start(self, progress: Progress) -> None:
        part = self.session.part
        if part is not None:
            progress.epoch, progress.first = part.epoch, self.session.step_of(part.start)
            progress.loop = part if isinstance(part, Loop) else progress.loop

    def _own_samples(self, first: int) -> int:
        """Return the number of samples of this process from a step, without the padding of the last batch."""
        process, batch = self.session.process, self.session.batch
        if process.ranks > 1 and self._end is None:
            return ENDLESS
        total = self._end or self._total or self.size
        steps = -(-total // (batch * process.ranks))
        own = range(first + process.worker, steps, process.workers_per_rank)
        last = bool(own) and own[-1] == steps - 1 and process.ranks == 1
        short = steps * batch - total if last else 0
        return len(own) * batch - short
