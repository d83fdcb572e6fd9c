"""Samples of views that cannot be read."""

from __future__ import annotations

import pytest
from streamplug_testing.fakes import Noted
from streamplug_testing.http import serving
from streamplug_views import View

from streamplug import MDSWriter
from streamplug.dataset import StreamingDataset
from streamplug.interfaces import SampleSubstituted


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for name, column in (("set", "number"), ("more", "text"), ("end", "number")):
        columns = {"id": "int", column: "str"}
        with MDSWriter(out=root / name, columns=columns, max_samples_per_shard=10) as out:
            for n in range(100):
                out.write({"id": n, column: f"{name} {n}"})
    View.of(root / "set").select(range(0, 100, 2)).commit(root / "selected")
    View.of(root / "set").add(root / "more", on="id").commit(root / "joined")
    View.of(root / "set").concat(root / "end").commit(root / "both")
    return root


def lost_of(name, shard):
    if name == "selected":
        return set(range(5 * shard, 5 * shard + 5))
    return set(range(10 * shard, 10 * shard + 10))


@pytest.mark.parametrize("how", ["samples", "batches"])
@pytest.mark.parametrize("access", ["shard", "range", "auto"])
@pytest.mark.parametrize(
    ("view", "missing"),
    [("selected", "set"), ("joined", "set"), ("joined", "more"), ("both", "set")],
)
def test_what_a_missing_shard_holds_is_substituted(root, tmp_path, view, missing, access, how):
    noted = Noted(SampleSubstituted)
    options = {"batch_size": 25, "shuffle": True, "access": access}
    with serving(root) as server:
        whole = StreamingDataset(local=str(root / view), **options | {"access": "shard"})
        expected = [
            [use.sample for use in whole.explain(step, epoch=0)] for step in range(len(whole) // 25)
        ]
        dataset = StreamingDataset(
            remote=f"{server.url}/{view}",
            local=str(tmp_path / "cache"),
            **options,
            on_error="substitute",
            callbacks=[noted],
        )
        (root / missing / "shard.00003.mds").unlink()
        if how == "samples":
            found = [sample["id"] for sample in dataset]
        else:
            found = [int(n) for batch in dataset.batches() for n in batch["id"]]
        asked = [path for _, path, _ in server.requests if path == f"{missing}/shard.00003.mds"]
    assert {event.sample for event in noted.events} == lost_of(view, 3)
    assert dataset.stats().substitutions == len(lost_of(view, 3))
    by = {(event.step, event.sample): event.substitute for event in noted.events}
    ids = [
        by.get((step, sample), sample) for step, batch in enumerate(expected) for sample in batch
    ]
    assert found == [2 * n if view == "selected" else n % 100 for n in ids]
    assert len(asked) <= 5
