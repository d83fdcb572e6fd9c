"""Training goes on while ranks are killed and others join: docs/examples/train_resize.py.

With STREAMPLUG_TEST_FAULTS in the environment there are fifty runs, else one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402, TID251

from streamplug import StreamingDataset  # noqa: E402

HERE = Path(__file__).parent
GLOBAL_BATCH = 24
SEEDS = range(50) if os.environ.get("STREAMPLUG_TEST_FAULTS") else [1]  # of 1, with loader workers
CHANGES = 3 if len(SEEDS) > 1 else 2  # of a run
TIMEOUT = 120


class Reference:
    """Losses and samples of a run that is left alone."""

    def __init__(self, data: Path) -> None:
        self._data, self._steps = data, []
        self._run = self._train()

    def __getitem__(self, step: int) -> tuple[float, list[int]]:
        while len(self._steps) < step:
            self._steps.append(next(self._run))
        return self._steps[step - 1]

    def _train(self):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        torch.set_default_dtype(torch.float32)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        data = StreamingDataset(local=str(self._data), shuffle=True, batch_size=GLOBAL_BATCH)
        while True:
            for batch in data.batches():
                optimizer.zero_grad()
                x, y = (torch.from_numpy(batch[name]) for name in "xy")
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                yield loss.item(), sorted(batch["id"].tolist())


class Run:
    """A launcher and its ranks."""

    def __init__(self, data: Path, out: Path, *, ranks: int, workers: int) -> None:
        self.out = out
        options = {"data": data, "out": out, "members": ranks, "workers": workers, "steps": 10**9}
        out.mkdir()
        quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "STEP_SECONDS": "0.02"}
        with (out / "said.txt").open("w") as said:
            self.launcher = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "slow_steps.py"),
                    *(f"--{name}={value}" for name, value in options.items()),
                ],
                stdout=said,
                stderr=said,
                env={**os.environ, **quiet},
                start_new_session=True,
            )

    def lines(self, name: str) -> list[dict]:
        path = self.out / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    @property
    def step(self) -> int:
        return max((line["step"] for line in self.lines("losses.jsonl")), default=0)

    @property
    def ranks(self) -> list[int]:
        """Processes of the latest world that has done steps."""
        lines = self.lines("losses.jsonl")
        latest = max((line["step"] for line in lines), default=0) - 1
        return sorted({line["process"] for line in lines if line["step"] == latest})

    def until(self, holds) -> None:
        end = time.monotonic() + TIMEOUT
        while not holds():
            assert self.launcher.poll() is None, (self.out / "said.txt").read_text()[-4000:]
            assert time.monotonic() < end, (self.out / "said.txt").read_text()[-4000:]
            time.sleep(0.02)

    def change(self, draw: random.Random) -> str:
        """Kill a rank or let one join, and wait until the others have gone on."""
        step = self.step
        self.until(lambda: self.step >= step + 3)
        ranks = self.ranks
        kills = len(ranks) > 1 and (len(ranks) > 3 or draw.random() < 0.6)
        time.sleep(draw.random() / 10)
        if kills:
            os.kill(draw.choice(ranks), signal.SIGKILL)
        else:
            self.launcher.send_signal(signal.SIGUSR1)
        wanted = len(ranks) + (-1 if kills else 1)
        self.until(lambda: len(self.ranks) == wanted)
        return "kill" if kills else "join"

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait(20)


@pytest.mark.timeout(3600 if len(SEEDS) > 1 else 300)
def test_others_go_on_with_the_very_next_step(tmp_path, figures):
    data, seconds, changes = tmp_path / "waves", [], Counter()
    reference, steps = Reference(data), 0
    for seed in SEEDS:
        draw = random.Random(seed)
        out = tmp_path / f"run-{seed}"
        run = Run(data, out, ranks=draw.choice([1, 2, 3]) if seed else 2, workers=2 * (seed % 2))
        try:
            run.until(lambda run=run: run.step >= 3)
            changes.update(run.change(draw) for _ in range(CHANGES))
        finally:
            run.stop()
        lines = run.lines("losses.jsonl")
        assert sorted({line["step"] for line in lines}) == [*range(1, run.step + 1)]
        for line in lines:
            loss, samples = reference[line["step"]]
            assert line["samples"] == samples
            assert line["loss"] == pytest.approx(loss, rel=0, abs=1e-6)
        steps += run.step
        first = {}
        for line in lines:
            first.setdefault(line["process"], line["step"])
        # A rank that joins has to make its data set first.
        seconds += [
            change["seconds"]
            for change in run.lines("changes.jsonl")
            if first.get(change["process"], change["step"] + 1) <= change["step"]
        ]
    assert len(seconds) >= sum(changes.values()) // 2
    found = {
        "runs": len(SEEDS),
        "steps": steps,
        "changes": dict(changes),
        "seconds": np.quantile(seconds, [0, 0.5, 0.9, 0.99, 1]).round(5).tolist(),
    }
    print(found, flush=True)
    if figures is not None:
        figures["resize"] = found
    assert np.median(seconds) < 5  # no rank starts anew, which takes longer
