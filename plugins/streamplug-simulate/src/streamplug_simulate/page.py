"""Page: a simulation as one file of HTML, which asks nothing of any network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from streamplug_simulate.model.planned_dataset import Planned
from streamplug_simulate.model.scenario import Assumed
from streamplug_simulate.variants import MOST_DIFFERENT, Choice

_PARTS = ("page.css", "plots.js", "page.js")


def page(
    plan: Planned,
    assumed: Assumed,
    offered: Sequence[Choice],
    runs: dict[str, dict[str, Any]],
    *,
    shuffles: Sequence[str] = (),
) -> str:
    """Return a page.

    Args:
        plan: The data set.
        assumed: What was assumed.
        offered: What can be changed on the page.
        runs: The runs that it holds, as `variants` returns them. If that is the first alone, the page
            asks a server for others, at ``run`` beside it.
        shuffles: For a page with a server: names of shuffles.
    """
    title = f"Simulated run of {', '.join(plan.urls)}"
    said = {
        "title": title,
        "assumed": asdict(assumed),
        "set": {
            "samples": plan.size,
            "shards": len(plan.shards),
            "bytes": int(plan.shards.stored.sum()),
        },
        "choices": [asdict(choice) for choice in offered],
        "different": MOST_DIFFERENT,
        "runs": runs,
        "server": len(runs) == 1,
        "shuffles": list(shuffles),
    }
    here = files("streamplug_simulate")
    parts = {name.replace(".", "_"): (here / name).read_text("utf-8") for name in _PARTS}
    template = Template((here / "page.html").read_text("utf-8"))
    return template.substitute(parts, title=escape(title), data=_embedded(said))


def _embedded(value: Any) -> str:
    """Return JSON that can stand in a script element: nothing in it ends that, or begins a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
