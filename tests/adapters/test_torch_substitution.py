"""Samples that cannot be read, in torch's loaders and process groups."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os

import numpy as np
import pytest
from streamplug_testing.http import free_port

torch = pytest.importorskip("torch")

from streamplug import (  # noqa: E402
    Callback,
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
    World,
)
from streamplug.errors import DecodeError, TooManyBadSamplesError  # noqa: E402
from streamplug.interfaces import SampleSubstituted  # noqa: E402
from tests.start_methods import SPAWN  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]

SIZE, BATCH = 300, 10
BAD = {0, 1, 50, 51, 52, 200, 299}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "damaged"
    columns = {"n": "int", "thing": "json"}
    with MDSWriter(out=out, columns=columns, max_samples_per_shard=20) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "thing": f"thing-{n:05}"})
    for n in BAD:
        path, stored = out / f"shard.{n // 20:05}.mds", f'"thing-{n:05}"'.encode()
        path.write_bytes(path.read_bytes().replace(stored, b"\xff" * len(stored)))
    return str(out)


class Written(Callback):
    """Appends substitutions to a file: workers have no other way to tell."""

    def __init__(self, path):
        self.path = path

    def on_event(self, event, world):
        if isinstance(event, SampleSubstituted):
            with self.path.open("a") as file:
                file.write(json.dumps(event.as_dict()) + "\n")

    def events(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class Log:
    """Makes a worker log to a file."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, _worker=None):
        logging.getLogger("streamplug.read").addHandler(logging.FileHandler(self.path))


@pytest.fixture
def make(folder, tmp_path):
    def make(**options):
        options = {"shuffle": True, "batch_size": BATCH, "on_error": "substitute"} | options
        return StreamingDataset(local=folder, callbacks=[Written(tmp_path / "events")], **options)

    yield make
    logger = logging.getLogger("streamplug.read")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def expected(make, tmp_path):
    """Return the batches and the events of a data set without a loader."""
    found = [batch["n"].tolist() for batch in make().batches()]
    written = Written(tmp_path / "events")
    events = written.events()
    written.path.unlink()
    return found, sorted(events, key=str)


@pytest.mark.parametrize(
    ("workers", "method", "transform"),
    [
        (0, None, None),
        (0, None, dict),
        (2, "fork", None),
        (3, "fork", dict),
        pytest.param(1, SPAWN, None, id="1-spawn-None"),
    ],
)
def test_stats_events_and_log_agree(make, tmp_path, workers, method, transform):
    found, events = expected(make, tmp_path)
    dataset, log = make(), Log(tmp_path / "log")
    if not workers:
        log()
    loader = StreamingDataLoader(
        dataset,
        num_workers=workers,
        multiprocessing_context=method,
        worker_init_fn=log,
        transform=transform,
    )
    assert [batch["n"].tolist() for batch in loader] == found
    assert sorted(Written(tmp_path / "events").events(), key=str) == events
    assert {event["sample"] for event in events} == BAD
    assert dataset.stats().substitutions == len(BAD)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(int(line.split()[1]) for line in lines) == sorted(BAD)


@pytest.mark.parametrize("workers", [0, 3])
def test_the_limit_is_that_of_all_workers_of_a_rank(make, workers):
    fine = StreamingDataLoader(make(max_errors=len(BAD)), num_workers=workers)
    for _ in range(2):
        assert len(list(fine)) == SIZE // BATCH
    loader = StreamingDataLoader(make(max_errors=len(BAD) - 1), num_workers=workers)
    with pytest.raises(TooManyBadSamplesError, match="more than max_errors=6"):
        list(loader)


def fail(sample):
    raise DecodeError("of the transform")


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_a_transform_are_raised(make, workers):
    dataset = make()
    loader = StreamingDataLoader(dataset, num_workers=workers, transform=fail)
    with pytest.raises(DecodeError, match="of the transform"):
        list(loader)
    loader = StreamingDataLoader(dataset, num_workers=workers, batch_transform=fail)
    with pytest.raises(DecodeError, match="of the transform"):
        list(loader)


def fail_for_some(sample):
    if sample["n"] in BAD:
        raise DecodeError("of the transform")
    return sample


def test_loops_side_by_side_have_limits_of_their_own(make):
    for most in (len(BAD), len(BAD) - 1):
        dataset = make(columns=["n"], max_errors=most)
        loops = [iter(StreamingDataLoader(dataset, transform=fail_for_some)) for _ in range(2)]
        if most == len(BAD):
            assert len(list(zip(*loops))) == SIZE // BATCH
            continue
        with pytest.raises(TooManyBadSamplesError, match="more than max_errors=6"):
            list(zip(*loops))


def rank_process(folder, rank, port, queue):
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    dataset = StreamingDataset(
        local=folder, shuffle=True, batch_size=BATCH // 2, on_error="substitute"
    )
    steps = []
    for batch in StreamingDataLoader(dataset, num_workers=rank):
        both = torch.zeros(2, BATCH // 2, dtype=torch.int64)
        both[rank] = batch["n"]
        torch.distributed.all_reduce(both)
        steps.append(sorted(both.ravel().tolist()))
    queue.put((steps, dataset.stats().substitutions))
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")
def test_ranks_stay_in_step(make, folder, tmp_path):
    found, _ = expected(make, tmp_path)
    port = free_port()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    ranks = [
        context.Process(target=rank_process, args=(folder, rank, port, queue)) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    try:
        (steps, first), (others, second) = (queue.get(timeout=60) for _ in ranks)
    finally:
        for process in ranks:
            process.join(10)
            process.kill()
    assert steps == others == [sorted(ids) for ids in found]
    assert first + second == len(BAD)


def test_the_values_of_a_substitute_are_its_own(make):
    for batch in StreamingDataLoader(make(), num_workers=0):
        assert batch["thing"] == [f"thing-{n:05}" for n in batch["n"].tolist()]
        assert not BAD & set(np.asarray(batch["n"]).tolist())


def fail_by_chance(sample, rng):
    """Fail for some samples with some random numbers, as a crop that meets damage only in some places."""
    number = int(rng.integers(1 << 20))
    if (number ^ sample["n"] * 7919) % 10 < 3:
        raise DecodeError("met damage")
    return sample | {"random": number}


@pytest.mark.parametrize("threads", [0, 2])
def test_random_transforms_have_the_same_substitutes_on_all_worlds(make, threads):
    steps = {}
    for ranks in (1, 2, BATCH):
        loaders = [
            StreamingDataLoader(
                make(batch_size=BATCH // ranks, world=World(1, ranks, rank=rank)),
                transform=fail_by_chance,
                collate_fn=list,
                num_threads=threads,
            )
            for rank in range(ranks)
        ]
        steps[ranks] = [
            sorted((sample["n"], sample["random"]) for batch in batches for sample in batch)
            for batches in zip(*loaders)
        ]
    assert len(steps[1]) == SIZE // BATCH
    assert steps[1] == steps[2] == steps[BATCH]
