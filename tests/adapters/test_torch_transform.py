"""Transforms that draw random numbers: the same with any workers, on any world, after any resume."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import (  # noqa: E402
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    World,
    sample_rng,
)
from streamplug.adapters.torch_transform import RandomTransform  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402
from tests.start_methods import SPAWN  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, TOTAL = 60, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(out=out, columns={"n": "int"}, size_limit=200) as writer:
        writer.write_batch({"n": range(SIZE)})
    return str(out)


def make(
    folder: str, ranks: int = 1, rank: int = 0, cls: Any = StreamingDataset, **options: Any
) -> Any:
    place = {"batch_size": TOTAL // ranks, "world": World(ranks_per_node=ranks, rank=rank)}
    return cls(**{"local": folder, "shuffle": True, **place, **options})


def draws(rng: np.random.Generator) -> float:
    rng.integers(0, 9, 3, dtype="uint8")
    return rng.random()


def by_generator(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"n": sample["n"], "x": draws(rng)}


def by_states(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "n": sample["n"],
        "x": float(torch.rand(()).double()) + random.random() + np.random.random(),
    }


def by_both(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"n": sample["n"], "x": by_states(sample)["x"] + draws(rng)}


def of_batch(columns: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"n": columns["n"], "x": rng.random(len(columns["n"]))}


def batch_by_states(columns: dict[str, Any]) -> dict[str, Any]:
    return {"n": columns["n"], "x": torch.rand(len(columns["n"])).double()}


SAMPLES = {
    "generator": {"transform": by_generator},
    "states": {"transform": by_states, "seed_torch": True},
    "both": {"transform": by_both, "seed_torch": True},
}
BATCHES = {
    "batch": {"batch_transform": of_batch},
    "batch and states": {"batch_transform": batch_by_states, "seed_torch": True},
}
HOWS = pytest.mark.parametrize("how", list(SAMPLES | BATCHES))


def loader(folder: str, how: str, ranks: int = 1, rank: int = 0, **options: Any) -> Any:
    return StreamingDataLoader(make(folder, ranks, rank), **(SAMPLES | BATCHES)[how], **options)


def steps(loader: Any, epochs: int = 1) -> list[list[tuple[int, float]]]:
    loops = (batch for _ in range(epochs) for batch in loader)
    return [list(zip(batch["n"].tolist(), batch["x"].tolist())) for batch in loops]


# -- equal numbers --------------------------------------------------------------------


def test_a_transform_has_the_numbers_of_its_sample(folder):
    found = steps(loader(folder, "generator"), epochs=2)
    expected = [
        [(s["n"], draws(sample_rng(9176, epoch, n // TOTAL, s["n"]))) for n, s in enumerate(data)]
        for data in [make(folder)]
        for epoch in range(2)
    ]
    assert [pair for step in found for pair in step] == expected[0] + expected[1]
    without = [(s["n"], draws(rng)) for s, rng in make(folder).samples_with_rng()]
    assert without == expected[0]


@HOWS
@pytest.mark.parametrize(("workers", "persistent"), [(1, False), (3, True)])
def test_numbers_are_the_same_with_workers(folder, how, workers, persistent):
    alone = steps(loader(folder, how), epochs=2)
    assert len({x for step in alone for _, x in step}) == 2 * SIZE
    made = loader(folder, how, num_workers=workers, persistent_workers=persistent)
    assert steps(made, epochs=2) == alone


class BatchesAhead(StreamingDataset):
    def batches(self, batch_size=None, *, num_threads=0):
        ahead = deque()
        for batch in super().batches(batch_size, num_threads=num_threads):
            ahead.append(batch)
            if len(ahead) > 2:
                yield ahead.popleft()
        yield from ahead


@pytest.mark.parametrize("how", list(BATCHES))
@pytest.mark.parametrize("workers", [0, 2])
def test_numbers_are_the_same_if_batches_are_read_ahead(folder, how, workers):
    data = make(folder, cls=BatchesAhead)
    made = StreamingDataLoader(data, **BATCHES[how], num_workers=workers)
    assert steps(made, epochs=2) == steps(loader(folder, how), epochs=2)


def test_numbers_are_the_same_with_spawned_workers(folder):
    options = {"num_workers": 3, "multiprocessing_context": SPAWN}
    assert steps(loader(folder, "both", **options)) == steps(loader(folder, "both"))


@pytest.mark.parametrize("how", list(SAMPLES))
@pytest.mark.parametrize("ranks", [2, 3])
def test_numbers_are_the_same_on_other_worlds_after_any_resume(folder, how, ranks):
    alone, whole, states = loader(folder, how), [], []
    for _ in range(2):
        for batch in alone:
            whole.append(sorted(zip(batch["n"].tolist(), batch["x"].tolist())))
            states.append(alone.state_dict())
    for stop in (0, 3, 7):
        parts = []
        for rank in range(ranks):
            made = loader(folder, how, ranks, rank, num_workers=rank and 2)
            made.load_state_dict(states[stop])
            parts.append(steps(made))
        merged = [sorted(chain(*each)) for each in zip(*parts)]
        assert merged == whole[stop + 1 :][: len(merged)]
        assert len(merged) == (4 - stop) % 5


@pytest.mark.parametrize("how", list(BATCHES))
def test_numbers_of_batches_are_the_same_after_a_resume_on_as_many_ranks(folder, how):
    made = loader(folder, how, 2, 1)
    whole = steps(made)
    assert whole != steps(loader(folder, how, 2, 0))
    threads = 0 if BATCHES[how].get("seed_torch") else 2  # which share the states
    for number, _ in enumerate(resumed := loader(folder, how, 2, 1, num_threads=threads), 1):
        if number == 2:
            break
    again = loader(folder, how, 2, 1, num_workers=2)
    again.load_state_dict(resumed.state_dict())
    assert steps(again) == whole[2:]


class Negated(StreamingDataset):
    def __getitem__(self, at: Any) -> Any:
        return {"n": -super().__getitem__(at)["n"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_may_change_samples(folder, workers):
    data = make(folder, cls=Negated)
    found = steps(StreamingDataLoader(data, transform=by_generator, num_workers=workers))
    assert found == [[(-n, x) for n, x in step] for step in steps(loader(folder, "generator"))]


def stop_at_20(sample: dict[str, Any]) -> dict[str, Any]:
    return next(iter(())) if sample["n"] == 20 else sample


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [
        {"transform": stop_at_20},
        {"transform": stop_at_20, "seed_torch": True},
        {"transform": lambda sample, rng: stop_at_20(sample)},
    ],
)
def test_a_stop_iteration_of_a_transform_is_an_error(folder, options, workers):
    dataset = make(folder, shuffle=False)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(StreamingDataLoader(dataset, num_workers=workers, **options))


def test_short_batches_may_be_dropped(folder):
    pytest.importorskip("streamplug_mosaic")

    def found(how, **options):
        data = make(folder, batch_size=25, partition_algo="orig")
        return steps(StreamingDataLoader(data, **(SAMPLES | BATCHES)[how], **options))

    for how in SAMPLES | BATCHES:
        assert [len(step) for step in found(how)] == [25, 25, 10]
        assert found(how, drop_last=True) == found(how)[:2]


# -- states of torch and others -------------------------------------------------------


def global_states() -> Any:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


@pytest.mark.parametrize("how", ["states", "batch and states"])
def test_states_of_the_training_loop_are_left_alone(folder, how):
    before = global_states()
    for _ in loader(folder, how):
        assert global_states() == before

    def failing(value):
        by_states(value)
        raise ValueError("upside down")

    argument = "transform" if how in SAMPLES else "batch_transform"
    broken = StreamingDataLoader(make(folder), seed_torch=True, **{argument: failing})
    with pytest.raises(ValueError, match="upside down"):
        next(iter(broken))
    assert global_states() == before


def test_a_generator_has_the_same_numbers_if_torch_is_seeded(folder):
    seeded = StreamingDataLoader(make(folder), transform=by_generator, seed_torch=True)
    assert steps(seeded) == steps(loader(folder, "generator"))


def test_torch_and_others_draw_different_numbers(folder):
    def drawing(sample):
        numbers = torch.randint(1 << 32, (3,)).tolist(), np.random.randint(1 << 32, size=3).tolist()
        return {"n": sample["n"], "x": len({*numbers[0], *numbers[1], random.getrandbits(32)})}

    found = steps(StreamingDataLoader(make(folder), transform=drawing, seed_torch=True))
    assert {x for step in found for _, x in step} == {7}


# -- which functions take a generator -------------------------------------------------


class Two:
    def __call__(self, sample, rng):
        return by_generator(sample, rng)


def three(sample, rng, size):
    return by_generator(sample, rng)


def optional(sample, rng=None, *rest, **more):
    assert rng is None
    return {"n": sample["n"], "x": 0.0}


class Module(torch.nn.Module):
    def forward(self, sample):
        return {"n": sample["n"], "x": 0.0}


TWO_ARGUMENTS = [Two(), Two().__call__, partial(three, size=1), by_generator]


@pytest.mark.parametrize("function", TWO_ARGUMENTS)
def test_functions_of_two_arguments_take_a_generator(folder, function):
    found = steps(StreamingDataLoader(make(folder), transform=function))
    assert found == steps(loader(folder, "generator"))


@pytest.mark.parametrize(
    "function", [optional, dict, Module(), itemgetter("n"), lambda *samples: samples[0]]
)
def test_other_functions_take_one_argument(folder, function):
    made = StreamingDataLoader(make(folder), transform=function)
    assert not isinstance(made._used_transform, RandomTransform)
    assert len(list(made)) == SIZE // TOTAL


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
def test_functions_of_more_arguments_are_refused(folder, argument):
    value = argument.removesuffix("transform").rstrip("_") or "sample"
    with pytest.raises(
        ConfigError, match=rf"requires \['sample', 'rng', 'size'\].*\({value}, rng\)"
    ):
        StreamingDataLoader(make(folder), **{argument: three})
    with pytest.raises(ConfigError, match=r"requires \['s', 'rng'\]: expected a function of"):
        StreamingDataLoader(make(folder), **{argument: lambda s, *, rng: s})


def test_seeds_need_a_transform(folder):
    for options in ({}, {"collate_fn": list}):
        with pytest.raises(ConfigError, match="seed_torch=True: give the transform= or batch_"):
            StreamingDataLoader(make(folder), seed_torch=True, **options)
    with pytest.raises(ConfigError, match="seed_torch='yes': must be True or False"):
        StreamingDataLoader(make(folder), transform=dict, seed_torch="yes")


def test_seeds_may_be_asked_for_in_a_config(folder):
    config = {"dataset": {"local": folder, "batch_size": 4}, "loader": {"seed_torch": True}}
    one, other = (StreamingDataLoader.from_config(config, transform=by_states) for _ in range(2))
    assert steps(one) == steps(other)


def test_the_loader_of_mosaicml_takes_them_too(folder):
    compat = pytest.importorskip("streamplug_mosaic.compat.loader")
    made = compat.StreamingDataLoader(make(folder), TOTAL, transform=by_generator)
    assert steps(made) == steps(loader(folder, "generator"))
    with pytest.raises(ConfigError, match=r"\['seed_torch', 'transform'\]: only if batch_size=5"):
        compat.StreamingDataLoader(make(folder), 5, transform=by_states, seed_torch=True)
