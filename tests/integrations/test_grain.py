"""Grain reads a data set as a source: shuffled, sharded, batched, in worker processes and after a resume."""

from __future__ import annotations

import json
import subprocess
import sys

import grain
import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset

SIZE = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("set") / "set"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": np.arange(SIZE)})
    return str(out)


def source_of(folder):
    return StreamingDataset(local=folder).as_source()


def numbers(batches):
    return [batch["n"].tolist() for batch in batches]


def test_a_source_is_what_grain_asks_for(folder):
    source = source_of(folder)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    dataset = grain.MapDataset.source(source).shuffle(seed=3).batch(7)
    seen = [n for batch in numbers(dataset) for n in batch]
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(SIZE))
    parts = [[int(s["n"]) for s in grain.MapDataset.source(source)[rank::3]] for rank in range(3)]
    assert parts == [list(range(rank, SIZE, 3)) for rank in range(3)]


def test_a_state_of_an_iterator_goes_on(folder):
    def make():
        source = grain.MapDataset.source(source_of(folder)).seed(5).shuffle()
        return iter(source.to_iter_dataset().batch(7))

    whole = numbers(make())
    first = make()
    assert [next(first)["n"].tolist() for _ in range(3)] == whole[:3]
    state = json.loads(json.dumps(first.get_state()))
    again = make()
    again.set_state(state)
    assert numbers(again) == whole[3:]


LOADER = """
import json, sys
import grain
from streamplug import StreamingDataset

def make(folder):
    source = StreamingDataset(local=folder).as_source()
    sampler = grain.samplers.IndexSampler(
        num_records=len(source), shard_options=grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=2
    )
    operations = [grain.transforms.Batch(batch_size=5)]
    return iter(grain.DataLoader(
        data_source=source, sampler=sampler, operations=operations, worker_count=2
    ))

if __name__ == "__main__":
    batches = make(sys.argv[1])
    first = [next(batches)["n"].tolist() for _ in range(4)]
    state = batches.get_state()
    rest = [batch["n"].tolist() for batch in batches]
    again = make(sys.argv[1])
    again.set_state(state)  # Grain compares the repr of the source
    assert [batch["n"].tolist() for batch in again] == rest
    print(json.dumps(first + rest))
"""


@pytest.mark.timeout(120)
def test_worker_processes_read_a_pickled_source(folder, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(LOADER)
    done = subprocess.run(
        [sys.executable, str(program), folder],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = [n for batch in json.loads(done.stdout.splitlines()[-1]) for n in batch]
    assert sorted(seen) == list(range(SIZE))
