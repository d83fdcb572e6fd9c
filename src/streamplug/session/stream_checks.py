"""Checks of stream options that need no access to the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamplug.errors import ConfigError
from streamplug.index.hashes import hash_names


def check_stream_values(
    validate_hash: str | None,
    storage_options: Any,
    decoders: Any,
) -> None:
    """Raise `ConfigError` if an option has the wrong type, or there is no such hash."""
    if validate_hash not in (None, *hash_names()):
        raise ConfigError(
            f"validate_hash={validate_hash!r:.60}: unknown hash; available: "
            f"{', '.join(hash_names())}"
        )
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise ConfigError(  # without its value, which may be secret
            "storage_options: expected a mapping of names to values, got "
            f"{type(storage_options).__name__}"
        )
    if decoders is not None and not isinstance(decoders, Mapping):
        raise ConfigError(
            f"decoders={decoders!r:.60}: expected a decoder by name of each column, in a dict"
        )
    for column, decoder in (decoders or {}).items():
        if decoder is not None and not callable(decoder):
            raise ConfigError(
                f"decoders={{{column!r}: …}}: expected a decoder, got {type(decoder).__name__}"
            )
