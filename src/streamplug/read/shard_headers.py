"""The heads of shards, which say where their samples lie, and what comes with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event, RLock
from typing import NamedTuple, TypeAlias

import numpy as np

from streamplug.errors import CorruptShardError, DataError
from streamplug.index import Index
from streamplug.interfaces import RangeReadableFormat, ShardHeader, ShardInfo
from streamplug.plugin_kit.cancellation import check
from streamplug.read.speculative_read import SpeculativeRead
from streamplug.transfer.range_reader import RangeStore
from streamplug.transfer.ranges import CutShortError
from streamplug.transfer.spans import coalesced
from streamplug.types import Bytes1D, Int64

GAP = 32 << 10
"""Bytes between two samples up to which they are asked for in one request."""

HEAD_BYTES = 64 << 20
"""Bytes of the heads of shards that are kept."""

_LUCK = 16
"""How many more guessed spans may be wrong than right before none are guessed."""

_GUESSED_BYTES = 1 << 20
"""Bytes up to which a guess is made: about what comes in the round trip that it saves if it is right."""

_GLANCE = 1.0
"""Seconds between two looks at whether a head is still waited for."""

NO_ROWS = np.empty(0, np.int64)

Naming: TypeAlias = Callable[[ShardInfo], AbstractContextManager[None]]
"""Entered while a shard is looked at, to say in errors which one that is."""


_Wanted: TypeAlias = "tuple[ShardInfo, Int64]"
_Found: TypeAlias = "dict[int, tuple[ShardHeader, SpeculativeRead]]"


def unnamed(_: ShardInfo) -> AbstractContextManager[None]:
    """Leave it to others to say which shard it is."""
    return nullcontext()


def _range_format(index: Index, info: ShardInfo) -> RangeReadableFormat:
    format_ = index.schema(info.number).format
    if not isinstance(format_, RangeReadableFormat):
        raise CorruptShardError("its format needs the whole file; pass fetch='shard'")
    return format_


class _Asked(NamedTuple):
    """What is asked for of a shard whose head is missing.

    Attributes:
        info: Which shard.
        role: In which of its files the head lies.
        place: Where in that, shape ``[1, 2]``.
        spans: What is asked for; shape ``[n, 2]``.
        staked: How many spans of these are guessed.
    """

    info: ShardInfo
    role: str
    place: Int64
    spans: Int64
    staked: int


class ShardHeaders:
    """The heads of the shards of one stream, as one process keeps them."""

    def __init__(self, index: Index, store: RangeStore) -> None:
        self._index, self._store = index, store
        self._lock = RLock()  # the collector may end a loop, which asks for more, while it is held
        self._kept: OrderedDict[int, tuple[ShardHeader, int]] = OrderedDict()
        self._claims: dict[int, Event] = {}
        self._bytes = 0
        self._luck = _LUCK

    def of(
        self, wanted: Sequence[_Wanted], naming: Naming = unnamed
    ) -> list[tuple[ShardHeader, SpeculativeRead]]:
        """Return heads, and what came with each: that may be bytes of samples.

        Args:
            wanted: Of which shards, all different, and of which rows of each to guess the place.
            naming: Names a shard in errors.

        Raises:
            StorageError: If one cannot be had.
            DataError: If one is damaged.
        """
        found: _Found = {}
        while len(found) < len(wanted):
            mine: list[_Wanted] = []
            try:
                others = self._claim(wanted, found, mine)
                if mine:
                    self._read(mine, found, naming)
                elif others:
                    while not others[0].wait(_GLANCE):  # what several threads need, one fetches
                        check()
            finally:
                self._release(info.number for info, _ in mine)
        return [found[info.number] for info, _ in wanted]

    def comes_with_samples(self, info: ShardInfo, rows: Int64) -> bool:
        """Say whether the head of a shard need not be fetched before samples are: it will come with these."""
        return self._guess(info, rows) is not None

    def judge(self, early: SpeculativeRead, right: float) -> None:
        """Note which share of a guess was right, so that little is guessed where most is wrong."""
        with self._lock:
            self._luck = min(self._luck + round(2 * early.staked * right), _LUCK)

    def _claim(self, wanted: Sequence[_Wanted], found: _Found, mine: list[_Wanted]) -> list[Event]:
        """Find heads that are there; note which others are this thread's to fetch, and whom to wait for."""
        others = []
        with self._lock:
            for info, rows in wanted:
                number = info.number
                if number in found:
                    continue
                if number in self._kept:
                    self._kept.move_to_end(number)
                    found[number] = self._kept[number][0], SpeculativeRead()
                elif number in self._claims:
                    others.append(self._claims[number])
                else:
                    mine.append((info, rows))
                    self._claims[number] = Event()
        return others

    def _release(self, shards: Iterable[int]) -> None:
        with self._lock:
            for number in shards:
                if number in self._claims:
                    self._claims.pop(number).set()

    def _read(self, wanted: Sequence[_Wanted], found: _Found, naming: Naming) -> None:
        asked: list[_Asked] = []
        try:
            for info, rows in wanted:
                with naming(info):
                    asked.append(self._asked(info, rows))
            files = [(each.info.files[each.role].raw, each.spans) for each in asked]
            for place, parts in self._store.read_many(files):
                each = asked[place]
                with naming(each.info):
                    early = self._arrived(each, parts)
                    head = self._open(each.info, early, each)
                found[each.info.number] = head, early if each.role == "data" else SpeculativeRead()
                self._release([each.info.number])
        finally:
            lost = sum(each.staked for each in asked if each.info.number not in found)
            with self._lock:  # what did not come was not wrong
                self._luck += lost

    def _asked(self, info: ShardInfo, rows: Int64) -> _Asked:
        format_ = _range_format(self._index, info)
        wanted = format_.header_range(info)
        if wanted is None:
            raise CorruptShardError("its format needs the whole file; pass fetch='shard'")
        place = np.array([wanted], np.int64)
        guess = self._guess(info, rows) if format_.header_role == "data" else None
        if guess is None or not self._stake(guess[1]):
            return _Asked(info, format_.header_role, place, place, 0)
        spans = coalesced(np.concatenate([place, guess[0]]), GAP)
        return _Asked(info, format_.header_role, place, spans, guess[1])

    def _arrived(self, asked: _Asked, parts: Callable[[], list[Bytes1D]]) -> SpeculativeRead:
        try:
            return SpeculativeRead(asked.spans, parts(), staked=asked.staked)
        except CutShortError:
            if asked.spans is asked.place:
                raise
        # The head alone may do, or tell what is wrong.
        return SpeculativeRead(
            asked.place, self._store.read(asked.info.files[asked.role].raw, asked.place)
        )

    def _open(self, info: ShardInfo, early: SpeculativeRead, asked: _Asked) -> ShardHeader:
        schema = self._index.schema(info.number)
        [data] = early.cut(asked.place)
        try:
            head = _range_format(self._index, info).open_header(info, data, schema.columns)
        except DataError as error:
            raise type(error)(f"{error}; the file is damaged, write or copy it again") from error
        with self._lock:
            self._kept[info.number] = head, len(data)
            self._bytes += len(data)
            while self._bytes > HEAD_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return head

    def _guess(self, info: ShardInfo, rows: Int64) -> tuple[Int64, int] | None:
        """Return where some samples are likely to lie, and what is staked on that.

        None if that is not worth a guess: where it is wrong, all was fetched in vain.
        """
        schema = self._index.schema(info.number)
        format_ = _range_format(self._index, info)
        likely = format_.estimate_ranges(info, rows, schema.columns) if len(rows) else None
        if likely is None:
            return None
        likely = np.clip(likely, 0, info.files["data"].raw.bytes)
        likely = likely[likely[:, 0] < likely[:, 1]]  # it is a guess: it may be of no bytes
        if all(column.encoding.size is not None for column in schema.columns):
            return likely, 0  # it is known
        spans = coalesced(likely, GAP) if len(likely) else likely
        worth = (spans[:, 1] - spans[:, 0]).sum() <= _GUESSED_BYTES
        return (spans, len(spans)) if worth and len(spans) <= self._luck else None

    def _stake(self, spans: int) -> bool:
        """Say whether so many spans may be guessed, which `judge` must then be told of."""
        with self._lock:
            may = spans <= self._luck
            self._luck -= spans * may
            return may
