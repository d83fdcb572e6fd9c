"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the formats of this distribution."""
    return [
        Provider("format", "json", "streamplug_text.jsonl:JSONL", aliases=("jsonl",)),
        Provider("format", "plain-jsonl", "streamplug_text.plain_jsonl:PlainJSONL"),
        Provider("format", "plain-csv", "streamplug_text.plain_csv:PlainCSV"),
        Provider("format", "csv", "streamplug_text.xsv:CSV"),
        Provider("format", "tsv", "streamplug_text.xsv:TSV"),
        Provider("format", "xsv", "streamplug_text.xsv:XSV"),
    ]
