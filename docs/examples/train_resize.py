"""Goes on with the very next step when a rank dies or joins: no process of the others is started again.

    python docs/examples/train_resize.py --members 3 --out run

Kill any of its ranks with kill -9, or send the first process SIGUSR1 to start one more. That process only
starts ranks and says who they are. It needs no checkpoints, as long as one rank is alive.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed as group
from torch import nn
from waves import GLOBAL_BATCH, note, options_of, write_waves

from streamplug import StreamingDataLoader, StreamingDataset, World

HOST = "127.0.0.1"
TIMEOUT = timedelta(seconds=30)


class Membership:
    """The worlds of a run, one after the other, and this member's place in them."""

    def __init__(self, port: int, member: int) -> None:
        self.store, self.member, self.world = group.TCPStore(HOST, port), member, 0
        self.store.set(f"ready-{member}", "")

    def has_changed(self) -> bool:
        return int(self.store.get("world")) > self.world

    def enter(self) -> World:
        """Wait for a new world that this member is a rank of, and connect to the others."""
        while True:
            if group.is_initialized():
                group.destroy_process_group()
            while not self.has_changed():
                time.sleep(0.001)
            self.world = int(self.store.get("world"))
            members = json.loads(self.store.get(f"members-{self.world}"))
            if self.member in members:
                rank = members.index(self.member)
                store = group.PrefixStore(f"group-{self.world}", self.store)
                try:
                    group.init_process_group(
                        "gloo", store=store, rank=rank, world_size=len(members), timeout=TIMEOUT
                    )
                except RuntimeError:  # one has died meanwhile
                    continue
                return World(ranks_per_node=len(members), rank=rank)


class Trainer:
    """A model, its optimizer and its data on one rank."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.membership = options, Membership(options.port, options.member)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.loader: StreamingDataLoader | None = None
        self.step = self.batches = 0  # steps that all ranks have done; batches that the loop got
        self.known = 0.0  # when the latest world was known; 0 after its first batch

    def enter(self) -> StreamingDataLoader:
        """Enter the next world with the others, all after the same step."""
        while True:
            world = self.membership.enter()
            try:
                self._agree(world)
            except RuntimeError:  # one has died meanwhile
                continue
            assert self.loader is not None
            return self.loader

    def _agree(self, world: World) -> None:
        steps: list[Any] = [None] * world.ranks
        group.all_gather_object(steps, -1 if self.loader is None else self.step)
        last, started = max(steps), time.perf_counter()
        if self.loader is None:
            dataset = StreamingDataset(
                local=str(self.options.data),
                shuffle=True,
                batch_size=GLOBAL_BATCH // world.ranks,
                world=world,
            )
            workers = self.options.workers
            self.loader = StreamingDataLoader(
                dataset, num_workers=workers, persistent_workers=workers > 0
            )
        else:  # the last batch comes again, unless one of the ranks has finished its step
            self.loader.resize(world, rewind=self.batches - last)
        seconds = time.perf_counter() - started
        if min(steps) < last:  # one has joined, or has not finished the last step
            state = [self._state()]
            group.broadcast_object_list(state, src=steps.index(last))
            if steps[world.rank] < last:
                self._load(state[0], joined=steps[world.rank] < 0)
        self.step = self.batches = max(last, 0)
        self.known = time.perf_counter() - seconds  # without the time to send the model

    def _state(self) -> dict[str, Any]:
        assert self.loader is not None
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }

    def _load(self, state: dict[str, Any], *, joined: bool) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if joined and self.loader is not None:
            self.loader.load_state_dict(state["loader"])

    def train(self) -> None:
        loader = self.enter()
        while self.step < self.options.steps:
            for batch in loader:
                self._note_change()
                self.batches += 1
                try:
                    is_new_world = self.do(batch)
                except RuntimeError:  # a rank has died; the others see that their sums fail
                    is_new_world = True
                if self.step == self.options.steps:
                    break
                if is_new_world:
                    loader = self.enter()  # the loop goes on: it is the same loader
        group.destroy_process_group()

    def do(self, batch: dict[str, Any]) -> bool:
        """Do a step; return whether a new world waits for its ranks, which all agree upon."""
        ranks = group.get_world_size()
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(batch["x"]), batch["y"])
        loss.backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        more = torch.tensor([loss.item(), self.membership.has_changed()])
        total = torch.cat([*(each.flatten() for each in gradients), more])
        group.all_reduce(total)
        samples: list[Any] = [None] * ranks
        group.all_gather_object(samples, batch["id"].tolist())
        *means, _ = torch.split(total / ranks, [*(each.numel() for each in gradients), 1, 1])
        for gradient, mean in zip(gradients, means):
            gradient.copy_(mean.view_as(gradient))
        self.optimizer.step()
        self.step += 1
        note(self.options.out, self.step, means[-1].item(), chain(*samples))
        return bool(total[-1] > 0)

    def _note_change(self) -> None:
        if self.known and self.step:  # not the first world
            seconds, ranks = time.perf_counter() - self.known, group.get_world_size()
            line = {"step": self.step, "ranks": ranks, "seconds": seconds, "process": os.getpid()}
            with (self.options.out / "changes.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
        self.known = 0.0


class Launcher:
    """Starts ranks, and says who they are whenever that changes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.store = group.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self.members: dict[int, subprocess.Popen[bytes]] = {}
        self.ranks, self.started, self.world = options.members, 0, 0
        self.current: list[int] = []
        signal.signal(signal.SIGUSR1, lambda *_: self.start())

    def start(self) -> None:
        """Start one more member, which waits until it is a rank of a world."""
        member, self.started = self.started, self.started + 1
        more = [f"--port={self.store.port}", f"--member={member}"]
        self.members[member] = subprocess.Popen([sys.executable, *sys.argv, *more])

    def run(self) -> int:
        for _ in range(self.ranks):
            self.start()
        is_done = False
        while self.members:
            for member, process in list(self.members.items()):
                if process.poll() is not None:
                    is_done |= process.returncode == 0
                    del self.members[member]
                elif is_done and member not in self.current:  # it waits for a world
                    process.kill()
            self.announce()
            time.sleep(0.005)
        return 0 if is_done else 1

    def announce(self) -> None:
        ready = [n for n in sorted(self.members) if self.store.check([f"ready-{n}"])]
        if len(ready) < self.ranks and not self.world:
            return
        while GLOBAL_BATCH % max(len(ready), 1):
            ready.pop()  # such a rank waits
        if ready and ready != self.current:
            self.current, self.world = ready, self.world + 1
            self.store.set(f"members-{self.world}", json.dumps(ready))
            self.store.set("world", str(self.world))


def main() -> int:
    parser = options_of(__doc__)
    parser.add_argument("--members", type=int, default=2, help="ranks to start with")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--member", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.data, options.out = Path(options.data).absolute(), Path(options.out).absolute()
    torch.set_default_dtype(torch.float64)  # what differs between worlds is rounding alone
    if options.member is None:
        write_waves(options.data)
        options.out.mkdir(parents=True, exist_ok=True)
        return Launcher(options).run()
    torch.set_num_threads(1)
    Trainer(options).train()
    return 0


if __name__ == "__main__":
    sys.exit(main())
