"""The data set of the simulated world, and the order in which one process reads it.

    python -m tests.world.data FOLDER

writes both, in a process without simulated threads.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from streamplug.types import World

SHARDS, PER_SHARD, GLOBAL_BATCH, EPOCHS = 32, 6, 12, 2


def content(number: int) -> bytes:
    """Return what a sample has."""
    return hashlib.blake2b(number.to_bytes(4, "little")).digest() * (4 + number % 3)


def order(ranks: int, rank: int, nodes: int = 1) -> dict[str, Any]:
    """Return the options of an order that is the same for all numbers of ranks."""
    return {
        "shuffle": True,
        "shuffle_seed": 7,
        "shuffle_block_size": 48,
        "num_canonical_nodes": 2,
        "batch_size": GLOBAL_BATCH // ranks,
        "world": World(nodes=nodes, ranks_per_node=ranks // nodes, rank=rank),
    }


def main() -> None:
    from streamplug import MDSWriter
    from streamplug.dataset import StreamingDataset

    folder = Path(sys.argv[1])
    columns = {"id": "int", "data": "bytes"}
    with MDSWriter(
        out=folder, columns=columns, hashes=["xxh64"], max_samples_per_shard=PER_SHARD
    ) as out:
        for number in range(SHARDS * PER_SHARD):
            out.write({"id": number, "data": content(number)})
    dataset = StreamingDataset(local=str(folder), **order(1, 0))
    steps = [sorted(batch["id"].tolist()) for _ in range(EPOCHS) for batch in dataset.batches()]
    (folder / "steps.json").write_text(json.dumps(steps))


if __name__ == "__main__":
    main()
