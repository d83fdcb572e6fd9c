"""Iterated over in every world, mosaicml-streaming and streamplug hand out the same batches."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World

SIZES = (70, 50, 90)
WEIGHTS = [
    [{"proportion": 3}, {"proportion": 2}, {"proportion": 2}],
    [{"repeat": 1.2}, {"choose": 72}, {"repeat": 0.7}],
]
STOP = 3

BATCHINGS = ["random", "stratified", "per_stream", "device_per_stream"]
# The world of a run and the one on which it is continued: nodes, ranks of each, workers of each, and
# samples per batch; and the canonical nodes.
WORLDS = {
    "naive": ((1, 1, 0, 16), (1, 1, 2, 16), None),
    "py1s": ((1, 2, 0, 8), (1, 2, 1, 8), None),
    "py2s": ((1, 2, 2, 8), (2, 1, 0, 8), 4),
    "py1br": ((2, 1, 1, 8), (1, 1, 2, 16), 2),
    "py1e": ((2, 2, 0, 4), (1, 2, 0, 8), 2),
}
FIRST_KEYS = (
    "epoch",
    "sample_in_epoch",
    "num_canonical_nodes",
    "shuffle_seed",
    "initial_physical_nodes",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return three data sets whose samples are numbered over all of them."""
    folder, first, made = tmp_path_factory.mktemp("sets"), 0, []
    for number, size in enumerate(SIZES):
        made.append(str(folder / str(number)))
        with MDSWriter(out=made[-1], columns={"id": "int"}, size_limit="350b") as writer:
            writer.write_batch({"id": list(range(first, first + size))})
        first += size
    return made


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Return a function that reads with mosaicml-streaming: what each rank of a run gets."""
    folder = tmp_path_factory.mktemp("theirs")
    errors = folder / "errors"
    with errors.open("w") as written:
        program = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("peer_ranks.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            env={**os.environ, "TMPDIR": str(folder)},
            text=True,
            start_new_session=True,
        )

    def read(run):
        program.stdin.write(json.dumps(run) + "\n")
        program.stdin.flush()
        answer = program.stdout.readline()
        assert answer, errors.read_text()
        return json.loads(answer)

    yield read
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGTERM)  # and what is left of its ranks
    program.communicate()


def run_of(folders, weights, world, *, canonical_nodes, **arguments):
    *world, batch = world
    return {
        "streams": [{"local": local, **weight} for local, weight in zip(folders, weights)],
        "arguments": {
            "batch_size": batch,
            "shuffle_block_size": 90,
            "num_canonical_nodes": canonical_nodes,
            **arguments,
        },
        "world": world,
        "state": None,
        "epochs": 1,
        "stop": STOP,
    }


def ours(run):
    """Read as the program of theirs does."""
    nodes, local, workers = run["world"]
    found = []
    for rank in range(nodes * local):
        data = StreamingDataset(
            streams=[Stream(**stream) for stream in run["streams"]],
            world=World(nodes, local, rank=rank),
            **run["arguments"],
        )
        loader = StreamingDataLoader(
            data, batch_size=run["arguments"]["batch_size"], num_workers=workers
        )
        if run["state"]:
            loader.load_state_dict(run["state"])
        epochs = [[batch["id"].tolist() for batch in loader] for _ in range(run["epochs"])]
        state = None
        if run["stop"] is not None:
            epochs.append([batch["id"].tolist() for batch in islice(loader, run["stop"])])
            state = {key: loader.state_dict()[key] for key in FIRST_KEYS}
        found.append({"epochs": epochs, "state": state})
    return found


def compare(theirs, run, second):
    """Compare a run, and its continuation on another world from the state that theirs saved."""
    first = theirs(run)
    assert ours(run) == first
    assert len(first[0]["epochs"][1]) == STOP
    continued = {**second, "state": first[0]["state"], "epochs": 2, "stop": None}
    expected = theirs(continued)
    assert ours(continued) == expected
    assert len(expected[0]["epochs"][0]) == len(expected[0]["epochs"][1]) - STOP


@pytest.mark.parametrize("shuffle", WORLDS)
@pytest.mark.parametrize("batching", BATCHINGS)
def test_epochs_and_their_continuation(folders, theirs, batching, shuffle):
    number = BATCHINGS.index(batching) + list(WORLDS).index(shuffle)
    settings = {
        "batching_method": batching,
        "shuffle": True,
        "shuffle_algo": shuffle,
        "partition_algo": ("orig", "relaxed")[number % 2],
        "sampling_method": ("balanced", "fixed")[number // 2 % 2],
    }
    world, other, canonical_nodes = WORLDS[shuffle]
    weights = WEIGHTS[number % 3 == 0]
    run = run_of(folders, weights, world, canonical_nodes=canonical_nodes, **settings)
    compare(
        theirs, run, run_of(folders, weights, other, canonical_nodes=canonical_nodes, **settings)
    )


@pytest.mark.parametrize("batching", ["random", "stratified", "per_stream"])
def test_relaxed_continues_on_nodes_that_do_not_divide(folders, theirs, batching):
    settings = {
        "batching_method": batching,
        "shuffle": True,
        "shuffle_algo": "py1e",
        "canonical_nodes": 4,
    }
    settings["partition_algo"] = "relaxed"
    run = run_of(folders, WEIGHTS[0], (2, 1, 1, 6), **settings)
    compare(theirs, run, run_of(folders, WEIGHTS[0], (3, 1, 0, 4), **settings))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_without_a_shuffle(folders, theirs, batching):
    settings = {"batching_method": batching, "partition_algo": "orig", "canonical_nodes": 2}
    run = run_of(folders, WEIGHTS[1], (1, 1, 2, 8), **settings)
    compare(theirs, run, run_of(folders, WEIGHTS[1], (2, 1, 0, 4), **settings))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_state_from_the_end_of_an_epoch(folders, theirs, batching):
    settings = {"batching_method": batching, "partition_algo": "orig", "canonical_nodes": 1}
    run = run_of(folders, WEIGHTS[1], (1, 2, 0, 8), **settings)
    ended = theirs({**run, "epochs": 0, "stop": 1000})[0]["state"]
    assert ended["epoch"] == 0
    run.update(state=ended, epochs=2, stop=None)
    found = ours(run)
    assert found == theirs(run)
    assert found[0]["epochs"][0] == []


def test_a_state_from_before_the_first_batch(folders, theirs):
    settings = {"partition_algo": "orig", "canonical_nodes": 1}
    run = run_of(folders, WEIGHTS[1], (1, 2, 0, 8), **settings)
    fresh = theirs({**run, "epochs": 0, "stop": 0})[0]["state"]
    assert fresh["epoch"] == -1
    run.update(state=fresh, epochs=2, stop=None)
    assert ours(run) == theirs(run)


def test_after_a_resumed_epoch_theirs_may_forget_the_canonical_nodes(folders, theirs):
    """They are in the state; but workers that begin the next epoch have not seen it."""
    settings = {"shuffle": True, "shuffle_algo": "py1e", "partition_algo": "orig"}
    first, second = (1, 2, 1, 8), (2, 1, 1, 8)
    saved = theirs(run_of(folders, WEIGHTS[1], first, canonical_nodes=None, **settings))[0]["state"]
    continued = {"state": saved, "epochs": 2, "stop": None}
    expected = theirs(
        {**run_of(folders, WEIGHTS[1], second, canonical_nodes=None, **settings), **continued}
    )
    found = ours(
        {**run_of(folders, WEIGHTS[1], second, canonical_nodes=None, **settings), **continued}
    )
    known = theirs(
        {**run_of(folders, WEIGHTS[1], second, canonical_nodes=1, **settings), **continued}
    )
    assert found == known
    assert [rank["epochs"][0] for rank in found] == [rank["epochs"][0] for rank in expected]
    assert [rank["epochs"][1] for rank in found] != [rank["epochs"][1] for rank in expected]
