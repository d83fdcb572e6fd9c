"""Transaction logs of Delta tables: the actions that make up a version.

The source is the protocol of Delta Lake, https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamplug_parquet.metadata_tables import read_row_groups

from streamplug.errors import ConfigError, CorruptShardError, DataError, NotFound
from streamplug.interfaces import Storage
from streamplug.plugin_kit import parsing
from streamplug.transfer import call_with_retries, map_threads
from streamplug_delta.log_checks import Action, check_fields

LOG_FOLDER = "_delta_log/"
_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(
    r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)
_ACTIONS = ("add", "remove", "metaData", "protocol", "sidecar")
_MAX_READS_IN_FLIGHT = 16
_ROWS_PER_BATCH = 1000

READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
"""Features that a reader must know if the table has them; those of writers do not matter."""


@dataclass
class TableState:
    """The state of a table at one version.

    Attributes:
        version: The version.
        metadata: The last action ``metaData``.
        protocol: The last action ``protocol``.
        adds: Actions ``add`` of the files of the table, by path and id of the deletion vector.
    """

    version: int
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    adds: dict[tuple[str, str], Action] = field(default_factory=dict)

    @property
    def ordered_adds(self) -> list[Action]:
        """The actions ``add`` by time and path, the order of samples."""
        adds = self.adds.values()
        return sorted(adds, key=lambda add: (add.get("modificationTime") or 0, add["path"]))

    def apply(self, actions: Iterable[Action]) -> None:
        """Apply the actions of one commit."""
        added = {}
        for action in actions:
            if (remove := action.get("remove")) is not None:
                self.adds.pop(_key_of(remove), None)
            elif (add := action.get("add")) is not None:
                added[_key_of(add)] = add
            elif (metadata := action.get("metaData")) is not None:
                self.metadata = metadata
            elif (protocol := action.get("protocol")) is not None:
                self.protocol = protocol
        self.adds.update(added)


def _key_of(action: Action) -> tuple[str, str]:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    return action[
        "path"
    ], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


class DeltaLog:
    """The log of a table."""

    def __init__(self, storage: Storage, retries: int) -> None:
        """List the log below the location of the table.

        Raises:
            NotFound: If there is no log.
        """
        self._storage, self._retries = storage, retries
        self._commits: dict[int, str] = {}
        checkpoints: defaultdict[int, dict[tuple[str, ...], list[str]]] = defaultdict(dict)
        for info in call_with_retries(lambda: list(storage.list(LOG_FOLDER)), retries):
            name = info.key.removeprefix(LOG_FOLDER)
            if match := _COMMIT.fullmatch(name):
                self._commits[int(match[1])] = info.key
            elif match := _CHECKPOINT.fullmatch(name):
                kind = (match[3],) if match[3] else (name,)
                checkpoints[int(match[1])].setdefault(kind, []).append(info.key)
        self._checkpoints = {
            version: keys
            for version, kinds in checkpoints.items()
            for (kind,), keys in kinds.items()
            if not kind.isdigit() or len(keys) == int(kind)  # else a part is still missing
        }
        if not self._commits and not self._checkpoints:
            raise NotFound(
                f"{storage.url}: there is no {LOG_FOLDER} of a Delta table; check remote= and split="
            )

    @property
    def latest(self) -> int:
        """The latest version."""
        return max([*self._commits, *self._checkpoints])

    def read(self, version: int | None) -> TableState:
        """Return the state at a version; None for the latest.

        Raises:
            ConfigError: If there is no such version, or not any more.
            DataError: If the log is damaged, or of a protocol that is not supported.
        """
        wanted = self.latest if version is None else version
        url = self._storage.url
        if wanted > self.latest:
            raise ConfigError(f"version={version}: the latest version of {url} is {self.latest}")
        start = max((v for v in self._checkpoints if v <= wanted), default=-1)
        # The first that is missing: versions of a damaged log may be far apart.
        missing = next((v for v in range(start + 1, wanted + 1) if v not in self._commits), None)
        if missing is not None:
            raise ConfigError(
                f"version {wanted} of {url} cannot be read: commit {missing} is not in {LOG_FOLDER} any "
                "more; name a later version"
            )
        state = TableState(wanted)
        keys = [self._commits[v] for v in range(start + 1, wanted + 1)]
        if start >= 0:
            with parsing(self._storage.url_of(self._checkpoints[start][0])):
                state.apply(self._read_checkpoint(self._checkpoints[start]))
        for key, data in zip(keys, map_threads(self._read, keys, _MAX_READS_IN_FLIGHT)):
            with parsing(self._storage.url_of(key)):
                state.apply(self._parse_lines(key, data))
        if not state.metadata or not state.protocol:
            raise DataError(f"{url}, version {wanted}: the log has no metaData or no protocol")
        with parsing(f"{url}, version {wanted}: the log"):
            # First, as newer versions of the protocol may have other fields.
            check_fields("protocol", state.protocol)
            _check_protocol(state.protocol, url)
            check_fields("metaData", state.metadata)
            for add in state.adds.values():
                check_fields("add", add)
        return state

    def _read(self, key: str) -> bytes:
        return call_with_retries(lambda: self._storage.read(key), self._retries)

    def _parse_lines(self, key: str, data: bytes) -> list[Action]:
        try:
            actions = [json.loads(line) for line in data.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self._storage.url_of(key)} is damaged: {error}") from None
        if not all(isinstance(action, dict) for action in actions):
            raise DataError(f"{self._storage.url_of(key)} is damaged: a line is not an object")
        return actions

    def _read_checkpoint(self, keys: Sequence[str]) -> Iterator[Action]:
        sidecars = []
        for action in self._read_actions(keys):
            if (sidecar := action.get("sidecar")) is not None:
                sidecars.append(f"{LOG_FOLDER}_sidecars/{sidecar['path'].rpartition('/')[2]}")
            else:
                yield action
        yield from self._read_actions(sidecars)

    def _read_actions(self, keys: Sequence[str]) -> Iterator[Action]:
        for key, data in zip(keys, map_threads(self._read, keys, _MAX_READS_IN_FLIGHT)):
            parse = self._parse_lines if key.endswith(".json") else self._parse_rows
            yield from parse(key, data)

    def _parse_rows(self, key: str, data: bytes) -> Iterator[Action]:
        try:
            with parsing(self._storage.url_of(key)):
                for table in read_row_groups(data, _ACTIONS):
                    for batch in table.to_batches(max_chunksize=_ROWS_PER_BATCH):
                        for row in batch.to_pylist():
                            yield {name: _plain(v) for name, v in row.items() if v is not None}
        except CorruptShardError as error:
            raise DataError(f"{self._storage.url_of(key)} is damaged: {error}") from error


def _plain(value: Any) -> Any:
    """Return an action of a checkpoint with maps as dicts, as in JSON."""
    maps = ("partitionValues", "configuration", "options", "tags")
    return {k: dict(v) if k in maps and v is not None else v for k, v in value.items()}


def _check_protocol(protocol: Action, url: str) -> None:
    version = protocol.get("minReaderVersion", 0)
    unknown = set(protocol.get("readerFeatures") or ()) - READER_FEATURES
    if version > 3 or unknown:
        what = f"the features {sorted(unknown)}" if unknown else f"version {version} of readers"
        raise DataError(f"{url}: this table needs {what}, which are not supported")
