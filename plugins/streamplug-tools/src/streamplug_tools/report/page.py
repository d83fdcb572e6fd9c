"""HTML page about a data set."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib.resources import files

from streamplug_tools.column_sampling import ColumnStatistics
from streamplug_tools.inspection import ShardKind, TableOrigin
from streamplug_tools.previews import Preview, Thumbnail
from streamplug_tools.report.charts import charts, histogram, shard_map
from streamplug_tools.report.html import Html, element, html
from streamplug_tools.report.text_format import cut, many, number, percent, size, size_format
from streamplug_tools.statistics import DatasetStatistics

_MAX_COLUMNS = 100
"""Maximum columns with details."""
_MAX_NAME_CHARS = 80
"""Maximum characters of a name in a heading."""
_MAX_TEXTS = 6
_MAX_CELL_CHARS = 120
_MEASURES = {"characters": "Characters", "length": "Length", "value": "Value"}


def page(statistics: DatasetStatistics) -> str:
    """Return a page about a data set as one HTML file.

    Data is escaped text, or an image encoded again. Browsers make no requests for the page, and run only
    its own script.
    """
    style, script = (files(__package__).joinpath(n).read_text() for n in ("page.css", "page.js"))
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    name = cut(
        statistics.set.url.rstrip("/").rpartition("/")[2] or statistics.set.url, _MAX_NAME_CHARS
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{name} · streamplug"),
        element("style", Html(style)),
    )
    sections = [*_sections(statistics)]
    links = (element("a", title, href=f"#{key}") for key, title, _ in sections)
    body = element(
        "body",
        element(
            "header",
            element("h1", name),
            element("p", statistics.set.url, class_="where"),
            _facts(statistics),
        ),
        element("nav", *links, aria_label="Parts of this page"),
        element(
            "main",
            *(
                element("section", element("h2", title), content, id=key)
                for key, title, content in sections
            ),
        ),
        element("footer", "Made by streamplug. This page is a single file and sends no requests."),
        element("script", Html(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _digest(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"


def _facts(statistics: DatasetStatistics) -> Html:
    totals, kinds = statistics.set, statistics.set.kinds
    packed = sorted({kind.compression or "none" for kind in kinds})
    facts = [
        ("samples", f"{totals.samples:,}"),
        ("shards", f"{totals.shards:,}"),
        ("stored", size(totals.stored_bytes)),
        ("raw", size(totals.raw_bytes)),
        ("columns", f"{len(statistics.columns):,}"),
        ("format", ", ".join(sorted({kind.format for kind in kinds})) or "none"),
        ("compression", ", ".join(packed) or "none"),
        ("hashes", ", ".join(sorted({name for kind in kinds for name in kind.hashes})) or "none"),
    ]
    pairs = (element("div", element("dt", key), element("dd", value)) for key, value in facts)
    return element("dl", *pairs, class_="facts")


def _sections(statistics: DatasetStatistics) -> Iterator[tuple[str, str, Html]]:
    if statistics.failures:
        items = (element("li", cut(failure, 500)) for failure in statistics.failures)
        yield "failures", "Not read", element("ul", *items, class_="failures")
    yield "schema", "Schema", _schema(statistics)
    if statistics.set.origin is not None:
        yield "origin", "Origin", _origin(statistics.set.origin)
    if statistics.cells:
        yield "shards", "Shards", _shards(statistics)
    if statistics.seen:
        yield "columns", "Columns", _columns(statistics)
    if statistics.samples:
        yield "samples", "Samples", _samples(statistics)


def _schema(statistics: DatasetStatistics) -> Html:
    columns = [*enumerate(statistics.columns)]
    rows = (
        element(
            "tr",
            element("td", _link(n, column, statistics)),
            element("td", element("code", ", ".join(column.encodings))),
            element("td", _usual(column)),
        )
        for n, column in columns
    )
    kinds = statistics.set.kinds
    several = html(
        element("p", "There are several kinds of shards:"),
        element("ul", *(element("li", _kind(kind)) for kind in kinds)),
    )
    return html(
        _table(("column", "encoding", "stored bytes of a value"), rows),
        several if len(kinds) > 1 else "",
    )


def _origin(origin: TableOrigin) -> Html:
    """Return where columns come from, and how each step thinned the rows."""
    columns = (
        element(
            "tr",
            element("td", element("bdi", cut(name, _MAX_NAME_CHARS))),
            element("td", cut(", ".join(urls), _MAX_CELL_CHARS)),
        )
        for name, urls in origin.columns.items()
    )
    most = max((samples for _, samples in origin.steps), default=0) or 1
    steps = (
        element(
            "tr",
            element("td", cut(step, _MAX_CELL_CHARS)),
            element("td", f"{samples:,}"),
            element("td", element("meter", "", min="0", max=str(most), value=str(samples))),
        )
        for step, samples in origin.steps
    )
    return html(
        element("p", f"This is {origin.version} of a view."),
        _table(("column", "data set"), columns),
        _table(("step", "samples left", ""), steps) if origin.steps else "",
    )


def _table(heads: Iterable[str], rows: Iterable[Html]) -> Html:
    names = (element("th", name) for name in heads)
    return element("table", element("thead", element("tr", *names)), element("tbody", *rows))


def _kind(kind: ShardKind) -> str:
    names = cut(", ".join(kind.columns), 400)
    packed = kind.compression or "not compressed"
    return f"{many(kind.shards, 'shard')} of {many(kind.samples, 'sample')}, {kind.format}, {packed}: {names}"


def _link(n: int, column: ColumnStatistics, statistics: DatasetStatistics) -> Html:
    name = element("bdi", cut(column.name, _MAX_NAME_CHARS))
    return element("a", name, href=f"#column-{n}") if statistics.seen and n < _MAX_COLUMNS else name


def _usual(column: ColumnStatistics) -> str:
    stored = column.stored
    if stored is None:
        return "not known"
    if stored.minimum == stored.maximum:
        return size(stored.maximum)
    unit = size_format(stored.minimum, stored.maximum)
    return f"{unit(stored.median)} ({unit(stored.minimum)} to {unit(stored.maximum)})"


def _shards(statistics: DatasetStatistics) -> Html:
    packed = statistics.set.stored_bytes != statistics.set.raw_bytes
    return html(
        shard_map(statistics.cells),
        charts(
            histogram("Samples", statistics.shard_samples, number, "shard"),
            histogram("Stored bytes", statistics.shard_stored, size, "shard"),
            histogram("Raw bytes", statistics.shard_raw, size, "shard") if packed else None,
        ),
    )


def _columns(statistics: DatasetStatistics) -> Html:
    total = statistics.set.samples
    seen = (
        f"Computed from {statistics.seen:,} of {many(total, 'sample')} in {statistics.seen_shards:,} of "
        f"{many(statistics.set.shards, 'shard')}."
    )
    rest = len(statistics.columns) - _MAX_COLUMNS
    return html(
        element("p", seen),
        charts(histogram("Bytes of a sample", statistics.sample_bytes, size, "sample")),
        *(_column(n, column) for n, column in enumerate(statistics.columns[:_MAX_COLUMNS])),
        element("p", f"{rest:,} more columns are not shown one by one.") if rest > 0 else "",
    )


def _column(n: int, column: ColumnStatistics) -> Html:
    pictures = [(at, image) for at, seen in column.previews for image in seen.images]
    # Single numbers add nothing to their chart.
    texts = [(at, s) for at, s in column.previews if not s.images and s.measure != "value"][
        :_MAX_TEXTS
    ]
    if column.counts:
        texts = []
    # For bytes and ASCII text, lengths equal stored sizes.
    numbers = None if column.counts or column.numbers == column.stored else column.numbers
    notes = (
        element("li", f"{many(count, 'value')}: {note}") for note, count in column.notes.items()
    )
    return element(
        "article",
        element(
            "h3",
            element("bdi", cut(column.name, _MAX_NAME_CHARS)),
            " ",
            element("code", cut(", ".join(column.encodings), _MAX_NAME_CHARS)),
        ),
        charts(
            histogram("Stored bytes", column.stored, size, "value"),
            histogram(_MEASURES.get(column.measure, ""), numbers, number, "value"),
        ),
        _counts(column.counts) if column.counts else "",
        element("ul", *notes, class_="notes") if column.notes else "",
        element("div", *(_picture(*item) for item in pictures), class_="pictures")
        if pictures
        else "",
        element("dl", *(_text(*item) for item in texts), class_="texts") if texts else "",
        id=f"column-{n}",
    )


def _counts(counts: Mapping[str, int]) -> Html:
    total = sum(counts.values())
    rows = (
        html(
            element("dt", element("bdi", value or "(empty)")),
            element("dd", element("meter", "", min="0", max=str(total), value=str(count))),
            element("dd", f"{count:,} · {percent(count / total)}"),
        )
        for value, count in counts.items()
    )
    return element("dl", *rows, class_="counts")


def _picture(sample: int, image: Thumbnail) -> Html:
    return element(
        "figure",
        _image(image),
        element("figcaption", f"{sample:,} · ", element("bdi", image.about)),
    )


def _image(image: Thumbnail) -> Html:
    return element(
        "img",
        src=f"data:{image.type};base64,{b64encode(image.data).decode()}",
        width=image.width,
        height=image.height,
        alt=image.about,
    )


def _text(sample: int, seen: Preview) -> Html:
    return html(
        element("dt", f"{sample:,}"),
        element("dd", element("bdi", seen.text), _note(seen.note)),
    )


def _note(note: str) -> Html:
    return element("small", note) if note else html()


def _samples(statistics: DatasetStatistics) -> Html:
    names = [column.name for column in statistics.columns[:_MAX_COLUMNS]]
    heads = (element("th", element("bdi", cut(name, _MAX_NAME_CHARS))) for name in names)
    rows = (
        element(
            "tr",
            element("th", f"{number_:,}", scope="row"),
            *(
                element("td", _value(values.get(name)), data_name=cut(name, _MAX_NAME_CHARS))
                for name in names
            ),
        )
        for number_, values in statistics.samples
    )
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", element("th", "sample"), *heads)),
            element("tbody", *rows),
        ),
        class_="wide",
    )


def _value(seen: Preview | None) -> Html:
    if seen is None:
        return html("–")
    if seen.images:
        return html(*map(_image, seen.images), _note(seen.note))
    return html(element("bdi", cut(seen.text, _MAX_CELL_CHARS)), _note(seen.note))
