"""Functions that return the order of a whole epoch as arrays: shuffle, partition, sampling, work."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import ShuffleAlgorithm, canonical_node_bounds
from streamplug.plan import Selection, rows_of
from streamplug.plugin import make
from streamplug.types import Int64
from streamplug.types import World as ProcessPlace
from streamplug_mosaic.compat.checks import (
    check_batch_size,
    check_block_size,
    check_canonical_nodes,
    warn,
)
from streamplug_mosaic.partition import fits, make_partition
from streamplug_mosaic.sampling import choose_per_shard

if TYPE_CHECKING:
    from streamplug.run import Run
    from streamplug_mosaic.compat.dataset import StreamingDataset
    from streamplug_mosaic.compat.world import World


def get_shuffle(
    algo: str,
    shard_sizes: Any,
    num_canonical_nodes: int,
    seed: int,
    epoch: int,
    block_size: int = 1 << 18,
) -> Int64:
    """Return the shuffled sample numbers of an epoch.

    Args:
        algo: Name of the shuffle.
        shard_sizes: Samples of each shard, shape ``[shards]``.
        num_canonical_nodes: Number of canonical nodes.
        seed: Seed of the order.
        epoch: Number of the epoch.
        block_size: Size of shuffle blocks in samples.

    Raises:
        PluginError: If the shuffle does not exist or is not installed.
        ConfigError: If py1e has more canonical nodes than samples.
    """
    sizes = np.asarray(shard_sizes, np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    if algo == "py1e":
        check_canonical_nodes({"all shards": int(starts[-1])}, num_canonical_nodes)
        check_block_size(block_size, sizes)
    algorithm: ShuffleAlgorithm = make("shuffle", algo)
    order = algorithm.order(
        starts, canonical_nodes=num_canonical_nodes, seed=seed, epoch=epoch, block_size=block_size
    )
    lengths = np.diff(canonical_node_bounds(int(starts[-1]), num_canonical_nodes)).tolist()
    return np.concatenate([order.take(node, 0, length) for node, length in enumerate(lengths)])


get_shuffle_naive = partial(get_shuffle, "naive")
get_shuffle_py1br = partial(get_shuffle, "py1br")
get_shuffle_py1e = partial(get_shuffle, "py1e")
get_shuffle_py1s = partial(get_shuffle, "py1s")
get_shuffle_py2s = partial(get_shuffle, "py2s")


def get_partitions(
    algo: str,
    num_samples: int,
    num_canonical_nodes: int,
    num_physical_nodes: int,
    ranks_per_node: int,
    workers_per_rank: int,
    batch_size: int,
    drop_first: int = 0,
    initial_physical_nodes: int | None = None,
) -> Int64:
    """Return the positions of an order that each worker reads; -1 fills up short batches.

    Args:
        algo: ``"orig"`` or ``"relaxed"``.
        num_samples: Samples of the epoch.
        num_canonical_nodes: Number of canonical nodes.
        num_physical_nodes: Number of nodes.
        ranks_per_node: Ranks per node.
        workers_per_rank: Workers per rank.
        batch_size: Samples of a batch of one rank.
        drop_first: Number of samples read before.
        initial_physical_nodes: Number of nodes when the run began, for ``"relaxed"``.

    Returns:
        Shape ``[nodes, ranks of a node, workers of a rank, batches of a worker, batch_size]``.

    Raises:
        ConfigError: If the nodes cannot be served, or `drop_first` exceeds the samples.
    """
    world = ProcessPlace(num_physical_nodes, ranks_per_node, workers_per_rank)
    is_relaxed = algo == "relaxed" and initial_physical_nodes is not None
    _check_partition(num_samples, num_canonical_nodes, world, drop_first, is_relaxed=is_relaxed)
    partition = make_partition(
        algo,
        num_samples,
        num_canonical_nodes,
        world,
        batch_size,
        drop_first=min(drop_first, -(-num_samples // world.ranks) * world.ranks),
        initial_nodes=initial_physical_nodes,
    )
    steps = np.arange(partition.steps)
    return _by_worker(world, batch_size, len(steps), lambda rank: partition.entries(rank, steps))


def _check_partition(
    samples: int, canonical_nodes: int, world: ProcessPlace, drop_first: int, *, is_relaxed: bool
) -> None:
    """Refuse what mosaicml-streaming refuses, and warn where samples are repeated often."""
    if not is_relaxed and not fits(canonical_nodes, world.nodes):
        raise ConfigError(
            "Either canonical or physical nodes must be a multiple of the other: "
            f"num_canonical_nodes={canonical_nodes}, num_physical_nodes={world.nodes}"
        )
    samples_and_repeats = samples + world.ranks - samples % world.ranks
    if drop_first > samples_and_repeats:
        raise ConfigError(
            f"Resuming further into the dataset than it goes: drop_first={drop_first}, but there are "
            f"{samples_and_repeats} samples, repeated ones included"
        )
    if samples < canonical_nodes or samples == canonical_nodes < world.nodes:
        warn(
            f"Trying to partition {samples} samples into {canonical_nodes} canonical nodes: most are "
            "repeated; lower num_canonical_nodes="
        )
    if samples < world.ranks:
        warn(
            f"Attempting to partition {samples} samples among {world.ranks} ranks: some are repeated; "
            "use fewer ranks, or more samples"
        )


def _by_worker(world: ProcessPlace, batch: int, steps: int, ids_of_rank: Any) -> Int64:
    """Arrange the batches of all ranks by worker; workers take turns.

    Args:
        world: Nodes, ranks and workers.
        batch: Samples of a batch of one rank.
        steps: Number of batches of each rank.
        ids_of_rank: Returns the batches of a rank, shape ``[steps, batch]``.
    """
    workers = world.workers_per_rank
    shape = (world.nodes, world.ranks_per_node, workers, -(-steps // workers), batch)
    whole = np.full(shape, -1, np.int64)
    for rank in range(world.ranks):
        place = ProcessPlace(world.nodes, world.ranks_per_node, 1, rank)
        rows = ids_of_rank(place)
        for worker in range(workers):
            own = rows[worker::workers]
            whole[place.node, place.rank_of_node, worker, : len(own)] = own
    return whole


def get_sampling(
    samples_per_shard: Any, choose: int, granularity: int, seed: int, epoch: int, use_epoch: bool
) -> Int64:
    """Return the number of samples of each shard in an epoch.

    Args:
        samples_per_shard: Samples of each shard, shape ``[shards]``.
        choose: Number of samples.
        granularity: Samples of a shard that are chosen together.
        seed: Seed of the sampling.
        epoch: Number of the epoch.
        use_epoch: Whether each epoch samples anew.

    Raises:
        ConfigError: If a number is too small.
    """
    for name, value, lowest in (
        ("choose", choose, 0),
        ("granularity", granularity, 1),
        ("seed", seed, 0),
        ("epoch", epoch, 0),
    ):
        if value < lowest:
            raise ConfigError(f"{name}={value}: must be at least {lowest}")
    sizes = np.asarray(samples_per_shard, np.int64)
    return choose_per_shard(sizes, int(choose), granularity, seed + epoch * use_epoch)


def generate_work(
    batching_method: str,
    dataset: StreamingDataset,
    world: World,
    epoch: int,
    sample_in_epoch: int,
) -> Int64:
    """Return the samples that each worker reads in an epoch; -1 fills up short batches.

    Args:
        batching_method: Name of the batching method.
        dataset: The data set.
        world: Nodes, ranks and workers.
        epoch: Number of the epoch.
        sample_in_epoch: Samples of all ranks that were read before, whole global batches.

    Returns:
        Shape ``[nodes, ranks of a node, workers of a rank, batches of a worker, batch_size]``.

    Raises:
        ConfigError: If there is no batch size, the nodes cannot be served, or `sample_in_epoch` is not whole
            global batches.
    """
    batch = check_batch_size(dataset.batch_size)
    place = ProcessPlace(world.num_nodes, world.ranks_per_node, world.workers_per_rank)
    first, rest = divmod(sample_in_epoch, batch * place.ranks)
    if rest:
        raise ConfigError(
            f"sample_in_epoch={sample_in_epoch}: must be whole global batches, of "
            f"{batch * place.ranks} samples each"
        )
    session = dataset.session
    options = replace(session.run.options, batch_size=batch, batching_method=batching_method)
    planner = options.order().planner(options, session.run.planner.streams, session.streams)
    begun = session.run.segments(place)[0]
    plan = planner.epoch(epoch, [replace(begun, global_batch=batch * place.ranks)])
    steps = np.arange(first, plan.steps(place))

    def batches(rank: ProcessPlace) -> Int64:
        rows = np.full((len(steps), batch), -1, np.int64)
        for row, ids in zip(rows, rows_of(*plan.ids(rank, steps))):
            row[: len(ids)] = ids
        return rows

    return _by_worker(place, batch, len(steps), batches)


def select(run: Run, epoch: int, stream: int | None) -> Selection:
    """Return the selection of samples of an epoch.

    Args:
        run: The run.
        epoch: Number of the epoch.
        stream: Number of the stream; None for all.
    """
    return run.planner.streams.select(epoch, stream)
