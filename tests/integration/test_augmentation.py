"""Images with random crops and flips, killed and resumed on another world: each pixel is the same."""

from __future__ import annotations

import json
import os
import runpy
import signal
import time
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("streamplug_image", reason="streamplug-image is not installed")

from streamplug import MDSWriter
from tests.warm_python import TORCH, Program

PROGRAM = Path(__file__).with_name("augmented_images.py")
images = SimpleNamespace(**runpy.run_path(str(PROGRAM)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    from PIL import Image

    out, rng = tmp_path_factory.mktemp("images") / "set", np.random.default_rng(5)
    with MDSWriter(out=out, columns={"id": "int", "image": "png"}, size_limit="20kb") as writer:
        for n in range(5 * images.GLOBAL_BATCH):
            array = rng.integers(0, 256, (24, 20, 3), np.uint8)
            writer.write({"id": n, "image": Image.fromarray(array)})
    return str(out)


def start(data, out, kind, *, ranks=1, rank=0, workers=0, method="fork", steps=10**9):
    command = [PROGRAM, data, out, kind, ranks, rank, workers, method, steps]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "NO_ALBUMENTATIONS_UPDATE": "1"}
    return Program(command, TORCH, env=quiet)


def kill_after(path, program):
    """Kill a program and its workers once it has written a file."""
    with program:
        for _ in range(1200):
            if path.exists():
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"{path.name} was not written within a minute")
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def undisturbed(data, kind):
    loader = images.make_loader(data, kind)
    return (images.pixels(batch) for _ in count() for batch in loader)


def read(out, step, ranks):
    parts = [json.loads((out / f"{step}-{ranks}-{rank}.json").read_text()) for rank in range(ranks)]
    assert len({n for part in parts for n in part}) == sum(map(len, parts)) == images.GLOBAL_BATCH
    return {int(n): bytes.fromhex(image) for part in parts for n, image in part.items()}


@pytest.mark.parametrize("kind", ["generator", "torchvision", "albumentations"])
def test_pixels_after_a_kill_are_the_same_on_another_world(data, tmp_path, kind):
    if kind != "generator" and find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed: tox -c tests -e augmentation")
    killed = start(data, tmp_path, kind, workers=2)
    kill_after(tmp_path / "5-1-0.json", killed)
    first, _ = json.loads((tmp_path / "state.json").read_text())
    last = first + 5  # it is 5 at least, and an epoch has 5 steps: each sample comes twice
    with ExitStack() as stack:
        ranks = [
            start(data, tmp_path, kind, ranks=2, rank=r, workers=w, method="spawn", steps=last)
            for r, w in enumerate((0, 1))
        ]
        ended = [stack.enter_context(rank).finish() for rank in ranks]
    assert [rank.returncode for rank in ended] == [0, 0], [rank.stderr for rank in ended]
    expected = list(islice(undisturbed(data, kind), last))
    for step in range(last):
        assert read(tmp_path, step, 1 if step < first else 2) == expected[step]
    of_a_sample = [
        images_of_step[n] for images_of_step in expected for n in images_of_step if n == 0
    ]
    assert len(set(of_a_sample)) > 1
