"""Classes that the sections of a config describe."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import streamplug
from streamplug.config import Configurable
from streamplug.plugin import load_section, section_keys


def section_classes() -> dict[str, type[Configurable]]:
    """Return the class of each section; without torch, there is no section ``loader``."""
    loader = {"loader": streamplug.StreamingDataLoader} if find_spec("torch") else {}
    return {"dataset": streamplug.StreamingDataset, **loader, "writer": streamplug.Writer}


def subclasses() -> dict[str, list[type[Configurable]]]:
    """Return the installed classes that have keys of their own, by section."""
    found: dict[str, list[type[Configurable]]] = {name: [] for name in section_classes()}
    for key in section_keys():
        section = key.partition(".")[0]
        if section in found:
            found[section].append(load_section(key, key))
    return found


def check_loader(config: Mapping[str, Any]) -> None:
    """Validate the keys and types of the section ``loader``, if there is one and torch is installed.

    Raises:
        ConfigError: If a key is unknown, or a value has the wrong type.
    """
    if "loader" in config and find_spec("torch"):
        streamplug.StreamingDataLoader.check_config(config)
