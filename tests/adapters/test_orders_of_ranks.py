"""Ranks of a process group that would read different orders of one data set."""

from __future__ import annotations

import logging.handlers
from itertools import chain

import pytest

pytest.importorskip("torch")

from streamplug import (
    MDSWriter,
    Stream,
    StreamingDataLoader,
    StreamingDataset,
    World,
)
from streamplug.errors import ConfigError
from tests.rank_group import run_ranks

SIZE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, max_samples_per_shard=10) as writer:
        for n in range(SIZE):
            writer.write({"n": n})
    return str(out)


def read(rank, cases, folder):
    """Return the numbers that a rank reads of several data sets, or the errors of their loops."""
    found = []
    for options in cases:
        own = {name: values[rank] for name, values in options.items()}
        workers = own.pop("workers", 0)
        cache = own.pop("cache", None)
        if cache is not None:
            own |= {"remote": folder, "local": f"{cache}-{rank}"}
        else:
            own["streams"] = [Stream(local=folder, proportion=weight) for weight in (0.75, 0.25)]
        dataset = StreamingDataset(
            **{"batch_size": 5, "shuffle": True, "world": own.pop("world", None), **own}
        )
        try:
            loader = StreamingDataLoader(dataset, num_workers=workers)
            found.append([n for batch in loader for n in batch["n"].tolist()])
        except ConfigError as error:
            found.append(str(error))
            with pytest.raises(ConfigError, match="in another order"):  # again
                next(iter(dataset))
    return found


def test_ranks_with_other_options_are_refused(folder, tmp_path):
    cases = [
        {"shuffle_seed": [1, 2]},
        {"shuffle": [True, False]},
        {"shuffle_block_size": [20, 40], "workers": [1, 1]},
        {"batch_size": [5, 6]},
        {"batching_method": ["random", "stratified"]},
    ]
    results = run_ranks(2, read, cases, folder)
    for name, *found in zip(
        ("shuffle_seed", "shuffle_algo", "shuffle_block_size", "global_batch", "batching_method"),
        *results,
    ):
        errors = [one for one in found if isinstance(one, str)]
        assert len(errors) == 1, name
        assert (
            "would read this data set in another order than the rank that began first" in errors[0]
        )
        assert f"{name}: saved" in errors[0]


def test_ranks_whose_default_block_size_follows_from_other_limits_are_refused(folder, tmp_path):
    sizes = {"shuffle_block_size": [None, None], "cache": [str(tmp_path / "cache")] * 2}
    cases = [{**sizes, "cache_limit": [800, 100_000]}, {**sizes, "cache_limit": [900, 900]}]
    first, second = zip(*run_ranks(2, read, cases, folder))
    [error] = [one for one in first if isinstance(one, str)]
    assert "shuffle_block_size: saved" in error
    assert sorted(chain.from_iterable(second)) == list(range(SIZE))


def test_equal_orders_and_worlds_that_were_given_are_read(folder):
    worlds = [World(1, 2, rank=rank) for rank in range(2)]
    cases = [
        {},
        {"workers": [2, 2]},
        {"batching_method": ["stratified"] * 2},
        {"shuffle_seed": [1, 2], "world": [World(), World()]},
        {"shuffle_seed": [1, 2], "world": worlds},
    ]
    results = run_ranks(2, read, cases, folder)
    assert [type(found) for result in results for found in result] == [list] * 2 * len(cases)
    for first, second in zip(*results[:3]):
        assert len(first) == len(second)


def warnings_after_loads(rank, folder, loading_ranks):
    """Return the warnings of a rank, two loops over whose data set begin after a state was loaded on some."""
    records = logging.handlers.BufferingHandler(100)
    logging.getLogger("streamplug").addHandler(records)
    dataset = StreamingDataset(local=folder, batch_size=5, shuffle=True)
    saved = dataset.state_dict(num_samples=20)
    if rank in loading_ranks:
        dataset.load_state_dict(saved)
    for _ in range(2):
        sum(1 for _ in dataset)
    return [record.getMessage() for record in records.buffer]


def test_ranks_that_begin_at_other_positions_are_named(folder):
    first, second = "epoch 0, sample 0", "epoch 0, sample 20"
    found = chain.from_iterable(run_ranks(2, warnings_after_loads, folder, [1]))
    [warning] = [text for text in found if "load the same state on all ranks" in text]
    assert warning.startswith(
        (
            f"rank 0 begins to read at {first}, but the rank that began first at {second}: load",
            f"rank 1 begins to read at {second}, but the rank that began first at {first}: load",
        )
    )
    assert not any(run_ranks(2, warnings_after_loads, folder, [0, 1]))
