"""Groups of processes in which torch's process group is initialized, each of which is a rank."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from streamplug_testing.http import free_port


def run_ranks(ranks: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what a function of a rank and arguments returns on each rank, as JSON values."""
    torch = importlib.import_module("torch")
    importlib.import_module("torch.distributed.checkpoint")  # once, not in every process
    with tempfile.TemporaryDirectory() as out:
        torch.multiprocessing.start_processes(
            _run, (ranks, free_port(), out, function, arguments), nprocs=ranks, start_method="fork"
        )
        return [json.loads(Path(out, str(rank)).read_text()) for rank in range(ranks)]


def _run(rank, ranks, port, out, function, arguments):
    torch = importlib.import_module("torch")
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=ranks,
        rank=rank,
        timeout=timedelta(seconds=120),
    )
    result = json.dumps(function(rank, *arguments))
    Path(out, str(rank)).write_text(result)
    torch.distributed.barrier()  # rank 0 has the store
    torch.distributed.destroy_process_group()
