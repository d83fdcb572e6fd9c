"""However a data set is read, it gives the same batches; and each way continues where another one stood.

With STREAMPLUG_TEST_SOAK in the environment all ways are combined with all others, else each with some.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, default_collate  # noqa: E402, TID251

from streamplug import MDSWriter, Stream, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from tests.start_methods import SPAWN  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
    pytest.mark.timeout(300),
]

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))
SIZES = {"a": 70, "b": 41}
GLOBAL, EPOCH = 12, 96
STEPS = EPOCH // GLOBAL
WIDE = 4096
"""int16: a batch of three is worth an arena."""

WORLDS = {1: World, 2: lambda rank: World(2, 1, rank=rank), 4: lambda rank: World(2, 2, rank=rank)}
SOURCES = ["local", "cache", "limit", "range"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    columns = {"id": "int", "wide": f"ndarray:int16:{WIDE}", "text": "str", "ragged": "ndarray"}
    first = 0
    for name, size in SIZES.items():
        with MDSWriter(columns=columns, out=root / name, size_limit=60_000) as out:
            for number in range(first, first + size):
                wide, ragged = np.full(WIDE, number, np.int16), np.full(3, number, np.float32)
                text = f"text {number}"
                out.write({"id": number, "wide": wide, "text": text, "ragged": ragged})
        first += size
    return root


def opened(root, cache, source: str, ranks: int, rank: int) -> StreamingDataset:
    def stream(name: str, share: float) -> Stream:
        far, near = str(root / name), str(cache / source / name)
        places = {
            "local": {"local": far},
            "cache": {"remote": far, "local": near},
            "limit": {"remote": far, "local": near, "cache_limit": 250_000},
            "range": {"remote": f"file://{far}", "access": "range"},
        }
        return Stream(proportion=share, **places[source])

    return StreamingDataset(
        streams=[stream("a", 0.65), stream("b", 0.35)],
        batching_method="stratified",
        shuffle_block_size=1 << 18,  # not that of a limited cache
        epoch_size=EPOCH,
        shuffle=True,
        batch_size=GLOBAL // ranks,
        num_canonical_nodes=2,
        world=WORLDS[ranks](rank=rank),
    )


# -- ways to read --------------------------------------------------------------------


def checked(batch: dict[str, Any]) -> list[int]:
    """Return the ids of a batch, and look whether its values are theirs."""
    ids = [int(n) for n in batch["id"]]
    assert (np.asarray(batch["wide"]) == np.array(ids)[:, None]).all()
    assert np.asarray(batch["wide"]).shape == (len(ids), WIDE)
    assert list(batch["text"]) == [f"text {n}" for n in ids]
    assert np.stack([np.asarray(each) for each in batch["ragged"]]).tolist() == [
        [n] * 3 for n in ids
    ]
    return ids


def listed(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def with_more(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "more": sample["id"] + 1}


def of_columns(columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "ragged": np.stack(columns["ragged"]), "more": columns["id"] + 1}


def of_samples(samples: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    return default_collate(samples), len(samples)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have threads read even what takes no time."""
    monkeypatch.setattr("streamplug.transfer.decode_pool.SLOW_BLOCKS", 0)


def checked_more(batch: dict[str, Any]) -> list[int]:
    assert batch["more"].tolist() == [n + 1 for n in batch["id"].tolist()]
    return checked(batch)


def checked_pair(pair: tuple[dict[str, Any], int]) -> list[int]:
    assert len(pair[0]["id"]) == pair[1]
    return checked(pair[0])


@dataclass
class Way:
    """A way to read a data set: epoch after epoch of ids, and the state after so many batches."""

    epoch: Callable[[], Iterator[list[int]]]
    state: Callable[[int], dict[str, Any]]
    load: Callable[[dict[str, Any]], None]


def samples(data: StreamingDataset) -> Way:
    def epoch() -> Iterator[list[int]]:
        each = iter(data)
        while batch := list(islice(each, data.batch_size)):
            yield checked(listed(batch))

    return Way(epoch, lambda _: data.state_dict(), data.load_state_dict)


def batches(data: StreamingDataset, **kwargs: Any) -> Way:
    return Way(
        lambda: map(checked, data.batches(**kwargs)),
        lambda _: data.state_dict(),
        data.load_state_dict,
    )


def ours(data: StreamingDataset, check: Callable[[Any], list[int]] = checked, **kwargs: Any) -> Way:
    loader = StreamingDataLoader(data, **kwargs)
    return Way(lambda: map(check, loader), lambda _: loader.state_dict(), loader.load_state_dict)


def theirs(data: StreamingDataset, **kwargs: Any) -> Way:
    loader = DataLoader(data, batch_size=data.batch_size, **kwargs)
    return Way(
        lambda: map(checked, loader), lambda k: data.state_dict(k * GLOBAL), data.load_state_dict
    )


TWO = {"num_workers": 2}
WAYS: dict[str, Callable[[StreamingDataset], Way]] = {
    "samples": samples,
    "batches": batches,
    "batches, threads": lambda data: batches(data, num_threads=2),
    "ours": ours,
    "ours, threads": lambda data: ours(data, num_threads=2),
    "ours, transform": lambda data: ours(data, checked_more, transform=with_more),
    "ours, batch_transform": lambda data: ours(data, checked_more, batch_transform=of_columns),
    "ours, collate_fn": lambda data: ours(data, checked_pair, collate_fn=of_samples),
    "ours, 2 workers": lambda data: ours(data, **TWO),
    "ours, persistent": lambda data: ours(data, persistent_workers=True, **TWO),
    "ours, 2 x 2 threads": lambda data: ours(data, num_threads=2, **TWO),
    "ours, 2 workers transform": lambda data: ours(data, checked_more, transform=with_more, **TWO),
    "ours, 2 workers batch_transform": lambda data: ours(
        data, checked_more, batch_transform=of_columns, **TWO
    ),
    "ours, 3 workers collate_fn": lambda data: ours(
        data, checked_pair, collate_fn=of_samples, num_workers=3
    ),
    "theirs": theirs,
    "theirs, 2 workers": lambda data: theirs(data, **TWO),
}
SPAWNED = {
    "ours, spawned": lambda data: ours(data, multiprocessing_context=SPAWN, **TWO),
    "ours, spawned and persistent": lambda data: ours(
        data, multiprocessing_context=SPAWN, persistent_workers=True, num_threads=1, **TWO
    ),
}
NAMES = list(WAYS)


# -- what is expected ----------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(root):
    """The ids of two epochs by number of ranks, rank and step."""
    found = {}
    for ranks in WORLDS:
        for rank in range(ranks):
            data = opened(root, root, "local", ranks, rank)
            found[ranks, rank] = [[b["id"].tolist() for b in data.batches()] for _ in range(2)]
    return found


def test_global_batches_are_the_same_in_all_worlds(expected):
    for epoch, step in product(range(2), range(STEPS)):
        whole = [
            sorted(chain.from_iterable(expected[ranks, rank][epoch][step] for rank in range(ranks)))
            for ranks in WORLDS
        ]
        assert whole == [whole[0]] * len(WORLDS)
        assert len(whole[0]) == GLOBAL
    assert expected[1, 0][0] != expected[1, 0][1]
    both = [sum(n < SIZES["a"] for n in step) for step in expected[1, 0][0]]
    assert all(0 < of_a < GLOBAL for of_a in both)


def ranks_of(ranks: int, number: int) -> list[int]:
    """Return which ranks to try: all, or else one after the other."""
    return list(range(ranks)) if SOAK else [number % ranks]


def grid() -> Iterator[Any]:
    for at, (name, source) in enumerate(product(NAMES, SOURCES)):
        for turn, ranks in enumerate(WORLDS):
            if SOAK or (at + at // 4 + turn) % 8 == 0:
                yield pytest.param(name, source, ranks, at, id=f"{name}-{source}-{ranks}")


@pytest.mark.parametrize(("name", "source", "ranks", "number"), list(grid()))
def test_every_way_gives_the_same_batches(root, tmp_path, expected, name, source, ranks, number):
    for rank in ranks_of(ranks, number):
        way = WAYS[name](opened(root, tmp_path, source, ranks, rank))
        assert [list(way.epoch()) for _ in range(2)] == expected[ranks, rank]


def pairs() -> Iterator[Any]:
    moves = [(1, 4), (4, 2), (2, 1), (2, 4), (4, 1), (1, 2)]
    for at, (one, other) in enumerate(product(NAMES, NAMES)):
        turn = at + at // len(NAMES)
        if SOAK or turn % 16 == 0:
            some = moves if SOAK else [moves[turn // 16 % len(moves)]]
            for move in some:
                yield pytest.param(one, other, move, turn, id=f"{one}-{other}-{move[0]}to{move[1]}")


@pytest.mark.parametrize(("one", "other", "move", "number"), list(pairs()))
def test_every_way_continues_where_any_other_stood(
    root, tmp_path, expected, one, other, move, number
):
    used, (before, after) = 1 + number % (STEPS - 1), move
    source, then = SOURCES[number % 4], SOURCES[number // 4 % 4]
    way = WAYS[one](opened(root, tmp_path, source, before, number % before))
    assert list(islice(way.epoch(), used)) == expected[before, number % before][0][:used]
    saved = way.state(used)
    for rank in ranks_of(after, number):
        way = WAYS[other](opened(root, tmp_path, then, after, rank))
        way.load(saved)
        first, second = expected[after, rank]
        assert [list(way.epoch()) for _ in range(2)] == [first[used:], second]


@pytest.mark.parametrize("name", SPAWNED if SOAK else list(SPAWNED)[1:])
def test_spawned_workers_give_and_continue_the_same(root, tmp_path, expected, name):
    way = SPAWNED[name](opened(root, tmp_path, "cache", 2, 1))
    assert list(islice(way.epoch(), 3)) == expected[2, 1][0][:3]
    saved = way.state(3)
    way = SPAWNED[name](opened(root, tmp_path, "local", 4, 2))
    way.load(saved)
    first, second = expected[4, 2]
    assert list(way.epoch()) == first[3:]
    if SOAK:
        assert list(way.epoch()) == second
