"""Checks of keywords and of configuration values by the parameters of a class, with suggestions."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast

from streamplug.config.config_file import (
    FromEnvironment,
    join_key,
    refused_value_error,
    to_plain,
)
from streamplug.config.signatures import (
    REQUIRED,
    constructors,
    has_any_keywords,
    is_section,
    parameters,
)
from streamplug.errors import ConfigError, UnknownKeywordError, prefix_errors

_SCALARS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    Path: ((str, Path), "a path"),
    bool: (bool, "true or false"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    type(None): (type(None), "null"),
}
"""Accepted classes of a type, and its name in errors."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "false": False}
C = TypeVar("C", bound=Callable[..., Any])


def union_members(hint: Any) -> list[Any]:
    """Return the members of a union; for another type, the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [item for part in typing.get_args(hint) for item in union_members(part)]
    return [hint]


def file_types(hint: Any) -> list[Any]:
    """Return the members of a union that a file can represent."""
    return [item for item in union_members(hint) if _in_file(item)]


def _in_file(hint: Any) -> bool:
    if hint in _SCALARS or hint is Any or is_section(hint):
        return True
    arguments = [item for item in typing.get_args(hint) if item is not Ellipsis]
    return is_list(hint) or (
        is_mapping(hint) and all(file_types(argument) for argument in arguments)
    )


def is_list(hint: Any) -> bool:
    """Return whether a type is a list type."""
    return typing.get_origin(hint) in (Sequence, list, tuple)


def is_mapping(hint: Any) -> bool:
    """Return whether a type is a mapping type."""
    return typing.get_origin(hint) in (Mapping, dict)


def item_hint(hint: Any) -> Any:
    """Return the item type of a list type."""
    arguments = [item for item in typing.get_args(hint) if item is not Ellipsis]
    return typing.Union[tuple(arguments)]  # noqa: UP007 - a runtime union


class Mistakes:
    """Errors of a configuration that are raised together, so that one run tells all of them."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error that is raised in the block."""
        try:
            yield
        except ConfigError as error:
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise the errors, if there are any.

        Raises:
            ConfigError: The only error, or one with the messages of all.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ConfigError("; also ".join(map(str, self._errors)))


def validate_arguments(
    cls: type, values: Mapping[str, Any], key: str, names: Collection[str]
) -> dict[str, Any]:
    """Validate and convert the arguments of a class from a configuration.

    Args:
        cls: Class with the parameters.
        values: Values by parameter name.
        key: Path of the values in the configuration.
        names: Parameters that have a value, from there or elsewhere.

    Raises:
        ConfigError: If keys are unknown, values have the wrong type, or required parameters have none; the
            message names all of them.
    """
    known, mistakes = parameters(cls), Mistakes()
    arguments = {}
    for name, value in values.items():
        path = join_key(key, name)
        with mistakes.collected():
            if name not in known:
                raise ConfigError(f"{path}: no such key{suggest_name(str(name), known)}")
            arguments[name] = _validate(value, known[name].hint, path)
    for name, parameter in known.items():
        with mistakes.collected():
            if parameter.default is REQUIRED and name not in names:
                raise ConfigError(f"{join_key(key, name)}: missing. It is: {parameter.text}")
    mistakes.raise_all()
    return arguments


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name: the nearest name, or all of them."""
    matches = difflib.get_close_matches(name, known, 1, 0.6)
    return (
        f". Did you mean {matches[0]!r}?" if matches else f"; there are {', '.join(sorted(known))}"
    )


def _validate(value: Any, hint: Any, key: str) -> Any:
    members = union_members(hint)
    # Before str: an environment variable is always text.
    if isinstance(value, FromEnvironment) and int in members and _INTEGER.fullmatch(value):
        return _parse_environment(value, int, key)
    for member in _best_section_first(value, members):
        convert = _find_converter(value, member)
        if convert is not None:
            return convert(value, member, key)
    if isinstance(value, FromEnvironment):
        return _parse_environment(value, hint, key)
    raise _type_error(value, hint, key)


def _best_section_first(value: Any, hints: list[Any]) -> list[Any]:
    """Return the members of a union, starting with the dataclass that shares most keys with a mapping."""
    sections = [item for item in hints if is_section(item)]
    if len(sections) < 2 or not isinstance(value, Mapping):
        return hints
    best = max(sections, key=lambda section: len(parameters(section).keys() & value.keys()))
    return [best, *(item for item in hints if item is not best)]


def _find_converter(value: Any, hint: Any) -> Callable[[Any, Any, str], Any] | None:
    """Return the function that converts a value to a type; None if the value does not match it."""
    if hint in (Any, object):
        return _keep_value
    if hint in _SCALARS:
        accepted = _SCALARS[hint][0]
        is_flag = isinstance(value, bool) and hint in (int, float)
        return _keep_value if isinstance(value, accepted) and not is_flag else None
    if is_mapping(hint):
        return _convert_mapping if isinstance(value, Mapping) else None
    if is_list(hint):
        if isinstance(value, Mapping) and is_section(item_hint(hint)):
            return _convert_named_list
        return _convert_list if isinstance(value, (list, tuple)) else None
    if is_section(hint) and isinstance(value, Mapping):
        return _convert_section
    origin = typing.get_origin(hint) or hint
    return _keep_value if isinstance(origin, type) and isinstance(value, origin) else None


def _keep_value(value: Any, _: Any, __: str) -> Any:
    return to_plain(value)


def _convert_mapping(value: Any, hint: Any, key: str) -> Any:
    names, values = typing.get_args(hint)
    return {
        _validate(name, names, join_key(key, name)): _validate(item, values, join_key(key, name))
        for name, item in value.items()
    }


def _convert_list(value: Any, hint: Any, key: str) -> Any:
    item_type = item_hint(hint)
    items = _validate_all(value, item_type, [f"{key}[{number}]" for number in range(len(value))])
    return tuple(items) if typing.get_origin(hint) is tuple else items


def _convert_named_list(value: Any, hint: Any, key: str) -> Any:
    return _validate_all(value.values(), item_hint(hint), [join_key(key, name) for name in value])


def _validate_all(values: Iterable[Any], hint: Any, keys: Iterable[str]) -> list[Any]:
    mistakes, valid = Mistakes(), []
    for value, key in zip(values, keys):
        with mistakes.collected():
            valid.append(_validate(value, hint, key))
    mistakes.raise_all()
    return valid


def _convert_section(value: Any, hint: Any, key: str) -> Any:
    arguments = validate_arguments(hint, value, key, value)
    with prefix_errors(key, ConfigError):
        return hint(**arguments)


def _parse_environment(value: FromEnvironment, hint: Any, key: str) -> Any:
    for member in union_members(hint):
        try:
            if member is bool and value.lower() in _BOOLEANS:
                return _BOOLEANS[value.lower()]
            if member in (int, float):
                return int(value) if _INTEGER.fullmatch(value) else member(value)
        except ValueError:
            pass
    raise _type_error(value, hint, key)


def _type_error(value: Any, hint: Any, key: str) -> ConfigError:
    expected = [_describe_type(item) for item in file_types(hint)]
    if not expected or expected == ["null"]:
        return refused_value_error(
            value, key, "a file cannot say it; pass an object to from_config"
        )
    return refused_value_error(value, key, f"expected {' or '.join(expected)}")


def _describe_type(hint: Any) -> str:
    if hint in _SCALARS:
        return _SCALARS[hint][1]
    return "a list" if is_list(hint) else "a mapping"


def suggest_keywords(target: C) -> C:
    """Make a function, or the constructor of a class, suggest the nearest keyword for an unknown one.

    A function must not have ``**kwargs``. A constructor must pass all of ``**kwargs`` to the next class in
    the MRO, whose constructors determine the valid keywords; nothing is checked if one of them accepts any.
    Apply outside of ``@dataclass``.
    """
    if isinstance(target, type):
        _check_constructor(target)
        return target
    names = _keyword_names(inspect.signature(target).parameters.values())

    @functools.wraps(target)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise _unknown_keyword(target.__name__, name, names)
        return target(*args, **kwargs)

    return cast("C", checked)


def _check_constructor(cls: type) -> None:
    init = cls.__dict__["__init__"]

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            _check(type(self), cls, kwargs, type(self))
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[misc]  # the signature is that of what it wraps


def check_keywords(cls: type, keywords: Iterable[str], caller: type) -> None:
    """Check keywords that the constructor of `caller` passes on to that of `cls`."""
    _check(cls, cls, keywords, caller)


def _check(cls: type, owner: type, keywords: Iterable[str], caller: type) -> None:
    accepted = _accepted(cls, owner)
    for name in keywords:
        if accepted is not None and name not in accepted:
            # Includes keywords of subclasses, which the user may have meant.
            raise _unknown_keyword(caller.__name__, name, {*accepted, *parameters(caller)})


def _unknown_keyword(caller: str, name: str, known: Collection[str]) -> UnknownKeywordError:
    return UnknownKeywordError(
        f"{caller}({name}=…): no such argument{suggest_name(name, sorted(known))}"
    )


@functools.cache
def _accepted(cls: type, owner: type) -> frozenset[str] | None:
    """Return the keywords that the constructor of `owner` accepts in an object of `cls`; None for any."""
    classes = cls.__mro__
    signatures = [signature for _, signature in constructors(classes[classes.index(owner) :])]
    if has_any_keywords(signatures[-1]):
        return None
    return _keyword_names(
        parameter
        for signature in signatures
        for parameter in list(signature.parameters.values())[1:]
    )


def _keyword_names(parameters: Iterable[inspect.Parameter]) -> frozenset[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in kinds)
