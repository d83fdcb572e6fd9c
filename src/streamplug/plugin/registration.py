"""`register_encoding` and the like: classes without a distribution, for notebooks and private code.

A registration is valid in this process and in its loader workers, with both fork and spawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from streamplug.errors import PluginError
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

_Interface = TypeVar("_Interface")
_Class = TypeVar("_Class", bound=type[Any])


class RegisterFunction(Generic[_Interface]):
    """A function that registers subclasses of an interface, or decorates them."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.__name__ = f"register_{kind}"

    @overload
    def __call__(self, name: str, cls: type[_Interface], *, replace: bool = False) -> None: ...

    @overload
    def __call__(self, name: str, *, replace: bool = False) -> Callable[[_Class], _Class]: ...

    def __call__(self, name: Any, cls: Any = None, *, replace: bool = False) -> Any:
        """Register a class under a name.

        Args:
            name: Lower case, no colon.
            cls: The class; without it, the function is a decorator: ``@register_storage("mine")``.
            replace: Whether to replace an earlier registration or a plugin of the name.

        Raises:
            NameTakenError: If the name is built in, or in use and `replace` is false.
            PluginError: If the name is malformed or the class does not implement the interface.
        """
        if not isinstance(name, str):  # as with a decorator without the name
            raise PluginError(
                f'{self.__name__} takes a name first, such as @{self.__name__}("mine"); got {name!r:.80}'
            )

        def decorate(decorated: Any) -> Any:
            register(self._kind, name, decorated, replace=replace)
            return decorated

        return decorate if cls is None else register(self._kind, name, cls, replace=replace)


register_callback = RegisterFunction[Callback]("callback")
register_compression = RegisterFunction[Compression]("compression")
register_encoding = RegisterFunction[Encoding]("encoding")
register_engine = RegisterFunction[Engine]("engine")
register_format = RegisterFunction[Format]("format")
register_shuffle = RegisterFunction[ShuffleAlgorithm]("shuffle")
register_storage = RegisterFunction[Storage]("storage")
