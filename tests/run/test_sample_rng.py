"""Random generators of samples and batches: the same in every world, after every resume."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug import MDSWriter, Stream, World, sample_rng
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, DecodeError
from streamplug.run.random_numbers import SampleRng, place_of, takes_rng
from tests.mixing import HAS_MIXING

SIZES = (70, 30, 100)
METHODS = ("random", *(("stratified", "per_stream", "device_per_stream") if HAS_MIXING else ()))
CURRICULA = (None, *([{0: [0.75, 0.25, 0], 2: [0, 0.5, 0.5]}] if HAS_MIXING else ()))
STARTS = np.cumsum([0, *SIZES])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("streams")
    for number, size in enumerate(SIZES):
        with MDSWriter(out=top / str(number), columns={"n": "int"}, size_limit="500b") as writer:
            writer.write_batch({"n": range(STARTS[number], STARTS[number] + size)})
    return [str(top / str(number)) for number in range(len(SIZES))]


def make(folders, world=None, batch=16, cls=StreamingDataset, **options):
    streams = [Stream(local=folder) for folder in folders]
    arguments = {"shuffle": True, "shuffle_block_size": 50, "num_canonical_nodes": 2, **options}
    return cls(streams=streams, world=world or World(), batch_size=batch, **arguments)


def crop(rng):
    return (
        *rng.integers(0, 1000, 2).tolist(),
        rng.random(),
        int(rng.integers(0, 9, dtype="uint8")),
    )


def crops(dataset):
    return [(sample["n"], crop(rng)) for sample, rng in dataset.samples_with_rng()]


# -- the numbers ----------------------------------------------------------------------


def test_numbers_stay_the_same_over_versions():
    numbers = [1522698963206567092, 790514071011849809, 2838223684102514661]
    assert sample_rng(9176, 2, 31, 17).integers(0, 1 << 62, 3).tolist() == numbers


@given(*[st.integers(0, 1 << 40)] * 4)
def test_a_generator_that_is_set_anew_is_as_a_new_one(seed, epoch, step, sample_id):
    used = SampleRng(seed)
    rng = used.of_sample(3, 4, 5)
    rng.integers(0, 5, 3, dtype="uint8"), rng.random(5), rng.integers(7, dtype="uint32")
    rng = used.of_sample(epoch, step, sample_id)
    assert crop(rng) == crop(sample_rng(seed, epoch, step, sample_id))


def test_every_place_has_numbers_of_its_own():
    places = np.stack(np.meshgrid(*[range(3)] * 2, range(10), range(30)), -1).reshape(-1, 4)
    draws = [sample_rng(*place).integers(0, 1 << 62) for place in places.tolist()]
    draws += [
        SampleRng(seed).of_batch(epoch, step, rank).integers(0, 1 << 62)
        for seed, epoch, step, rank in places.tolist()
    ]
    assert len(set(draws)) == 2 * len(places)


def test_numbers_of_neighbours_are_independent():
    used = SampleRng(5)
    draws = np.array([used.of_sample(0, n // 64, n).random(3) for n in range(20_000)])
    assert np.abs(draws.mean(0) - 0.5).max() < 0.01
    pairs = np.concatenate([draws[:-1], draws[1:]], axis=1)
    assert np.abs(np.corrcoef(pairs.T) - np.eye(6)).max() < 0.03


@pytest.mark.parametrize("place", [(-1, 0, 0, 0), (0, 0.5, 0, 0), (0, 0, None, 0), (0, 0, 0, "1")])
def test_a_place_is_made_of_whole_numbers(place):
    with pytest.raises(ConfigError, match="must be a whole number of at least 0"):
        sample_rng(*place)


def test_a_transform_is_a_function():
    with pytest.raises(ConfigError, match="transform=5: expected a function"):
        takes_rng(5, "transform")


# -- in a data set --------------------------------------------------------------------


def test_they_belong_to_what_explain_says(folders):
    dataset = make(folders, shuffle_seed=3)
    for epoch in range(2):
        uses = (use for step in range(13) for use in dataset.explain(step, epoch=epoch))
        for use, (n, found) in zip(uses, crops(dataset), strict=True):
            assert (n, found) == (use.sample, crop(sample_rng(3, epoch, use.step, use.sample)))


worlds = st.sampled_from([48, 60, 64]).flatmap(
    lambda total: st.tuples(
        st.just(total), st.sampled_from([r for r in range(1, 65) if total % r == 0])
    )
)


@settings(max_examples=12, deadline=None)
@given(worlds, st.sampled_from(METHODS), st.data())
def test_crops_are_the_same_in_every_world(folders, world, method, data):
    total, ranks = world
    nodes = data.draw(st.sampled_from([n for n in (1, 2, 4) if ranks % n == 0]))
    curriculum = data.draw(st.sampled_from(CURRICULA))
    options = {"batching_method": method, "curriculum": curriculum, "num_canonical_nodes": 1}
    first = data.draw(st.sampled_from([1, 2, 4]))
    alone = [
        make(folders, World(1, first, rank=r), total // first, **options) for r in range(first)
    ]
    steps = -(-len(alone[0]) * first // total)
    step = data.draw(st.integers(0, 2 * steps - 1))
    expected, states = [], []
    for _ in range(2):
        iterators = [dataset.samples_with_rng() for dataset in alone]
        for _ in range(steps):
            states.append(alone[0].state_dict())
            expected.append([])
            for it in iterators:
                taken = [(s["n"], crop(rng)) for s, rng in take(it, total // first)]
                expected[-1] += taken
        assert [next(it, None) for it in iterators] == [None] * first
    rest = []
    for rank in range(ranks):
        dataset = make(folders, World(nodes, ranks // nodes, rank=rank), total // ranks, **options)
        dataset.load_state_dict(states[step])
        found = crops(dataset) + (crops(dataset) if step < steps else [])
        rest.append([found[n : n + total // ranks] for n in range(0, len(found), total // ranks)])
    merged = [sorted(chain(*parts)) for parts in zip(*rest, strict=True)]
    assert merged == [sorted(each) for each in expected[step:]]


def take(iterator, count):
    for _ in range(count):
        yield next(iterator)


def test_ranks_that_read_the_same_draw_the_same(folders):
    pairs = [make(folders, World(1, 4, rank=rank), replication=2) for rank in (0, 1, 2)]
    first, same, other = ([rng.random() for _, rng in d.batches_with_rng()] for d in pairs)
    assert first == same != other
    first, same, other = (crops(d) for d in pairs)
    assert first == same != other


@pytest.mark.parametrize("threads", [0, 2])
def test_batches_have_generators_of_step_and_rank(folders, threads):
    def draw(dataset):
        found = dataset.batches_with_rng(num_threads=threads)
        return [(batch["n"].tolist(), rng.random()) for batch, rng in found]

    world = World(1, 2, rank=1)
    dataset = make(folders, world)
    epochs = [draw(dataset), draw(dataset)]
    rng = SampleRng(9176)
    assert [[number for _, number in epoch] for epoch in epochs] == [
        [rng.of_batch(epoch, step, 1).random() for step in range(7)] for epoch in range(2)
    ]
    batches = dataset.batches_with_rng(num_threads=threads)
    next(batches), next(batches)
    again = make(folders, world)
    again.load_state_dict(dataset.state_dict())
    assert draw(again) == [(batch["n"].tolist(), rng.random()) for batch, rng in batches]


def test_loops_side_by_side_keep_their_places(folders):
    dataset, alone = make(folders), make(folders)
    one, other = dataset.samples_with_rng(), dataset.samples_with_rng()
    found = [((s["n"], crop(r)), (t["n"], crop(q))) for (s, r), (t, q) in zip(one, other)]
    assert [list(epoch) for epoch in zip(*found)] == [crops(alone), crops(alone)]


class Waiting(StreamingDataset):
    """Data set whose epochs begin in two threads at the same time."""

    barrier = Barrier(2)

    def check_epoch(self):
        self.barrier.wait(60)


def test_loops_of_threads_have_their_own_generators(folders):
    dataset, alone = make(folders, cls=Waiting), make(folders)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(crops, [dataset] * 2))
    assert sorted(found) == sorted([crops(alone), crops(alone)])


class ReadingAhead(StreamingDataset):
    def __iter__(self):
        samples = super().__iter__()
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(next, samples, None)
            while (sample := ahead.result()) is not None:
                ahead = pool.submit(next, samples, None)
                yield sample


def test_a_subclass_may_read_ahead_in_a_thread(folders):
    assert crops(make(folders, cls=ReadingAhead)) == crops(make(folders))


def test_without_a_batch_size_each_sample_is_a_step(folders):
    dataset = make(folders, batch=None)
    for step, (n, found) in enumerate(crops(dataset)):
        assert found == crop(sample_rng(9176, 0, step, n))


def test_a_damaged_sample_ends_the_loop_where_it_is(folders, monkeypatch):
    dataset, expected = make(folders), crops(make(folders))
    rows = dataset._reader.rows
    bad = expected[40][0]

    def failing(ids):
        if bad in ids:
            raise DecodeError("damaged")
        return rows(ids)

    monkeypatch.setattr(dataset._reader, "rows", failing)
    found = []
    with pytest.raises(DecodeError, match="damaged"):
        found.extend((s["n"], crop(rng)) for s, rng in dataset.samples_with_rng())
    assert found == expected[:32]  # whole batches before it


# -- subclasses -----------------------------------------------------------------------


class Doubled(StreamingDataset):
    def __getitem__(self, at):
        return {"n": super().__getitem__(at)["n"] * 2}


class Wrapped(StreamingDataset):
    def __iter__(self):
        for sample in super().__iter__():
            yield {"n": -sample["n"]}


class Odd(StreamingDataset):
    def __iter__(self):
        return (sample for sample in super().__iter__() if sample["n"] % 2)


class Twice(StreamingDataset):
    def __iter__(self):
        for sample in super().__iter__():
            yield sample
            yield sample


class Stored(StreamingDataset):
    def __iter__(self):
        return map(self.__getitem__, range(self.size))


@pytest.mark.parametrize(("cls", "factor"), [(Doubled, 2), (Wrapped, -1)])
def test_samples_may_be_changed_on_the_way(folders, cls, factor):
    expected = [(n * factor, found) for n, found in crops(make(folders))]
    assert crops(make(folders, cls=cls)) == expected


@pytest.mark.parametrize("cls", [Odd, Twice, Stored])
def test_other_numbers_of_samples_are_refused(folders, cls):
    with pytest.raises(ConfigError, match=rf"{cls.__name__}.__iter__ must yield one value per"):
        crops(make(folders, cls=cls))


class BatchesAhead(StreamingDataset):
    def batches(self, batch_size=None, *, num_threads=0):
        ahead = deque()
        for batch in super().batches(batch_size, num_threads=num_threads):
            ahead.append(batch)
            if len(ahead) > 3:
                yield ahead.popleft()
        yield from ahead


class BatchesTwice(StreamingDataset):
    def batches(self, batch_size=None, *, num_threads=0):
        for batch in super().batches(batch_size, num_threads=num_threads):
            yield batch
            yield batch


def test_batches_may_be_read_ahead(folders):
    found, expected = (
        [(batch["n"].tolist(), crop(rng)) for batch, rng in made.batches_with_rng()]
        for made in (make(folders, cls=BatchesAhead), make(folders))
    )
    assert found == expected


def test_more_batches_than_the_order_has_are_refused(folders):
    with pytest.raises(ConfigError, match=r"BatchesTwice.batches must yield one batch per step"):
        list(make(folders, cls=BatchesTwice).batches_with_rng())


def test_views_have_them_too(folders):
    pytest.importorskip("streamplug_views")
    options = {"local": folders[2], "shuffle": True, "batch_size": 4}
    dataset = StreamingDataset(**options, select="n % 2 == 0")
    uses = [use for step in range(13) for use in dataset.explain(step, epoch=0)]
    places = [(9176, 0, use.step, use.sample) for use in uses]
    assert [found for _, found in crops(dataset)] == [crop(sample_rng(*place)) for place in places]


def test_rows_of_tokens_have_them_too(tmp_path):
    tokens = pytest.importorskip("streamplug_tokens")
    with MDSWriter(out=tmp_path, columns={"t": "ndarray:uint16"}) as out:
        out.write_batch({"t": [np.full(10, n, np.uint16) for n in range(40)]})
    blocks = tokens.TokenBlocks(column="t", length=8)
    options = {"local": str(tmp_path), "shuffle": True, "batch_size": 5}
    dataset = tokens.TokenDataset(tokens=blocks, **options)
    uses = [use for step in range(10) for use in dataset.explain(step, epoch=0)]
    for use, (row, rng) in zip(uses, dataset.samples_with_rng(), strict=True):
        assert row["t"].tolist() == dataset[use.sample]["t"].tolist()
        assert crop(rng) == crop(sample_rng(9176, 0, use.step, use.sample))


def test_generators_follow_a_change_of_the_world(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        out.write_batch({"n": np.arange(400)})
    dataset = StreamingDataset(local=str(tmp_path / "set"), shuffle=True, batch_size=20)
    expected = {s["n"]: rng.random() for s, rng in dataset.samples_with_rng()}
    resized = StreamingDataset(local=str(tmp_path / "set"), shuffle=True, batch_size=20)
    samples, found = resized.samples_with_rng(), {}
    for count in range(400):
        sample, rng = next(samples)
        found[sample["n"]] = rng.random()
        if count == 59:
            resized.resize(World())
    assert next(samples, None) is None
    assert found == expected


def test_place_of_a_generator():
    rng = sample_rng(5, 2, 7, 160)
    assert place_of(rng) == (2, 7, 160)
    rng.random(1000)
    assert place_of(rng) == (2, 7, 160)
    assert place_of(SampleRng(5).of_batch(1, 2, 3)) is None
    assert place_of(np.random.default_rng(0)) is None
