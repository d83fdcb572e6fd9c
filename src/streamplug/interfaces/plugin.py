"""`Plugin`: base class of the interfaces whose objects are made from a spec, such as `zstd:7`."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar

from streamplug.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


class Plugin(ABC):  # noqa: B024 - the abstract methods are those of the interfaces
    """An object that is made from a spec: a name, or a name and an argument after a colon.

    Attributes:
        api_version: Version of the interface that a subclass implements.
    """

    api_version: ClassVar[int] = 1

    @classmethod
    def from_spec(cls, argument: str | None) -> Self:
        """Return the object for the argument in a spec.

        Args:
            argument: ``"float32:2,3"`` for ``"ndarray:float32:2,3"``; None for a bare name.

        Raises:
            ConfigError: If the argument is invalid; the default accepts none.
        """
        if argument is not None:
            raise ConfigError(f"{cls.__name__} takes no argument, got {argument!r}")
        return cls()
