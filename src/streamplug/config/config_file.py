"""Configuration files in TOML, YAML or JSON, with substitution of environment variables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url, public_urls

Source: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"
"""A mapping, or the path of a configuration file."""

# A default may have pairs of braces, such as those of the pattern "*.{jpg,png}".
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<what>(?:[^{}]|\{[^{}]*\})*\}?)")
# A reference in a default would end at its own brace, and leave the outer one open.
_VARIABLE = re.compile(
    r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(:-(?P<default>(?:(?!\$\{).)*))?\}", re.DOTALL
)

_MAX_YAML_VALUES = 1_000_000
_MAX_TOML_KEY_PARTS = 100
# Single quotes may stay open, or each in a line of escaped quotes is searched to the end of the line.
_TOML_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|"(?:[^"\\\n]|\\.)*"?'
    r"|'''.*?'{3,5}|'[^'\n]*'?|#[^\n]*",
    re.DOTALL,
)
# Of values that the syntax allows, such as an integer of 5,000 digits or a date in February 30.
_VALUE_ERRORS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)
_MERGE, _FLOAT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:float"
# Such as 1e-3, which is a number in YAML 1.2, and text to PyYAML.
_EXPONENT_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


class FromEnvironment(str):
    """Text with substituted environment variables; errors show the original text, `written`."""

    __slots__ = ("written",)
    written: str


def load(source: Source) -> dict[str, Any]:
    """Return a configuration as plain dicts and lists, with environment variables substituted.

    Args:
        source: A mapping, possibly of OmegaConf, or the path of a ``.toml``, ``.yaml``, ``.yml`` or
            ``.json`` file.

    Raises:
        ConfigError: If it cannot be read, or refers to a variable that is not set.
    """
    if isinstance(source, str) and "://" in source:
        raise ConfigError(f"config {public_url(source)}: expected a path on this machine")
    place = "config"
    if isinstance(source, (str, os.PathLike)):
        place = f"config {os.fspath(source)}"
        source = _read(Path(source))
    if not isinstance(source, Mapping):
        expected = "expected a mapping, or the path of a .toml, .yaml or .json file"
        raise refused_value_error(source, place, expected)
    try:
        config: dict[str, Any] = _substitute(source, "")
    except RecursionError:
        raise ConfigError("config: nested too deeply") from None
    return config


def to_plain(value: Any) -> Any:
    """Return a value with every `FromEnvironment` converted to str."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, FromEnvironment) else value


def refused_value_error(value: Any, key: str, reason: str) -> ConfigError:
    """Return the error for a value of a configuration, without what may be secret in it."""
    may_have_options = key.rpartition(".")[2] == "storage_options"
    if may_have_options or isinstance(value, (Mapping, list, tuple)):
        return ConfigError(f"{key}: {reason}, got {type(value).__name__}")
    written = value.written if isinstance(value, FromEnvironment) else value
    return ConfigError(f"{key}={public_urls(written)!r:.80}: {reason}")


def _read(path: Path) -> Any:
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"config {path}: expected a file of {', '.join(_PARSERS)}")
    try:
        text = path.read_text(
            encoding="utf-8-sig"
        )  # editors of Windows may write a byte order mark
    except FileNotFoundError:
        raise ConfigError(f"config {path}: no such file; looked for {path.absolute()}") from None
    except OSError as error:
        raise ConfigError(f"config {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"config {path}: not UTF-8: {error}") from None
    try:
        config = parse(text)
    except RecursionError:
        raise ConfigError(f"config {path}: nested too deeply") from None
    except ConfigError as error:
        raise ConfigError(f"config {path}: {error}") from None
    except _VALUE_ERRORS as error:
        raise ConfigError(
            f"config {path}: a value cannot be read: {type(error).__name__}: {error!s:.200}"
        ) from None
    return {} if config is None else config


def _toml(text: str) -> Any:
    name = next((name for name in ("tomllib", "tomli") if find_spec(name)), None)
    if name is None:
        raise ConfigError("TOML needs Python 3.11, or: pip install tomli")
    parser = import_module(name)
    # Parsers need time and memory proportional to the square of the number of parts of a key.
    bare = _TOML_STRING_OR_COMMENT.sub("", text)
    if max(piece.count(".") for piece in re.split(r"[,\n]", bare)) >= _MAX_TOML_KEY_PARTS:
        raise ConfigError(f"a key has more than {_MAX_TOML_KEY_PARTS} parts; nest fewer tables")
    try:
        return parser.loads(text)
    except parser.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error}") from None


def _object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ConfigError(f"the key {key!r} is there twice")
        mapping[key] = value
    return mapping


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError("YAML needs PyYAML: pip install 'streamplug[yaml]'") from None

    class Loader(yaml.SafeLoader):
        """A loader that rejects duplicate keys, and aliases that stand for too many values."""

        num_values = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            is_alias, before = self.check_event(yaml.AliasEvent), self.num_values
            node = super().compose_node(parent, index)
            # An alias counts as what it stands for; one within itself has no size yet.
            self.num_values += sizes.get(id(node), _MAX_YAML_VALUES) if is_alias else 1
            if self.num_values > _MAX_YAML_VALUES:
                raise yaml.YAMLError(f"more than {_MAX_YAML_VALUES} values, with those of aliases")
            if not is_alias:
                sizes[id(node)] = self.num_values - before
            return node

        def flatten_mapping(self, node: Any) -> None:
            if id(node) in flat:  # it was merged into another mapping
                return
            flat.add(id(node))
            # Keys from merges (<<) may be overridden: only a mapping's own keys must be unique.
            own = [key for key, _ in node.value if key.tag != _MERGE]
            _object([(self.construct_object(key), None) for key in own])
            super().flatten_mapping(node)
            # PyYAML lets keys that this mapping has merged win over its own where it is merged itself.
            node.value = [*{(key.tag, str(key.value)): (key, v) for key, v in node.value}.values()]

    sizes: dict[int, int] = {}
    flat: set[int] = set()

    def construct_mapping(loader: Any, node: Any) -> Any:
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:map", construct_mapping)
    Loader.add_implicit_resolver(_FLOAT, _EXPONENT_NUMBER, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, TypeError) as error:
        raise ConfigError(f"not YAML: {error}") from None


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json,
}  # fmt: skip


def join_key(key: str, name: object) -> str:
    """Return the path of a key below another."""
    return f"{key}.{name}" if key else str(name)


def _substitute(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _substitute(item, join_key(key, name)) for name, item in value.items()}
    if isinstance(value, str):
        # A configuration that was loaded before keeps its text: a variable may contain "${".
        is_substituted = isinstance(value, FromEnvironment)
        return _substitute_text(value, key) if "${" in value and not is_substituted else value
    # A range of rows may be longer than a list can be.
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview, range)):
        return [_substitute(item, f"{key}[{number}]") for number, item in enumerate(value)]
    return value


def _substitute_text(text: str, key: str) -> str:
    def resolve(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        variable = _VARIABLE.fullmatch(match["what"])
        if variable is None:
            raise ConfigError(
                f"{key}: {match[0]} has no meaning; write ${{env:NAME}}, or $${{ for the two characters"
            )
        name, default = variable["name"], variable["default"]
        if name not in os.environ and default is None:
            raise ConfigError(
                f"{key}: the environment variable {name} is not set; set it, or write ${{env:{name}:-…}}"
            )
        return os.environ.get(name, default or "")

    filled = FromEnvironment(_REFERENCE.sub(resolve, text))
    filled.written = text
    return filled
