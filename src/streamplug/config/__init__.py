"""Validation of options, sizes and counts; configuration files."""

from streamplug.config.config_file import load, to_plain
from streamplug.config.configurable import SECTIONS, Configurable, configured_class
from streamplug.config.launcher import detect_world
from streamplug.config.signatures import REQUIRED, is_section, parameters
from streamplug.config.validation import (
    Mistakes,
    check_keywords,
    file_types,
    is_list,
    is_mapping,
    item_hint,
    suggest_keywords,
    suggest_name,
)
from streamplug.config.values import (
    check_flags,
    check_names,
    check_seconds,
    is_integer,
    parse_bytes,
    parse_count,
    parse_seconds,
    whole_number,
)

__all__ = [
    "REQUIRED",
    "SECTIONS",
    "Configurable",
    "Mistakes",
    "check_flags",
    "check_keywords",
    "check_names",
    "check_seconds",
    "configured_class",
    "detect_world",
    "file_types",
    "is_integer",
    "is_list",
    "is_mapping",
    "is_section",
    "item_hint",
    "load",
    "parameters",
    "parse_bytes",
    "parse_count",
    "parse_seconds",
    "suggest_keywords",
    "suggest_name",
    "to_plain",
    "whole_number",
]
