"""Tables of a simulation on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from streamplug.display import make_console, pairs_table, rows_table
from streamplug_simulate import EpochResult, NodeResult, SimulationResult
from streamplug_simulate.model.scenario import uses_block_size

_MAX_NODES = 8

_EPOCH_HEADINGS = (
    "epoch", "steps", "of", "first batch", "later waits", "duration",
    "downloaded bytes", "in the whole epoch",
)  # fmt: skip
_NODE_HEADINGS = (
    "node", "downloaded bytes", "downloads", "cache hits", "evictions", "evicted bytes",
)  # fmt: skip


def print_result(result: SimulationResult) -> None:
    """Print a simulation."""
    console = make_console()
    console.print(pairs_table(_overview(result)))
    console.print(rows_table(_EPOCH_HEADINGS, map(_epoch, result.epochs), "right"))
    rows = [_node(number, node) for number, node in enumerate(result.nodes[:_MAX_NODES])]
    if len(result.nodes) > _MAX_NODES:
        rows.append([f"… of {len(result.nodes)}", *[""] * 5])
    console.print(rows_table(_NODE_HEADINGS, rows, "right"))
    for note in result.notes:
        console.print(Text(note))


def _epoch(epoch: EpochResult) -> list[str]:
    about = "" if epoch.simulated == epoch.steps else "about "
    counts = [f"{number:,}" for number in (epoch.epoch, epoch.simulated, epoch.steps)]
    times = map(_seconds, (epoch.first_batch, epoch.waited, epoch.seconds))
    return [*counts, *times, f"{epoch.bytes:,}", f"{about}{epoch.all_bytes:,}"]


def _node(number: int, node: NodeResult) -> list[str]:
    counts = (node.bytes, node.shards, node.hits, node.evictions, node.evicted_bytes)
    return [str(number), *(f"{count:,}" for count in counts)]


def _overview(result: SimulationResult) -> Iterator[tuple[str, str]]:
    scenario, quality = result.scenario, result.quality
    at_most = "" if result.complete else "at most " if scenario.epochs > 1 else "about "
    yield "data set", ", ".join(result.urls)
    shards = _many(result.shards, "shard")
    sizes = f"{result.samples:,} in {shards}, {result.stored_bytes:,} stored bytes"
    yield "samples", sizes
    world = f"{_many(scenario.nodes, 'node')}, {_many(scenario.ranks_per_node, 'rank')} each, "
    workers = _many(scenario.workers, "worker")
    yield "run", f"{world}{workers} each, batches of {scenario.batch_size:,}"
    block = ""
    if uses_block_size(scenario.shuffle):
        block = f"block size {_or_default(scenario.block_size)}, "
    canonical_nodes = f"canonical nodes {_or_default(scenario.canonical_nodes)}"
    yield "order", f"shuffle {scenario.shuffle or 'none'}, {block}{canonical_nodes}"
    limit = "none" if scenario.cache_limit is None else f"{scenario.cache_limit:,} bytes"
    ahead = "auto" if scenario.predownload is None else f"{scenario.predownload:,} samples"
    yield "cache limit", f"{limit}; predownload {ahead}"
    times = f"latency {_seconds(scenario.latency)}, step {_seconds(scenario.step_seconds)}"
    yield "network", f"{scenario.bandwidth:,.0f} bytes per second and node, {times}"
    later = ""
    if scenario.epochs > 1:
        mean = (result.egress - result.epochs[0].all_bytes) // (scenario.epochs - 1)
        later = f"; {mean:,} in each later epoch"
    yield (
        "egress",
        f"{at_most}{result.egress:,} bytes over {_many(scenario.epochs, 'epoch')}{later}",
    )
    if scenario.price:
        yield "cost", f"{at_most}{result.cost:,.4g}"
    is_local = f"{quality.shards_per_batch:,.1f} shards in a global batch"
    same = f"{100 * quality.same_shard:.1f} % of samples follow one of the same shard"
    yield "mixing", f"{is_local}; {same}; mean displacement {quality.displacement:,.0f} samples"


def _or_default(value: int | None) -> str:
    return "default" if value is None else f"{value:,}"


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value >= 1 or not value else f"{1000 * value:,.1f} ms"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'s'[: number != 1]}"
