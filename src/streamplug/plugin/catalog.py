"""Names of our own distributions, installed or not, so that an error can say what to install."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load_catalog() -> Mapping[str, Mapping[str, str]]:
    """Return the distribution by kind and name.

    Kinds are those of plugins, ``name``, ``command`` and ``section``.

    ``.ci/register`` writes it from what the distributions declare.
    """
    catalog: dict[str, dict[str, str]] = {}
    for distribution, kinds in _declared().items():
        for kind, names in kinds.items():
            catalog.setdefault(kind, {}).update(dict.fromkeys(names, distribution))
    return catalog


def load_manifests() -> dict[str, str]:
    """Return the source of each manifest by which a location without index.json is recognized."""
    declared = _declared().values()
    return {
        name: source for kinds in declared for name, source in kinds.get("manifest", {}).items()
    }


@cache
def _declared() -> Any:
    return json.loads(files("streamplug.plugin").joinpath("catalog.json").read_bytes())
