"""Validation of options, sizes and counts; configuration files."""

from streamplug.config.config_file import load
from streamplug.config.configurable import SECTIONS, Configurable
from streamplug.config.keywords import check_keywords, suggest_keywords
from streamplug.config.launcher import detect_world
from streamplug.config.values import (
    check_flags,
    check_names,
    check_seconds,
    is_integer,
    parse_bytes,
    parse_count,
    whole_number,
)

__all__ = [
    "SECTIONS",
    "Configurable",
    "check_flags",
    "check_keywords",
    "check_names",
    "check_seconds",
    "detect_world",
    "is_integer",
    "load",
    "parse_bytes",
    "parse_count",
    "suggest_keywords",
    "whole_number",
]
