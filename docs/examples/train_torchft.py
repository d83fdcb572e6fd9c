"""Goes on with the very next step when a rank dies or joins, with torchft, which finds out who is there.

    torchft_lighthouse --bind 127.0.0.1:29510 --min_replicas 1 --join_timeout_ms 1000
    python docs/examples/train_torchft.py --member 0 --out run
    python docs/examples/train_torchft.py --member 1 --out run

Start and kill as many members as you like.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import ReduceOp, TCPStore
from torchft import Manager, ProcessGroupGloo
from waves import GLOBAL_BATCH, note, options_of, write_waves

from streamplug import StreamingDataLoader, StreamingDataset, World

TIMEOUT = timedelta(seconds=20)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--member", type=int, default=0, help="a number that no other member has")
    parser.add_argument("--lighthouse", default="http://127.0.0.1:29510")
    options = parser.parse_args()
    data, out = Path(options.data).absolute(), Path(options.out).absolute()
    write_waves(data)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = StreamingDataset(local=str(data), shuffle=True, batch_size=GLOBAL_BATCH, world=World())
    loader = StreamingDataLoader(dataset, num_workers=options.workers)
    batches = iter(loader)

    def state() -> dict[str, Any]:
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
        }

    def load(saved: dict[str, Any]) -> None:
        nonlocal batches
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        batches = iter(loader)

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=load,
        state_dict=state,
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
    world = World()
    while (step := manager.current_step()) < options.steps:
        manager.start_quorum()
        step = manager.current_step()  # that of the others, if this one has joined
        rank = manager.participating_rank()
        now = World(ranks_per_node=manager.num_participants(), rank=0 if rank is None else rank)
        if now != world:
            loader.resize(now)
            world = now
        batch = next(batches, None)
        if batch is None:  # the next epoch
            batches = iter(loader)
            batch = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        samples = torch.zeros(world.ranks, len(batch["id"]))
        samples[world.rank] = batch["id"]
        sums = [*gradients, loss.detach(), samples]
        for work in [manager.allreduce(value, reduce_op=ReduceOp.SUM) for value in sums]:
            work.wait()
        if manager.should_commit():
            for gradient in gradients:
                gradient /= world.ranks
            optimizer.step()
            note(out, step + 1, loss.item() / world.ranks, samples.flatten().int().tolist())
        else:  # a rank has died: the batch comes again
            loader.resize(world, rewind=1)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
