"""Whether a value is what a parameter takes; and the objects that are made of nested mappings."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

from streamplug.config.parameters import REQUIRED, is_section, parameters
from streamplug.config.source import FromEnvironment, joined, plain
from streamplug.errors import ConfigError

_SCALARS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    Path: ((str, Path), "a path"),
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    type(None): (type(None), "null"),
}
"""What is taken for a type, and how errors name it."""

_WORDS = {"true": True, "false": False}
_Members: TypeAlias = "list[Any]"


def members(hint: Any) -> _Members:
    """Return the types of a union; of any other type, itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [each for part in typing.get_args(hint) for each in members(part)]
    return [hint]


def in_files(hint: Any) -> _Members:
    """Return the types of a union that a file can hold."""
    return [each for each in members(hint) if _in_file(each)]


def _in_file(hint: Any) -> bool:
    if hint in _SCALARS or hint is Any or is_section(hint):
        return True
    arguments = [each for each in typing.get_args(hint) if each is not Ellipsis]
    return is_list(hint) or (is_mapping(hint) and all(in_files(argument) for argument in arguments))


def is_list(hint: Any) -> bool:
    """Say whether a type is one of lists."""
    return typing.get_origin(hint) in (Sequence, list, tuple)


def is_mapping(hint: Any) -> bool:
    """Say whether a type is one of mappings."""
    return typing.get_origin(hint) in (Mapping, dict)


def item_hint(hint: Any) -> Any:
    """Return the type of what is in a list."""
    arguments = [each for each in typing.get_args(hint) if each is not Ellipsis]
    return typing.Union[tuple(arguments)]  # noqa: UP007 - of types that are not known here


def fitted(cls: type, given: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return the arguments that a config says for a class.

    Args:
        cls: The class.
        given: Values by the names of its parameters.
        key: Where in the config they are.

    Raises:
        ConfigError: If there is no such parameter, or a value is of another type.
    """
    known = parameters(cls)
    for name in given:
        if name not in known:
            raise ConfigError(f"{joined(key, name)}: no such key{hint_of(str(name), known)}")
    return {name: _fit(value, known[name].hint, joined(key, name)) for name, value in given.items()}


def hint_of(name: str, known: Collection[str]) -> str:
    """Return what to tell whoever has written a name that is not known."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f". Did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(known))}"


def check_required(cls: type, names: Collection[str], key: str) -> None:
    """Refuse a config that lacks what a class cannot do without.

    Raises:
        ConfigError: If there is no value for a parameter that has no default.
    """
    for name, parameter in parameters(cls).items():
        if parameter.default is REQUIRED and name not in names:
            raise ConfigError(f"{joined(key, name)}: missing. It is: {parameter.text}")


def _fit(value: Any, hint: Any, key: str) -> Any:
    for member in _by_keys(value, members(hint)):
        take = _taker(value, member)
        if take is not None:
            return take(value, member, key)
    if isinstance(value, FromEnvironment):
        return _converted(value, hint, key)
    raise _wrong(value, hint, key)


def _by_keys(value: Any, hints: _Members) -> _Members:
    """Return the types of a union, that one first of which a mapping has the most keys."""
    sections = [each for each in hints if is_section(each)]
    if len(sections) < 2 or not isinstance(value, Mapping):
        return hints
    best = max(sections, key=lambda section: len(parameters(section).keys() & value.keys()))
    return [best, *(each for each in hints if each is not best)]


def _taker(value: Any, hint: Any) -> Callable[[Any, Any, str], Any] | None:
    """Return what makes an argument of a value that has the shape of a type; None if it has not."""
    if hint in (Any, object):
        return _as_it_is
    if hint in _SCALARS:
        wanted = _SCALARS[hint][0]
        no_number = isinstance(value, bool) and hint in (int, float)
        return _as_it_is if isinstance(value, wanted) and not no_number else None
    if is_mapping(hint):
        return _mapping if isinstance(value, Mapping) else None
    if is_list(hint):
        if isinstance(value, Mapping) and is_section(item_hint(hint)):
            return _named
        return _list if isinstance(value, (list, tuple)) else None
    if is_section(hint) and isinstance(value, Mapping):
        return _section
    origin = typing.get_origin(hint) or hint
    return _as_it_is if isinstance(origin, type) and isinstance(value, origin) else None


def _as_it_is(value: Any, _: Any, __: str) -> Any:
    return plain(value)


def _mapping(value: Any, hint: Any, key: str) -> Any:
    names, values = typing.get_args(hint)
    return {
        _fit(name, names, joined(key, name)): _fit(each, values, joined(key, name))
        for name, each in value.items()
    }


def _list(value: Any, hint: Any, key: str) -> Any:
    each = item_hint(hint)
    found = [_fit(item, each, f"{key}[{number}]") for number, item in enumerate(value)]
    return tuple(found) if typing.get_origin(hint) is tuple else found


def _named(value: Any, hint: Any, key: str) -> Any:
    """Return a list of objects that have names in the config."""
    return [_fit(each, item_hint(hint), joined(key, name)) for name, each in value.items()]


def _section(value: Any, hint: Any, key: str) -> Any:
    arguments = fitted(hint, value, key)
    check_required(hint, arguments, key)
    try:
        return hint(**arguments)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _converted(value: FromEnvironment, hint: Any, key: str) -> Any:
    """Return text of the environment as what it stands for: a variable has no other types."""
    for member in members(hint):
        try:
            if member is bool and value.lower() in _WORDS:
                return _WORDS[value.lower()]
            if member in (int, float):
                return member(value)
        except ValueError:
            pass
    raise _wrong(value, hint, key)


def _wrong(value: Any, hint: Any, key: str) -> ConfigError:
    shown = value.written if isinstance(value, FromEnvironment) else value
    expected = [_phrase(each) for each in in_files(hint)]
    if not expected or expected == ["null"]:
        return ConfigError(
            f"{key}={shown!r:.80}: a file cannot say it; pass an object to from_config"
        )
    return ConfigError(f"{key}={shown!r:.80}: expected {' or '.join(expected)}")


def _phrase(hint: Any) -> str:
    if hint in _SCALARS:
        return _SCALARS[hint][1]
    return "a list" if is_list(hint) else "a mapping"
