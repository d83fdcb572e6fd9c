"""Summaries of data sets and loaders, from values that are already loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamplug.display.object_summary import ObjectSummary, SummaryRepr
from streamplug.errors import StreamplugError

if TYPE_CHECKING:
    from streamplug.run import Run, Session
    from streamplug.stream import Stream
    from streamplug.types import World


class DatasetRepr(SummaryRepr):
    """Repr and summary of a data set."""

    streams: Sequence[Stream]
    _session: Session

    def __repr__(self) -> str:
        if "_session" not in self.__dict__:  # not initialized yet
            return object.__repr__(self)
        first = self.streams[0].shown_url
        rest = f" and {len(self.streams) - 1} more" if len(self.streams) > 1 else ""
        session = self._session
        return (
            f"<{type(self).__name__} of {first!r}{rest}: {session.size:,} samples, "
            f"{session.reader.stream_shards[-1]:,} shards, batch_size={session.run.batch_size}>"
        )

    def object_summary(self) -> ObjectSummary:
        """Return a summary of sizes, order and streams."""
        name = type(self).__name__
        if "_session" not in self.__dict__:
            return ObjectSummary(name, [("state", "not made yet")])
        session = self._session
        starts, shards = session.reader.starts, session.reader.stream_shards
        try:
            order = _describe_order(session.run, session.world)
            world = _describe_world(session.placement.rank(), session.world)
        except StreamplugError as error:  # the options do not support this world
            order, world = [], f"{error}"
        facts = [
            ("samples", f"{session.size:,}"),
            ("shards", f"{shards[-1]:,}"),
            *order,
            ("world", world),
        ]
        rows = [
            (
                stream.shown_url,
                stream.shown_share,
                f"{int(starts[last] - starts[first]):,}",
                f"{last - first:,}",
                stream.shown_cache,
            )
            for stream, (first, last) in zip(self.streams, pairwise(shards))
        ]
        return ObjectSummary(name, facts, ("stream", "share", "samples", "shards", "kept in"), rows)


def _describe_order(run: Run, world: World) -> list[tuple[str, str]]:
    order = run.identity(world)
    position = run.current()
    epoch, step = position.epoch, 0
    if position.done:  # an empty data set has no epoch
        step = run.epoch(epoch, world).step_at(world, position.done)
    shuffle = "as stored"
    if order.shuffle_algo is not None:
        shuffle = f"{order.shuffle_algo}, seed {order.shuffle_seed}"
        if run.planner.streams.algorithm.uses_block_size:
            shuffle += f", over {order.shuffle_block_size:,} samples"
    size = "not given" if run.batch_size is None else f"{run.batch_size:,} a rank"
    in_all = f"{order.micro_batches:,} batches" if run.counts_batches else f"{order.global_batch:,}"
    return [
        ("epoch", f"{epoch:,}, from step {step:,}; {order.epoch_size:,} samples"),
        ("batch", f"{size}, {in_all} in all; {order.batching_method}"),
        ("order", f"{shuffle}; num_canonical_nodes={order.num_canonical_nodes}"),
        ("partition", order.partition_algo),
    ]


def _describe_world(own: World, planned: World) -> str:
    text = (
        f"rank {own.rank:,} of {own.ranks:,}, on {own.nodes:,} node{'s' if own.nodes > 1 else ''}"
    )
    if planned.ranks != own.ranks:
        text += f"; {own.ranks // planned.ranks:,} ranks in a row get the same samples"
    return text


class LoaderRepr(SummaryRepr):
    """Repr and summary of a loader."""

    dataset: Any

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.dataset!r}>"

    def object_summary(self) -> ObjectSummary:
        """Return a summary of options and the data set."""
        names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last")
        own = [(name, f"{getattr(self, name, None)}") for name in names]
        if not isinstance(self.dataset, SummaryRepr):
            facts = [*own, ("data set", type(self.dataset).__name__)]
            return ObjectSummary(type(self).__name__, facts)
        of = self.dataset.object_summary()
        facts = [*own, ("data set", of.name), *of.facts]
        return ObjectSummary(type(self).__name__, facts, of.heads, of.rows)
