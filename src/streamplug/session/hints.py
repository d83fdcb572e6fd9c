"""Advice: what works, but badly, as it is set; each piece is given once in a process, with what to do."""

from __future__ import annotations

import logging
from math import gcd

from streamplug.types import World

_LOG = logging.getLogger("streamplug")
_SHARDS = 10
"""Over so many shards it is good to mix."""
_given: set[tuple[object, ...]] = set()


def _advise(about: tuple[object, ...], text: str) -> None:
    if about not in _given:
        _given.add(about)
        _LOG.warning("%s", text)


def on_order(
    *,
    shuffle: str | None,
    block: int | None,
    canonical_nodes: int,
    samples: int,
    shards: int,
    world: World,
) -> None:
    """Advise on how a run is ordered, in the first worker of the first rank.

    Args:
        shuffle: Name of the shuffle, or None.
        block: Over how many samples it mixes; None if it takes no account of that.
        canonical_nodes: Number of canonical nodes.
        samples: Of the data set.
        shards: Of the data set.
        world: Who reads it.
    """
    if world.rank or world.worker:
        return
    shard = samples // max(shards, 1)
    if shuffle is not None and block is not None and shards > 1 and block < shard:
        _advise(
            ("blocks", block, shard),
            f"shuffle_block_size={block} is less than the {shard:,} samples of an average shard: batches are "
            f"of one or two shards, and samples mix with few others; give several shards' samples, such as "
            f"shuffle_block_size={min(_SHARDS, shards) * shard}",
        )
    if canonical_nodes % world.nodes:
        shared = gcd(canonical_nodes, world.nodes)
        share = f"1/{shared} of the shards" if shared > 1 else "all shards"
        _advise(
            ("canonical_nodes", canonical_nodes, world.nodes),
            f"num_canonical_nodes={canonical_nodes} on {world.nodes} nodes: each node needs {share}, "
            f"rather than 1/{world.nodes}; give a multiple of the number of nodes to a new run, and continue "
            "this one on a number of nodes that divides it",
        )


def on_batches(batch_size: int | None, world: World) -> None:
    """Advise who reads by several workers and has not said of how many samples batches are."""
    if batch_size is None and world.workers_per_rank > 1 and not world.rank and not world.worker:
        _advise(
            ("batches", world.workers_per_rank),
            f"{world.workers_per_rank} workers read a data set without batch_size=: it deals samples to them "
            "one by one, and batches that a loader makes of them depend on the number of workers; give the "
            "data set the loader's batch size, or 1 if it makes no batches",
        )


def on_cache(needed: int, limit: int, world: World) -> None:
    """Advise who has a cache that is too small for what a single batch needs.

    Args:
        needed: Bytes of the shards that it needs.
        limit: Bytes that the cache may have.
        world: Who reads it.
    """
    if 2 * needed <= limit or world.rank or world.worker:
        return
    _advise(
        ("cache", limit),
        f"cache_limit={limit} is less than twice the {needed:,} bytes of the shards that one batch needs, so "
        f"that shards go before they are used up; give {2 * needed} or more, mix over fewer samples "
        "(shuffle_block_size=), or read samples by access='range'",
    )
