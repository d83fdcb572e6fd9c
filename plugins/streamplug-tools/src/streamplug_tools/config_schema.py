"""JSON schema of configuration files, for editors."""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamplug.config import (
    REQUIRED,
    file_types,
    is_list,
    is_mapping,
    is_section,
    item_hint,
    parameters,
)

_TYPES = {
    str: "string", Path: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
_ENVIRONMENT = {"$ref": "#/$defs/environment"}


def json_schema(
    sections: Mapping[str, type], subclasses: Mapping[str, Sequence[type]] | None = None
) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a configuration with these sections, or of a data set.

    Args:
        sections: Class of each section.
        subclasses: Subclasses that each section may also describe; keys that only these have are optional.
    """
    subclasses = subclasses or {}
    only_sections = {"propertyNames": {"enum": ["$schema", *sections]}}
    nested: dict[str, Any] = {
        "environment": {"type": "string", "pattern": r"\$\{env:", "title": "${env:NAME:-default}"}
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamplug",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            **{
                name: _object([cls, *subclasses.get(name, ())], nested, sections)
                for name, cls in sections.items()
            },
        },
        "if": {"anyOf": [{"required": [name]} for name in sections]},
        "then": only_sections,
        "else": {"$ref": "#/properties/dataset"} if "dataset" in sections else only_sections,
        "$defs": nested,
    }


def _object(
    classes: Sequence[type], nested: dict[str, Any], sections: Collection[str]
) -> dict[str, Any]:
    """Return the schema of the keys of a class, and of its subclasses, whose own ones are optional."""
    properties, required, of_base = {}, [], parameters(classes[0])
    known = {name: of for cls in reversed(classes) for name, of in parameters(cls).items()}
    for name, parameter in known.items():
        kinds = [hint for hint in file_types(parameter.hint) if hint is not type(None)]
        if not kinds or name in sections:
            continue
        properties[name] = _schema_of(parameter.hint, nested)
        if parameter.text:
            properties[name]["description"] = parameter.text
        if parameter.default is REQUIRED and name in of_base:
            required.append(name)
        elif isinstance(parameter.default, (str, int, float)):
            properties[name]["default"] = parameter.default
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def _schema_of(hint: Any, nested: dict[str, Any]) -> dict[str, Any]:
    kinds = file_types(hint)
    if Any in kinds:
        return {}
    alternatives = [part for kind in kinds for part in _alternatives(kind, nested)]
    if {bool, int, float} & set(kinds) and str not in kinds:
        alternatives.append(_ENVIRONMENT)
    return {"anyOf": alternatives} if len(alternatives) > 1 else alternatives[0]


def _alternatives(hint: Any, nested: dict[str, Any]) -> list[dict[str, Any]]:
    if hint in _TYPES:
        return [{"type": _TYPES[hint]}]
    if is_mapping(hint):
        return [
            {"type": "object", "additionalProperties": _schema_of(typing.get_args(hint)[1], nested)}
        ]
    if is_list(hint):
        item = item_hint(hint)
        lists: dict[str, Any] = {"type": "array", "items": _schema_of(item, nested)}
        named = {"type": "object", "additionalProperties": lists["items"]}
        return [lists, named] if is_section(item) else [lists]
    if hint.__name__ not in nested:
        nested[hint.__name__] = {}  # for recursive types
        nested[hint.__name__] = _object([hint], nested, ())
    return [{"$ref": f"#/$defs/{hint.__name__}"}]
