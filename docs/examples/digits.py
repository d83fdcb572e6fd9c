"""Trains a small network on handwritten digits, with the same losses on any number of ranks.

    torchrun --nproc-per-node 4 docs/examples/digits.py --checkpoint digits.pt

Kill it whenever you like. Started again, on as many ranks or others, it continues where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as group
from torch import nn

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset

GLOBAL_BATCH = 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("digits"), help="the data set")
    parser.add_argument("--checkpoint", type=Path, required=True, help="where the run stands")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0, help="loader workers of each rank")
    return parser.parse_args()


def write_digits(out: Path) -> None:
    """Write the 1,797 images of 8 x 8 pixels that come with scikit-learn."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    columns = {"pixels": "ndarray:uint8:64", "label": "int"}
    with MDSWriter(out=out, columns=columns, size_limit="16kb", exist_ok=True) as writer:
        writer.write_batch({"pixels": digits.data.astype(np.uint8), "label": digits.target})


def average(tensors: list[torch.Tensor]) -> None:
    """Replace each tensor by its mean over all ranks."""
    for tensor in tensors:
        group.all_reduce(tensor)
        tensor.div_(group.get_world_size())


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """Write a checkpoint such that there is always a whole one."""
    if group.get_rank() == 0:
        part = path.with_suffix(".part")
        torch.save(checkpoint, part)
        part.replace(path)


def train(options: argparse.Namespace) -> None:
    ranks = group.get_world_size()
    if GLOBAL_BATCH % ranks:
        raise SystemExit(
            f"{GLOBAL_BATCH} samples of a global batch cannot be dealt to {ranks} ranks"
        )
    dataset = StreamingDataset(
        local=str(options.data),
        shuffle=True,
        batch_size=GLOBAL_BATCH // ranks,
        num_canonical_nodes=1,  # not the number of nodes, so that their number does not matter
    )
    loader = StreamingDataLoader(
        dataset, batch_size=GLOBAL_BATCH // ranks, num_workers=options.workers
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses: list[float] = []

    def checkpoint() -> dict[str, Any]:
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "data": loader.state_dict(),  # a few numbers: which epoch, how far in it
            "losses": losses,
        }

    epoch = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        losses, epoch = saved["losses"], saved["data"]["epoch"]

    for _ in range(epoch, options.epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch["pixels"] / 16), batch["label"])
            loss.backward()
            average([loss.detach(), *(weights.grad for weights in model.parameters())])
            optimizer.step()
            losses.append(loss.item())
            if len(losses) % options.every == 0:
                save(options.checkpoint, checkpoint())
    save(options.checkpoint, checkpoint())
    if group.get_rank() == 0:
        print(f"{len(losses)} steps on {ranks} ranks, the last loss {losses[-1]:.6f}")


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # what differs between worlds is rounding alone
    group.init_process_group("gloo")
    if group.get_rank() == 0 and not (options.data / "index.json").exists():
        write_digits(options.data)
    group.barrier()
    train(options)
    group.barrier()  # nobody leaves before the others are done with it
    group.destroy_process_group()


if __name__ == "__main__":
    main()
