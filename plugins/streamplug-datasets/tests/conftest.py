"""Commands as users give them, and a step of training."""

from __future__ import annotations

import json
import pickle
import shlex

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from streamplug_datasets.cli import main

import streamplug


class Result:
    """What a command did: its exit code, what it printed, and what it said of errors."""

    def __init__(self, ran):
        self.code, self.error, self.ran = ran.exit_code, ran.stderr, ran
        self.out = ran.stdout

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def convert(tmp_path, monkeypatch):
    """Run ``streamplug-datasets`` with what follows it in a shell, without processes of its own."""
    monkeypatch.chdir(tmp_path)

    def write_parts(make, parts, **options):
        make, parts = pickle.loads(pickle.dumps((make, parts)))  # as if for other processes
        return streamplug.write_parts(make, parts, **options)

    monkeypatch.setattr("streamplug_datasets.convert.run.write_parts", write_parts)

    def run(line):
        ran = CliRunner().invoke(main, [*shlex.split(line), "--processes", "0"])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Result(ran)

    return run


@pytest.fixture
def converted(convert):
    """As `convert`; the command must succeed, and its JSON is returned."""

    def run(line):
        result = convert(f"{line} --json")
        assert result.code == 0, result.error
        return result.json

    return run


@pytest.fixture
def refused(convert):
    """As `convert`; the command must fail, and what it says is returned."""

    def run(line):
        result = convert(line)
        assert result.code == 2, result.out
        return result.error

    return run


@pytest.fixture
def picture():
    """Write an image of colours that go over into one another, which survive JPEG; returns its pixels."""

    def write(path, seed, size=(40, 30), mode="RGB", **options):
        colours = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
        image = Image.fromarray(colours).resize(size, Image.Resampling.BILINEAR).convert(mode)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, **options)
        return np.asarray(image)

    return write


@pytest.fixture
def learns():
    """Check that a model learns: two steps on a batch, of which the second has the lower loss."""
    torch = pytest.importorskip("torch")

    def run(model, loss_of):
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        losses = []
        for _ in range(2):
            loss = loss_of(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[1] < losses[0]

    return run
