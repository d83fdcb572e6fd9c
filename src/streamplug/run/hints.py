"""Warnings about settings that work but perform badly, each logged once in a process."""

from __future__ import annotations

import logging
from math import gcd

from streamplug.plan import Segment, Streams
from streamplug.types import World

_LOG = logging.getLogger("streamplug")
_SHARDS_PER_SHUFFLE_BLOCK = 10  # recommended
_logged: set[tuple[object, ...]] = set()


def _warn_once(world: World, about: tuple[object, ...], text: str) -> None:
    """Warn in the first worker of the first rank."""
    if not (world.rank or world.worker or about in _logged):
        _logged.add(about)
        _LOG.warning("%s", text)


def warn_about_order(
    streams: Streams, segment: Segment, world: World, cache_share: float | None
) -> None:
    """Warn about an order that mixes little, or with which machines download much.

    Args:
        streams: The streams.
        segment: The segment with which the run began.
        world: The world of the worker.
        cache_share: As for `Streams.fitting_block_size`.
    """
    canonical_nodes = segment.canonical_nodes
    if streams.shuffled and streams.algorithm.uses_block_size:
        _warn_about_block_size(streams, segment, world, cache_share)
    if canonical_nodes % world.nodes:
        shared = gcd(canonical_nodes, world.nodes)
        share = f"1/{shared} of the shards" if shared > 1 else "all shards"
        _warn_once(
            world,
            ("canonical_nodes", canonical_nodes, world.nodes),
            f"num_canonical_nodes={canonical_nodes} on {world.nodes} nodes: each node needs {share}, "
            f"rather than 1/{world.nodes}; give a multiple of the number of nodes to a new run, and continue "
            "this one on a number of nodes that divides it",
        )


def _warn_about_block_size(
    streams: Streams, segment: Segment, world: World, cache_share: float | None
) -> None:
    nodes = segment.canonical_nodes
    block, shards = streams.of(segment).block_size(nodes), streams.shards
    shard = streams.samples // max(shards, 1)
    fitting = streams.fitting_block_size(nodes, world.nodes, cache_share)
    if fitting is not None and block <= fitting and streams.shuffle_block_size is None:
        _warn_once(
            world,
            ("fitting", block),
            f"cache_limit= holds less than the shards that a node reads in an epoch: with shuffle_block_size="
            f"{block}, chosen for it, an epoch downloads each shard at most about once, and a sample mixes "
            f"with those of {max(block // max(shard, 1), 1):,} shards; the default of the shuffle, "
            f"{streams.algorithm.default_block_size(nodes)}, needs a larger cache",
        )
    elif fitting is not None and block > fitting:
        _warn_once(
            world,
            ("too large", block, fitting),
            f"shuffle_block_size={block} needs the shards of {streams.algorithm.blocks_in_use} blocks at "
            "once, more than cache_limit= allows, so that each is downloaded several times in an epoch; "
            f"raise cache_limit=, or begin a run with shuffle_block_size={fitting} or less",
        )
    elif shards > 1 and block < shard:
        _warn_once(
            world,
            ("blocks", block, shard),
            f"shuffle_block_size={block} is less than the {shard:,} samples of an average shard: batches are "
            f"of one or two shards, and samples mix with few others; give several shards' samples, such as "
            f"shuffle_block_size={min(_SHARDS_PER_SHUFFLE_BLOCK, shards) * shard}",
        )


def warn_about_batches(batch_size: int | None, world: World) -> None:
    """Warn about several workers without a batch size."""
    if batch_size is None and world.workers_per_rank > 1:
        _warn_once(
            world,
            ("batches", world.workers_per_rank),
            f"{world.workers_per_rank} workers read a data set without batch_size=: it deals samples to them "
            "one by one, and batches that a loader makes of them depend on the number of workers; give the "
            "data set the loader's batch size, or 1 if it makes no batches",
        )


def warn_about_timeout(timeout: float, patience: float, world: World) -> None:
    """Warn if the `timeout` of a loader ends loops whose workers wait for a storage; both are in seconds."""
    if 0 < timeout <= patience:
        _warn_once(
            world,
            ("timeout", timeout, patience),
            f"timeout={timeout:g} of the loader is not longer than download_patience={patience:g}: when a "
            "storage is away, torch ends the loop while its workers still wait; give a longer timeout=, or a "
            "shorter download_patience=",
        )


def warn_about_own_samples(name: str, batches: int, steps: int, world: World) -> None:
    """Warn if an epoch had other batches than steps, as an overridden method drops or adds samples."""
    if batches == steps:
        return
    _warn_once(
        world,
        ("own samples", name),
        f"{name} drops or adds samples: an epoch ended after {batches:,} of {steps:,} batches. "
        "States count batches, so one within an epoch repeats samples or leaves some out; choose samples by "
        "select= of a stream, and change them in __getitem__ or by transform= of the loader",
    )


def warn_about_subsets(length: int, size: int, world: World) -> None:
    """Warn if a subset is read of a data set whose `len` is less than the number of stored samples."""
    if length < size:
        _warn_once(
            world,
            ("subsets", length, size),
            f"a Subset reads a data set with {size:,} stored samples, whose len is {length:,}, the number of "
            "samples of one rank in an epoch. random_split, and all else that chooses by len, leaves out the "
            "others: give it dataset.as_source(), whose len is the number of stored samples",
        )


def warn_about_cache(needed: int, limit: int, world: World) -> None:
    """Warn if a cache of `limit` bytes is less than twice the `needed` bytes of a single batch.

    The caller has found that the process needs more shards than the cache holds.
    """
    if 2 * needed <= limit:
        return
    _warn_once(
        world,
        ("cache", limit),
        f"cache_limit={limit} is less than twice the {needed:,} bytes of the shards that one batch needs, so "
        f"shards are evicted before they are used up; give {2 * needed} or more, mix over fewer samples "
        "(shuffle_block_size=), or read samples by access='range' (streamplug-ranges), if the shards are "
        "not compressed",
    )
