"""``streamplug explain``: which samples make up a batch, and when a sample is seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from streamplug.stream import Stream
from streamplug.types import World

_PIPED_WIDTH = 200


@click.command()
@click.argument("locations", metavar="LOCATION...", nargs=-1, required=True)
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
@click.option(
    "--batching", default="random", show_default=True, help="Name of the batching method."
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def explain(
    locations: tuple[str, ...], saved: Path | None, *, as_json: bool, **options: Any
) -> None:
    """List the samples of a batch of the data set at LOCATION, or when a sample is read.

    Several locations are the streams of a mixture, in their order there.

    Nothing but the index is read. The order is that of --state, or of the options.
    """
    if (options["step"] is None) == (options["sample"] is None):
        raise click.UsageError("give either --step or --sample")
    state = _read_state(saved) if saved else {}
    dataset = _dataset(locations, state, options)
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


def _dataset(
    locations: Sequence[str], state: dict[str, Any], options: dict[str, Any]
) -> StreamingDataset:
    ranks, nodes = options["ranks"], options["nodes"]
    if nodes < 1 or ranks % nodes:
        raise ConfigError(f"--ranks={ranks} is not a multiple of --nodes={nodes}")
    total = state.get("global_batch")
    if total is not None and total % ranks:
        raise ConfigError(f"the state's global batch of {total} is no multiple of --ranks={ranks}")
    algorithm = state.get("shuffle_algo", options["algorithm"])
    return StreamingDataset(
        **_mixture(locations, state),
        batch_size=options["batch_size"] or (total // ranks if total else None),
        shuffle=algorithm is not None,
        shuffle_algo=algorithm or "window",
        shuffle_seed=state.get("shuffle_seed", options["seed"]),
        shuffle_block_size=state.get("shuffle_block_size", options["block_size"]),
        num_canonical_nodes=state.get("num_canonical_nodes", options["canonical_nodes"]),
        partition_algo=state.get("partition_algo", options["partition"]),
        batching_method=state.get("batching_method", options["batching"]),
        allow_unsafe_types=True,  # nothing is decoded
        world=World(nodes=nodes, ranks_per_node=ranks // nodes),
    )


def _mixture(locations: Sequence[str], state: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that say how the streams at some locations are mixed."""
    choose = state.get("choose")
    if choose is None:
        lessons = state.get("curriculum")
        curriculum = lessons and {change["step"]: change["proportions"] for change in lessons}
        return {
            "streams": [Stream(remote=location) for location in locations],
            "epoch_size": state.get("epoch_size"),
            "curriculum": curriculum,
        }
    if len(choose) != len(locations):
        raise ConfigError(f"the state is of {len(choose)} streams; give the location of each")
    shares = state.get("shares")
    weights = [{"choose": n} for n in choose]
    if shares is not None:
        weights = [{"proportion": share} for share in shares]
    return {
        "streams": [Stream(remote=place, **weight) for place, weight in zip(locations, weights)],
        "epoch_size": None if shares is None else state.get("epoch_size"),
        "sampling_method": state.get("sampling_method"),
        "sampling_granularity": state.get("sampling_granularity"),
    }


def _show(uses: list[Use]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPED_WIDTH)
    names = list(Use.__dataclass_fields__)
    table = Table(*names, box=None, pad_edge=False)
    for use in uses:
        table.add_row(*(Text(str(getattr(use, name))) for name in names))
    console.print(table)
