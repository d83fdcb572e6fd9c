"""Declarations of the names that plugins provide."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamplug.errors import PluginError

_NAME = re.compile(r"[a-z0-9][a-z0-9._\[\]+-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Provider:
    """A name and its class, which is imported when the name is used.

    Attributes:
        kind: Kind of plugin, such as ``"storage"``.
        name: Name in configs, URLs and indexes: lower case, no colon.
        target: ``"package.module:Class"``.
        aliases: Other names of the same class.

    Raises:
        PluginError: If a name or the target is malformed.
    """

    kind: str
    name: str
    target: str
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.aliases, tuple):
            raise PluginError(f"Provider aliases {self.aliases!r}: expected a tuple of names")
        for name in (self.kind, *self.names):
            check_name(name)
        if not _matches(_TARGET, self.target):
            raise PluginError(f"Provider target {self.target!r}: expected 'package.module:Class'")

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)


def check_name(name: object) -> None:
    """Check the spelling of a plugin's name."""
    if not _matches(_NAME, name):
        raise PluginError(
            f"Provider name {name!r}: use lower-case letters, digits and . _ - + [ ] only"
        )


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
