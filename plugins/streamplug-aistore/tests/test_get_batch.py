"""Many parts in one request, and what is done where that fails."""

from __future__ import annotations

import json
import logging
import pickle

import numpy as np
import pytest
from streamplug_aistore.get_batch import _SKIPPED_CALLS
from streamplug_aistore.storage import AistoreStorage
from streamplug_testing.storage import ODD_KEYS

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError, NotFound, Transient

DATA = bytes(range(256)) * 8
NUM_PARTS = 20
PARTS = [(f"k{n}", 7 * n, 100 + 9 * n) for n in range(NUM_PARTS)]


@pytest.fixture
def storage(service, bucket):
    for key, _, _ in PARTS:
        service.raw("PUT", bucket, f"set/{key}", key.encode() + DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIS_ENDPOINT", service.url)
        yield AistoreStorage(f"ais://{bucket}/set", **service.options)


@pytest.fixture
def fail(service, bucket):
    return lambda **faults: service.raw("PUT", bucket, ".faults", json.dumps(faults).encode())


@pytest.fixture
def requests(service, bucket):
    """The requests since the last call: whether each was a GetBatch, or an object's name."""
    done = 0

    def new():
        nonlocal done
        found = json.loads(service.raw("GET", bucket, ".requests"))
        done, before = len(found), done
        return found[before:]

    return new


def expected(parts):
    return [(key.encode() + DATA)[start:stop] for key, start, stop in parts]


def test_many_parts_are_one_request(storage, requests):
    assert storage.read_many(PARTS) == expected(PARTS)
    assert requests() == ["getbatch"]


def test_the_order_is_that_of_the_parts_and_each_may_come_twice(storage, requests):
    parts = [*PARTS[::-1], *PARTS[:3], PARTS[0], ("k0", 3, 4)]
    assert storage.read_many(parts) == expected(parts)
    assert requests() == ["getbatch"]


def test_few_parts_are_requests_of_their_own(storage, requests):
    assert storage.read_many(PARTS[:15]) == expected(PARTS[:15])
    assert sorted(requests()) == sorted(f"set/k{n}" for n in range(15))


def test_odd_names_come_in_one_request(storage, service, bucket, requests):
    keys = [*ODD_KEYS, "x" * 200, "x" * 120 + "/" + "y" * 120, "ü" * 70]
    for key in keys:
        service.raw("PUT", bucket, f"set/{key}", key.encode() + DATA)
    parts = [(key, 1, 50) for key in keys]
    assert storage.read_many(parts) == expected(parts)
    assert requests() == ["getbatch"]


def test_objects_that_are_named_as_missing_ones(storage, service, bucket):
    service.raw("PUT", bucket, "__404__/k0", DATA)
    parts = [("__404__/k0", 5, 9), ("k0", 0, 3)] * 8
    storage = AistoreStorage(f"ais://{bucket}", **service.options)
    *others, missing = storage.read_many(parts)
    assert others[::2] == [DATA[5:9]] * 8
    assert isinstance(missing, NotFound)


def test_what_is_missing_is_an_error_of_its_own(storage, requests):
    parts = [*PARTS, ("gone", 0, 9), *PARTS]
    results = storage.read_many(parts)
    error = results.pop(NUM_PARTS)
    assert results == expected(PARTS * 2)
    assert isinstance(error, NotFound)
    assert "set/gone" in str(error)
    assert requests() == ["getbatch", "set/gone"]


def test_what_a_target_cannot_read_is_read_by_ranges(storage, fail, requests):
    fail(unreadable=[3, 5])
    assert storage.read_many(PARTS) == expected(PARTS)
    assert sorted(requests()) == ["getbatch", "set/k3", "set/k5"]  # two threads read them


def test_parts_beyond_the_end_are_short(storage):
    end = len(DATA) + 2
    parts = [*PARTS, ("k1", end - 5, end + 5), ("k2", end + 1, end + 9)]
    assert storage.read_many(parts) == [*expected(PARTS), DATA[-5:], b""]


@pytest.mark.parametrize("status", [400, 404, 501])
def test_a_cluster_that_does_not_know_it_is_asked_once(storage, fail, requests, caplog, status):
    fail(gateway=status)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert storage.read_many(PARTS) == expected(PARTS)
    assert requests().count("getbatch") == 1
    assert not storage.supports_read_many
    assert not pickle.loads(pickle.dumps(storage)).supports_read_many
    (said,) = caplog.messages
    assert f"GetBatch is not known to the cluster, which answered {status}; range requests" in said


def test_a_cluster_that_ignores_ranges_sends_one_header(storage, fail, requests, caplog):
    fail(whole=True)
    for _ in range(2):
        assert storage.read_many(PARTS) == expected(PARTS)
    assert requests().count("getbatch") == 1
    assert not storage.supports_read_many
    (said,) = caplog.messages
    assert "sends whole objects in place of ranges" in said


@pytest.mark.parametrize(
    ("fault", "what", "num_ranges"),
    [
        ({"target": 404}, "does not exist", NUM_PARTS),
        ({"gateway": 403}, "permission", NUM_PARTS),
        ({"cut": 1024 * 5}, "ends early", 15),
        ({"cut": 1024 * 5 + 9}, "ends early", 15),
        ({"cut": 1024 * 5 + 512 + 9}, "unexpected end of data", 15),
        ({"reversed": True}, "other entries", NUM_PARTS),
        ({"body": "<html>busy</html>"}, "", NUM_PARTS),
        ({"unreadable": list(range(4, 12))}, "ends early", NUM_PARTS - 4),
    ],
)
def test_what_does_not_arrive_is_read_by_ranges(
    storage, fail, requests, caplog, fault, what, num_ranges
):
    fail(**fault)
    assert storage.read_many(PARTS) == expected(PARTS)
    assert len(requests()) == 1 + num_ranges
    (said,) = caplog.messages
    assert "GetBatch failed" in said
    assert what in said
    assert storage.supports_read_many  # it is tried again
    fail()
    for _ in range(_SKIPPED_CALLS):
        assert storage.read_many(PARTS[:1]) == expected(PARTS[:1])
    assert "getbatch" not in requests()
    assert storage.read_many(PARTS) == expected(PARTS)
    assert requests()[-1] == "getbatch"


@pytest.mark.parametrize("fault", [{"gateway": 429}, {"target": 503}, {"break": True, "cut": 5632}])
def test_what_may_be_tried_again_is_transient_and_then_read_by_ranges(
    storage, fail, requests, fault
):
    fail(**fault)
    results = storage.read_many(PARTS)
    assert [str(result)[:6] for result in results] == ["ais://"] * NUM_PARTS
    assert all(isinstance(result, Transient) for result in results)
    assert requests() == ["getbatch"]
    assert storage.read_many(PARTS) == expected(PARTS)
    assert "getbatch" not in requests()


def test_a_longer_answer_is_not_taken(storage, fail, requests):
    fail(longer=4)
    assert storage.read_many(PARTS) == expected(PARTS)
    assert not storage.supports_read_many


def test_no_more_is_read_than_was_asked_for(storage, fail, caplog):
    fail(body="0" * (4 << 20))
    storage.read_many(PARTS)
    # A header of pax that asks for a gigabyte.
    header = ("k" + "\0" * 123 + "10000000000\0").ljust(512, "\0")
    fail(body=header * 9999)
    assert storage.read_many(PARTS) == expected(PARTS)


def test_it_may_be_switched_off(storage, service, bucket, requests):
    storage = AistoreStorage(f"ais://{bucket}/set", get_batch=False, **service.options)
    assert storage.read_many(PARTS) == expected(PARTS)
    assert "getbatch" not in requests()
    assert not storage.supports_read_many
    with pytest.raises(ConfigError, match="'get_batch' must be bool"):
        AistoreStorage(f"ais://{bucket}/set", get_batch="no", **service.options)


def test_objects_of_another_cloud_are_not_asked_for_unless_told(storage, service, bucket, requests):
    where = f"ais://{bucket}/set"
    assert not AistoreStorage(where, provider="aws", **service.options).supports_read_many
    storage = AistoreStorage(where, provider="aws", get_batch=True, **service.options)
    assert storage.read_many(PARTS) == expected(PARTS)
    assert requests() == ["getbatch"]


def test_the_samples_of_a_step_are_one_request(service, bucket, tmp_path, requests):
    rows = np.random.default_rng(1).bytes(4000)
    with MDSWriter(
        out=str(tmp_path / "set"), columns={"n": "int", "b": "bytes"}, size_limit=25_000
    ) as out:
        for n in range(320):
            out.write({"n": n, "b": rows})
    for path in (tmp_path / "set").iterdir():
        service.raw("PUT", bucket, path.name, path.read_bytes())
    dataset = StreamingDataset(
        remote=f"ais://{bucket}",
        storage_options=service.options,
        access="range",
        shuffle=True,
        batch_size=64,
    )
    requests()
    assert [row["n"] for row in dataset[np.arange(0, 320, 5).tolist()]] == list(range(0, 320, 5))
    assert set(requests()) == {"getbatch"}
    assert sorted(row["n"] for row in dataset) == list(range(320))
    found = requests()
    assert found.count("getbatch") < 20
    assert len(found) - found.count("getbatch") < 32
