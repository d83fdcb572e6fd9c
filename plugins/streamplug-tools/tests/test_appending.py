from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import pytest
from streamplug_fsspec import MemoryStorage
from streamplug_tools import Columns, Output, append, append_lock, appending, delete

from streamplug import StreamingDataset, Writer
from streamplug.errors import ConfigError, OutputExistsError
from streamplug.plugin import open_storage


def to(place, **options):
    return Output(place, **{"size_limit": 500, "processes": 0, **options})


@pytest.fixture(params=["near", "far"])
def place(request, tmp_path):
    return str(tmp_path / "set") if request.param == "near" else f"memory://{tmp_path.name}/set"


def test_the_first_day_makes_the_data_set_and_the_next_ones_add_to_it(place, tmp_path, write, read):
    days = [
        write(tmp_path / f"day-{n}", range(n * 10, n * 10 + 10), compression=("gz", None)[n % 2])
        for n in range(3)
    ]
    for n, day in enumerate(days):
        result = append(day, to(place))
        assert (result.samples, result.appended) == (n * 10 + 10, 10)
        assert append(day, to(place)).appended == 0
    assert read(place)["id"].tolist() == list(range(30))
    entries = json.loads(open_storage(place).read("index.json"))["shards"]
    assert {entry["compression"] for entry in entries} == {"gz"}
    write(tmp_path / "more", range(3))
    again = append(tmp_path / "more", to(place))
    assert (again.samples, again.appended) == (33, 3)


def test_samples_are_added_to_a_data_set_of_a_writer(tmp_path, write, read):
    write(tmp_path / "set", range(20))
    with Writer(
        columns={"id": "json", "name": "json", "x": "bytes"}, out=tmp_path / "day"
    ) as writer:
        writer.write({"id": 20, "name": "twenty", "x": b"x"})
    with pytest.raises(ConfigError, match="has the column 'score', and the samples to append have"):
        append(tmp_path / "day", to(tmp_path / "set"))
    small = write(tmp_path / "small", range(20), {"id": "int", "name": "str"})
    with pytest.raises(ConfigError, match="has no column 'x'"):
        append(tmp_path / "day", to(small))
    append(tmp_path / "day", to(small), columns=Columns(drop=["x"]))
    assert read(small)["id"].tolist() == list(range(21))
    assert read(small)["name"][-1] == "twenty"


def test_other_names_of_a_directory_add_nothing_again(tmp_path, write):
    source = write(tmp_path / "day", range(10))
    (tmp_path / "latest").symlink_to(source)
    assert append(source, to(tmp_path / "set")).appended == 10
    for name in ("latest", "set/../day"):
        assert append(str(tmp_path / name), to(tmp_path / "set")).appended == 0


def test_what_cannot_be_appended_to_is_refused(tmp_path, write):
    source, other = write(tmp_path / "source", range(5)), write(tmp_path / "other", range(5))
    with pytest.raises(ConfigError, match="is a source"):
        append(source, to(source))
    with pytest.raises(ConfigError, match="exist_ok=True removes"):
        append(source, to(other, exist_ok=True))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"other files, such as 'notes\.txt'"):
        append(source, to(tmp_path / "mine"))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "parts.json").write_text("{}")
    with pytest.raises(OutputExistsError, match="an unfinished data set"):
        append(source, to(tmp_path / "unfinished"))
    with pytest.raises(ConfigError, match=r"format='json': the samples of .*other are mds"):
        append(source, to(other, format="json"))
    with pytest.raises(ConfigError, match=r"columns=\{'id': 'str'\}: .*other has 'int'"):
        append(source, to(other), columns=Columns(encodings={"id": "str"}))
    assert not list(other.glob("append-*"))


def test_calls_at_once_all_add_their_samples(tmp_path, write, read, monkeypatch):
    write(tmp_path / "set", range(5))
    days = [write(tmp_path / f"day-{n}", range(n * 10, n * 10 + 10)) for n in range(1, 5)]
    parse_index, context = appending.parse_index, multiprocessing.get_context("fork")

    def parse_late(*args):
        time.sleep(0.05)  # so that the calls overlap
        return parse_index(*args)

    monkeypatch.setattr(appending, "parse_index", parse_late)
    calls = [context.Process(target=append, args=(day, to(tmp_path / "set"))) for day in days]
    for call in calls:
        call.start()
    for call in calls:
        call.join(60)
    assert [call.exitcode for call in calls] == [0] * len(days)
    assert sorted(read(tmp_path / "set")["id"]) == [*range(5), *range(10, 50)]


def test_a_call_adds_to_the_data_set_that_another_one_has_just_made(
    place, tmp_path, write, read, monkeypatch
):
    first = write(tmp_path / "first", range(10), compression="gz")
    second = write(tmp_path / "second", range(10, 20))
    check = appending.check_only_appended

    def check_after_another_call(home):
        monkeypatch.setattr(appending, "check_only_appended", check)
        append(first, to(place))
        check(home)

    monkeypatch.setattr(appending, "check_only_appended", check_after_another_call)
    assert append(second, to(place)).samples == 20
    assert read(place)["id"].tolist() == list(range(20))
    entries = json.loads(open_storage(place).read("index.json"))["shards"]
    assert {entry["compression"] for entry in entries} == {"gz"}


def test_a_data_set_that_a_writer_has_is_not_changed(tmp_path, write, read):
    columns = {"id": "int"}
    place = write(tmp_path / "set", range(5), columns)
    day = write(tmp_path / "day", range(5, 10), columns)
    with Writer(columns=columns, out=place, append=True) as writer:
        with pytest.raises(OutputExistsError, match="set is being written by another process"):
            append(day, to(place))
        writer.write({"id": 10})
    assert append(day, to(place)).appended == 5
    assert read(place)["id"].tolist() == [0, 1, 2, 3, 4, 10, 5, 6, 7, 8, 9]


def test_a_killed_call_goes_on_with_the_same_options_only(tmp_path, write, read, monkeypatch):
    place = write(tmp_path / "set", range(5))
    day = write(tmp_path / "day", range(5, 30))

    def kill(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(appending, "_add_to_index", kill)
        with pytest.raises(KeyboardInterrupt):
            append(day, to(place))
    with pytest.raises(OutputExistsError, match="repeat it with the same options"):
        append(day, to(place, size_limit=300))
    assert append(day, to(place)).appended == 25
    assert read(place)["id"].tolist() == list(range(30))


@pytest.fixture
def impatient(monkeypatch):
    """Look three times at the lock of another machine; return what is called before each further look."""
    before = []
    monkeypatch.setattr(append_lock, "_MAX_LOOKS", 3)
    monkeypatch.setattr(append_lock, "sleep", lambda _: [act() for act in before])
    return before


def lock_of(machine):
    return json.dumps({"host": "other", "process": 7, "machine": machine, "token": "t"}).encode()


def test_calls_of_another_machine_are_waited_for_and_then_refused(
    place, tmp_path, write, read, impatient
):
    write(place, range(5))
    day, home = write(tmp_path / "day", range(5, 10)), open_storage(place)
    home.write("append.lock", lock_of("other 0"))
    with pytest.raises(
        OutputExistsError, match=r"appended to by process 7 on other: .*append\.lock"
    ):
        append(day, to(place))
    assert home.read("append.lock") == lock_of("other 0")
    impatient.append(lambda: home.delete("append.lock"))
    assert append(day, to(place)).appended == 5
    assert read(place)["id"].tolist() == [*range(10)]
    assert not home.exists("append.lock")


def test_one_call_after_another_of_other_machines_is_waited_for(place, tmp_path, write, impatient):
    write(place, range(5))
    day, home, turns = write(tmp_path / "day", range(5, 10)), open_storage(place), iter(range(10))

    def next_turn():
        turn = next(turns)
        if turn < 9:
            home.write("append.lock", lock_of(f"other {turn}"))
        else:
            home.delete("append.lock")

    next_turn()
    impatient.append(next_turn)
    assert append(day, to(place)).appended == 5


def die_with_the_lock(day, place):
    appending.extend_index = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    append(day, to(place))


def test_the_lock_of_a_killed_call_is_taken_over(tmp_path, write, read, impatient):
    place, day = write(tmp_path / "set", range(5)), write(tmp_path / "day", range(5, 10))
    call = multiprocessing.get_context("fork").Process(
        target=die_with_the_lock, args=(str(day), str(place))
    )
    call.start()
    call.join(60)
    assert call.exitcode == -signal.SIGKILL
    assert (tmp_path / "set" / "append.lock").exists()
    assert append(day, to(place)).appended == 5
    assert not (tmp_path / "set" / "append.lock").exists()
    assert read(place)["id"].tolist() == [*range(10)]
    (tmp_path / "set" / "append.lock").write_bytes(b"")
    delete(tmp_path / "set", dry_run=False)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("locks", [True, False])
def test_calls_of_two_machines_at_once_lose_no_samples(
    tmp_path, write, read, monkeypatch, impatient, locks
):
    place = f"memory://{tmp_path.name}/set"
    days = [write(tmp_path / f"day-{n}", range(n * 10, n * 10 + 10)) for n in range(3)]
    append(days[0], to(place))
    monkeypatch.setattr(MemoryStorage, "can_create", locks)
    with_shards, turns, refused = appending._with_shards, iter([True]), []

    def while_another_machine_appends(*args):
        data = with_shards(*args)
        if next(turns, False):
            with monkeypatch.context() as other:
                (tmp_path / "other").mkdir()
                other.setattr(append_lock, "make_temp_root", lambda: tmp_path / "other")
                try:
                    append(days[2], to(place))
                except OutputExistsError as error:
                    refused.append(str(error))
        return data

    monkeypatch.setattr(appending, "_with_shards", while_another_machine_appends)
    assert append(days[1], to(place)).appended == 10
    if locks:
        assert f"being appended to by process {os.getpid()}" in refused[0]
        assert append(days[2], to(place)).appended == 10
    assert sorted(read(place)["id"]) == [*range(30)]
    assert not open_storage(place).exists("append.lock")


def test_an_index_that_another_machine_replaces_at_once_is_seen(tmp_path, write, read, monkeypatch):
    place = f"memory://{tmp_path.name}/set"
    days = [write(tmp_path / f"day-{n}", range(n * 10, n * 10 + 10)) for n in range(2)]
    append(days[0], to(place))
    earlier, write_object = open_storage(place).read("index.json"), MemoryStorage.write
    turns = iter([True])

    def write_then_lose(storage, key, data):
        write_object(storage, key, data)
        if key == "index.json" and storage.url.endswith("/set") and next(turns, False):
            write_object(storage, key, earlier)

    monkeypatch.setattr(MemoryStorage, "can_create", False)
    monkeypatch.setattr(MemoryStorage, "write", write_then_lose)
    assert append(days[1], to(place)).appended == 10
    assert read(place)["id"].tolist() == [*range(20)]
    monkeypatch.setattr(appending, "_is_changed", lambda *_: True)
    write(tmp_path / "more", range(20, 25))
    with pytest.raises(OutputExistsError, match="changed by others each time"):
        append(tmp_path / "more", to(place))


def test_an_appended_data_set_is_deleted_whole(tmp_path, write):
    write(tmp_path / "set", range(20))
    append(write(tmp_path / "day", range(5)), to(tmp_path / "set"))
    assert len(StreamingDataset(local=str(tmp_path / "set"))) == 25
    assert not delete(tmp_path / "set").kept
    delete(tmp_path / "set", dry_run=False)
    assert not (tmp_path / "set").exists()
    cut_off = tmp_path / "first" / "append-0123456789abcdef"
    cut_off.mkdir(parents=True)
    (cut_off / "parts.json").write_text("{}")
    delete(tmp_path / "first", dry_run=False)
    assert not (tmp_path / "first").exists()
