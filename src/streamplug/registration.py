"""Names for classes of one's own, without a distribution: for notebooks and private code.

A registration holds in this process and in the loader workers that it starts, under fork and spawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

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

# One of each, so that a decorated class stays what it is.
_Encoding = TypeVar("_Encoding", bound=type[Encoding])
_Compression = TypeVar("_Compression", bound=type[Compression])
_Storage = TypeVar("_Storage", bound=type[Storage])
_Format = TypeVar("_Format", bound=type[Format])
_ShuffleAlgorithm = TypeVar("_ShuffleAlgorithm", bound=type[ShuffleAlgorithm])
_Callback = TypeVar("_Callback", bound=type[Callback])
_Engine = TypeVar("_Engine", bound=type[Engine])


@overload
def register_encoding(name: str, cls: type[Encoding], *, replace: bool = False) -> None: ...
@overload
def register_encoding(name: str, *, replace: bool = False) -> Callable[[_Encoding], _Encoding]: ...
def register_encoding(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let columns use `cls` as encoding `name`.

    Args:
        name: Lower case, no colon.
        cls: The encoding; without it, this is a decorator of the class: ``@register_encoding("mine")``.
        replace: Whether to take the place of an earlier registration or of a plugin's name.

    Raises:
        NameTakenError: If the name is built in, or in use and `replace` is false.
        PluginError: If the name is malformed or the class does not implement the interface.
    """
    return _registered("encoding", name, cls, replace=replace)


@overload
def register_compression(name: str, cls: type[Compression], *, replace: bool = False) -> None: ...
@overload
def register_compression(
    name: str, *, replace: bool = False
) -> Callable[[_Compression], _Compression]: ...
def register_compression(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let shards use `cls` as compression `name`; see `register_encoding`."""
    return _registered("compression", name, cls, replace=replace)


@overload
def register_storage(name: str, cls: type[Storage], *, replace: bool = False) -> None: ...
@overload
def register_storage(name: str, *, replace: bool = False) -> Callable[[_Storage], _Storage]: ...
def register_storage(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let URLs of scheme `name` go to `cls`; see `register_encoding`."""
    return _registered("storage", name, cls, replace=replace)


@overload
def register_format(name: str, cls: type[Format], *, replace: bool = False) -> None: ...
@overload
def register_format(name: str, *, replace: bool = False) -> Callable[[_Format], _Format]: ...
def register_format(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let shards have format `name`, read and written by `cls`; see `register_encoding`."""
    return _registered("format", name, cls, replace=replace)


@overload
def register_shuffle(name: str, cls: type[ShuffleAlgorithm], *, replace: bool = False) -> None: ...
@overload
def register_shuffle(
    name: str, *, replace: bool = False
) -> Callable[[_ShuffleAlgorithm], _ShuffleAlgorithm]: ...
def register_shuffle(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let data sets be shuffled by algorithm `name`; see `register_encoding`."""
    return _registered("shuffle", name, cls, replace=replace)


@overload
def register_callback(name: str, cls: type[Callback], *, replace: bool = False) -> None: ...
@overload
def register_callback(name: str, *, replace: bool = False) -> Callable[[_Callback], _Callback]: ...
def register_callback(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let data sets name `cls` among their `callbacks`; see `register_encoding`."""
    return _registered("callback", name, cls, replace=replace)


@overload
def register_engine(name: str, cls: type[Engine], *, replace: bool = False) -> None: ...
@overload
def register_engine(name: str, *, replace: bool = False) -> Callable[[_Engine], _Engine]: ...
def register_engine(name: str, cls: Any = None, *, replace: bool = False) -> Any:
    """Let `write_parts` be told to use engine `name`; see `register_encoding`."""
    return _registered("engine", name, cls, replace=replace)


def _registered(kind: str, name: str, cls: Any, *, replace: bool) -> Any:
    def take(given: Any) -> Any:
        register(kind, name, given, replace=replace)
        return given

    if cls is None:
        return take
    take(cls)
    return None
