"""Selections by an expression."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
from streamplug_testing.http import serving
from streamplug_views import View, expression_format

from streamplug import Encoding, MDSWriter, Stream
from streamplug.dataset import StreamingDataset  # without torch, which processes would import
from streamplug.errors import ConfigError, DataError, NotFound, StateError


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

    monkeypatch.setattr(expression_format, "evaluate", fail)
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
    with pytest.raises(ConfigError, match=r"select='rows.npy': .*rows\.npy: .*allow_pickle"):
        StreamingDataset(remote=crawl, select="rows.npy")
    (tmp_path / "rows.npy").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"rows\.npy: "):
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
