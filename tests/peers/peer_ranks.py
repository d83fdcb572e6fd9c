"""Reads data sets with mosaicml-streaming as the ranks of a world would: a program for tests.

Takes runs on standard input, a line of JSON each, and answers each on standard output with what every
rank was handed out. The ranks of a node are processes that exist together; nodes come one after the other,
as they share nothing but the numbers that say which is which.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import runpy
import signal
import sys
import tempfile
import warnings
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("stubs.py")))["install"]()
warnings.simplefilter("ignore")

import streaming  # noqa: E402 - after the stand-ins
import torch.distributed as group  # noqa: E402, TID251

logging.disable(logging.WARNING)
# Names of shared memory that no other program here takes.
streaming.base.shared.prefix._each_prefix_int = lambda: itertools.count(os.getppid() * 1000)


def iterate_batches(loader, count=None):
    """Return the ids of each batch, of `count` of them."""
    return [batch["id"].tolist() for batch in itertools.islice(loader, count)]


def read(run):
    """Return what one rank is handed out, and the state in the middle of the last epoch."""
    streams = [streaming.Stream(**stream) for stream in run["streams"]]
    data = streaming.StreamingDataset(streams=streams, **run["arguments"])
    loader = streaming.StreamingDataLoader(
        data, batch_size=run["arguments"]["batch_size"], num_workers=run["world"][2]
    )
    if run["state"]:
        loader.load_state_dict(run["state"])
        group.barrier()
    epochs = [iterate_batches(loader) for _ in range(run["epochs"])]
    state = None
    if run["stop"] is not None:
        epochs.append(iterate_batches(iterator := iter(loader), run["stop"]))
        state = loader.state_dict()
        del iterator
    group.barrier()  # who leaves first takes the shared memory along
    return {"epochs": epochs, "state": state}


def be_rank(run, rank, folder):
    """Read as one rank, in a process of its own, and write what was handed out to a file."""
    nodes, local, _ = run["world"]
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(nodes * local), LOCAL_WORLD_SIZE=str(local), LOCAL_RANK="0"
    )
    node = rank // local
    group.init_process_group(
        "gloo", init_method=f"file://{folder}/group-{node}", rank=rank % local, world_size=local
    )
    Path(folder, f"{rank}.json").write_text(json.dumps(read(run)))
    group.destroy_process_group()


def all_ranks(run):
    """Return what each rank is handed out."""
    nodes, local, _ = run["world"]
    folder = tempfile.mkdtemp()  # the children come out of here, too, and must leave it alone
    for node in range(nodes):
        children = set()
        for rank in range(node * local, (node + 1) * local):
            child = os.fork()
            if not child:
                be_rank(run, rank, folder)
                sys.exit()  # by the way that cleans up
            children.add(child)
        wait(children)
    return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(nodes * local)]


def wait(children):
    """Wait for the ranks of a node; if one fails, the others, who wait for it, are ended too."""
    while children:
        child, status = os.wait()
        children.discard(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGTERM)
            raise SystemExit("a rank failed")


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            print(json.dumps(all_ranks(json.loads(line))), file=answers, flush=True)
