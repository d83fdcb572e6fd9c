"""The types that the fields of a log's actions must have, whatever its text or Parquet says.

The source is the protocol of Delta Lake, https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Action = Mapping[str, Any]

_NONE = type(None)
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "add": {
        "path": (str,),
        "size": (int,),
        "modificationTime": (int, _NONE),
        "partitionValues": (dict, _NONE),
        "stats": (str, _NONE),
        "stats_parsed": (dict, _NONE),
        "deletionVector": (dict, _NONE),
    },
    "metaData": {
        "schemaString": (str,),
        "configuration": (dict, _NONE),
        "partitionColumns": (list, _NONE),
    },
    "protocol": {"minReaderVersion": (int,), "readerFeatures": (list, _NONE)},
    "statistics": {
        "numRecords": (int, _NONE),
        "nullCount": (dict, _NONE),
        "minValues": (dict, _NONE),
        "maxValues": (dict, _NONE),
    },
}
_COUNTS = ("size", "numRecords")
_COUNT_LIMIT = 1 << 63


def check_fields(kind: str, action: Any) -> None:
    """Check those fields of an action, or of the statistics of a file, that are used.

    Raises:
        TypeError: If a field has another type.
        ValueError: If a count is negative, or 2**63 or more.
    """
    if not isinstance(action, dict):
        raise TypeError(f"{kind} is {action!r:.40}, not an object")
    for name, types in _FIELDS[kind].items():
        value = action.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise TypeError(f"{name} of {kind} is {value!r:.40}")
        if name in _COUNTS and isinstance(value, int) and not 0 <= value < _COUNT_LIMIT:
            raise ValueError(f"{name} of {kind} is {value!r:.40}")
    if kind == "add":
        for text in (action.get("partitionValues") or {}).values():
            if not isinstance(text, (str, _NONE)):
                raise TypeError(f"a value in partitionValues is {text!r:.40}")
