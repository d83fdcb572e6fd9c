"""The benchmark of devices runs, on the CPU and on tiny models."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


def test_the_benchmark_of_devices_runs_on_a_cpu(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    import bench_device
    from device_models import GPTOptions, ResNet50

    with torch.device("meta"):
        full = ResNet50()
    assert sum(each.numel() for each in full.parameters()) == 25_557_032  # as torchvision's
    sizes = bench_device.Sizes(
        gpt=GPTOptions(layers=1, width=8, heads=2, vocabulary=32, length=4),
        rows=16,
        max_gpt_batch=4,
        resnet_width=2,
        resnet_blocks=(1, 1, 1, 1),
        pixels=16,
        images=8,
        max_resnet_batch=2,
        copy_bytes=(64,),
        copies=2,
        warm_up_steps=1,
    )
    figures = bench_device.measure(torch.device("cpu"), sizes, steps=1, workers=0, rounds=1)
    assert [step["batch"] for step in figures["steps"].values()] == [4, 2]
    for step in figures["steps"].values():
        assert step["waiting"] == 1 - step["seconds without a loader"] / step["seconds"]
        assert 0 < step["seconds in next"] < step["seconds"]
    (copies,) = figures["copies"]
    assert all(copies[way] > 0 for way in ("bare", "pinned", "staged"))
