"""Classes that the sections of a config describe."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import streamplug
from streamplug.config import Configurable
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError


def section_classes() -> dict[str, type[Configurable]]:
    """Return the class of each section; without torch, there is no section ``loader``."""
    loader = {"loader": streamplug.StreamingDataLoader} if find_spec("torch") else {}
    return {"dataset": streamplug.StreamingDataset, **loader, "writer": streamplug.Writer}


def subclasses() -> dict[str, type[Configurable]]:
    """Return the installed classes of sections with keys of their own."""
    found: dict[str, type[Configurable]] = {}
    if find_spec("streamplug_tokens"):
        found["dataset"] = streamplug.TokenDataset
    if find_spec("torch") and find_spec("streamplug_packing"):
        found["loader"] = import_module("streamplug_packing").PackingDataLoader
    return found


def dataset_class(config: Mapping[str, Any]) -> type[StreamingDataset]:
    """Return the class of the configured data set, which has rows of tokens if there is a key `tokens`."""
    section = config.get("dataset", config)
    if not (isinstance(section, Mapping) and "tokens" in section):
        return streamplug.StreamingDataset
    try:
        return streamplug.TokenDataset
    except ImportError as error:
        raise ConfigError(f"tokens: {error}") from None


def loader_class(config: Mapping[str, Any]) -> type[Configurable]:
    """Return the class of the configured loader, which yields packs if there is a key `length`."""
    section = config.get("loader")
    if not (isinstance(section, Mapping) and "length" in section):
        return streamplug.StreamingDataLoader
    if find_spec("streamplug_packing") is None:
        raise ConfigError(
            "loader.length: PackingDataLoader is in streamplug-packing, which is not installed: pip install "
            "streamplug-packing"
        )
    loader: type[Configurable] = import_module("streamplug_packing").PackingDataLoader
    return loader


def check_loader(config: Mapping[str, Any]) -> None:
    """Validate the keys and types of the section ``loader``, if there is one and torch is installed.

    Raises:
        ConfigError: If a key is unknown, or a value has the wrong type.
    """
    if "loader" in config and find_spec("torch"):
        loader_class(config).check_config(config)
