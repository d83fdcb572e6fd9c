from __future__ import annotations

import numpy as np
import pytest
from streamplug_testing.http import serving
from streamplug_tools.column_sampling import Values
from streamplug_tools.histogram import make_histogram
from streamplug_tools.previews import preview_value
from streamplug_tools.report import page_about
from streamplug_tools.statistics import collect_statistics

from streamplug import MDSWriter, Stream
from streamplug.errors import DataError


def test_a_survey_tells_what_was_written(write, tmp_path, sample):
    source = write(tmp_path / "source", range(200), compression="gz")
    found = collect_statistics(source, samples=2, measured=1000)
    assert (found.seen, found.seen_shards, found.failures) == (200, found.set.shards, ())
    assert sum(cell.samples for cell in found.cells) == 200
    assert sum(cell.raw_bytes for cell in found.cells) == found.set.raw_bytes
    assert sum(cell.stored_bytes for cell in found.cells) == found.set.stored_bytes
    assert {cell.compression for cell in found.cells} == {"gz"}
    columns = {column.name: column for column in found.columns}
    assert columns["id"].encodings == ("int",)
    assert (columns["id"].measure, columns["id"].numbers.maximum) == ("value", 199)
    assert (columns["name"].measure, columns["name"].numbers.maximum) == ("characters", 6)
    assert (columns["vector"].measure, columns["vector"].numbers.minimum) == ("length", 3)
    sizes = [len(sample(n)["x"]) for n in range(200)]
    assert columns["x"].stored.total == sum(sizes)
    assert columns["x"].stored.median == np.median(sizes)
    assert [number for number, _ in found.samples] == [0, 100]


def test_labels_and_texts_of_few_values_are_counted(tmp_path):
    columns = {"label": "str", "class": "int", "text": "str"}
    with MDSWriter(out=str(tmp_path), columns=columns) as out:
        for n in range(100):
            out.write({"label": "dog" if n % 4 else "cat", "class": n % 2, "text": f"text {n}"})
    found = {column.name: column.counts for column in collect_statistics(tmp_path).columns}
    assert found == {"label": {"dog": 75, "cat": 25}, "class": {"0": 50, "1": 50}, "text": {}}
    page = page_about(tmp_path)
    assert "75 · 75%" in page
    assert "25 · 25%" in page


def test_numbers_that_look_alike_are_not_counted_as_one(tmp_path):
    with MDSWriter(out=str(tmp_path), columns={"near": "float64", "far": "float64"}) as out:
        for n in range(100):
            out.write({"near": 1.1 + n % 2 / 1e9, "far": 0.5 if n % 4 else float("nan")})
    found = {column.name: column.counts for column in collect_statistics(tmp_path).columns}
    assert found == {"near": {}, "far": {"0.5": 75, "nan": 25}}


def test_samples_are_of_shards_all_over_the_set(source):
    found = collect_statistics(source, samples=0, measured=12)
    assert 12 <= found.seen <= 24
    assert found.seen_shards == found.set.shards == 5
    assert [at for at, _ in found.columns[0].previews][-1] > 100


def test_few_shards_are_fetched_from_afar(tmp_path, write):
    source = write(tmp_path / "source", range(2000))
    with serving(source) as server:
        found = collect_statistics(server.url, samples=3, measured=8)
        shards = {path for _, path, _ in server.requests if "shard" in path}
    assert found.set.shards > 20
    assert found.seen_shards == len(shards) == 4
    assert 8 <= found.seen <= 16


def test_with_no_samples_no_shard_is_read(source):
    for path in source.glob("shard*"):
        path.unlink()
    found = collect_statistics(source, samples=0, measured=0)
    assert (found.seen, found.failures, found.samples) == (0, (), ())
    assert len(found.cells) == found.set.shards


def test_a_shard_that_cannot_be_read_hides_no_other(source):
    (source / "shard.00000.mds").write_bytes(b"x")
    found = collect_statistics(source, measured=1000)
    assert len(found.failures) == 1
    assert found.seen_shards == found.set.shards - 1


@pytest.fixture
def five_shards(tmp_path):
    """A set of five shards of 40 samples."""
    columns = {"n": "int"}
    with MDSWriter(out=tmp_path / "set", columns=columns, max_samples_per_shard=40) as out:
        for n in range(200):
            out.write({"n": n})
    return tmp_path / "set"


@pytest.mark.parametrize(("limit", "seen"), [(1, 40), (41, 80), (10**6, 200)])
def test_a_shard_counts_if_no_other_is_read(five_shards, monkeypatch, limit, seen):
    monkeypatch.setattr("streamplug_tools.column_sampling._MAX_SAMPLED_BYTES", limit)
    monkeypatch.setattr(Values, "row_bytes", lambda values, shard: 1)
    found = collect_statistics(five_shards, samples=0, measured=1000)
    assert found.seen == seen
    assert (found.seen_shards, found.set.shards) == (seen // 40, 5)
    left_out = ["Samples are large: fewer were looked at."] if seen < 200 else []
    assert list(found.failures) == left_out


def test_a_shard_that_is_damaged_behind_other_samples_is_counted(five_shards, monkeypatch):
    monkeypatch.setattr("streamplug_tools.column_sampling._BYTES_PER_READ", 1)
    read = Values.read

    def fail_at_50(values, ids):
        if 50 in ids:
            raise DataError("damaged")
        return read(values, ids)

    monkeypatch.setattr(Values, "read", fail_at_50)
    found = collect_statistics(five_shards, samples=0, measured=1000)
    assert (found.seen, found.seen_shards, found.failures) == (170, 5, ("damaged",))


def test_shards_in_a_row_are_told_together_if_there_are_many(source, monkeypatch):
    monkeypatch.setattr("streamplug_tools.statistics._MAX_GROUPS", 3)
    found = collect_statistics(source, samples=0, measured=0)
    assert [(cell.first, cell.shards) for cell in found.cells] == [(0, 1), (1, 2), (3, 2)]
    assert sum(cell.samples for cell in found.cells) == 200


def test_missing_values_are_counted(tmp_path):
    pytest.importorskip("streamplug_text")
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": null}\n{"a": [1, 2, 3]}\n{"b": "x"}\n')
    found = collect_statistics(Stream(remote=str(tmp_path), format="jsonl"))
    columns = {column.name: column for column in found.columns}
    assert columns["b"].notes == {"no value": 2}
    assert [seen.text for _, seen in columns["a"].previews] == ["1", "[1, 2, 3]"]


def test_damaged_values_are_told_of_and_others_shown(tmp_path):
    with MDSWriter(columns={"j": "bytes"}, out=tmp_path / "set") as out:
        for data in (b"1", b"not json", b'{"a": 2}'):
            out.write({"j": data})
    index = tmp_path / "set/index.json"
    index.write_text(index.read_text().replace('"bytes"]', '"json"]'))
    (column,) = collect_statistics(tmp_path / "set").columns
    assert [seen.text for _, seen in column.previews] == ["1", '{"a": 2}']
    ((note, count),) = column.notes.items()
    assert note.startswith("cannot be decoded: ")
    assert count == 1


@pytest.mark.parametrize(
    ("value", "text", "measure"),
    [
        (10**400, "1" + "0" * 398 + "…", "value"),
        (float("nan"), "nan", "value"),
        (-1.5e300, "-1.5e+300", "value"),
        (np.float32(1 / 3), "0.333333", "value"),
        (True, "True", "value"),
        (None, "", ""),
        ("x" * 1000, "x" * 400, "characters"),
        (b"\xff\0", "ff 00", "length"),
        (b"<svg/>", "<svg/>", "length"),
        (["a", 1], '["a", 1]', "length"),
        (np.arange(30).reshape(2, 15), ", ".join(map(str, range(24))) + ", …", "length"),
        (2 + 1j, "(2+1j)", ""),
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_values_of_all_kinds_are_shown(value, text, measure):
    found = preview_value(value)
    assert (found.text, found.measure, found.images) == (text, measure, ())
    assert bool(found.text) != (found.note == "no value")


def test_values_that_cannot_be_shown_are_told_of():
    class Odd:
        def __str__(self):
            raise RuntimeError("no text")

    assert preview_value(Odd()).note == "cannot be decoded: RuntimeError: no text"


def test_a_spread_counts_all_numbers_once():
    rng = np.random.default_rng(3)
    for values in (
        rng.integers(0, 10, 1000),
        rng.integers(-500, 500, 1000),
        rng.normal(size=1000),
        rng.lognormal(0, 4, 1000),
        np.rint(rng.lognormal(3, 4, 1000)),
        np.array([0, 0, 1, 1e9]),
        np.array([7.0]),
    ):
        found = make_histogram(values)
        assert sum(found.counts) == found.count == len(values)
        assert list(found.edges) == sorted(found.edges)
        assert len(found.edges) == len(found.counts) + 1 <= 32
        assert (found.minimum, found.maximum) == (values.min(), values.max())


def test_whole_numbers_have_bins_of_their_own_if_they_are_few():
    found = make_histogram([3, 5, 5, 4])
    assert (found.edges, found.counts, found.whole) == ((3, 4, 5, 6), (1, 1, 2), True)


def test_bins_grow_by_factors_if_numbers_are_far_apart():
    assert make_histogram([1, 2, 3, 4, 1_000_000]).factors
    assert not make_histogram([1, 2, 3, 4, 100]).factors


def test_what_is_not_finite_does_not_count():
    assert make_histogram([1, float("nan"), float("inf")]).count == 1
    assert make_histogram([float("nan")]) is None
    assert make_histogram([-1e308, 1e308]).counts
    assert make_histogram([5e-324, 5e-324]).median == 5e-324


def test_pages_show_the_largest_numbers(tmp_path):
    largest = np.finfo(np.float64).max
    with MDSWriter(out=tmp_path / "set", columns={"x": "float64"}) as out:
        for value in [largest] * 50 + list(range(30)):
            out.write({"x": value})
    (column,) = collect_statistics(tmp_path / "set").columns
    assert column.numbers.median == largest
    assert "median 1.798e+308" in page_about(tmp_path / "set")
