"""Training with Composer: stops within an epoch and at its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

EXAMPLE = "train_composer.py"


@pytest.fixture(scope="module")
def composer(run):
    return replace(run, before=[Path(__file__).with_name("without_torchvision.py")])


@pytest.fixture(scope="module")
def alone(composer):
    return composer(EXAMPLE, "composer")


def test_it_trains_as_without_it(alone, plain):
    alone.check(plain)


@pytest.mark.parametrize("stop", [10, 13])
def test_losses_after_a_stop_are_the_same(composer, alone, stop):
    out = f"composer-{stop}"
    composer(EXAMPLE, out, steps=stop, every=1)
    composer(EXAMPLE, out, workers=1).check(alone)


def test_losses_after_a_kill_are_the_same(composer):
    last = composer.killed(EXAMPLE, "composer-killed", after=10)
    log = composer(EXAMPLE, "composer-killed", steps=last + 15)
    assert len(log.processes) == 2
    log.check(composer(EXAMPLE, "composer-alone", steps=last + 15))
