"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_formats() -> list[Provider]:
    """Name the formats of this distribution."""
    return [
        Provider("json", "streamplug_text.jsonl:JSONL", aliases=("jsonl",)),
        Provider("plain-jsonl", "streamplug_text.plain_jsonl:PlainJSONL"),
        Provider("plain-csv", "streamplug_text.plain_csv:PlainCSV"),
        Provider("csv", "streamplug_text.xsv:CSV"),
        Provider("tsv", "streamplug_text.xsv:TSV"),
        Provider("xsv", "streamplug_text.xsv:XSV"),
    ]
