"""SVG histograms and the map of shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamplug_tools.histogram import Histogram
from streamplug_tools.report.html import Html, element, html
from streamplug_tools.report.text_format import cut, many, number, percent, size, size_format
from streamplug_tools.statistics import ShardGroup

COLOUR_LEVELS = 8
_CHART_HEIGHT = 100
_BIN_WIDTH = 10
"""Width of a bin, in the units of its chart, which CSS stretches."""


def histogram(
    title: str, values: Histogram | None, unit: Callable[[float], str], of: str
) -> Html | None:
    """Return a histogram as SVG, or a line of text if all values are equal.

    Args:
        title: Title of the values.
        values: The histogram; None for no chart.
        unit: Formats a value.
        of: Name of a counted item, such as ``"shard"``.
    """
    if values is None:
        return None
    if values.minimum == values.maximum:
        line = f"{unit(values.minimum)} in {'each of ' if values.count > 1 else ''}{many(values.count, of)}"
        return element("p", element("b", title), " ", line, class_="same")
    if unit is size:
        unit = size_format(values.minimum, values.maximum)
    summary = f"{unit(values.minimum)} to {unit(values.maximum)}, median {unit(values.median)}"
    highest = max(values.counts)
    bars = []
    for n, count in enumerate(values.counts):
        # Bins that are not empty must be visible.
        height = max(round(_CHART_HEIGHT * count / highest, 2), 1.5) if count else 0
        last = n == len(values.counts) - 1
        bars.append(
            element(
                "g",
                _rect(n * _BIN_WIDTH, 0, _BIN_WIDTH, _CHART_HEIGHT, "hit"),
                _rect(n * _BIN_WIDTH + 0.5, _CHART_HEIGHT - height, _BIN_WIDTH - 1, height, "bar"),
                data_tell=f"{_range(values, n, unit, last=last)}: {many(count, of)}",
            )
        )
    chart = element(
        "svg",
        *bars,
        viewBox=f"0 0 {len(bars) * _BIN_WIDTH} {_CHART_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}: {summary}",
        tabindex="0",
    )
    ends = (
        unit(values.minimum),
        "each bin wider by a factor" if values.factors else "",
        unit(values.maximum),
    )
    return element(
        "figure",
        element(
            "figcaption", element("b", title), " ", element("span", f"median {unit(values.median)}")
        ),
        chart,
        element("div", *(element("span", end) for end in ends), class_="axis"),
        element("output", "\N{NO-BREAK SPACE}"),
        class_="chart",
        data_tells=True,
    )


def _rect(x: float, y: float, width: float, height: float, name: str) -> Html:
    return element("rect", x=x, y=y, width=width, height=height, class_=name)


def _range(values: Histogram, n: int, unit: Callable[[float], str], *, last: bool) -> str:
    begin, end = values.edges[n : n + 2]
    if values.whole:
        end = values.maximum if last else end - 1
        if begin >= end:
            return unit(begin)
    return f"{unit(begin)} to {unit(end)}"


def shard_map(cells: Sequence[ShardGroup]) -> Html:
    """Return the map of the shards, with a cell for each shard or group of consecutive shards."""
    shares = {
        "stored": [cell.stored_bytes / cell.shards for cell in cells],
        "samples": [cell.samples / cell.shards for cell in cells],
        "packed": [cell.stored_bytes / cell.raw_bytes if cell.raw_bytes else 0.0 for cell in cells],
    }
    packed = any(cell.compression for cell in cells)
    names = {"stored": "stored bytes", "samples": "samples", "packed": "stored ÷ raw"}
    if not packed:
        del shares["packed"], names["packed"]
    levels = {name: _levels(values) for name, values in shares.items()}
    shown = [
        element(
            "li",
            data_tell=_to_json(cell),
            data_level=levels["stored"][n],
            **{f"data_{name}": level[n] for name, level in levels.items()},
        )
        for n, cell in enumerate(cells)
    ]
    switch = [
        element(
            "button", name, type="button", data_by=key, aria_pressed=str(key == "stored").lower()
        )
        for key, name in names.items()
    ]
    texts = {"stored": size, "samples": number, "packed": percent}
    scales = [
        element(
            "span",
            f"0 to {texts[key](max(values))}{'' if key == 'packed' else ' a shard'}",
            data_for=key,
            hidden=key != "stored",
        )
        for key, values in shares.items()
    ]
    ramp = [element("i", data_level=level) for level in range(COLOUR_LEVELS + 1)]
    of = "shard" if all(cell.shards == 1 for cell in cells) else "cell of some shards"
    return element(
        "div",
        element("div", element("span", "Color by"), *switch, class_="switch"),
        element("ul", *shown, class_="cells", tabindex="0", aria_label="Shards"),
        element("div", element("span", *ramp, class_="ramp"), *scales, class_="scale"),
        element("output", f"Point at or tap a {of}."),
        class_="map",
        data_tells=True,
    )


def _levels(values: Sequence[float]) -> list[int]:
    maximum = max(values, default=0) or 1
    return [min(round(COLOUR_LEVELS * value / maximum), COLOUR_LEVELS) for value in values]


def _to_json(cell: ShardGroup) -> str:
    name = cut(cell.name, 120)
    many_bytes = f"{size(cell.stored_bytes)} stored"
    if cell.stored_bytes != cell.raw_bytes:
        many_bytes += f", {size(cell.raw_bytes)} raw"
    what = f"Shard {cell.first:,}: {name}"
    if cell.shards > 1:
        what = f"Shards {cell.first:,} to {cell.first + cell.shards - 1:,}, from {name}"
    return " · ".join(
        [what, many(cell.samples, "sample"), many_bytes, cell.compression or "not compressed"]
    )


def charts(*figures: Html | None) -> Html:
    """Return charts side by side, without those that are None."""
    shown = [figure for figure in figures if figure is not None]
    return element("div", *shown, class_="charts") if shown else html()
