from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from streamplug_tools import Columns, Expression, Output, as_lines, process, process_with, shuffle
from streamplug_tools.processing import run_program

from streamplug import Stream, register_encoding
from streamplug.errors import ConfigError, OutputExistsError, UnsafeTypeError, WriterError
from streamplug.interfaces import Encoding
from streamplug.plugin import registry


class Lossy(Encoding):
    """Text that loses its last character whenever it is written."""

    def encode(self, value):
        return value[:-1].encode()

    def decode(self, data):
        return str(data, "utf-8")


@pytest.fixture
def lossy():
    register_encoding("lossy", Lossy)
    yield "lossy"
    registry.unregister("encoding", "lossy")


def to(place, **options):
    return Output(place, **{"size_limit": 2000, "processes": 0, **options})


# -- expressions ------------------------------------------------------------------------


def test_an_expression_names_the_columns_that_it_uses():
    known = ["a", "b", "c"]
    assert Expression("a + [b for _ in range(2)][0]").columns(known) == ["a", "b"]
    assert Expression("(lambda x: x + c)(1)", is_free=True).columns(known) == ["c"]
    assert Expression("len(sample)").columns(known) == known
    assert Expression("number").columns(known) == []
    text = "[y := 2, y * len({k: v for k, v in {}.items()}), np.pi]"
    assert Expression(text, is_free=True).columns(known) == []
    assert Expression("[2 * len({k: v for k, v in {}.items()}), np.pi]").columns(known) == []
    with pytest.raises(ConfigError, match=r"has no \['d'\], only \['a', 'b', 'c'\]"):
        Expression("max(a, d)").columns(known)


def test_columns_come_before_modules_and_data_is_never_code():
    assert Expression("json")(0, {"json": 3}) == 3
    assert Expression("a")(0, {"a": "__import__('os')"}) == "__import__('os')"


def test_columns_come_before_the_sample_and_its_number():
    sample = {"number": 7, "sample": {"a": 1}, "a": 2, "a b": 3}
    assert Expression("number")(0, sample) == 7
    assert Expression("sample['a']")(0, sample) == 1
    assert Expression("sample")(0, {"a": 2}) == {"a": 2}
    known = Expression("a b").for_columns(sample)
    assert (known(0, sample), known.columns(sample)) == (3, ["a b"])
    assert Expression("sample").columns(sample) == ["sample"]
    assert Expression("number").columns(sample) == ["number"]


def test_columns_are_computed_and_others_stay(source, tmp_path, read):
    expressions = {"id": "id * 2", "label": "f'{name}/{number}'"}
    process(source, to(tmp_path / "out"), expressions, columns=Columns(encodings={"label": "str"}))
    before, after = read(source), read(tmp_path / "out")
    assert after["id"].tolist() == [2 * n for n in range(200)]
    assert after["label"] == [f"name {n % 7}/{n}" for n in range(200)]
    assert list(after) == ["id", "label", "name", "score", "vector", "x"]
    assert after["x"] == before["x"]


def test_the_encoding_of_a_column_may_change(source, tmp_path, read):
    columns = Columns(encodings={"id": "str"}, rename={"name": "n"}, drop=["x"])
    process(source, to(tmp_path / "out"), {"id": "str(id)"}, columns=columns)
    after = read(tmp_path / "out")
    assert list(after) == ["id", "n", "score", "vector"]
    assert after["id"] == [str(n) for n in range(200)]


def test_a_column_that_is_looked_at_is_not_encoded_again(tmp_path, write, read, lossy):
    source = write(tmp_path / "source", range(3), {"name": lossy})
    process(
        source, to(tmp_path / "out"), {"n": "len(name)"}, columns=Columns(encodings={"n": "int"})
    )
    assert read(tmp_path / "out")["name"] == ["name ", "name ", "name "]
    assert read(tmp_path / "out")["n"].tolist() == [5, 5, 5]


def test_what_could_run_code_is_looked_at_only_with_leave(tmp_path, write, read):
    source = write(tmp_path / "source", range(3), {"id": "pkl"})
    columns = {"encodings": {"n": "int"}}
    with pytest.raises(UnsafeTypeError, match="column 'id' is needed"):
        process(source, to(tmp_path / "out"), {"n": "id"}, columns=Columns(**columns))
    allowed = Columns(**columns, allow_unsafe_types=True)
    process(source, to(tmp_path / "out"), {"n": "id + 1"}, columns=allowed)
    assert read(tmp_path / "out", "n")["n"].tolist() == [1, 2, 3]


def test_a_column_of_several_encodings_is_not_decoded_by_the_first(tmp_path, write, read):
    sources = [
        write(tmp_path / "text", range(2), {"name": "str"}),
        write(tmp_path / "json", range(2), {"name": "json"}),
    ]
    columns = Columns(encodings={"name": "bytes", "n": "int"})
    with pytest.raises(
        ConfigError, match="'name' is needed, and is str in some shards and json in"
    ):
        process(sources, to(tmp_path / "out"), {"n": "len(name)"}, columns=columns)
    assert not (tmp_path / "out").exists()
    columns = Columns(encodings={"name": "int"})  # each is decoded if it is not written
    process(sources, to(tmp_path / "out"), {"name": "len(name)"}, columns=columns)
    assert read(tmp_path / "out")["name"].tolist() == [6, 6, 6, 6]


class Bound(Lossy):
    """A value that is the bound of values."""

    def decode(self, data):
        return self.max_value_bytes


def test_a_column_that_is_looked_at_has_the_limit_of_its_stream(tmp_path, write, read):
    register_encoding("bound", Bound)
    try:
        source = write(tmp_path / "source", range(2), {"name": "bound"})
        stream = Stream(local=str(source), max_value_bytes=77)
        columns = Columns(encodings={"n": "int"})
        process(stream, to(tmp_path / "out"), {"n": "name"}, columns=columns)
        assert read(tmp_path / "out", "n")["n"].tolist() == [77, 77]
    finally:
        registry.unregister("encoding", "bound")


def test_columns_of_numbers_alone(source, tmp_path, read):
    columns = Columns(encodings={"n": "int"}, select=["id"])
    process(source, to(tmp_path / "out"), {"n": "number", "id": "0"}, columns=columns)
    assert read(tmp_path / "out")["n"].tolist() == list(range(200))


def test_expressions_that_make_no_sense_are_refused(source, tmp_path):
    out = to(tmp_path / "out")
    with pytest.raises(ConfigError, match="no expression is given"):
        process(source, out, {})
    with pytest.raises(ConfigError, match="column 'n' is new: name an encoding for it"):
        process(source, out, {"n": "id"})
    said = r"source/shard\.00000\.mds, row 0: DataError: '1 / id' for sample 0: ZeroDivisionError"
    with pytest.raises(WriterError, match=said):
        process(source, out, {"id": "1 / id"})


# -- programs ---------------------------------------------------------------------------

PROGRAM = """
import json, sys
for line in sys.stdin:
    sample = json.loads(line)
    {body}
"""


def program(body):
    return [sys.executable, "-c", PROGRAM.format(body=body)]


def test_a_program_that_gives_what_it_gets_changes_nothing(source, tmp_path, read):
    process_with(source, to(tmp_path / "out"), program("print(line, end='')"))
    before, after = read(source), read(tmp_path / "out")
    assert list(before) == list(after)
    for name, values in before.items():
        assert np.array_equal(values, after[name])


def test_a_program_gives_arrays(source, tmp_path, read):
    columns = Columns(
        encodings={"a": "ndarray:int16:2,2", "b": "ndarray:float32:1", "c": "ndarray:uint8"}
    )
    body = (
        "print(json.dumps({'a': [[1, 2.0], [True, -4]], 'b': [0.1], 'c': sample['id'] % 2 * [5]}))"
    )
    process_with(source, to(tmp_path / "out"), program(body), columns=columns)
    written = read(tmp_path / "out")
    assert written["a"][7].tolist() == [[1, 2], [1, -4]]
    assert written["b"][7].tolist() == [np.float32(0.1)]
    assert [array.tolist() for array in written["c"][:3]] == [[], [5], []]


def test_a_program_may_leave_out_repeat_and_change_samples(source, tmp_path, read):
    body = "print(*[json.dumps({'n': sample['id']})] * (sample['id'] % 3), sep='\\n')"
    body = f"sample['id'] % 3 and {body}"
    written = process_with(
        source, to(tmp_path / "out"), program(body), columns=Columns(encodings={"n": "int"})
    )
    expected = [n for n in range(200) for _ in range(n % 3)]
    assert read(tmp_path / "out")["n"].tolist() == expected
    assert written.samples == len(expected)


def test_what_json_cannot_tell_comes_as_it_is_stored(tmp_path, write, read, lossy):
    source = write(tmp_path / "source", range(3), {"name": lossy, "id": "int"})
    body = "assert set(sample['name']) == {'base64'}; print(line, end='')"
    process_with(source, to(tmp_path / "out"), program(body))
    assert read(tmp_path / "out")["name"] == ["name ", "name ", "name "]


@pytest.mark.parametrize("error", [BrokenPipeError("lost"), SystemExit("lost"), KeyError("lost")])
def test_errors_of_its_input_are_not_those_of_the_pipe_to_a_program(error):
    def lines():
        yield "1"
        raise error

    with pytest.raises(type(error), match="lost"):
        list(run_program([sys.executable, "-c", "import sys; sys.stdin.read()"], lines()))


def test_failures_of_a_program_are_told(source, tmp_path):
    columns = Columns(encodings={"id": "int"})
    for number, (command, said) in enumerate(
        (
            (program("sys.exit(3)"), "has ended with status 3"),
            (program("print('{')"), "DataError: not a line of JSON"),
            (program("print('{}')"), r"expected a JSON object with the keys \['id'\], got"),
            (program("print(json.dumps({'id': 'x'}))"), "column 'id'"),
            (program("sys.stdout.buffer.write(b'\\xff\\n')"), "has written what is not UTF-8"),
        )
    ):
        with pytest.raises(WriterError, match=said):
            process_with(source, to(tmp_path / f"{number}"), command, columns=columns)
    with pytest.raises(ConfigError, match="no program is given"):
        process_with(source, to(tmp_path / "out"), [])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        *(("uint8", values) for values in ([1.5, 2], [300, 2], [2**70, 2], ["1", "2"])),
        ("float32", [1e300, 2]),
    ],
)
def test_arrays_of_a_program_are_not_rounded(source, tmp_path, dtype, values):
    columns = Columns(encodings={"a": f"ndarray:{dtype}:2"})
    body = f"print(json.dumps({{'a': {values!r}}}))"
    with pytest.raises(WriterError, match="DataError: column 'a': "):
        process_with(source, to(tmp_path / "out"), program(body), columns=columns)


def test_a_data_set_is_not_removed_for_a_program_that_is_not_there(source, tmp_path, read):
    shuffle(source, to(tmp_path / "out"))
    with pytest.raises(
        ConfigError, match=r"cannot be started: there is no program '/no/such/program'"
    ):
        process_with(source, to(tmp_path / "out", exist_ok=True), ["/no/such/program"])
    assert len(read(tmp_path / "out")["id"]) == 200


@pytest.mark.parametrize("interpreted", [False, True])
def test_a_program_that_has_changed_is_another_one(source, tmp_path, read, interpreted):
    path = tmp_path / "program"
    command = [sys.executable, "-u", str(path)] if interpreted else [str(path)]
    columns = Columns(encodings={"n": "int"})

    def install(number):
        body = f"import sys\nfor line in sys.stdin: print('{{\"n\": {number}}}')"
        path.write_text(f"#!{sys.executable}\n{body}\n")
        path.chmod(0o755)

    install(1)
    process_with(source, to(tmp_path / "out"), command, columns=columns)
    process_with(source, to(tmp_path / "out"), command, columns=columns)  # nothing to do
    install(2)
    with pytest.raises(OutputExistsError, match="is made of other samples"):
        process_with(source, to(tmp_path / "out"), command, columns=columns)
    process_with(source, to(tmp_path / "out", exist_ok=True), command, columns=columns)
    assert set(read(tmp_path / "out")["n"]) == {2}


@pytest.mark.parametrize("other", [{"select": ["x"]}, {"rename": {"id": "x"}, "select": ["id"]}])
def test_a_program_that_reads_other_columns_is_another_one(source, tmp_path, read, other):
    command, encodings = program("print(json.dumps({'n': list(sample)[0]}))"), {"n": "str"}
    columns = Columns(encodings=encodings, select=["id"])
    process_with(source, to(tmp_path / "out"), command, columns=columns)
    columns = Columns(encodings=encodings, **other)
    with pytest.raises(OutputExistsError, match="is made of other samples"):
        process_with(source, to(tmp_path / "out"), command, columns=columns)
    process_with(source, to(tmp_path / "out", exist_ok=True), command, columns=columns)
    assert set(read(tmp_path / "out")["n"]) == {"x"}


def test_a_program_need_not_read_all(source, tmp_path, read):
    body = "print(json.dumps({'id': sample['id']})); sys.stdout.flush(); sys.exit(0)"
    process_with(
        source,
        to(tmp_path / "out", size_limit="1mb"),
        program(body),
        columns=Columns(encodings={"id": "int"}),
    )
    assert read(tmp_path / "out")["id"].tolist() == [0]


@pytest.mark.timeout(60)
def test_a_program_that_would_never_end_is_ended_when_it_is_left():
    code = "import time; print('first', flush=True); time.sleep(3600)"
    given = (str(n) for n in range(1_000_000))
    lines = run_program([sys.executable, "-c", code], given)
    assert next(lines) == "first\n"
    lines.close()  # as when what it has written is no sample


def test_half_of_a_surrogate_pair_reaches_a_program(tmp_path, write, read):
    source = write(tmp_path / "source", range(3), {"text": "json"}, lambda _: {"text": "\ud800ä"})
    process_with(source, to(tmp_path / "out"), program("print(json.dumps(sample))"))
    assert list(read(tmp_path / "out")["text"]) == ["\ud800ä"] * 3


def test_an_error_of_the_source_is_not_lost_in_a_program(source, tmp_path):
    shard = max(source.glob("shard.*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(WriterError, match="the index says"):
        process_with(source, to(tmp_path / "out"), program("print(line, end='')"))


# -- lines ------------------------------------------------------------------------------


def test_samples_are_told_as_lines(source):
    found = list(as_lines(source, begin=6, end=8))
    assert [json.loads(line) for line in found] == [
        {
            "id": n,
            "name": f"name {n % 7}",
            "score": float(np.float32(n / 3)),
            "vector": [n, n + 1, n + 2],
            "x": {"base64": base64},
        }
        for n, base64 in ((6, "Bg=="), (7, "Bwc="))
    ]


def test_some_columns_and_samples_from_the_end_of_several_sets(source):
    found = list(as_lines([source, source], begin=-2, select=["id", "x"], drop=["x"]))
    assert found == ['{"id": 198}', '{"id": 199}']
    with pytest.raises(ConfigError, match=r"no \['ids'\]"):
        next(as_lines(source, select=["ids"]))
    with pytest.raises(ConfigError, match=r"drop=.*Did you mean 'id'"):
        next(as_lines(source, drop=["ids"]))


def test_what_could_run_code_is_told_as_it_is_stored(tmp_path, write):
    source = write(tmp_path / "source", range(1), {"id": "pkl"})
    assert json.loads(next(as_lines(source)))["id"].keys() == {"base64"}
