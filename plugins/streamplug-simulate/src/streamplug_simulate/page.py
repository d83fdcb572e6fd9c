"""Page of a simulation: one HTML file without network access."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from streamplug_simulate.model.planned_dataset import SimulatedDataset
from streamplug_simulate.model.scenario import Scenario, uses_block_size
from streamplug_simulate.variants import MAX_CHANGED_SETTINGS, Choice

_PARTS = ("page.css", "plots.js", "page.js")


def page(
    plan: SimulatedDataset,
    scenario: Scenario,
    offered: Sequence[Choice],
    runs: dict[str, dict[str, Any]],
    *,
    shuffles: Sequence[str] = (),
) -> str:
    """Return a page.

    Args:
        plan: The data set.
        scenario: The scenario of the first run.
        offered: Settings that can be changed on the page.
        runs: Results, as `simulate_variants` returns them. With one alone, the page requests others from a
            server, at ``run`` beside it.
        shuffles: Names of shuffles, for a page with a server.
    """
    names = shuffles or [name for each in offered if each.name == "shuffle" for name in each.values]
    # A URL may contain a lone surrogate, which cannot be encoded.
    urls = ", ".join(plan.urls).encode("utf-8", "backslashreplace").decode()
    title = f"Simulated run of {urls}"
    data = {
        "title": title,
        "scenario": asdict(scenario),
        "set": {
            "samples": plan.size,
            "shards": len(plan.shards),
            "bytes": plan.shards.stored_bytes,
        },
        "choices": [asdict(choice) for choice in offered],
        "different": MAX_CHANGED_SETTINGS,
        "runs": runs,
        "server": len(runs) == 1,
        "shuffles": list(shuffles),
        "without_block_size": [name or "none" for name in names if not uses_block_size(name)],
    }
    here = files("streamplug_simulate")
    parts = {name.replace(".", "_"): (here / name).read_text("utf-8") for name in _PARTS}
    template = Template((here / "page.html").read_text("utf-8"))
    return template.substitute(parts, title=escape(title), data=_embed_json(data))


def _embed_json(value: Any) -> str:
    """Return JSON for a script element, without text that would end it or start a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
