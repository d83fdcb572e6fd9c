"""What a data set's shards and rows are, as far as states compare it and say in words what differs."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_MAX_NAMED = 4
"""Streams, or entries of a list, that an error names."""


@dataclass(frozen=True)
class Contents:
    """What the order of a run is over.

    Attributes:
        digest: Of all that is below, and of the sizes of all shards: runs that differ in it differ in their
            order.
        shard_counts: Number of shards of each stream.
        shard_digests: Digest of the sizes of each stream's shards.
        tokens: How rows of tokens are made of the documents; None where samples are read as they are stored.
    """

    digest: str
    shard_counts: Sequence[int] = ()
    shard_digests: Sequence[str] = ()
    tokens: Mapping[str, Any] | None = None

    def as_rows(self, digest: str, tokens: Mapping[str, Any]) -> Contents:
        """Return the contents of a run over rows of tokens that are made of these documents."""
        return replace(self, digest=digest, tokens=tokens)

    def saved(self) -> dict[str, Any]:
        """Return what a state keeps to say what differs, as plain JSON values."""
        found: dict[str, Any] = {"shard_counts": list(self.shard_counts)}
        if (
            len(self.shard_digests) > 1
        ):  # that of a single stream is the digest of all, or is not needed
            found["shard_digests"] = list(self.shard_digests)
        if self.tokens is not None:
            found["tokens"] = dict(self.tokens)
        return found

    def difference(self, saved: Mapping[str, Any]) -> str:
        """Say in words how the contents of a state with another digest differ from these."""
        found = [*self._tokens_differing(saved), *self._shards_differing(saved)]
        if found:
            return "; ".join(found)
        if "shard_counts" not in saved:
            return (
                "shards: the sizes of the shards, or how rows of tokens are made of documents, are not those "
                "of the state, which was saved by an earlier version and does not say more"
            )
        if self.tokens is not None:
            return "documents: their lengths differ from those of the state, shard by shard"
        return "shards: same number of shards as in the state, but with other numbers of samples in them"

    def _shards_differing(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = saved.get("shard_counts"), list(self.shard_counts)
        if not isinstance(before, list) or not now:
            return []
        if len(before) != len(now):
            return [f"streams: saved {len(before)} streams, now {len(now)}"]
        if before != now:
            return [_lists("shards of each stream", before, now)]
        digests = saved.get("shard_digests")
        if not isinstance(digests, list) or len(digests) != len(self.shard_digests):
            return []
        streams = [
            str(n) for n, pair in enumerate(zip(digests, self.shard_digests)) if len({*pair}) > 1
        ]
        if not streams:
            return []
        which = (
            f"stream {streams[0]}"
            if len(streams) == 1
            else f"streams {', '.join(streams[:_MAX_NAMED])}"
        )
        more = f" and {len(streams) - _MAX_NAMED} more" if len(streams) > _MAX_NAMED else ""
        return [
            f"shards: those of {which}{more} (from 0) have other numbers of samples than in the state"
        ]

    def _tokens_differing(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = saved.get("tokens"), self.tokens
        if "shard_counts" not in saved:
            return []
        if not isinstance(before, Mapping) or now is None:
            names = [
                "samples as they are stored" if each is None else f"rows by {_view(each)}"
                for each in (before, now)
            ]
            return [] if before is now else [f"tokens: saved {names[0]}, now {names[1]}"]
        return [
            difference(f"tokens.{name}", before.get(name), now.get(name))
            for name in dict.fromkeys([*now, *before])
            if before.get(name) != now.get(name)
        ]


def difference(name: str, before: Any, now: Any, meaning: str = "") -> str:
    """Say how a value of a state differs from that of a run.

    Args:
        name: Of the value.
        before: It in the state.
        now: It in the run.
        meaning: What it is, where the name does not say so.
    """
    if isinstance(before, list) and isinstance(now, list):
        return _lists(name, before, now, meaning)
    return f"{name}: saved {reprlib.repr(before)}, now {reprlib.repr(now)}{meaning}"


def _lists(name: str, before: Sequence[Any], now: Sequence[Any], meaning: str = "") -> str:
    """Say how two lists differ; of long ones, which entries."""
    shown = reprlib.repr(before), reprlib.repr(now)
    if shown[0] != shown[1] or len(before) != len(now):
        cut = len(before) != len(now) and "..." in shown[0] + shown[1]
        sizes = f" ({len(before)} entries, now {len(now)})" if cut else ""
        return f"{name}: saved {shown[0]}, now {shown[1]}{sizes}{meaning}"
    entries = [n for n, (old, new) in enumerate(zip(before, now)) if old != new]
    texts = [f"[{n}] saved {before[n]!r:.80}, now {now[n]!r:.80}" for n in entries[:_MAX_NAMED]]
    more = f", and {len(entries) - _MAX_NAMED} more" if len(entries) > _MAX_NAMED else ""
    return f"{name}: {', '.join(texts)}{more}{meaning}"


def _view(tokens: Any) -> str:
    return reprlib.repr(tokens.get("view")) if isinstance(tokens, Mapping) else reprlib.repr(tokens)
