"""Registration of classes without a distribution, for notebooks and private code.

A registration is valid in this process and in its loader workers, with both fork and spawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

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

_Interface_contra = TypeVar("_Interface_contra", contravariant=True)
_Class = TypeVar("_Class", bound=type[Any])


class RegisterFunction(Protocol[_Interface_contra]):
    """A function that registers subclasses of an interface, or decorates them."""

    @overload
    def __call__(
        self, name: str, cls: type[_Interface_contra], *, replace: bool = False
    ) -> None: ...
    @overload
    def __call__(self, name: str, *, replace: bool = False) -> Callable[[_Class], _Class]: ...


def _register_function(kind: str, summary: str) -> Any:
    def register_class(name: str, cls: Any = None, *, replace: bool = False) -> Any:
        def decorate(decorated: Any) -> Any:
            register(kind, name, decorated, replace=replace)
            return decorated

        if cls is None:
            return decorate
        decorate(cls)
        return None

    register_class.__name__ = register_class.__qualname__ = f"register_{kind}"
    register_class.__doc__ = f"""{summary}

    Args:
        name: Lower case, no colon.
        cls: The class; without it, the function is a decorator: ``@register_{kind}("mine")``.
        replace: Whether to replace an earlier registration or a plugin of the name.

    Raises:
        NameTakenError: If the name is built in, or in use and `replace` is false.
        PluginError: If the name is malformed or the class does not implement the interface.
    """
    return register_class


register_callback: RegisterFunction[Callback] = _register_function(
    "callback", "Register a callback for the `callbacks` of data sets."
)
register_compression: RegisterFunction[Compression] = _register_function(
    "compression", "Register a compression of shards."
)
register_encoding: RegisterFunction[Encoding] = _register_function(
    "encoding", "Register an encoding of columns."
)
register_engine: RegisterFunction[Engine] = _register_function(
    "engine", "Register an engine for `write_parts`."
)
register_format: RegisterFunction[Format] = _register_function(
    "format", "Register a format of shards."
)
register_shuffle: RegisterFunction[ShuffleAlgorithm] = _register_function(
    "shuffle", "Register a shuffle algorithm."
)
register_storage: RegisterFunction[Storage] = _register_function(
    "storage", "Register a storage for the URLs of a scheme."
)
