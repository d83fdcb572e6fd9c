"""Records that ranks publish in torch's store, so that packs and pipelines have one state on all ranks."""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

from streamplug.errors import StateError
from streamplug.run import Session

_END = 1 << 62
"""Number of the output behind the last one of a loop."""
_NUM_KEPT = 32
"""Latest records of a rank in the store: it may be ahead of one that saves by as many outputs."""
_TIMEOUT_SECONDS = 300.0
_POLL_SECONDS = 0.01


def _no_group() -> Any:
    """Stand for a weak reference to no process group."""
    return None


_num_opened: tuple[Callable[[], Any], Counter[str]] = (_no_group, Counter())
"""Records of each kind that were opened in a process group."""


class RankRecords:
    """The records of all ranks, in the store of torch's process group.

    A rank publishes a record after each output, and waits for nobody. The state after an output is made of
    the records that all ranks published after it, so a rank may ask for it alone. Without a process group a
    rank knows its own record only.
    """

    def __init__(self, kind: str) -> None:
        """Keep the records of a kind of outputs, from a position on.

        Those of one kind and order are told apart by the order in which they are first used, which is the
        same on all ranks.
        """
        self._kind, self._name, self._num_published = kind, "", 0
        # Outputs are numbered until the end of a loop: a loop that is left is left by all ranks.
        self._loop = self._output = 0
        self._store: Any = None
        self._process, self._owner = 0, _no_group  # to which the store belongs
        self._rank = 0
        self._failure: Exception | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RankRecords, (self._kind,)  # a copy has outputs of its own

    def publish(self, record: str) -> None:
        """Publish this rank's record after the next output, if `connect` has found a store."""
        self._leave_ended_loop()
        self._output += 1
        self._put(record, self._output)

    def publish_end(self, record: str) -> None:
        """Publish this rank's record after the end of a loop, which may come later on other ranks."""
        self._leave_ended_loop()  # a loop may end without outputs
        num_outputs, self._output = self._output, _END
        self._put(record, num_outputs)

    def _leave_ended_loop(self) -> None:
        if self._output == _END:
            self._loop, self._output = self._loop + 1, 0

    def _put(self, record: str, num_outputs: int) -> None:
        if self._store is None or self._failure is not None:
            return
        self._num_published += 1
        key = self._key(self._rank, self._num_published)
        try:
            self._store.set(key, f"{self._loop} {self._output} {num_outputs}\n{record}")
        except RuntimeError as error:
            # Its process has ended. Only a state needs it, and another attempt would take long.
            self._failure = error

    def collect(self, session: Session, record: str) -> dict[int, str]:
        """Return the records of all ranks after the latest output, by rank; this rank's is `record`.

        Raises:
            StateError: If a rank does not reach the output in time, or is too far ahead of it.
        """
        if not self.connect(session):
            return {session.world.rank: record}
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        try:
            return {
                rank: record if rank == self._rank else self._read(rank, deadline)
                for rank in range(session.world.ranks)
            }
        except RuntimeError as error:
            raise StateError(
                f"state_dict(): the store of the process group has no records of other ranks: {error}"
            ) from error

    def connect(self, session: Session) -> bool:
        """Return whether there is a store that all ranks use, and more than one rank, when a loop begins."""
        group: Any = sys.modules.get("torch.distributed")
        placement, world = session.placement, session.world
        owner = None
        # A worker's process group is a copy of the rank's.
        if world.ranks > 1 and group is not None and not placement.worker_loop().ticket:
            owner = group.group.WORLD if group.is_available() else None
        if owner is None or group is None or group.get_world_size() < placement.rank().ranks:
            self._store = None
        elif self._store is None or self._process != os.getpid() or self._owner() is not owner:
            self._store, self._failure = connect_to_store(group), None
            self._process, self._owner = os.getpid(), ref(owner)
            order = json.dumps(session.state_at(0, 0), sort_keys=True, default=str)
            kind = f"{self._kind}/{zlib.crc32(order.encode()):x}"
            self._name = f"streamplug/{kind}/{next_number(owner, kind)}"
        self._rank = world.rank
        return self._store is not None

    def _key(self, rank: int, number: int) -> str:
        return f"{self._name}/{rank}/{number % _NUM_KEPT}"

    def _read(self, rank: int, deadline: float) -> str:
        if self._failure is not None:
            raise self._failure
        place = self._loop, self._output
        while True:
            oldest = (self._loop, self._output + 1)
            # Ranks whose loops had other lengths have published other numbers of records.
            for number in range(_NUM_KEPT):
                key = self._key(rank, self._num_published + number)
                if not self._store.check([key]):
                    oldest = (-1, 0)
                    continue
                value: str = self._store.get(key).decode()
                head, _, record = value.partition("\n")
                loop, output, num_outputs = map(int, head.split())
                has_ended = loop == self._loop and output == _END and num_outputs < self._output
                if (loop, output) == place or has_ended:
                    return record
                oldest = min(oldest, (loop, output))
            if oldest > place:
                raise StateError(
                    f"state_dict(): rank {rank} is {_NUM_KEPT} outputs or more ahead of this one: call it "
                    "after a step that all ranks take together, such as that of the optimizer"
                )
            if time.monotonic() > deadline:
                raise StateError(
                    f"state_dict(): rank {rank} has not reached output {self._output} of loop {self._loop} "
                    f"within {_TIMEOUT_SECONDS:.0f} s: all ranks must read the same loops"
                )
            time.sleep(_POLL_SECONDS)


def connect_to_store(group: Any) -> Any:
    """Return a connection to the store of the process group of all ranks; None without one, as with MPI."""
    get_store: Any = getattr(group.group.WORLD, "get_group_store", None)
    get_store = get_store or getattr(group.distributed_c10d, "_get_default_store", None)
    try:
        store = get_store()
    except (RuntimeError, ValueError):
        return None
    # A connection of its own, from torch 2.8 on: others may hold that of the group while they wait.
    return store.clone() if hasattr(store, "clone") else store


def next_number(owner: Any, kind: str) -> int:
    """Return how many of a kind were opened in a process group, with this one."""
    global _num_opened  # noqa: PLW0603 - ranks that join a new group have opened none
    if _num_opened[0]() is not owner:
        _num_opened = ref(owner), Counter()
    _num_opened[1][kind] += 1
    return _num_opened[1][kind]


def last_position(records: Mapping[int, str]) -> tuple[int, int]:
    """Return the last epoch and step of records, lists in JSON that begin with an epoch and a step."""
    epoch, step = max(tuple(map(int, record[1:].split(",", 2)[:2])) for record in records.values())
    return epoch, step


def join_records(fields: Mapping[str, Any], records: Mapping[int, str]) -> str:
    """Return text of JSON: an object of the fields, and the records by rank as ``ranks``."""
    ranks = ", ".join(f'"{rank}": {record}' for rank, record in records.items())
    return f'{json.dumps(fields)[:-1]}, "ranks": {{{ranks}}}}}'
