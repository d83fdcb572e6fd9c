"""Goes on with the very next step when a rank dies or joins, with torchft, which finds out who is there.

    torchft_lighthouse --bind 127.0.0.1:29510 --min_replicas 1 --join_timeout_ms 1000
    python docs/examples/train_torchft.py --member 0 --out run
    python docs/examples/train_torchft.py --member 1 --out run

Start and kill as many members as you like.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.distributed import ReduceOp, TCPStore
from torchft import Manager, ProcessGroupGloo
from waves import GLOBAL_BATCH, note, options_of, write_waves

from streamplug import StreamingDataLoader, StreamingDataset, World

TIMEOUT = timedelta(seconds=20)


class Trainer:
    """A model, its optimizer and its data on one rank, which torchft copies to ranks that join."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.world = World()  # until torchft says who is there
        dataset = StreamingDataset(
            local=str(options.data), shuffle=True, batch_size=GLOBAL_BATCH, world=self.world
        )
        self.loader = StreamingDataLoader(dataset, num_workers=options.workers)
        self.batches = iter(self.loader)

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])
        self.batches = iter(self.loader)

    def next_batch(self) -> dict[str, Any]:
        batch = next(self.batches, None)
        if batch is None:  # the next epoch
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return batch

    def step(self, manager: Manager) -> None:
        manager.start_quorum()  # a rank that has joined is now after the step of the others
        step, rank = manager.current_step() + 1, manager.participating_rank() or 0
        world = World(ranks_per_node=manager.num_participants(), rank=rank)
        if world != self.world:
            self.loader.resize(world)
            self.world = world
        batch = self.next_batch()
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(batch["x"]), batch["y"])
        loss.backward()
        means = [loss.detach(), *(parameter.grad for parameter in self.model.parameters())]
        samples = torch.zeros(world.ranks, len(batch["id"]))
        samples[world.rank] = batch["id"]
        for work in [manager.allreduce(x, reduce_op=ReduceOp.SUM) for x in [*means, samples]]:
            work.wait()
        if manager.should_commit():
            for mean in means:
                mean.div_(world.ranks)
            self.optimizer.step()
            note(self.options.out, step, loss.item(), samples.flatten().int().tolist())
        else:  # a rank has died: the batch comes again
            self.loader.resize(world, rewind=1)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--member", type=int, default=0, help="a number that no other member has")
    parser.add_argument("--lighthouse", default="http://127.0.0.1:29510")
    options = parser.parse_args()
    options.data, options.out = options.data.absolute(), options.out.absolute()
    write_waves(options.data)
    torch.set_default_dtype(torch.float64)
    trainer = Trainer(options)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=trainer.load,
        state_dict=trainer.state,
        min_replica_size=1,
        use_async_quorum=False,  # so that a rank that joins has its state before the step
        timeout=TIMEOUT,
        rank=0,  # each member is a replica of one rank
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=options.lighthouse,
        replica_id=f"member_{options.member}_",
        hostname="127.0.0.1",
    )
    while manager.current_step() < options.steps:
        trainer.step(manager)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
