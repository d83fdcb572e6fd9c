"""The clock, the network and the cache of a simulation, each for itself."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from streamplug_simulate.model.chunks import ChunkedEpoch
from streamplug_simulate.model.events import EventQueue
from streamplug_simulate.model.network import NetworkLink
from streamplug_simulate.model.node_cache import NodeCache, Threads
from streamplug_simulate.model.open_shards import OpenShardModel
from streamplug_simulate.model.shards import ShardSize

from streamplug.types import World


def all_of(events):
    while events.run_next():
        pass


class Same:
    """Shards of 100 bytes each, of one cache."""

    caches, files = 1, range(1000)

    def sizes(self, shard):
        return ShardSize(stored=100, kept=100, room=100, requests=1, cache=0)

    def cache_of(self, shard):
        return 0


def machine(limit=None, latency=0.0):
    events = EventQueue()
    node = NodeCache(events, NetworkLink(events, 100.0, latency, spread=0.0), Same(), limit)
    return events, node, Threads(node, 2)


def submit(threads, *shards):
    return [threads.submit(lambda shard=shard: shard, 100) for shard in shards]


def test_things_happen_in_their_order_and_never_before_now():
    events, seen = EventQueue(), []
    events.schedule(2, lambda: seen.append(events.now))
    events.schedule(
        1, lambda: (seen.append(events.now), events.schedule(0, lambda: seen.append("late")))
    )
    all_of(events)
    assert seen == [1, "late", 2]


def test_files_on_their_way_share_the_bandwidth_evenly():
    events, ends = EventQueue(), {}
    link = NetworkLink(events, 100.0, 0.5, spread=0.0)
    link.download(100, 1, lambda: ends.update(a=events.now))
    events.schedule(1.0, lambda: link.download(100, 1, lambda: ends.update(b=events.now)))
    all_of(events)
    # a: alone from 0.5 to 1.5, then it is complete; b begins at 1.5.
    assert ends == pytest.approx({"a": 1.5, "b": 2.5})


def test_two_files_at_once_take_twice_as_long():
    events, ends = EventQueue(), []
    link = NetworkLink(events, 100.0, 0.0, spread=0.0)
    for size in (100, 50, 100):
        link.download(size, 3, lambda: ends.append(events.now))
    all_of(events)
    assert ends == pytest.approx([1.5, 2.5, 2.5])


def test_files_that_begin_together_do_not_end_together_and_take_no_longer():
    events, ends = EventQueue(), []
    link = NetworkLink(events, 100.0, 0.0)
    for _ in range(8):
        link.download(100, 1, lambda: ends.append(round(events.now, 6)))
    all_of(events)
    assert len(set(ends)) == 8
    assert ends[-1] == pytest.approx(8)


def test_a_process_fetches_so_many_shards_at_a_time():
    events, node, threads = machine()
    jobs = submit(threads, 1, 2, 3)
    assert (threads.unfinished, threads.weight) == (3, 300)
    all_of(events)
    assert all(job.done for job in jobs)
    assert [time for time, _, _ in node.log] == pytest.approx([0, 2, 2, 3])
    assert (node.bytes, node.shards, node.hits, node.held_bytes) == (300, 3, 0, 300)


def test_of_two_processes_that_want_a_shard_one_fetches_it_and_the_other_looks_again_soon():
    events, node, threads = machine()
    other = Threads(node, 1)
    submit(threads, 1)
    [waits] = submit(other, 1)
    submit(other, 2)  # while one waits, another thread works in its place
    when = []
    waits.listener = lambda: when.append(events.now)
    all_of(events)
    assert node.shards == 2
    assert node.hits == 1
    assert 2.0 <= when[0] <= 2.05


def test_the_shards_not_used_for_longest_make_room():
    events, node, threads = machine(limit=200)
    submit(threads, 1)
    all_of(events)
    submit(threads, 2)
    all_of(events)
    Threads(node, 1).submit(lambda: 1, 100)  # another process uses it
    all_of(events)
    submit(threads, 3)
    all_of(events)
    assert [node.has(shard) for shard in (1, 2, 3)] == [True, False, True]
    assert (node.evictions, node.evicted_bytes, node.held_bytes) == (1, 100, 200)


def test_reading_a_shard_for_long_keeps_it():
    events, node, threads = machine(limit=200)
    for shard in (1, 2):
        submit(threads, shard)
        all_of(events)
    events.now += 5
    node.use([1])
    submit(threads, 3)
    all_of(events)
    assert [node.has(shard) for shard in (1, 2, 3)] == [True, False, True]


def test_what_a_process_has_open_is_not_fetched_again():
    _, node, _ = machine(limit=400)
    opened = OpenShardModel(400)
    opened.add_references(1, 1)
    for shard in (1, 2):
        opened.add(shard, 100)
    assert opened.has(1)
    assert opened.has(2)
    opened.add(3, 100)  # a quarter of the limit, and what is kept
    assert [opened.has(shard) for shard in (1, 2, 3)] == [True, False, True]
    opened.add_references(1, -1)
    opened.sweep(1.0, node.has)  # all of them are gone from the cache
    assert not opened.has(1)


def test_without_a_limit_nothing_is_noted_of_what_is_open():
    opened = OpenShardModel(None)
    opened.add_references(1, 1)
    opened.add(1, 100)
    assert not opened.has(1)


def test_threads_and_jobs_have_what_is_never_needed_here():
    _, _, threads = machine()
    [job] = submit(threads, 1)
    assert (threads.stop(), job.wait(), job.error) == (None, None, None)
    assert SimpleNamespace(done=job.done).done is False


def test_chunks_are_the_epoch(plan, monkeypatch):
    world = World(nodes=2, rank=1)
    epoch = plan.training_run(plan.scenario(shuffle="window", block_size=50)).epoch(3, world)
    monkeypatch.setattr("streamplug_simulate.model.chunks._CHUNK_SAMPLES", 30)
    chunks = ChunkedEpoch(epoch, world)
    assert chunks.steps(world) == epoch.steps(world) == 20
    for steps in ([0, 5, 19, 2, 5], [7], []):
        for found, expected in zip(
            chunks.ids(world, np.array(steps, np.int64)),
            epoch.ids(world, np.array(steps, np.int64)),
        ):
            assert found.tolist() == expected.tolist()
    assert chunks.where(world, 7) == epoch.where(world, 7)
