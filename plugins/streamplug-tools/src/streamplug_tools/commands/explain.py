"""The command ``streamplug explain``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import click

from streamplug.cli import examples
from streamplug.dataset import SampleUse, StreamingDataset
from streamplug.display import make_console, rows_table
from streamplug.errors import StateError
from streamplug.plan import unpack
from streamplug_tools.commands.options import refuse_options
from streamplug_tools.commands.storage_options import storage_options
from streamplug_tools.explain_dataset import is_config, open_dataset, state_to_load

_ORDER_OPTIONS = {
    "shuffle_algo",
    "shuffle_seed",
    "shuffle_block_size",
    "num_canonical_nodes",
    "partition_algo",
    "batching_method",
}
"""Options that a config file replaces, or the key of this name in a state."""


@runtime_checkable
class _RowsOfDocuments(Protocol):
    """Data set whose samples are made of parts of documents, such as `TokenDataset`."""

    def document_spans(self, row: int) -> Sequence[Any]: ...


@click.command(
    epilog=examples(
        "streamplug explain data --step 3 --batch-size 4 --shuffle window",
        "streamplug explain run.toml --sample 12 --ranks 2",
    )
)
@click.argument("locations", metavar="LOCATION...", nargs=-1, required=True)
@click.option(
    "--step", type=click.IntRange(0), help="List the samples of this global batch, counted from 0."
)
@click.option(
    "--sample",
    "sample_id",
    type=click.IntRange(0),
    help="List the steps that read the sample with this id.",
)
@click.option(
    "--epoch",
    type=click.IntRange(0),
    help="Epoch, counted from 0.  [default: that of the state, else 0]",
)
@click.option(
    "--state",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A state_dict() saved as JSON, which defines the order and the epoch.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of ranks of all nodes.",
)
@click.option(
    "--nodes", type=click.IntRange(1), default=1, show_default=True, help="Number of nodes."
)
@click.option(
    "--rank",
    type=click.IntRange(0),
    help="With --step: list only the part of this rank.  [default: all]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help="Samples per batch of one rank.  [default: that of the state or the config, else 1]",
)
@click.option(
    "--shuffle",
    "shuffle_algo",
    metavar="NAME",
    help="Shuffle algorithm, such as window.  [default: not shuffled]",
)
@click.option(
    "--seed",
    "shuffle_seed",
    type=click.IntRange(0),
    default=9176,
    show_default=True,
    help="Seed of the shuffle.",
)
@click.option(
    "--block-size",
    "shuffle_block_size",
    type=click.IntRange(1),
    help="Block size of the shuffle, in samples.  [default: chosen by the shuffle]",
)
@click.option(
    "--canonical-nodes",
    "num_canonical_nodes",
    type=click.IntRange(1),
    help="Number of canonical nodes.  [default: chosen by the shuffle]",
)
@click.option(
    "--partition",
    "partition_algo",
    metavar="NAME",
    default="elastic",
    show_default=True,
    help="Partition algorithm, such as relaxed.",
)
@click.option(
    "--batching",
    "batching_method",
    metavar="NAME",
    default="random",
    show_default=True,
    help="Batching method, such as stratified.",
)
@storage_options()
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def explain(
    locations: tuple[str, ...],
    saved: Path | None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """List the samples of a batch, or the steps that read a sample.

    Pass either --step or --sample. LOCATION is the directory or URL of a data set, or a config file that
    defines a data set and its order. Several locations are the streams of a mixture, in the order of the run.

    The command reads only the index. Without a config file, --state or the other options define the order.
    If the config or the state defines the samples as rows of tokens, the documents of each row are listed.
    """
    if is_config(locations):
        refuse_options({*_ORDER_OPTIONS, "storage_options"}, "only for a URL; set it in the config")
    if (options["step"] is None) == (options["sample_id"] is None):
        raise click.UsageError("give either --step or --sample")
    if options["step"] is None:
        refuse_options({"rank"}, "only with --step")
    if saved is None and options["shuffle_algo"] is None:
        refuse_options({"shuffle_block_size"}, "only with --shuffle")
    saved_state = _read_state(saved) if saved else {}
    state = unpack(saved_state)
    names = {name for name in _ORDER_OPTIONS if name in state}
    if "batch_budget" in state:
        names.add("batch_size")
    refuse_options(names, "not with a --state that defines it")
    dataset = open_dataset(locations, state, options)
    if state:
        dataset.load_state_dict(state_to_load(locations, saved_state, state))
    if options["step"] is not None:
        uses = dataset.explain(options["step"], epoch=options["epoch"], rank=options["rank"])
    else:
        uses = dataset.where(options["sample_id"], epoch=options["epoch"])
    rows = [_as_dict(use, dataset) for use in uses]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        more = ["documents"] if isinstance(dataset, _RowsOfDocuments) else []
        _show(rows, [*SampleUse.__dataclass_fields__, *more])


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is not JSON: {error}") from None
    if not isinstance(state, dict):
        raise StateError(f"{path} holds no state: save the result of state_dict() as JSON")
    return state


def _as_dict(use: SampleUse, dataset: StreamingDataset) -> dict[str, Any]:
    if not isinstance(dataset, _RowsOfDocuments):
        return asdict(use)
    pieces = [asdict(piece) for piece in dataset.document_spans(use.sample)]
    return {**asdict(use), "documents": pieces}


def _text(row: dict[str, Any]) -> list[str]:
    row_values = {**row}
    if "documents" in row:
        row_values["documents"] = " ".join(
            f"{piece['document']}[{piece['begin']}:{piece['end']}]" for piece in row["documents"]
        )
    return [str(value) for value in row_values.values()]


def _show(rows: list[dict[str, Any]], names: list[str]) -> None:
    cells = list(map(_text, rows))
    columns = max([200, *(len(" ".join(row)) + 40 for row in cells)])
    make_console(columns).print(rows_table(names, cells))
