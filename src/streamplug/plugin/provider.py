"""`Provider`: how a distribution declares the names that it provides."""

from __future__ import annotations

import re
from dataclasses import dataclass

from streamplug.errors import PluginError

_NAME = re.compile(r"[a-z0-9][a-z0-9._\[\]+-]*")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
ANY_SCHEME = "*"
"""Name of a storage of the schemes that no other storage is named by; see `Storage.supports_scheme`."""

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Provider:
    """A name and its class, which is imported when the name is used.

    Declarations are data, so that plugins that are not used cost nothing. Data sets contain names only, as
    the path of a class in data from elsewhere could make a program import any module.

    Attributes:
        kind: Kind of plugin, such as ``"storage"``.
        name: Name in configs, URLs and indexes: lower case, no colon. For a storage, the scheme of its URLs,
            or `ANY_SCHEME`.
        target: ``"package.module:Class"``.
        aliases: Other names of the same class.
        manifest: For a source, the name of the file by which its locations are recognized without a format;
            empty for none.

    Raises:
        PluginError: If a name or the target is malformed.
    """

    kind: str
    name: str
    target: str
    aliases: tuple[str, ...] = ()
    manifest: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.aliases, tuple):
            raise PluginError(f"Provider aliases {self.aliases!r}: expected a tuple of names")
        check_name(self.kind, "")
        for name in self.names:
            check_name(name, self.kind)
        if not _matches(_TARGET, self.target):
            raise PluginError(f"Provider target {self.target!r}: expected 'package.module:Class'")

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)


def check_name(name: object, kind: str) -> None:
    """Check the spelling of a plugin's name, which is the scheme of URLs for a storage."""
    if kind == "storage" and name == ANY_SCHEME:
        return
    if not _matches(_NAME, name):
        raise PluginError(
            f"Provider name {name!r}: use lower-case letters, digits and . _ - + [ ] only"
        )
    # Other URLs would be taken for paths.
    if kind == "storage" and not _matches(_SCHEME, name):
        raise PluginError(
            f"Provider name {name!r}: a storage is named by the scheme of its URLs, which has a letter first "
            "and then lower-case letters, digits and . - + only"
        )


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
