"""Names for classes of one's own, without a distribution: for notebooks and private code.

A registration holds in this process and in the loader workers that it starts, under fork and spawn.
"""

from __future__ import annotations

from streamplug.interfaces import (
    Callback,
    Compression,
    Encoding,
    Engine,
    Format,
    ShuffleAlgorithm,
    Storage,
)
from streamplug.plugin.registry import register


def register_encoding(name: str, cls: type[Encoding], *, replace: bool = False) -> None:
    """Let columns use `cls` as encoding `name`.

    Args:
        name: Lower case, no colon.
        cls: The encoding.
        replace: Whether to take the place of an earlier registration or of a plugin's name.

    Raises:
        NameTakenError: If the name is built in, or in use and `replace` is false.
        PluginError: If the name is malformed or the class does not implement the interface.
    """
    register("encoding", name, cls, replace=replace)


def register_compression(name: str, cls: type[Compression], *, replace: bool = False) -> None:
    """Let shards use `cls` as compression `name`; see `register_encoding`."""
    register("compression", name, cls, replace=replace)


def register_storage(name: str, cls: type[Storage], *, replace: bool = False) -> None:
    """Let URLs of scheme `name` go to `cls`; see `register_encoding`."""
    register("storage", name, cls, replace=replace)


def register_format(name: str, cls: type[Format], *, replace: bool = False) -> None:
    """Let shards have format `name`, read and written by `cls`; see `register_encoding`."""
    register("format", name, cls, replace=replace)


def register_shuffle(name: str, cls: type[ShuffleAlgorithm], *, replace: bool = False) -> None:
    """Let data sets be shuffled by algorithm `name`; see `register_encoding`."""
    register("shuffle", name, cls, replace=replace)


def register_callback(name: str, cls: type[Callback], *, replace: bool = False) -> None:
    """Let data sets name `cls` among their `callbacks`; see `register_encoding`."""
    register("callback", name, cls, replace=replace)


def register_engine(name: str, cls: type[Engine], *, replace: bool = False) -> None:
    """Let `write_parts` be told to use engine `name`; see `register_encoding`."""
    register("engine", name, cls, replace=replace)
