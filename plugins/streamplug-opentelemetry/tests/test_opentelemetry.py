from __future__ import annotations

import copy
import gc
import logging
import multiprocessing
import re
import subprocess
import sys
import threading
import urllib.request

import cloudpickle
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import start_http_server
from streamplug_opentelemetry.callback import OpenTelemetry, scheme_of
from streamplug_opentelemetry.totals import Totals
from streamplug_testing import CallbackTests

from streamplug import MDSWriter, World
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.interfaces import RequestRetried, ShardDownloaded, Stats

SIZE, SHARDS = 60, 10


class TestOpenTelemetry(CallbackTests):
    name = "opentelemetry"
    cls = OpenTelemetry


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("sets") / "one"
    with MDSWriter(columns={"n": "int", "b": "bytes"}, out=out, size_limit=6_400) as writer:
        for n in range(SIZE):
            writer.write({"n": n, "b": bytes(1000)})
    assert len(list(out.glob("*.mds"))) == SHARDS
    return out


@pytest.fixture
def make(folder, tmp_path):
    def make(provider, attributes=None, **wishes):
        return StreamingDataset(
            remote=str(folder),
            local=str(tmp_path / "near"),
            batch_size=6,
            callbacks=[OpenTelemetry(provider, attributes)],
            **wishes,
        )

    return make


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def provider(reader):
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


def points(reader):
    """Return the points of each metric."""
    data = reader.get_metrics_data()
    return {
        metric.name: (metric.unit, list(metric.data.data_points))
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def value(found, name):
    [point] = found[name][1]
    return point.value


def test_the_counters_are_those_of_the_data_set(make, reader, provider, folder):
    dataset = make(provider, {"run": "a"}, world=World(ranks_per_node=2, rank=1))
    list(dataset)
    found, stats = points(reader), dataset.stats()
    assert stats.downloads > 0
    of_name = {
        "samples": stats.samples,
        "batches": stats.batches,
        "downloads": stats.downloads,
        "downloaded": stats.downloaded_bytes,
        "download.time": stats.download_seconds,
        "cache_hits": stats.cache_hits,
        "range_requests": 0,
        "ranged": 0,
        "retries": 0,
        "evictions": 0,
        "evicted": 0,
        "repairs": 0,
        "substitutions": 0,
    }
    assert {name: value(found, f"streamplug.{name}") for name in of_name} == of_name
    waits = {p.attributes["streamplug.cause"]: p.value for p in found["streamplug.wait.time"][1]}
    assert waits == {cause: getattr(stats, f"{cause}_wait_seconds") for cause in waits}
    assert waits["decode"] > 0
    assert len(of_name) + len(waits) == len(stats.as_dict())
    attributes = {"run": "a", "streamplug.scheme": "file", "streamplug.rank": 1}
    for name in of_name:
        assert dict(found[f"streamplug.{name}"][1][0].attributes) == attributes
    assert found["streamplug.downloaded"][0] == "By"


def test_the_histograms_have_a_value_for_each_download_and_each_wait(make, reader, provider):
    dataset = make(provider)
    list(dataset)
    found = points(reader)
    unit, [downloads] = found["streamplug.download.duration"]
    assert (unit, downloads.count) == ("s", SHARDS)
    assert downloads.sum == pytest.approx(dataset.stats().download_seconds, abs=1e-6)
    assert dict(downloads.attributes) == {"streamplug.scheme": "file", "streamplug.rank": 0}
    assert downloads.explicit_bounds[:2] == (0.005, 0.01)
    _, [waits] = found["streamplug.wait.duration"]
    assert waits.sum == pytest.approx(dataset.stats().storage_wait_seconds, abs=1e-6)


def test_data_sets_of_one_process_are_added_up_and_never_fall(make, reader, provider, caplog):
    with caplog.at_level(logging.WARNING):
        one, two = make(provider), make(provider)
        list(one)
        list(two)
        assert value(points(reader), "streamplug.samples") == 2 * SIZE
        list(one)
        del one
        gc.collect()
        assert value(points(reader), "streamplug.samples") == 3 * SIZE
        del two
        gc.collect()
        three = make(provider)
        list(three)
        assert value(points(reader), "streamplug.samples") == 4 * SIZE
    assert caplog.records == []


def test_a_data_set_that_is_gone_is_not_kept(make, reader, provider):
    from streamplug_opentelemetry.totals import totals_of

    dataset = make(provider)
    list(dataset)
    assert len(totals_of(provider)._sources) == 1
    del dataset
    gc.collect()
    assert value(points(reader), "streamplug.samples") == SIZE
    assert totals_of(provider)._sources == []


class Owner:
    """What a source of statistics belongs to."""


def dropped_at(method, instruction):
    """Drop an owner before an instruction of a method, as the garbage collector may; return the totals."""
    totals, first, second, count = Totals(MeterProvider()), [Owner()], Owner(), 0
    totals.add(lambda: Stats(samples=1), {}, first[0])

    def trace(frame, event, _argument):
        nonlocal count
        if frame.f_code is not getattr(Totals, method).__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if count == instruction:
                first.clear()
            count += 1
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        totals.add(lambda: Stats(samples=2), {}, second)
        [before] = totals._observe({"samples": {}}, CallbackOptions())
    finally:
        sys.settrace(outer)
    [after] = totals._observe({"samples": {}}, CallbackOptions())
    return before.value, after.value, not first


@pytest.mark.parametrize("method", ["add", "_observe"])
def test_the_garbage_collector_may_run_at_any_instruction(method):
    instruction, dropped = 0, True
    while dropped:
        *sums, dropped = dropped_at(method, instruction)
        assert sums == [3, 3], f"at instruction {instruction}"
        instruction += 1
    assert instruction > 10


def test_ranks_and_providers_are_kept_apart(make, reader, provider):
    make_two = [make(provider, world=World(ranks_per_node=2, rank=rank)) for rank in range(2)]
    list(make_two[1])
    _, found = points(reader)["streamplug.samples"]
    by_rank = {point.attributes["streamplug.rank"]: point.value for point in found}
    assert by_rank == {0: 0, 1: SIZE // 2}
    other = InMemoryMetricReader()
    with_other = MeterProvider([other])
    list(make(with_other))
    assert value(points(other), "streamplug.samples") == SIZE
    with_other.shutdown()


def test_threads_of_downloads_record_each(reader, provider):
    callback = OpenTelemetry(provider)
    event = ShardDownloaded("s3://bucket/a", 1, 0.1, 1)
    record = [threading.Thread(target=callback.on_event, args=(event, World())) for _ in range(8)]
    for thread in record:
        thread.start()
    for thread in record:
        thread.join(60)
    assert points(reader)["streamplug.download.duration"][1][0].count == 8


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("s3://mine/a", "s3"),
        ("/mine/b", "file"),
        ("/mine/c://d", "file"),
        ("HTTPS://mine/a", "https"),
        ("dbfs:/Volumes/mine", "dbfs"),
        ("mine", "file"),
    ],
)
def test_the_scheme_is_all_that_is_told_of_a_url(url, scheme, reader, provider):
    assert scheme_of(url) == scheme
    callback = OpenTelemetry(provider)
    callback.on_attach(Stats, [url, "az://mine@hunter2/x"], World())
    callback.on_event(ShardDownloaded(url, 1, 0.1, 1), World())
    callback.on_event(RequestRetried(url, "hunter2", 0.1), World())
    found = points(reader)
    assert found["streamplug.download.duration"][1][0].attributes["streamplug.scheme"] == scheme
    schemes = found["streamplug.samples"][1][0].attributes["streamplug.scheme"]
    assert schemes == ",".join(sorted({scheme, "az"}))
    told = str(reader.get_metrics_data()) + str(found)
    assert not re.search(r"mine|hunter2", told)


def test_attributes_are_plain(provider):
    with pytest.raises(ConfigError, match="tags=\\['a'\\]"):
        OpenTelemetry(provider, {"tags": ["a"]})
    for attributes in ({1: "a"}, ["a"], "a"):
        with pytest.raises(ConfigError, match="expected values by name, a dict"):
            OpenTelemetry(provider, attributes)


def test_what_is_no_meter_provider_is_refused():
    with pytest.raises(ConfigError, match="meter_provider='console': expected a MeterProvider"):
        OpenTelemetry("console")


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda c: cloudpickle.loads(cloudpickle.dumps(c))]
)
def test_a_copy_goes_without_the_provider(provider, reader, duplicate):
    callback = OpenTelemetry(provider, {"run": "a"})
    callback.on_event(ShardDownloaded("/a", 1, 0.1, 1), World())
    twin = duplicate(callback)
    twin.on_event(ShardDownloaded("/a", 1, 0.1, 1), World())  # to the global one
    assert points(reader)["streamplug.download.duration"][1][0].count == 1
    assert twin._attributes == {"run": "a"}


def test_prometheus_scrapes_it(make):
    provider = MeterProvider([PrometheusMetricReader()])
    server, thread = start_http_server(0, "127.0.0.1")
    try:
        dataset = make(provider)
        list(dataset)
        port = server.server_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            text = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
        provider.shutdown()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")

    def scraped(name):
        [found] = [float(v) for key, v in lines.items() if re.match(rf"{name}(\{{|$)", key)]
        return found

    stats = dataset.stats()
    assert scraped("streamplug_downloads_total") == SHARDS
    assert scraped("streamplug_downloaded_bytes_total") == stats.downloaded_bytes
    assert scraped("streamplug_cache_hits_total") == 0
    waits = [float(v) for key, v in lines.items() if key.startswith("streamplug_wait_time_seconds")]
    assert sum(waits) == pytest.approx(stats.wait_seconds)
    assert scraped("streamplug_download_duration_seconds_count") == SHARDS
    [labels] = [key for key in lines if key.startswith("streamplug_downloads_total")]
    assert 'streamplug_scheme="file"' in labels
    assert 'streamplug_rank="0"' in labels


def test_the_counters_take_in_loader_workers(folder, tmp_path, reader, provider):
    pytest.importorskip("torch")
    from streamplug import StreamingDataLoader
    from streamplug import StreamingDataset as OfTorch

    dataset = OfTorch(
        remote=str(folder),
        local=str(tmp_path / "near"),
        batch_size=6,
        callbacks=[OpenTelemetry(provider)],
    )
    loader = StreamingDataLoader(dataset, num_workers=2, multiprocessing_context="fork")
    assert sum(len(batch["n"]) for batch in loader) == SIZE
    found = points(reader)
    assert value(found, "streamplug.samples") == SIZE
    assert value(found, "streamplug.downloads") == SHARDS


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_process_exports_only_counters_of_its_own_data_sets(make, reader, provider):
    dataset = make(provider)
    list(dataset)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def export():
        inherited = points(reader).get("streamplug.samples")
        list(make(provider))
        sender.send((inherited, value(points(reader), "streamplug.samples")))

    child = context.Process(target=export)
    child.start()
    assert receiver.poll(60)
    assert receiver.recv() == (None, SIZE)
    child.join(60)
    assert value(points(reader), "streamplug.samples") == SIZE


PROGRAM = """
import sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from streamplug.dataset import StreamingDataset

dataset = StreamingDataset(remote=sys.argv[1], local=sys.argv[2], callbacks=["opentelemetry"])
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
assert len(list(dataset)) == 60
found = {
    metric.name: metric.data.data_points
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
}
assert [point.value for point in found["streamplug.samples"]] == [60], found
assert [point.count for point in found["streamplug.download.duration"]] == [10], found
"""


def test_the_global_provider_may_be_set_after_the_data_set_is_made(folder, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "near")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
