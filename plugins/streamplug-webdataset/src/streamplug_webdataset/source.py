"""Source: the samples of archives in the order of a plan, their values being bytes, as they lie there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streamplug import Stream, StreamingDataset
from streamplug.errors import EncodeError
from streamplug.index import Index
from streamplug.interfaces import Column, Encoding, Storage
from streamplug.plugin.location import join
from streamplug.plugin.registry import make
from streamplug.read import apply_decoders
from streamplug_webdataset.names import KEY, URL
from streamplug_webdataset.tally import Tally

ENDLESS = 1 << 42
"""Samples of an epoch that nobody reads to its end."""


@dataclass(frozen=True)
class Archives(Stream):
    """A stream whose index is read once, however many pipelines begin with it, and whose values are bytes."""

    known: dict[str, tuple[Index, Path | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}  # the data set has it

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


class _UrlEncoding(Encoding):
    """The URLs of archives, whose readers say their names below the data set."""

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
    found: Encoding = make("encoding", "bytes")
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """What a pipeline wants of the order of its source.

    Attributes:
        mix: Over how many samples to mix; 1 for archives in random order, None for all as it lies.
        seed: Of the order.
        batch: Samples of a step of one rank; None for one by one.
        total: Samples of an epoch over all ranks, pass after pass; None for one pass.
        end: After how many of these a loop ends; None for all.
    """

    mix: int | None = None
    seed: int | None = None
    batch: int | None = None
    total: int | None = None
    end: int | None = None


class Source(StreamingDataset):
    """A data set that tells where it stands, for what is built on it."""

    def __init__(self, stream: Stream, order: Order, options: Mapping[str, Any]) -> None:
        """Read a stream in an order."""
        more = dict(options)
        if order.total:
            more |= {"curriculum": {0: [1.0]}, "epoch_size": order.total}
        if order.seed is not None:
            more["shuffle_seed"] = order.seed
        super().__init__(
            streams=[stream],
            shuffle=order.mix is not None,
            shuffle_block_size=order.mix,
            batch_size=order.batch,
            **more,
        )
        self._total, self._end = order.total, order.end

    def samples(self, tally: Tally) -> Iterator[dict[str, Any]]:
        """Yield this process's samples of the next epoch that a tally has not counted.

        With a single rank none comes twice: what fills up the last batch is left out.
        """
        skip, tally.used, stop = tally.used, 0, ENDLESS
        for sample in self:
            if tally.epoch is None:
                tally.epoch, tally.first = self.session.current_epoch()
                stop = self._own_samples(tally.first)
            if tally.used == stop and self._end is not None:
                return
            if tally.used == stop:
                continue  # to the end, so that the epoch is over
            tally.used += 1
            if tally.used > skip:
                tally.mark = tally.used
                yield {name: v for name, v in sample.items() if v is not None}
        if tally.epoch is None:
            tally.epoch, tally.first = self.session.current_epoch()

    def _own_samples(self, first: int) -> int:
        """Return how many samples this process has from a step on, without those that fill up a batch."""
        place, batch = self.session.place, self.session.batch
        if place.ranks > 1 and self._end is None:
            return ENDLESS
        total = self._end or self._total or self.size
        steps = -(-total // (batch * place.ranks))
        own = range(first + place.worker, steps, place.workers_per_rank)
        last = bool(own) and own[-1] == steps - 1 and place.ranks == 1
        short = steps * batch - total if last else 0
        return len(own) * batch - short
