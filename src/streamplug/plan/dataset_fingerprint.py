"""Digest of what a data set consists of, which states save and compare."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_NAMED_DIFFERENCES = 4
"""Maximum number of streams or list entries in an error."""

MIN_DIGEST_LENGTH = 16
"""Minimum length of a hexadecimal word that errors leave out."""


@dataclass(frozen=True)
class DatasetFingerprint:
    """Digests and counts of the data on which the order of a run depends.

    Attributes:
        digest: Digest of the other attributes and the sizes of all shards; orders with other digests differ.
        shard_counts: Number of shards of each stream.
        shard_digests: Digest of the shard sizes of each stream.
        selections: Digest of the selected rows of each stream, after the version and its digest if there are
            versions; empty for all rows.
        tokens: Options that make rows of tokens from documents; None for stored samples.
    """

    digest: str
    shard_counts: Sequence[int] = ()
    shard_digests: Sequence[str] = ()
    selections: Sequence[str] = ()
    tokens: Mapping[str, Any] | None = None

    def to_state(self) -> dict[str, Any]:
        """Return the details that a state saves to describe differences, as JSON values."""
        saved: dict[str, Any] = {"shard_counts": list(self.shard_counts)}
        if len(self.shard_digests) > 1:  # a single stream needs only the total digest
            saved["shard_digests"] = list(self.shard_digests)
        if any(self.selections):
            saved["selections"] = list(self.selections)
        if self.tokens is not None:
            saved["tokens"] = dict(self.tokens)
        return saved

    def describe_difference(self, saved: Mapping[str, Any]) -> str:
        """Describe the difference from the fingerprint of a state with another digest."""
        differences = [
            *self._token_differences(saved),
            *self._shard_differences(saved),
            *self._selection_differences(saved),
        ]
        if differences:
            return "; ".join(differences)
        if "shard_counts" not in saved:
            return (
                "shards: the sizes of the shards, or how rows of tokens are made of documents, are not those "
                "of the state, which was saved by an earlier version without details"
            )
        if self.tokens is not None:
            return "documents: their lengths differ from those of the state, shard by shard"
        return "shards: same number of shards as in the state, but with other numbers of samples in them"

    def _shard_differences(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = saved.get("shard_counts"), list(self.shard_counts)
        if not isinstance(before, list) or not now:
            return []
        if len(before) != len(now):
            return [f"streams: saved {len(before)} streams, now {len(now)}"]
        if before != now:
            return [_describe_list_difference("shards of each stream", before, now)]
        which = _differing_streams(saved.get("shard_digests"), self.shard_digests)
        return which and [
            f"shards: those of {which[0]} have other numbers of samples than in the state"
        ]

    def _selection_differences(self, saved: Mapping[str, Any]) -> list[str]:
        now = self.selections or [""] * len(self.shard_counts)
        before = saved.get("selections", [""] * len(now))
        which = _differing_streams(before, now)
        if not which:
            return []
        old, new = next(pair for pair in zip(before, now) if pair[0] != pair[1])
        words = [_describe_rows(rows) for rows in (old, new)]
        both = words[0] == words[1]
        saved_and_now = f"both {words[0]}" if both else f"saved {words[0]}, now {words[1]}"
        return [f"select: other rows of {which[0]} are selected than in the state: {saved_and_now}"]

    def _token_differences(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = saved.get("tokens"), self.tokens
        if "shard_counts" not in saved:
            return []
        if not isinstance(before, Mapping) or now is None:
            names = [
                "samples as they are stored" if tokens is None else f"rows by {_view(tokens)}"
                for tokens in (before, now)
            ]
            return [] if before is now else [f"tokens: saved {names[0]}, now {names[1]}"]
        return [describe_difference("tokens", before, now)] if before != now else []


def _describe_rows(rows: object) -> str:
    """Describe the identity of the rows of a stream, see `selections`, without its digests."""
    text = str(rows).split(" ")
    # The number of a snapshot may have as many digits as a digest.
    words = [
        word
        for before, word in zip(["", *text], text)
        if before == "snapshot" or not _is_digest(word)
    ]
    return " ".join(words)[:80] or ("of a select=" if rows else "all rows")


def _is_digest(word: str) -> bool:
    return len(word) >= MIN_DIGEST_LENGTH and set(word) <= set("0123456789abcdef")


def _differing_streams(before: object, now: Sequence[str]) -> list[str]:
    """Return a list of one text that names the streams whose digests differ; empty if none is known to."""
    if not isinstance(before, list) or len(before) != len(now):
        return []
    streams = [str(number) for number, (old, new) in enumerate(zip(before, now)) if old != new]
    return [f"stream{'s'[: len(streams) > 1]} {_join_first(streams)} (from 0)"] if streams else []


def describe_difference(name: str, before: Any, now: Any, meaning: str = "") -> str:
    """Describe the difference between a saved and a current value; `meaning` explains the name."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return "; ".join(
            describe_difference(f"{name}.{key}", before.get(key), now.get(key))
            for key in dict.fromkeys([*now, *before])
            if before.get(key) != now.get(key)
        )
    if isinstance(before, list) and isinstance(now, list):
        return _describe_list_difference(name, before, now, meaning)
    return f"{name}: saved {reprlib.repr(before)}, now {reprlib.repr(now)}{meaning}"


def _describe_list_difference(
    name: str, before: Sequence[Any], now: Sequence[Any], meaning: str = ""
) -> str:
    """Describe the difference between lists, by entry if their abbreviated reprs are equal."""
    shown = reprlib.repr(before), reprlib.repr(now)
    if shown[0] != shown[1] or len(before) != len(now):
        cut = len(before) != len(now) and "..." in shown[0] + shown[1]
        sizes = f" ({len(before)} entries, now {len(now)})" if cut else ""
        return f"{name}: saved {shown[0]}, now {shown[1]}{sizes}{meaning}"
    entries = [
        f"[{number}] saved {old!r:.80}, now {new!r:.80}"
        for number, (old, new) in enumerate(zip(before, now))
        if old != new
    ]
    return f"{name}: {_join_first(entries)}{meaning}"


def _join_first(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_NAMED_DIFFERENCES
    return ", ".join(texts[:MAX_NAMED_DIFFERENCES]) + (f", and {more} more" if more > 0 else "")


def _view(tokens: Any) -> str:
    return reprlib.repr(tokens.get("view")) if isinstance(tokens, Mapping) else reprlib.repr(tokens)
