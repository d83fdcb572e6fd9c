"""Fingerprint of rows of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from streamplug.errors import StreamplugError
from streamplug.plan import DatasetFingerprint
from streamplug_tokens.options import options_from_state, options_to_state


class RowFingerprint(DatasetFingerprint):
    """Fingerprint that names extra columns as a difference only where rows depend on them."""

    @classmethod
    def of(
        cls, documents: DatasetFingerprint, digest: str, tokens: Mapping[str, Any]
    ) -> RowFingerprint:
        """Return the fingerprint of rows that options make of documents; `digest` is of both."""
        values = {field.name: getattr(documents, field.name) for field in fields(documents)}
        return cls(**{**values, "digest": digest, "tokens": tokens})

    def describe_difference(self, saved: Mapping[str, Any]) -> str:
        rows = replace(self, tokens=_without_extras(self.tokens))
        saved_rows = {**saved, "tokens": _without_extras(saved.get("tokens"))}
        return DatasetFingerprint.describe_difference(rows, saved_rows)


def _without_extras(tokens: Any) -> Any:
    try:
        return options_to_state(options_from_state(tokens).without_extras())
    except StreamplugError:
        return tokens
