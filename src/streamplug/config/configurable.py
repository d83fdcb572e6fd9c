"""Construction of objects from configuration files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from streamplug.config.config_file import Source, load
from streamplug.config.keywords import check_keywords, has_fixed_keywords, suggest_keywords
from streamplug.config.parameters import parameters
from streamplug.config.validation import check_required, suggest_name, validate_arguments
from streamplug.errors import ConfigError

C = TypeVar("C", bound="Configurable")

SECTIONS = ("dataset", "loader", "writer")
"""Top-level keys of a configuration of several classes."""


class Configurable:
    """A class that can be constructed from a configuration, or from its section `config_section`."""

    config_section: ClassVar[str] = ""

    def __init_subclass__(cls, *, section: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if section is not None:
            cls.config_section = section
        # Other constructors may remove keywords of their own from **kwargs, so they are not checked.
        if "__init__" in cls.__dict__ and (section is not None or has_fixed_keywords(cls)):
            suggest_keywords(cls)

    if not TYPE_CHECKING:  # for types, the arguments are those of the constructor

        def __new__(cls, *_: Any, **kwargs: Any) -> Any:
            """Check keywords of dataclasses, whose constructors are created after `__init_subclass__`."""
            if kwargs and is_dataclass(cls):
                check_keywords(cls, kwargs)
            return super().__new__(cls)

    @classmethod
    def from_config(cls: type[C], config: Source, **more: Any) -> C:  # noqa: PYI019 - Python 3.10
        """Construct an object from a configuration.

        Args:
            config: A mapping, or the path of a TOML, YAML or JSON file. Its keys are parameter names, or
                sections of which that of this class is used.
            **more: Arguments that override those of the configuration, such as functions, which a file
                cannot hold.

        Raises:
            ConfigError: If a key is unknown, a value has the wrong type, or as for the constructor.
        """
        return _made(cls, load(config), more)

    @classmethod
    def check_config(cls, config: Source) -> None:
        """Validate the keys and types of a configuration, constructing only nested objects.

        Args:
            config: As for `from_config`.

        Raises:
            ConfigError: If a key is unknown, or a value has the wrong type.
        """
        whole = load(config)
        given, key = _about(cls, whole)
        needed = {name for name in parameters(cls) if _of_section(cls, name, whole) is not None}
        check_required(cls, {*validate_arguments(cls, given, key), *needed}, key)


def _made(cls: type[C], whole: dict[str, Any], more: Mapping[str, Any]) -> C:
    given, key = _about(cls, whole)
    arguments = {
        **validate_arguments(cls, {k: v for k, v in given.items() if k not in more}, key),
        **more,
    }
    for name in parameters(cls):
        other = _of_section(cls, name, whole)
        if other is not None and name not in arguments:
            arguments[name] = _made(other, whole, {})
    check_required(cls, arguments, key)
    return cls(**arguments)


def _of_section(cls: type, name: str, whole: Mapping[str, Any]) -> type[Configurable] | None:
    """Return the class of a parameter that another section configures, or None."""
    hint = parameters(cls)[name].hint
    other = (
        isinstance(hint, type) and issubclass(hint, Configurable) and hint.config_section == name
    )
    return hint if other and name in whole else None


def _about(cls: type[Configurable], whole: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the section of a class, and its key."""
    if not cls.config_section or not any(name in whole for name in SECTIONS):
        return whole, ""
    for name in whole:
        if name not in (*SECTIONS, "$schema"):
            raise ConfigError(f"{name}: no such section{suggest_name(str(name), SECTIONS)}")
    given = whole.get(cls.config_section, {})
    if not isinstance(given, dict):
        raise ConfigError(f"{cls.config_section}={given!r:.80}: expected a mapping")
    return given, cls.config_section
