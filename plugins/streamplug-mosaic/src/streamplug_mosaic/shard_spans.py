"""What the algorithms have in common: shards as spans of ids, dealt to the canonical nodes.

Random numbers come from numpy's PCG64 and are drawn in a fixed order: a run's own generator for
what stays from epoch to epoch, and one for each epoch, which the algorithms go on drawing from.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from streamplug.interfaces import canonical_node_bounds, merge_bounds
from streamplug.types import Int64


@dataclass(frozen=True, slots=True)
class Spans:
    """The spans of all canonical nodes, in the order of an epoch.

    Attributes:
        starts: First id of each span, shape ``[spans]``.
        sizes: Ids in each span, shape ``[spans]``.
        nodes: Where the spans of each canonical node begin, and the total, shape ``[nodes + 1]``.
        epoch_rng: The epoch's generator, as far as it was drawn from.
    """

    starts: Int64
    sizes: Int64
    nodes: list[int]
    epoch_rng: np.random.Generator


def deal(sizes: Int64, canonical_nodes: int, seed: int, epoch: int) -> Spans:
    """Shuffle shards, cut their sequence into canonical nodes, and shuffle the spans of each."""
    shards = np.arange(len(sizes))
    np.random.default_rng(seed).shuffle(shards)
    starts, lengths, nodes = cut((np.cumsum(sizes) - sizes)[shards], sizes[shards], canonical_nodes)
    epoch_rng = np.random.default_rng(seed + epoch)
    order = np.arange(len(starts))
    for first, last in itertools.pairwise(nodes):
        epoch_rng.shuffle(order[first:last])
    return Spans(starts[order], lengths[order], nodes, epoch_rng)


def cut(starts: Int64, sizes: Int64, canonical_nodes: int) -> tuple[Int64, Int64, list[int]]:
    """Cut a sequence of spans at the bounds of the canonical nodes, splitting those across one.

    Returns:
        First id and size of each span, and where the spans of each canonical node begin.
    """
    ends = np.cumsum(sizes)
    bounds = canonical_node_bounds(int(ends[-1]) if len(ends) else 0, canonical_nodes)
    edges = merge_bounds(ends, bounds)
    span = np.searchsorted(ends, edges[:-1], side="right")
    begin = starts[span] + edges[:-1] - (ends - sizes)[span]
    return begin, np.diff(edges), np.searchsorted(edges, bounds).tolist()
