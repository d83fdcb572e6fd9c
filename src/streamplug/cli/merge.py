"""``streamplug merge``: one index for data sets that lie in folders of one place."""

from __future__ import annotations

import json

import click

from streamplug.write import merge_index


@click.command()
@click.argument("out")
@click.argument("parts", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def merge(out: str, parts: tuple[str, ...], *, as_json: bool) -> None:
    """Write the index.json of OUT, a data set of all the shards of PARTS.

    Each part is a data set in a folder below OUT; their samples follow each other in the order given. Without
    PARTS, all folders below OUT that have an index.json are taken, in the order of their names. Shards are
    neither read nor moved.
    """
    shards = merge_index(list(parts), out) if parts else merge_index(out)
    if as_json:
        click.echo(json.dumps({"shards": shards}))
    else:
        click.echo(f"{out}: {shards:,} shards in one index.json")
