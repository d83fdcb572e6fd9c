"""Trains with Accelerate, whose `save_state` has the state of the loader as well.

    torchrun --nproc-per-node 2 docs/examples/train_accelerate.py --out run

Kill it whenever you like. Started again, on any number of processes, it goes on after the last checkpoint.
"""

from __future__ import annotations

import json

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from waves import GLOBAL_BATCH, arguments, note, write_waves

from streamplug import StreamingDataLoader, StreamingDataset


def main() -> None:
    options = arguments(__doc__)
    torch.set_default_dtype(torch.float64)  # what differs between worlds is rounding alone
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        write_waves(options.data)
    dataset = StreamingDataset(
        local=str(options.data),
        shuffle=True,
        batch_size=GLOBAL_BATCH // accelerator.num_processes,
    )
    # Accelerate would move what it deals out itself; this loader moves its batches by itself.
    loader = StreamingDataLoader(dataset, num_workers=options.workers, device=accelerator.device)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step, last = 0, options.out / "last"
    if last.exists():
        step = json.loads(last.read_text())["step"]
        accelerator.load_state(str(options.out / f"step-{step}"))

    while step < options.steps:
        for batch in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            mean, samples = accelerator.reduce(loss.detach(), "mean"), batch["id"].tolist()
            samples = gather_object(samples)
            if accelerator.is_main_process:
                note(options.out, step, mean.item(), samples)
            if step % options.every == 0:
                accelerator.save_state(str(options.out / f"step-{step}"))
                if accelerator.is_main_process:  # the checkpoint is whole, so it may be the last
                    last.with_suffix(".part").write_text(json.dumps({"step": step}))
                    last.with_suffix(".part").replace(last)
            if step == options.steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
