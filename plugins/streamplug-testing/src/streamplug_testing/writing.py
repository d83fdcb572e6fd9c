"""Checks that a writer makes the same shard from batches and from single samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import Encoding, RowPiece, ShardWriter
from streamplug_testing.equality import same
from streamplug_testing.memory_shard import MemoryShard
from streamplug_testing.samples import pieces_of


def check_batch(writer: ShardWriter, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check that a batch is encoded like its samples one by one."""
    data, sizes = writer.encode_batch({name: [row[name] for row in rows] for name in rows[0]})
    parts, counted = zip(*map(writer.encode_pieces, rows))
    assert sizes.tolist() == list(counted)
    whole = list(map(writer.encode, rows))
    inputs = [pieces_of(data), pieces_of([*parts]), whole]
    if all(isinstance(row, bytes) for row in whole):
        assert len(set(map(b"".join, inputs))) == 1
        assert list(counted) == [len(row) for row in whole]
    shards = [assembled(writer, pieces, sizes.tolist()) for pieces in inputs]
    assert same(shards, [shards[0]] * 3)


def check_mixed(writer: ShardWriter, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check that seven samples, some of them in a batch, make the same shard as seven single samples."""
    data, sizes = writer.encode_batch({name: [row[name] for row in rows[2:5]] for name in rows[0]})
    parts, counted = zip(*map(writer.encode_pieces, rows))
    runs = [pieces_of([*parts[:2]]), pieces_of(data), pieces_of([*parts[5:]])]
    packed = [piece for run in runs for piece in writer.pack(run)]
    assert list(counted[2:5]) == sizes.tolist()
    assert same(assembled(writer, packed, counted, pack=False), written(writer, rows))


def check_value_sizes(
    writer: ShardWriter, rows: Sequence[Mapping[str, Any]], encodings: Mapping[str, Encoding]
) -> None:
    """Check that the sizes of values are those of their stored forms."""
    parts, sizes = zip(*map(writer.encode_pieces, rows))
    packed = writer.pack(pieces_of([*parts]))
    for name, found in writer.value_sizes(packed, np.array(sizes, np.int64)).items():
        assert found.tolist() == [len(encodings[name].encode(row[name])) for row in rows]


def written(writer: ShardWriter, rows: Sequence[Mapping[str, Any]]) -> MemoryShard:
    """Write a shard of single samples."""
    parts, sizes = zip(*map(writer.encode_pieces, rows)) if rows else ((), ())
    return assembled(writer, pieces_of([*parts]), sizes)


def assembled(
    writer: ShardWriter, pieces: Sequence[RowPiece], sizes: Sequence[int], *, pack: bool = True
) -> MemoryShard:
    """Assemble a shard from pieces of rows."""
    packed = writer.pack(pieces) if pack and pieces else pieces
    content = writer.assemble(packed, np.array(sizes, np.int64))
    files = {role: b"".join(buffers) for role, buffers in content.items()}
    return MemoryShard(as_json(writer.entry()), files, len(sizes))


def as_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry after a JSON round trip, with sorted keys as in an index."""
    return json.loads(json.dumps(entry, sort_keys=True))  # type: ignore[no-any-return]  # a dict went in
