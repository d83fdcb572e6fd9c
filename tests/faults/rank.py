"""A rank that reads a data set for some epochs, and checks every sample; `TASK` says which and how."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
from pathlib import Path

from streamplug.transfer import retry
from streamplug.types import World

TASK = globals()["TASK"]


class Tally(logging.Handler):
    """Writes down, for whatever process it happens in, that something was tried again."""

    def emit(self, record):
        kind = "retry" if " follows in " in record.getMessage() else "other"
        with Path(TASK["log"]).open("a") as file:
            file.write(f"{kind} {record.getMessage()[:300]}\n")


def check(number, data):
    if data != hashlib.blake2b(number.to_bytes(4, "little")).digest() * (12 + number % 5):
        raise ValueError(f"sample {number} is damaged")


def epoch(source, *, batches):
    seen = []
    for item in source:
        if batches:
            numbers = item["id"].tolist()
            for number, data in zip(numbers, item["data"], strict=True):
                check(number, data)
            seen += numbers
        else:
            check(item["id"], item["data"])
            seen.append(item["id"])
    return seen


def main():
    signal.alarm(TASK["leash"])
    os.environ.update(TASK.get("environment", {}))
    backoff_seconds = retry.backoff_seconds
    retry.backoff_seconds = lambda attempt: TASK["haste"] * backoff_seconds(attempt)
    logger = logging.getLogger("streamplug")
    logger.addHandler(Tally())
    logger.propagate = False
    if TASK["workers"]:
        from streamplug import StreamingDataset
    else:  # without torch, which takes seconds to load
        from streamplug.dataset import StreamingDataset
    options = dict(TASK["options"])
    # By range, aiohttp is to know how long to wait; what botocore and obstore wait for is given up here.
    if options.get("access") == "range" and options["remote"].startswith("http"):
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(total=None, sock_connect=5, sock_read=TASK["timeout"])
        options["storage_options"] = {"client_kwargs": {"timeout": timeout}}
    dataset = StreamingDataset(
        shuffle=True,
        shuffle_seed=3,
        shuffle_block_size=64,
        batch_size=8,
        download_timeout=TASK["timeout"],
        world=World(ranks_per_node=TASK["ranks"], rank=TASK["rank"]),
        **options,
    )
    source = dataset
    if TASK["workers"]:
        from streamplug import StreamingDataLoader

        # By fork, so that workers wait and tally as this process does.
        how = {"num_workers": TASK["workers"], "multiprocessing_context": "fork"}
        source = StreamingDataLoader(dataset, batch_size=8, **how)
    with Path(TASK["out"]).open("w") as out:
        out.writelines(
            " ".join(map(str, epoch(source, batches=bool(TASK["workers"])))) + "\n"
            for _ in range(TASK["epochs"])
        )


main()
