"""Lists of archives and their numbers of samples, of wids and of Megatron-Energon.

A list of wids (``widsindex create``) is JSON: ``{"wids_version": 1, "shardlist": [{"url", "nsamples",
"filesize", "md5sum"}, …], "base", …}``, or has several such lists under ``"datasets"``. A list of Energon
(``energon prepare``) is ``.nv-meta/.info.json``, formerly ``.info.yaml``: ``{"shard_counts": {path: samples,
…}}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from streamplug_files import FileListEntry

from streamplug.errors import ConfigError, InvalidIndexError, TruncatedIndexError
from streamplug.plugin import is_url, join

WIDS_LIST = "shardindex.json"
ENERGON_LISTS = (".nv-meta/.info.json", ".nv-meta/.info.yaml")


def listed_files(name: str, content: bytes) -> list[FileListEntry] | None:
    """Parse a list; None if it is of neither kind.

    Args:
        name: Path of the list below the directory of the data set.
        content: Content of the list.

    Raises:
        ConfigError: If the list needs another format.
        InvalidIndexError: If the list is damaged.
    """
    try:
        said = _yaml(content) if name.endswith(".yaml") else json.loads(content)
    except (ValueError, RecursionError) as error:
        if name in (WIDS_LIST, *ENERGON_LISTS):
            is_json = isinstance(error, json.JSONDecodeError)
            kind = TruncatedIndexError if is_json else InvalidIndexError
            raise kind(f"it is damaged: {error!s:.200}") from error
        return None
    if name in ENERGON_LISTS:
        return list(_energon(said))
    if isinstance(said, dict) and "wids_version" in said:
        return list(_wids(said))
    if isinstance(said, dict) and "shard_counts" in said:
        raise ConfigError(
            "lists of Megatron-Energon are found by format='webdataset:idx' and the directory of .nv-meta"
        )
    return None


def _wids(said: dict[str, Any]) -> Iterator[FileListEntry]:
    if said["wids_version"] != 1:
        raise InvalidIndexError(f"wids_version {said['wids_version']!r:.40}, expected 1")
    yield from _shards(said)
    for number, part in enumerate(_typed(said.get("datasets", []), list, "datasets")):
        _typed(part, dict, f"datasets[{number}]")
        if "source_url" in part:
            raise ConfigError(
                f"datasets[{number}] is a list elsewhere, {part['source_url']!r:.200}: give each list a "
                "stream of its own in streams="
            )
        yield from _shards(part)


def _shards(said: dict[str, Any]) -> Iterator[FileListEntry]:
    base = _typed(said.get("base") or "", str, "base")
    for number, shard in enumerate(_typed(said.get("shardlist", []), list, "shardlist")):
        what = f"shardlist[{number}]"
        url = _typed(_typed(shard, dict, what).get("url"), str, f"{what}.url")
        size = shard.get("filesize")
        yield FileListEntry(
            url if not base or is_url(url) or url.startswith("/") else join(base, url),
            _count(shard.get("nsamples"), f"{what}.nsamples"),
            None if size is None else _count(size, f"{what}.filesize"),
        )


def _energon(said: Any) -> Iterator[FileListEntry]:
    counts = _typed(said, dict, "all of it").get("shard_counts")
    for name, samples in _typed(counts, dict, "shard_counts").items():
        yield FileListEntry(
            _typed(name, str, "a name in shard_counts"), _count(samples, f"{name!r:.200}")
        )


def _typed(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidIndexError(f"{what} is {value!r:.80}, expected a {kind.__name__}")
    return value


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidIndexError(f"{what} is {value!r:.80}, expected a number of 0 or more")
    return value


def _yaml(content: bytes) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError("YAML needs PyYAML: pip install 'streamplug[yaml]'") from None

    class Loader(yaml.SafeLoader):
        """A loader without aliases, by which a few bytes can stand for any number of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("an alias (*), which a list of archives does not need")
            return super().compose_node(parent, index)

    try:
        return yaml.load(content, Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
