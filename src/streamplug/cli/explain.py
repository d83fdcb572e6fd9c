"""``streamplug explain``: which samples make up a batch, and when a sample is seen."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, StateError
from streamplug.explain import Use
from streamplug.types import World

_PIPED_WIDTH = 200


@click.command()
@click.argument("location")
@click.option("--step", type=int, help="List the samples of this global batch.")
@click.option("--sample", type=int, help="Say when this sample is read.")
@click.option("--epoch", type=int, help="Which epoch.  [default: that of the state, else 0]")
@click.option(
    "--state",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A saved state_dict() as JSON: tells the order, and the epoch.",
)
@click.option("--ranks", type=int, default=1, show_default=True, help="Number of ranks.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Number of nodes.")
@click.option("--rank", type=int, help="List one rank's part only.")
@click.option("--batch-size", type=int, help="Samples per batch of one rank.")
@click.option("--shuffle", "algorithm", help="Name of the shuffle.  [default: not shuffled]")
@click.option("--seed", type=int, default=9176, show_default=True, help="Seed of the shuffle.")
@click.option("--block-size", type=int, help="Block size of the shuffle.")
@click.option("--canonical-nodes", type=int, help="Number of canonical nodes.")
@click.option("--partition", default="elastic", show_default=True, help="Name of the partition.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def explain(location: str, saved: Path | None, *, as_json: bool, **options: Any) -> None:
    """List the samples of a batch of the data set at LOCATION, or when a sample is read.

    Nothing but the index is read. The order is that of --state, or of the options.
    """
    if (options["step"] is None) == (options["sample"] is None):
        raise click.UsageError("give either --step or --sample")
    state = _read_state(saved) if saved else {}
    dataset = _dataset(location, state, options)
    if state:
        dataset.load_state_dict(state)
    if options["step"] is not None:
        uses = dataset.explain(options["step"], epoch=options["epoch"], rank=options["rank"])
    else:
        uses = dataset.where(options["sample"], epoch=options["epoch"])
    if as_json:
        click.echo(json.dumps([asdict(use) for use in uses], indent=2))
    else:
        _show(uses)


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
    except ValueError as error:
        raise StateError(f"{path} is not JSON: {error}") from None
    if not isinstance(state, dict):
        raise StateError(f"{path} holds no state: save what state_dict() returns as JSON")
    return state


def _dataset(location: str, state: dict[str, Any], options: dict[str, Any]) -> StreamingDataset:
    ranks, nodes = options["ranks"], options["nodes"]
    if nodes < 1 or ranks % nodes:
        raise ConfigError(f"--ranks={ranks} is not a multiple of --nodes={nodes}")
    total = state.get("global_batch")
    if total is not None and total % ranks:
        raise ConfigError(f"the state's global batch of {total} is no multiple of --ranks={ranks}")
    algorithm = state.get("shuffle_algo", options["algorithm"])
    return StreamingDataset(
        remote=location,
        batch_size=options["batch_size"] or (total // ranks if total else None),
        shuffle=algorithm is not None,
        shuffle_algo=algorithm or "window",
        shuffle_seed=state.get("shuffle_seed", options["seed"]),
        shuffle_block_size=state.get("shuffle_block_size", options["block_size"]),
        num_canonical_nodes=state.get("num_canonical_nodes", options["canonical_nodes"]),
        partition_algo=state.get("partition_algo", options["partition"]),
        epoch_size=sum(state["choose"]) if "choose" in state else None,
        sampling_method=state.get("sampling_method", "balanced"),
        sampling_granularity=state.get("sampling_granularity", 1),
        allow_unsafe_types=True,  # nothing is decoded
        world=World(nodes=nodes, ranks_per_node=ranks // nodes),
    )


def _show(uses: list[Use]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    names = list(Use.__dataclass_fields__)
    table = Table(*names, box=None, pad_edge=False)
    for use in uses:
        table.add_row(*(Text(str(getattr(use, name))) for name in names))
    console.print(table)
