"""Registry of classes of streams by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from streamplug.errors import ConfigError
from streamplug_mosaic.compat.streams import Stream


class TypedRegistry:
    """Classes and functions by name: those of `register`, and those of entry points.

    Args:
        namespace: Names; joined by ``_``, they are the group of the entry points.
        entry_points: Whether to look for entry points.
        description: What the registry is for.

    Attributes:
        namespace: These names.
        entry_points: Whether to look for entry points.
        description: What the registry is for.
    """

    def __init__(
        self, namespace: Sequence[str], entry_points: bool = False, description: str = ""
    ) -> None:
        self.namespace, self.entry_points = tuple(namespace), entry_points
        self.description = description
        self._registered: dict[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.get_all()

    def register(self, name: str, *, func: Any = None) -> Any:
        """Register a class or function; without `func`, return a decorator that registers one."""
        if func is None:
            return partial(self._add, name)
        return self._add(name, func)

    def _add(self, name: str, func: Any) -> Any:
        self._registered[name] = func
        return func

    def get(self, name: str) -> Any:
        """Return what has a name.

        Raises:
            ConfigError: If nothing has it.
        """
        known = self.get_all()
        if name not in known:
            raise ConfigError(f"{name!r} is not registered; known names: {', '.join(known)}")
        return known[name]

    def get_all(self) -> dict[str, Any]:
        """Return all classes and functions by name."""
        points = metadata.entry_points(group="_".join(self.namespace)) if self.entry_points else ()
        return {**self._registered, **{point.name: point.load() for point in points}}


def construct_from_registry(
    name: str,
    registry: TypedRegistry,
    partial_function: bool = True,
    pre_validation_function: Callable[[Any], None] | type | None = None,
    post_validation_function: Callable[[Any], None] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Return what a registered class or function makes.

    Args:
        name: Its name.
        registry: The registry.
        partial_function: Whether a function is not called, but returned with its arguments.
        pre_validation_function: The base class that a class must have, or a function that raises if what is
            registered is invalid.
        post_validation_function: Raises if the result is invalid.
        kwargs: Arguments.

    Raises:
        ConfigError: If there is no such name, it has another base class, or it cannot be called.
    """
    entry = registry.get(name)
    if isinstance(pre_validation_function, type):
        if not issubclass(entry, pre_validation_function):
            raise ConfigError(f"Expected {name} to be of type {pre_validation_function}: {entry}")
    elif pre_validation_function is not None:
        pre_validation_function(entry)
    if not callable(entry):
        raise ConfigError(f"Expected {name} to be a class or function, but got {type(entry)}")
    made = partial(entry, **(kwargs or {}))
    result = made if partial_function and not isinstance(entry, type) else made()
    if post_validation_function is not None:
        post_validation_function(result)
    return result


streams_registry = TypedRegistry(
    ("streaming", "streams_registry"),
    entry_points=True,
    description="Classes of streams, for stream_name= of a data set.",
)
"""Classes of streams."""
streams_registry.register("stream", func=Stream)
