"""``streamplug simulate``: what a run will do, before it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from streamplug.cli.options import reporting, source_options, streams_of
from streamplug_simulate import MOST, planned_of
from streamplug_simulate import simulate as simulated
from streamplug_simulate.arguments import told
from streamplug_simulate.page import page
from streamplug_simulate.server import serve_page
from streamplug_simulate.tables import show
from streamplug_simulate.variants import NEEDS, choices, variants

_CONFIGS = (".toml", ".yaml", ".yml", ".json")
_TOLD = (
    "nodes", "ranks_per_node", "workers", "prefetch_factor", "batch_size", "shuffle", "block_size",
    "canonical_nodes", "predownload", "cache_limit", "bandwidth", "latency", "step_seconds", "epochs",
    "price",
)  # fmt: skip


@click.command()
@click.argument("source", metavar="CONFIG")
@source_options
@click.option("--nodes", help="Machines, each with a cache of its own.  [default: 1]")
@click.option("--ranks-per-node", help="[default: 1]")
@click.option("--workers", help="Loader workers of a rank.  [default: those of the config, else 0]")
@click.option(
    "--prefetch-factor", help="Batches that a worker makes ahead.  [default: likewise, else 2]"
)
@click.option("--batch-size", help="Samples per batch of a rank.  [default: that of the config]")
@click.option("--shuffle", help="Name of the shuffle, or none.  [default: as the config]")
@click.option("--block-size", help="Of the shuffle, or default.  [default: as the config]")
@click.option("--canonical-nodes", help="Their number, or default.  [default: as the config]")
@click.option("--predownload", help="Samples, or auto.  [default: as the config]")
@click.option("--cache-limit", help="Such as 10gb, or none.  [default: as the config]")
@click.option(
    "--bandwidth", help="Bytes per second of a node, such as 500mb.  [default: 1,000,000,000]"
)
@click.option("--latency", help="Seconds from a request to its first byte.  [default: 0.03]")
@click.option("--step-time", "step_seconds", help="Seconds of a training step.  [default: 0.1]")
@click.option("--epochs", help="[default: 1]")
@click.option("--price", help="Of 10⁹ bytes that leave the storage.  [default: 0]")
@click.option(
    "--needs",
    type=click.IntRange(1),
    default=MOST,
    show_default=True,
    help="After so many needs, shards for blocks of samples, it ends with the step.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with plots."
)
@click.option(
    "--serve",
    is_flag=True,
    help="Show the page on this machine, and simulate what is changed on it.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="For --serve.  [default: any]"
)
def simulate(
    source: str,
    *,
    needs: int,
    as_json: bool,
    html: Path | None,
    serve: bool,
    port: int,
    **options: Any,
) -> None:
    """Tell what a run of CONFIG will do: what it fetches, when it waits, what that costs.

    CONFIG is a config file as StreamingDataset.from_config takes it, or the URL of a data set. Nothing
    but the index is read.
    """
    if as_json and serve:
        raise click.UsageError("give --json or --serve, not both")
    texts = {name: options[name] for name in _TOLD}
    with planned_of(*_config_of(source, options)) as plan:
        assumed = plan.assumed(**told(texts))
        if not serve:
            found = simulated(plan, assumed, needs)
            if as_json:
                click.echo(json.dumps(found.as_dict(), indent=2))
            else:
                show(found)
        if html is not None:
            offered = choices(plan, assumed)
            with reporting() as report:
                runs = variants(
                    plan, assumed, offered, lambda done, all_: report("runs", done, all_)
                )
            html.write_text(page(plan, assumed, offered, runs), "utf-8")
            click.echo(f"{html}: written; {len(runs):,} runs", err=True)
        if serve:
            serve_page(plan, assumed, port=port, needs=NEEDS)


def _config_of(source: str, options: Mapping[str, Any]) -> tuple[Mapping[str, Any] | str]:
    """Return what a data set is made of: a config file, or a mapping about one stream."""
    if not source.lower().endswith(_CONFIGS):
        return ({"streams": streams_of([source], options)},)
    for name in ("split", "src_format", "storage_options"):
        if options[name] not in (None, ()):
            raise click.UsageError(f"--{name.replace('_', '-')} is for a URL; the config says it")
    return (source,)
