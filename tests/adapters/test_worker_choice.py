"""`num_workers="auto"` chooses none, threads or processes, as the page on throughput says."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("streamplug_image")

from PIL import Image  # noqa: E402

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streamplug.adapters import worker_choice  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from streamplug.types import World  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"n": "int", "a": "ndarray:float32:3", "image": "png"}
    with MDSWriter(columns=columns, out=out) as writer:
        for n in range(12):
            image = Image.fromarray(np.full((2, 2), n, np.uint8))
            writer.write({"n": n, "a": np.full(3, n, np.float32), "image": image})
    return str(out)


@pytest.fixture
def cores(monkeypatch):
    """Set the cores of the machine, and those that the process may use."""

    def set_cores(all_cores, usable=None):
        own = range(all_cores if usable is None else usable)
        monkeypatch.setattr(worker_choice.os, "cpu_count", lambda: all_cores)
        monkeypatch.setattr(worker_choice.os, "sched_getaffinity", lambda _: own, raising=False)

    set_cores(4)
    return set_cores


class Changed(StreamingDataset):
    """Makes samples of its own."""

    def __getitem__(self, at):
        return super().__getitem__(at)


def same(value):
    return value


def chosen(folder, cls=StreamingDataset, columns=("n",), world=None, **options):
    dataset = cls(local=folder, batch_size=4, columns=list(columns), world=world)
    loader = StreamingDataLoader(dataset, num_workers="auto", **options)
    return loader.num_workers, loader.num_threads


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, (0, 0)),
        ({"transform": same}, (4, 0)),
        ({"batch_transform": same}, (4, 0)),
        ({"collate_fn": same}, (4, 0)),
        ({"columns": ["a"]}, (0, 0)),  # arrays are only copied
        ({"columns": ["a"], "transform": same}, (4, 0)),
        ({"columns": ["n", "image"]}, (0, 4)),
        ({"columns": ["image"], "transform": same}, (0, 4)),
        ({"columns": ["image"], "transform": same, "seed_torch": True}, (4, 0)),
        ({"columns": ["image"], "cls": Changed}, (4, 0)),
    ],
)
@pytest.mark.usefixtures("cores")
def test_the_rule(folder, wishes, expected):
    assert chosen(folder, **wishes) == expected


@pytest.mark.parametrize(
    ("machine", "ranks", "workers"),
    [((1,), 1, 0), ((8,), 4, 2), ((8,), 8, 0), ((8, 2), 4, 2), ((8, 1), 1, 0), ((64,), 1, 16)],
)
def test_cores_are_shared_by_the_ranks_of_a_node(folder, cores, machine, ranks, workers):
    cores(*machine)
    found = chosen(folder, world=World(ranks_per_node=ranks), transform=same)
    assert found == (workers, 0)


@pytest.mark.usefixtures("cores")
def test_options_of_workers_are_for_workers(folder):
    options = {"persistent_workers": True, "prefetch_factor": 3, "timeout": 60}
    assert chosen(folder, **options) == (0, 0)
    assert chosen(folder, transform=same, **options) == (4, 0)
    with pytest.raises(ConfigError, match="num_workers='auto' chooses num_threads=, too"):
        chosen(folder, num_threads=2)
