"""`headspace()` measures how fast a loop could be, and changes nothing of it."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from streamplug_testing.fakes import Noted  # noqa: E402

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.errors import ConfigError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

SIZE, BATCH, PAUSE = 120, 4, 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int"}, out=out, size_limit=1000) as writer:
        for n in range(SIZE):
            writer.write({"n": n})
    return str(out)


def pause(sample):
    time.sleep(PAUSE / BATCH)
    return sample


def read(loader):
    return [batch["n"].tolist() for batch in loader]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_threads": 2}])
def test_a_loop_goes_on_as_if_nothing_had_been_measured(folder, tmp_path, options):
    noted = Noted()
    new = lambda **more: StreamingDataset(  # noqa: E731
        remote=folder, local=str(tmp_path / "near"), batch_size=BATCH, shuffle=True, **more
    )
    plain = StreamingDataLoader(new(), **options)
    expected = [read(plain), read(plain)]
    dataset = new(callbacks=[noted])
    loader = StreamingDataLoader(dataset, **options)
    batches = iter(loader)
    found = [next(batches)["n"].tolist() for _ in range(20)]
    state, events = loader.state_dict(), len(noted.events)
    counts = dataset.stats().samples if not options.get("num_workers") else None
    measured = loader.headspace(10)
    assert loader.state_dict() == state == batches.state_dict()
    assert len(noted.events) == events
    assert counts is None or dataset.stats().samples == counts
    assert measured.samples_per_second == pytest.approx(BATCH * measured.batches_per_second)
    found += [batch["n"].tolist() for batch in batches]
    assert [found, read(loader)] == expected
    assert loader.headspace().factor > 0  # after a loop, too


def test_it_tells_whether_data_or_the_step_limits_a_loop(folder):
    loader = StreamingDataLoader(StreamingDataset(local=folder, batch_size=BATCH), transform=pause)
    for number, _ in enumerate(loader):
        if number == 10:
            break
    by_data = loader.headspace(8)
    assert 0.3 < by_data.factor < 3
    assert by_data.batches_per_second < 1 / PAUSE
    for number, _ in enumerate(loader):
        time.sleep(9 * PAUSE)
        if number == 6:
            break
    by_model = loader.headspace(8)
    assert by_model.loop_batches_per_second < 1 / (9 * PAUSE)
    assert by_model.factor > 3
    assert by_model.loop_samples_per_second == pytest.approx(
        BATCH * by_model.loop_batches_per_second
    )


def test_its_arguments_are_checked(folder):
    loader = StreamingDataLoader(StreamingDataset(local=folder, batch_size=BATCH))
    with pytest.raises(ConfigError, match="it needs 2 of them: call it in a loop, or after one"):
        loader.headspace()
    read(loader)
    with pytest.raises(ConfigError, match="steps=1: "):
        loader.headspace(1)


class Even(StreamingDataset):
    """A data set that drops every other sample."""

    def __iter__(self):
        return (sample for sample in super().__iter__() if sample["n"] % 2 == 0)


def test_a_loop_may_have_fewer_batches_than_its_epoch_has_steps(folder):
    loader = StreamingDataLoader(Even(local=folder, batch_size=BATCH))
    assert len(read(loader)) == SIZE // BATCH // 2
    assert loader.headspace().batches_per_second > 0


def test_batches_that_were_taken_back_are_not_read(folder):
    loader = StreamingDataLoader(StreamingDataset(local=folder, batch_size=BATCH))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    loader.resize(World(), rewind=2)
    assert loader.headspace().batches_per_second > 1
    loader.resize(World(), rewind=1)
    with pytest.raises(ConfigError, match="it needs 2 of them"):
        loader.headspace()
