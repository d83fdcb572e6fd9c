"""Selections by an expression."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from streamplug_testing.http import serving
from streamplug_tools import xxh64
from streamplug_views import View, expression_source

from streamplug import Encoding, MDSWriter, Stream
from streamplug.dataset import StreamingDataset  # without torch, which processes would import
from streamplug.errors import ConfigError, DataError, NotFound, StateError, UnsafeTypeError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMPLUG_CACHE_DIR", str(tmp_path / "user-cache"))
    return tmp_path / "user-cache"


@pytest.fixture
def crawl(tmp_path):
    columns = {"n": "int", "score": "float64", "text": "str"}
    with MDSWriter(out=tmp_path / "crawl", columns=columns, max_samples_per_shard=7) as out:
        for n in range(100):
            out.write({"n": n, "score": n % 10 / 10, "text": f"text {n}"})
    return str(tmp_path / "crawl")


def numbers(**options):
    return [int(sample["n"]) for sample in StreamingDataset(**options)]


def test_an_expression_selects_rows(crawl):
    assert numbers(remote=crawl, select="score > 0.75") == [n for n in range(100) if n % 10 > 7]
    assert numbers(remote=crawl, select="n >= 90 and text != 'text 95'") == [
        n for n in range(90, 100) if n != 95
    ]
    streams = [Stream(remote=crawl, select="n < 3"), Stream(remote=crawl, select=[7])]
    assert numbers(streams=streams) == [0, 1, 2, 7]
    dataset = StreamingDataset(remote=crawl, select="score > 0.75", batch_size=1, shuffle=True)
    assert dataset.size == len(dataset) == 20
    plain = StreamingDataset(
        remote=crawl, select=[n for n in range(100) if n % 10 > 7], batch_size=1, shuffle=True
    )
    plain.load_state_dict(dataset.state_dict(5))
    assert "score > 0.75" in repr(Stream(remote=crawl, select="score > 0.75").object_summary())
    with pytest.raises(StateError, match="other rows"):
        StreamingDataset(
            remote=crawl, select="score < 0.2", batch_size=1, shuffle=True
        ).load_state_dict(dataset.state_dict(5))


@pytest.mark.parametrize("name", ["number", "sample"])
def test_an_expression_names_columns_before_the_sample_and_its_number(tmp_path, name):
    with MDSWriter(out=tmp_path / "set", columns={name: "int", "n": "int"}) as out:
        for n in range(9):
            out.write({name: 9 - n, "n": n})
    assert numbers(remote=str(tmp_path / "set"), select=f"{name} > 6") == [0, 1, 2]


def test_an_expression_is_evaluated_once(crawl, cache, monkeypatch):
    select = "n % 3 == 0"
    expected = numbers(remote=crawl, select=select)
    assert len(list(cache.rglob("*.rows"))) == 1

    def fail(*_):
        raise AssertionError("it is evaluated again")

    monkeypatch.setattr(expression_source, "evaluate", fail)
    assert numbers(remote=crawl, select=select) == expected
    with pytest.raises(AssertionError):
        numbers(remote=crawl, select="n % 3 == 1")


def test_files_without_an_index_are_evaluated_each_time(tmp_path, cache):
    file = tmp_path / "set" / "rows.jsonl"
    file.parent.mkdir()
    for first, second in [(1, 7), (7, 1)]:
        file.write_text(f'{{"n": {first}}}\n{{"n": {second}}}\n')
        assert numbers(remote=str(file.parent), format="jsonl", select="n == 7") == [7]
    assert not list(cache.rglob("*.rows"))


def _read(crawl, queue):
    queue.put(numbers(remote=crawl, select="score == 0.3"))


def test_processes_that_start_at_once_agree(crawl, cache):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    processes = [spawn.Process(target=_read, args=(crawl, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert found == [list(range(3, 100, 10))] * 2
    assert len(list(cache.rglob("*.rows"))) == 1


def test_a_data_set_that_was_written_again_is_evaluated_again(crawl):
    assert numbers(remote=crawl, select="n > 97") == [98, 99]
    with MDSWriter(out=crawl, columns={"n": "int"}, exist_ok=True) as out:
        for n in range(200):
            out.write({"n": n})
    assert numbers(remote=crawl, select="n > 97") == list(range(98, 200))


def test_a_view_whose_source_was_written_again_is_evaluated_again(tmp_path):
    for first, second in [(1, 7), (7, 1)]:  # of the same sizes, and without checksums
        columns = {"n": "int"}
        with MDSWriter(out=tmp_path / "set", columns=columns, hashes=[], exist_ok=True) as out:
            out.write({"n": first})
            out.write({"n": second})
        if first == 1:
            View.of(tmp_path / "set").commit(tmp_path / "view")
        assert numbers(remote=str(tmp_path / "view"), select="n == 7") == [7]


def test_views_and_their_streams_take_expressions(crawl, tmp_path):
    View.of(crawl).where("n % 2 == 0").rename({"n": "m"}).commit(tmp_path / "even")
    dataset = StreamingDataset(remote=str(tmp_path / "even"), select="m < 10")
    assert [int(sample["m"]) for sample in dataset] == [0, 2, 4, 6, 8]
    view = View.of(Stream(remote=crawl, select="n < 10")).where("n > 7")
    assert len(view) == 2


def test_bad_expressions_are_refused(crawl, tmp_path, cache):
    with pytest.raises(ConfigError, match="is no Python expression"):
        StreamingDataset(remote=str(tmp_path / "nowhere"), select="score >")
    with pytest.raises(ConfigError, match=r"scroe.*score"):
        StreamingDataset(remote=crawl, select="scroe > 0.5")
    with pytest.raises(DataError, match="for sample 42: ZeroDivisionError"):
        StreamingDataset(remote=crawl, select="1 / (n - 42) > 0")
    with pytest.raises(ConfigError, match="pass the expression as select="):
        StreamingDataset(remote=crawl, format="where")
    assert not list(cache.rglob("*.rows"))


def test_decoders_do_not_change_what_an_expression_selects(crawl):
    class Negated(Encoding):
        size = 8

        def encode(self, value):
            return b""

        def decode(self, data):
            return -int.from_bytes(data, "little")

    options = {"remote": crawl, "select": "n > 97", "decoders": {"n": lambda _: Negated()}}
    for _ in range(2):
        assert numbers(**options) == [-98, -99]
    assert numbers(remote=crawl, select="n > 97") == [98, 99]


@pytest.mark.parametrize("rows", [[1, 5], [n in (1, 5) for n in range(100)]])
def test_a_file_has_a_mask_or_row_numbers(crawl, tmp_path, rows, monkeypatch):
    np.save(tmp_path / "rows.npy", np.array(rows))
    monkeypatch.chdir(tmp_path)
    for location in ("rows.npy", str(tmp_path / "rows.npy")):
        assert numbers(remote=crawl, select=location) == [1, 5]
    with pytest.raises(NotFound, match=r"nowhere\.npy"):
        StreamingDataset(remote=crawl, select="nowhere.npy")
    np.save(tmp_path / "rows.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(ConfigError, match=r"select='rows.npy': .*rows\.npy is no file of an array"):
        StreamingDataset(remote=crawl, select="rows.npy")
    (tmp_path / "rows.npy").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"rows\.npy is no file of an array"):
        StreamingDataset(remote=crawl, select="rows.npy")


def test_the_url_of_a_file_may_have_a_query(crawl, tmp_path):
    np.save(tmp_path / "rows.npy", [1, 5])
    with serving(tmp_path) as server:
        stream = Stream(remote=crawl, select=f"{server.url}/rows.npy?token=secret")
        assert numbers(streams=[stream]) == [1, 5]
    assert ("rows", f"{server.url}/rows.npy") in stream.object_summary().facts


@pytest.mark.parametrize("end", ["", "?token=secret"])
def test_a_url_of_another_file_is_named_without_credentials(crawl, end):
    with pytest.raises(ConfigError, match=r"'https://host/rows\.npz' is no Python exp") as caught:
        StreamingDataset(remote=crawl, select=f"https://me:secret@host/rows.npz{end}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("saved", [[3, 9], [n in (3, 9) for n in range(100)]])
def test_a_view_is_of_the_rows_in_the_file_that_a_stream_selects(crawl, tmp_path, saved):
    np.save(tmp_path / "kept.npy", saved)
    view = View.of(Stream(remote=crawl, select=str(tmp_path / "kept.npy"))).where("n > 5")
    assert [step.step for step in view.steps] == ["select 2 rows", "where n > 5"]
    view.commit(tmp_path / "view")
    assert numbers(remote=str(tmp_path / "view")) == [9]


UNSTABLE = [
    "hash(text) % 2",
    "text.__hash__() % 2",
    "np.random.rand() < 0.5",
    "np.fromfile('/dev/urandom', 'u1', 1)[0] > 9",
    "__import__('time').time() > n",
    "np.datetime64('now') > np.datetime64('2024-01-01')",
    "list({text, 'a', 'b'})[0] == text",
    "'{0.__class__}'.format(text) != ''",
]


@pytest.mark.parametrize("text", UNSTABLE)
def test_what_is_no_function_of_the_sample_is_refused_before_anything_is_read(
    crawl, tmp_path, text
):
    config = tmp_path / "run.yaml"
    config.write_text(f"streams:\n  - remote: {crawl}\n    select: {json.dumps(text)}\n")
    for open_ in (
        lambda: StreamingDataset(remote=crawl, select=text),
        lambda: StreamingDataset(remote=str(tmp_path / "nowhere"), select=text),
        lambda: StreamingDataset(streams=[Stream(remote=crawl), Stream(remote=crawl, select=text)]),
        lambda: StreamingDataset.from_config(config),
        lambda: len(View.of(crawl).where(text)),
        lambda: len(View.of(Stream(remote=crawl, select=text))),
        lambda: View.of(crawl).where(text).commit(tmp_path / "view"),
    ):
        with pytest.raises(ConfigError, match="cannot be part of an expression"):
            open_()
    assert not (tmp_path / "view").exists()


def test_stable_hashes_divide_rows(crawl, tmp_path):
    expected = [n for n in range(100) if xxh64(f"text {n}") % 4 == 0]
    assert numbers(remote=crawl, select="xxh64(text) % 4 == 0") == expected
    rest = numbers(remote=crawl, select="xxh64(text) % 4 != 0")
    assert sorted(expected + rest) == list(range(100))
    View.of(crawl).where("xxh64(text) % 4 == 0").commit(tmp_path / "view")
    assert numbers(remote=str(tmp_path / "view")) == expected


def test_processes_with_other_hashes_select_the_same_rows(crawl, tmp_path):
    code = (
        "import sys; from streamplug import StreamingDataset\n"
        "text = \"xxh64((text, n, {'score': score})) % 3 == 0 and text not in {'text 1', 'text 2'}\"\n"
        "print([s['n'] for s in StreamingDataset(remote=sys.argv[1], select=text)])"
    )
    printed = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment["STREAMPLUG_CACHE_DIR"] = str(tmp_path / f"cache-{seed}")
        command = [sys.executable, "-c", code, crawl]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        printed.add(done.stdout)
    assert len(printed) == 1
    assert printed != {"[]\n"}


def test_steps_of_a_manifest_are_text_that_nothing_evaluates(crawl, tmp_path):
    place = tmp_path / "view"
    View.of(crawl).where("n < 7").commit(place)
    [manifest] = place.glob("versions/*.json")
    document = json.loads(manifest.read_bytes())
    marker = tmp_path / "evaluated"
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    document["steps"] = [{**step, "step": f"where {code}"} for step in document["steps"]]
    document["where"] = document["select"] = document["expression"] = code
    document["sources"] = [{**source, "select": code} for source in document["sources"]]
    manifest.write_text(json.dumps(document))
    assert numbers(remote=str(place)) == list(range(7))
    view = View.of(place).where("n > 2")
    assert len(view) == 4
    assert code in view.steps[0].step
    view.commit()
    assert not marker.exists()


def test_an_expression_of_values_that_can_run_code_is_refused_with_what_to_do(tmp_path):
    url = str(tmp_path / "pickles")
    with MDSWriter(out=url, columns={"n": "int", "p": "pkl"}) as out:
        for n in range(10):
            out.write({"n": n, "p": {"n": n}})
    for text in ("p['n'] > 4", "n > 4 and p['n'] > 4"):
        with pytest.raises(UnsafeTypeError, match=r"/pickles: select=.*View\.of\(…, allow_unsafe"):
            StreamingDataset(remote=url, select=text, allow_unsafe_types=True)
    assert numbers(remote=url, select="n > 4", allow_unsafe_types=True) == [5, 6, 7, 8, 9]
    view = View.of(url, allow_unsafe_types=True).where("p['n'] > 4")
    view.commit(str(tmp_path / "view"))
    read = numbers(remote=str(tmp_path / "view"), allow_unsafe_types=True)
    assert read == [5, 6, 7, 8, 9]
