"""`from_config`: objects from a mapping or a configuration file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeVar

from streamplug.config.config_file import Source, join_key, load, refused_value_error
from streamplug.config.signatures import has_any_keywords, parameters
from streamplug.config.validation import suggest_keywords, suggest_name, validate_arguments
from streamplug.errors import ConfigError, UnknownKeywordError, prefix_errors

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
        init = cls.__dict__.get("__init__")
        if init and (section is not None or not has_any_keywords(inspect.signature(init))):
            suggest_keywords(cls)

    @classmethod
    def from_config(cls: type[C], config: Source, **more: Any) -> C:  # noqa: PYI019 - Python 3.10
        """Construct an object from a configuration, of a subclass if a distribution has one for a key of it.

        Args:
            config: A mapping, or the path of a TOML, YAML or JSON file. Its keys are parameter names, or
                sections of which that of this class is used.
            **more: Arguments that override those of the configuration, such as functions, which a file
                cannot hold. For the object of another section, such as `dataset` of a loader, a mapping
                overrides single arguments of it.

        Raises:
            ConfigError: If a key is unknown or in a distribution that is not installed, a value has the
                wrong type, or as for the constructor.
        """
        whole = load(config)
        with _naming_file(config):
            return _construct(cls, whole, more)

    @classmethod
    def check_config(cls, config: Source) -> None:
        """Validate the keys and types of a configuration, constructing only nested objects.

        Args:
            config: As for `from_config`.

        Raises:
            ConfigError: If a key is unknown, or a value has the wrong type.
        """
        whole = load(config)
        with _naming_file(config):
            section, key = _section(cls, whole)
            described = configured_class(cls, whole)
            names = {*section, *(_nested_classes(described).keys() & whole.keys())}
            validate_arguments(described, section, key, names)


def _naming_file(config: Source) -> AbstractContextManager[None]:
    """Return what prefixes errors with the file of a configuration, if it is of one."""
    if isinstance(config, Mapping):
        return nullcontext()
    return prefix_errors(f"config {os.fspath(config)}", ConfigError)


def configured_class(
    cls: type[C], whole: dict[str, Any], overrides: Collection[str] = ()
) -> type[C]:
    """Return the class that a configuration describes: this one, or a subclass that has one of its keys.

    Such as ``tokens``, by which the section ``dataset`` describes rows of tokens. Distributions declare keys
    and classes by entry points of the group ``streamplug.sections``.

    Args:
        cls: Class of the section.
        whole: The configuration, as `load` returns it.
        overrides: Names of arguments that are passed besides.

    Raises:
        ConfigError: If the distribution of the subclass is not installed or cannot be imported, or the class
            that it has for a key is no subclass of this one.
    """
    from streamplug.plugin import (
        load_section,
    )  # reading and writing without a config look for no plugins

    section, key = _section(cls, whole)
    for name in {**section, **dict.fromkeys(overrides)} if cls.config_section else ():
        if name in parameters(cls):
            continue
        path = join_key(key, name)
        try:
            found = load_section(f"{cls.config_section}.{name}", path)
        except ImportError as error:
            raise ConfigError(
                str(error) if str(error).startswith(path) else f"{path}: {error}"
            ) from error
        if found is None:
            continue
        if not issubclass(found, cls):
            raise ConfigError(
                f"{path}: a key of {found.__name__}, which {cls.__name__} is not; derive it from that"
            )
        subclass: type[C] = found
        return subclass
    return cls


def _construct(cls: type[C], whole: dict[str, Any], overrides: Mapping[str, Any]) -> C:
    section, key = _section(cls, whole)
    cls = configured_class(cls, whole, overrides)
    values = {name: value for name, value in section.items() if name not in overrides}
    names = {*section, *overrides, *(_nested_classes(cls).keys() & whole.keys())}
    arguments = {**validate_arguments(cls, values, key, names), **overrides}
    for name, nested in _nested_classes(cls).items():
        more = arguments.get(name, {})
        if (name in whole or name in overrides) and isinstance(more, Mapping):
            arguments[name] = _construct(nested, {name: whole.get(name, {})}, more)
    try:
        with prefix_errors(key, ConfigError) if key else nullcontext():
            return cls(**arguments)
    except UnknownKeywordError:
        _check_nested_overrides(cls, overrides)
        raise


def _check_nested_overrides(cls: type[Configurable], overrides: Mapping[str, Any]) -> None:
    """Raise `UnknownKeywordError` for an argument that the class of another section has."""
    for name in overrides.keys() - parameters(cls).keys():
        for section, nested in _nested_classes(cls).items():
            if name in parameters(nested):
                raise UnknownKeywordError(
                    f"{cls.__name__}.from_config({name}=…): an argument of {nested.__name__}; pass "
                    f"{section}={{{name!r}: …}}"
                ) from None


def _nested_classes(cls: type) -> dict[str, type[Configurable]]:
    """Return the classes of the parameters that other sections may configure, by name."""
    hints = {name: parameters(cls)[name].hint for name in SECTIONS if name in parameters(cls)}
    return {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, Configurable) and hint.config_section == name
    }


def _section(cls: type[Configurable], whole: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the section of a class, and its key."""
    if not cls.config_section or not any(name in whole for name in SECTIONS):
        return whole, ""
    for name in whole:
        if name not in (*SECTIONS, "$schema"):
            raise ConfigError(f"{name}: no such section{suggest_name(str(name), SECTIONS)}")
    section = whole.get(cls.config_section, {})
    if not isinstance(section, dict):
        raise refused_value_error(section, cls.config_section, "expected a mapping")
    return section, cls.config_section
