"""The command ``streamplug simulate``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from streamplug_tools.commands.options import refuse_options
from streamplug_tools.commands.source_options import make_streams, source_options
from streamplug_tools.options import JobProgress
from streamplug_tools.progress import progress_bars

from streamplug.cli import examples
from streamplug.display import say
from streamplug.errors import ConfigError
from streamplug_simulate import MAX_NEEDS, open_dataset
from streamplug_simulate import simulate as simulated
from streamplug_simulate.arguments import parse_arguments
from streamplug_simulate.page import page
from streamplug_simulate.server import serve_page
from streamplug_simulate.tables import print_result
from streamplug_simulate.variants import PAGE_MAX_NEEDS, offer_choices, simulate_variants

_CONFIGS = (".toml", ".yaml", ".yml", ".json")
_SETTINGS = (
    "nodes", "ranks_per_node", "workers", "prefetch_factor", "batch_size", "shuffle", "block_size",
    "canonical_nodes", "predownload", "cache_limit", "bandwidth", "latency", "step_seconds", "epochs",
    "price",
)  # fmt: skip


@click.command(
    epilog=examples(
        "streamplug simulate run.toml --nodes 4 --ranks-per-node 8",
        "streamplug simulate s3://bucket/set --batch-size 256 --cache-limit 100gb",
    )
)
@click.argument("source", metavar="CONFIG")
@source_options
@click.option(
    "--nodes", metavar="N", help="Number of machines, each with its own cache.  [default: 1]"
)
@click.option("--ranks-per-node", metavar="N", help="Number of ranks per machine.  [default: 1]")
@click.option(
    "--workers", metavar="N", help="Loader workers per rank.  [default: from the config, else 0]"
)
@click.option(
    "--prefetch-factor",
    metavar="N",
    help="Batches that each worker prefetches.  [default: from the config, else 2]",
)
@click.option(
    "--batch-size", metavar="N", help="Samples per batch of one rank.  [default: from the config]"
)
@click.option(
    "--shuffle", metavar="NAME", help="Name of the shuffle, or none.  [default: from the config]"
)
@click.option(
    "--block-size",
    metavar="N",
    help='Shuffle block size in samples, or "default" for the default of the shuffle.  [default: from the '
    "config]",
)
@click.option(
    "--canonical-nodes",
    metavar="N",
    help='Number of canonical nodes, or "default" for the default of the shuffle.  [default: from the '
    "config]",
)
@click.option(
    "--predownload",
    metavar="N",
    help='Number of samples to prefetch, or "auto" for a number that adapts.  [default: from the config]',
)
@click.option(
    "--cache-limit",
    metavar="SIZE",
    help="Cache limit of each node, such as 10gb; none for no limit.  [default: from the config]",
)
@click.option(
    "--bandwidth",
    metavar="SIZE",
    help="Bytes per second that each node receives, such as 500mb.  [default: 1,000,000,000]",
)
@click.option(
    "--latency",
    metavar="SECONDS",
    help="Seconds from a request to the first byte of its response.  [default: 0.03]",
)
@click.option(
    "--step-time",
    "step_seconds",
    metavar="SECONDS",
    help="Seconds per training step.  [default: 0.1]",
)
@click.option("--epochs", metavar="N", help="Number of epochs.  [default: 1]")
@click.option("--price", metavar="NUMBER", help="Price of 10⁹ bytes of egress.  [default: 0]")
@click.option(
    "--needs",
    type=click.IntRange(1),
    default=MAX_NEEDS,
    show_default=True,
    help="Stop after the step in which the simulation reaches this number of needs. A need is a shard that "
    "one block of samples requires.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page with plots."
)
@click.option(
    "--serve",
    is_flag=True,
    help="Serve the page on 127.0.0.1 until Ctrl-C, and run a new simulation when you change a setting on "
    "it.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port for --serve; 0 for any free one.",
    show_default=True,
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
    """Simulate a run: what it downloads, when it waits, and what that costs.

    CONFIG is a config file that StreamingDataset.from_config accepts, or the URL or directory of a data set.
    The command reads only the index. For rows of tokens, it also counts the tokens of the documents, as
    TokenDataset does.
    """
    if as_json and serve:
        raise click.UsageError("give --json or --serve, not both")
    if serve:
        refuse_options({"needs"}, "not with --serve")
    else:
        refuse_options({"port"}, "only with --serve")
    texts = {name: options[name] for name in _SETTINGS}
    with open_dataset(*_config_of(source, options)) as plan:
        scenario = plan.scenario(**parse_arguments(texts))
        if not scenario.workers:
            refuse_options({"prefetch_factor"}, "only with --workers of 1 or more")
        if not serve:
            result = simulated(plan, scenario, needs)
            if as_json:
                click.echo(json.dumps(result.as_dict(), indent=2))
            else:
                print_result(result)
        if html is not None:
            offered = offer_choices(plan, scenario)
            with progress_bars() as report:
                runs = simulate_variants(
                    plan,
                    scenario,
                    offered,
                    lambda done, all_: report(JobProgress("simulating", done, all_, "runs")),
                )
            try:
                html.write_text(page(plan, scenario, offered, runs), "utf-8")
            except OSError as error:
                raise ConfigError(f"--html {html}: {error.strerror}") from None
            say(f"{html}: written; {len(runs):,} runs", err=True)
        if serve:
            serve_page(plan, scenario, port=port, needs=PAGE_MAX_NEEDS)


def _config_of(source: str, options: Mapping[str, Any]) -> tuple[Mapping[str, Any] | str]:
    """Return the config: a file, or a mapping with one stream."""
    if not source.lower().endswith(_CONFIGS):
        return ({"streams": make_streams([source], options)},)
    for name in ("split", "src_format", "storage_options"):
        if options[name] not in (None, ()):
            raise click.UsageError(f"--{name.replace('_', '-')} is for a URL; set it in the config")
    return (source,)
