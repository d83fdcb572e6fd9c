"""What expressions that decide over samples can contain, and what is refused."""

from __future__ import annotations

import ast
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from streamplug_tools import (
    Columns,
    Expression,
    Output,
    expression_grammar,
    join,
    process,
    select,
    sort,
)
from streamplug_tools.expression_grammar import (
    ATTRIBUTES,
    CONSTANTS,
    FUNCTIONS,
    KEYWORDS,
    METHODS,
    MODULE_FUNCTIONS,
    TYPES,
)

from streamplug.errors import ConfigError, DataError, StreamplugError

ROW = {
    "u": "u1", "n": 7, "x": np.arange(4.0), "d": {"a": 1, "b": {"c": 2}}, "tags": {"q", "r"},
    "words": ["a", "b", "a"], "id": 3, "json": {"w": 5}, "b": b"xyz", "len": 4, "missing": None,
    "t": np.datetime64("2024-03-05T06:07:08", "ns"), "took": np.timedelta64(90, "s"),
    "time": np.datetime64("2024-03-05"), "user id": 8, "__key__": "k",
}  # fmt: skip


def evaluate(text):
    expression = Expression(text).for_columns(ROW)
    names = expression.columns(ROW)
    return pickle.loads(pickle.dumps(expression))(5, {name: ROW[name] for name in names})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hash(u)", r"hash\(\) .*use xxh64\(\)"),
        ("id(u)", r"id\(\) .*use xxh64\(\)"),
        ("u.__hash__()", r"u\.__hash__\(\)"),
        ("xxh64(u) % 10 == 0 or hash(u)", r"hash\(\)"),
        ("[hash(w) for w in words]", r"hash\(\)"),
        ("f'{hash(u)}'", r"hash\(\)"),
        ("{hash(u): 1}", r"hash\(\)"),
        ("np.random", r"np\.random .*differ in every process"),
        ("np.random.rand() < 0.1", r"np\.random\.rand\(\)"),
        ("np.random.default_rng().random()", r"random"),
        ("np.fromfile('/dev/urandom', 'u1', 1)[0]", r"np\.fromfile\(\)"),
        ("np.load('a.npy').sum()", r"np\.load\(\)"),
        ("np.core.multiarray", r"np\.core\.multiarray"),
        ("np.sqrt.__class__", r"np\.sqrt\.__class__"),
        ("__import__('time').time()", r"__import__\(\)"),
        ("len(open('x'))", r"open\(\)"),
        ("eval('1')", r"eval\(\)"),
        ("getattr(u, 'upper')()", r"a call of a value"),
        ("getattr(u, 'upper')", r"getattr\(\)"),
        ("type(u)", r"type\(\)"),
        ("print(u)", r"print\(\)"),
        ("lens(u)", r"lens\(\) .*did you mean len\?"),
        ("u.uper()", r"u\.uper\(\) .*did you mean upper\?"),
        ("np.linalg.inv(x)", r"did you mean np\.linalg\.norm\?"),
        ("math.factorial(n)", r"math\.factorial\(\)"),
        ("sample.__class__", r"sample\.__class__"),
        ("u.__class__.__mro__", r"u\.__class__\.__mro__"),
        ("(1).__class__", r"\.__class__"),
        ("u['a'].mro", r"\.mro"),
        ("'{0.__class__}'.format(u)", r"\.format\(\) .*f-string"),
        ("u.format_map(d)", r"u\.format_map\(\)"),
        ("f'{u!r}'", "the format of u"),
        ("f'{n:>10000000}'", "the format of n"),
        ("f'{n:{n}}'", "the format of n"),
        ("f'{t:%A}'", "the format of t"),
        ("f'{n:n}'", "the format of n"),
        ("u.zfill(n)", r"u\.zfill\(\) .*f-string"),
        ("u.center(10**9)", r"u\.center\(\)"),
        ("u.upper", r"u\.upper without a call"),
        ("np.sqrt", r"np\.sqrt without a call"),
        ("[len][0](u)", "a call of a value"),
        ("lambda: 1", "lambda .*comprehension"),
        ("(lambda a: a)(n)", "a call of a value"),
        ("max(words, key=len)", "the argument key="),
        ("max(words, **d)", r"\*\* before a value"),
        ("{**d}", r"\*\* before a value"),
        ("max(*words)", r"\* before a value"),
        ("[*tags]", r"\* before a value"),
        ("(y := n) > 3", ":="),
        ("await u", "await"),
        ("(yield)", "Yield"),
        ("[a async for a in words]", "async"),
        ("[0 for d['a'] in words]", r"`for d\['a'\]`"),
        ("[0 for t.x in words]", r"`for t\.x`"),
        ("list({'a', 'b'})[0]", r"\{…\} .*order differs"),
        ("[a for a in {'a', 'b'}]", r"\{…\}"),
        ("{'a', 'b'}", r"\{…\}"),
        ("{w for w in words}", r"\{…\}"),
        ("sorted(set(words))", r"set\(\) .*order differs"),
        ("set(words)", r"set\(\)"),
        ("[a for a, b in [{'x', 'y'}]]", r"\{…\}"),
        ("frozenset(words)", r"frozenset\(\)"),
        ("(w for w in words)", r"\(… for …\) .*give it to any\(\)"),
        ("str(w for w in words)", r"\(… for …\)"),
        ("not (w for w in words)", r"\(… for …\)"),
        ("bool(w for w in words)", r"\(… for …\)"),
        ("n is 5", "`is` with anything but None"),
        ("isinstance(u, object)", r"isinstance\(\) without"),
        ("isinstance(u)", r"isinstance\(\) without"),
        ("t.now()", r"t\.now\(\)"),
        ("t.timestamp()", r"t\.timestamp\(\)"),
        ("t.astimezone()", r"t\.astimezone\(\)"),
        ("np.datetime64('now')", r"np\.datetime64\('now'\): expected a date"),
        ("np.datetime64('Today', 's')", r"np\.datetime64\('Today'\): expected a date"),
        ("t > np.datetime64(b'now')", "expected a date"),
        ("np.array(['now'], dtype='M8[s]')", "the argument dtype="),
        ("np.array(['now'], 'M8[s]')", r"np\.array\(\) with more than 1 arguments"),
        ("np.max(x, initial=n)", "the argument initial="),
        ("np.sqrt(x, x)", r"np\.sqrt\(\) with more than 1 arguments"),
        ("x.sum(0, None, x)", r"\.sum\(\) with more than 1 arguments"),
        ("x.fill(3)", r"x\.fill\(\)"),
        ("words.append(1)", r"words\.append\(\)"),
        ("x.tobytes()", r"x\.tobytes\(\)"),
        ("x.view('i8')", r"x\.view\(\)"),
        ("x.dtype", r"x\.dtype"),
        ("x.tofile('f')", r"x\.tofile\(\)"),
        ("json.loads(u, object_hook=len)", "the argument object_hook="),
        ("json.dumps(u, indent=9)", "the argument indent="),
        ("re.compile(u)", r"re\.compile\(\)"),
        ("breakpoint()", r"breakpoint\(\)"),
    ],
)
def test_what_is_no_function_of_the_sample_is_refused_by_name(text, name):
    with pytest.raises(ConfigError, match=f"{name}.*“Expressions”") as raised:
        evaluate(text)
    assert repr(text)[:100] in f"{raised.value}"


@pytest.mark.parametrize("text", ["np", "math", "hash", "__import__", "__builtins__", "__debug__"])
def test_names_that_are_not_called_are_columns(text):
    with pytest.raises(ConfigError, match=rf"the data set has no \['{text}'\]"):
        evaluate(text)
    with pytest.raises(DataError, match="NameError"):
        Expression("np")(0, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("list(tags)", "a set has another order in every process"),
        ("[a for a in tags]", "a set has another order"),
        ("[a for a, b in [tags]]", "a set has another order"),
        ("[b for a, (b, c) in [(1, tags)]]", "a set has another order"),
        ("[b for a, [b, c] in enumerate([tags])]", "a set has another order"),
        ("','.join(tags)", "a set has another order"),
        ("sum(tags, start=[])", "a set has another order"),
        ("math.fsum(tags)", "a set has another order"),
        ("xxh64(tags)", r"no builtins\.set"),
        ("str(tags)", "the text of set is not defined"),
        ("f'{tags}'", "the text of set is not defined"),
        ("str(x)", "the text of ndarray is not defined"),
        ("str(zip(words, words))", "the text of zip is not defined"),
        ("str(re.search('u', u))", "the text of Match is not defined"),
        ("f'{t:5}'", "is for numbers and text"),
        ("'%s' % u", "use an f-string"),
        ("b % n", "use an f-string"),
        ("d.items() & d.items()", "unsupported operand"),
        ("np.datetime64(u)", "expected a date"),
        ("np.datetime64('no' + 'w')", "expected a date"),
        ("np.array(['now']).astype('M8[s]')", "expected a type of numbers"),
        ("np.array(words).astype('U1')", "expected a type of numbers"),
        ("re.search(b'(?L)a', b)", "depends on the locale"),
        ("re.search(b'a', b, 4)", "depends on the locale"),
        ("re.sub('a', 'b', u, 0, 128)", "is printed"),
        ("u.encode('idna')", "expected one of utf-8"),
        ("u.encode('utf-16')", "expected one of utf-8"),
        ("b.decode('unicode_escape')", "expected one of utf-8"),
        ("9**9**9", "more than 65,536 bits"),
        ("n ** 10**9", "more than 65,536 bits"),
        ("(1 << 40_000) * (1 << 40_000)", "more than 65,536 bits"),
        ("1 << 10**9", "more than 65,536 bits"),
        ("'a' * 10**10", "more than 16,777,216 items"),
        ("10**10 * [0]", "more than 16,777,216 items"),
        ("range(10**12)", "more than 16,777,216 items"),
        ("('a' * 10**6).replace('a', 'b' * 10**6)", "more than 16,777,216 items"),
        ("t == '2024-03-05'", "a time is compared with text or a number"),
        ("'2024-03-05' != t", "a time is compared with text or a number"),
        ("t in ('2024-03-05', None)", "a time is compared with text or a number"),
        ("(np.array([t]) == '2024-03-05').any()", "a time is compared with text or a number"),
        ("took == 90", "a time is compared with text or a number"),
        ("took == -90", "a time is compared with text or a number"),
        ("t > 5", "TypeError|UFuncTypeError"),
    ],
)
def test_values_that_would_differ_or_grow_are_errors_of_the_sample(text, message):
    with pytest.raises(DataError, match=f"for sample 5: .*({message})"):
        evaluate(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("xxh64(u)", 497719764217913663),
        ("xxh64(u, seed=3) == xxh64(u, 3)", True),
        ("id > 2", True),
        ("json['w'] + json.get('w')", 10),
        ("json.loads(json.dumps(d)) == d", True),
        ("json.dumps(d, sort_keys=True)", '{"a": 1, "b": {"c": 2}}'),
        ("len(u) + len", 6),
        ("len(set(words))", 2),
        ("len({w for w in words} & {'a'})", 1),
        ("n in {1, 7} and u in {'u1'} and {'a'} <= set(words)", True),
        ("'q' in tags and len(tags) == 2", True),
        ("bool(set(words) & {'b'}) and not tags & {'z'} and not {'a'} - set(words)", True),
        ("any(w == 'b' for w in words)", True),
        ("[k + w for (k, v), [i, w] in zip(d.items(), enumerate(words))]", ["aa", "bb"]),
        ("sum(i for i in range(n))", 21),
        ("max(len(w) for w in words)", 1),
        ("'-'.join(w for w in words) + ' '.join(words)", "a-b-aa b a"),
        ("[w for w in words if w != 'a']", ["b"]),
        ("[a for a, b in zip(words, words)]", ["a", "b", "a"]),
        ("[k for k, v in d.items()] == list(d.keys()) and len(d.values()) == 2", True),
        ("{k: 1 for k in words}", {"a": 1, "b": 1}),
        ("x.mean() + x.sum() + np.mean(x) + np.where(x > 1, x, 0).sum()", 14.0),
        ("x.shape[0] + x.size + x[1:3].tolist()[0]", 9.0),
        ("np.linalg.norm(x) == math.sqrt(14)", True),
        ("x.astype(np.float32).sum() + x.astype(int).max() + x.astype('int8').min()", 9),
        ("x @ x", 14.0),
        ("t.year + time.year", 4048),
        ("t.date().isoformat()", "2024-03-05"),
        ("(t - np.datetime64('2024-03-05')).total_seconds()", 22028.0),
        ("took.seconds + t.weekday()", 91),
        ("t.astype('M8[M]') == np.datetime64('2024-03') and t < np.datetime64('2025-01-01')", True),
        ("t in (np.datetime64('2024-03-05T06:07:08'),) and took == np.timedelta64(90, 's')", True),
        ("t > np.datetime64(20, 'us') and np.isnat(np.datetime64('NaT'))", True),
        ("missing is None and t is not None and t != None", True),
        ("f'{u}/{n:05d}/{x.max():.2f}/{missing}/{time}'", "u1/00007/3.00/None/2024-03-05"),
        ("str(n) + str(1.5) + str(np.float32(0.5)) + str(True)", "71.50.5True"),
        ("isinstance(u, (str, int)) and not isinstance(u, bytes)", True),
        ("re.search('U(.)', u, re.I).group(1) + re.sub(r'\\d', '', u)", "1u"),
        ("u.replace('u', 'vv') + u.upper() + u.split(sep='u', maxsplit=1)[1]", "vv1U11"),
        ("b.decode() + u.encode('utf-8').decode('ascii')", "xyzu1"),
        ("2**10 + n % 2 + n * 2 + (1 << 3)", 1047),
        ("'ab' * 2 + words[0]", "ababa"),
        ("-n if n > 3 else ~n", -7),
        ("n & 3 | 4", 7),
        ("sorted(words, reverse=True)", ["b", "a", "a"]),
        ("round(1.25, ndigits=1) + abs(-1) + int('7') + math.pi * 0", 9.2),
        ("sample['user id'] + number", 13),
        ("user id", 8),
        ("__key__.upper()", "K"),
        ("[n for n in (1,)][0] + n", 8),
        ("sample.get('u')", "u1"),
    ],
)
def test_functions_of_the_sample(text, value):
    assert evaluate(text) == value
    # The same for many samples at once, but where it uses a sample as a whole.
    expression = Expression(text).for_columns(list(ROW))
    results = expression.of_columns([5, 5], {name: [of, of] for name, of in ROW.items()})
    assert results == (None if "sample.get" in text else [value, value])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("number * 10 + a", [1, 12, 23]),
        ("a + sample['b c']", [5, 7, 9]),
        ("[a for a in (a, sample['a'])][1]", [1, 2, 3]),
        ("sum(x * a for x in (1, 2))", [3, 6, 9]),
        ("1 / (a - 2)", None),
        ("len(sample)", None),
        ("3", [3, 3, 3]),
        ("math.pi > a", [True, True, True]),
        ("sample['math.pi()'] + a", [8, 10, 12]),
        ("+".join(["a"] * 280), None),  # too deep to be changed
    ],
)
def test_many_samples_at_once(text, expected):
    columns = {"a": [1, 2, 3], "b c": [4, 5, 6], "math.pi()": [7, 8, 9], "__debug__": [0, 0, 0]}
    assert Expression(text).of_columns([0, 1, 2], columns) == expected
    if expected is not None:
        rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
        assert list(map(Expression(text), [0, 1, 2], rows)) == expected
    assert Expression("__debug__").of_columns([0, 1, 2], columns) is None


def test_an_expression_needs_its_columns_only():
    known = list(ROW)
    assert Expression("len(u) > 3 and np.mean(x) < 1").columns(known) == ["u", "x"]
    assert Expression("xxh64(u) % 10 in {0, n}").columns(known) == ["u", "n"]
    assert Expression("math.pi").columns(["math", "pi"]) == []


@pytest.mark.parametrize(
    "nest", ["(" * 20_000, "-" * 50_000 + "1", "[" * 150 + "1" + "]" * 150 + "("]
)
def test_deep_expressions_are_refused(nest):
    with pytest.raises(ConfigError, match="is no Python expression"):
        Expression(nest)


@pytest.mark.parametrize("text", ["class == 'cat'", "n > 1 and class in ('a', 'b')", "len(import)"])
def test_columns_named_by_keywords_of_python_are_written_otherwise(text):
    word = "import" if "import" in text else "class"
    with pytest.raises(ConfigError) as caught:
        Expression(text)
    assert (
        f"{word} is a keyword of Python; write the column of this name as sample['{word}']"
        in str(caught.value)
    )
    repaired = Expression(text.replace(word, f"sample['{word}']"))
    assert repaired.columns(["n", word])[-1] == word


def test_keywords_in_quotes_are_not_taken_for_columns():
    with pytest.raises(ConfigError, match=r"no Python expression: .*sample\['user id'\]"):
        Expression("x == 'class' y")


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("label='cat'", "label=='cat'"),
        ("n > 1 and label = 'a=b'", "n > 1 and label == 'a=b'"),
        ("(n=1) or len(label)=3", "(n==1) or len(label)==3"),
        ("sample['a=b']=\"it's\"", "sample['a=b']==\"it's\""),
        ("n >= 1 and n != 2 and n=3", "n >= 1 and n != 2 and n==3"),
    ],
)
def test_a_single_equals_sign_is_told_from_a_comparison(text, compared):
    with pytest.raises(ConfigError) as caught:
        Expression(text)
    assert str(caught.value).endswith(f"write == to compare: {compared!r}")
    assert Expression(compared).columns(["n", "label", "a=b"])


@pytest.mark.parametrize("text", ["n = ", "n =< 3", "user id = 3", "n := 3", "'a=b' n"])
def test_what_two_equals_signs_would_not_repair_is_another_error(text):
    with pytest.raises(ConfigError, match=r"no Python expression: .*sample\['user id'\]"):
        Expression(text)


# -- places -----------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path, write):
    columns = {"id": "int", "u": "str"}
    return write(tmp_path / "in", range(50), columns, lambda n: {"id": n, "u": f"u{n}"})


@pytest.mark.parametrize(
    "run",
    [
        lambda source, out: select(source, out, "hash(u) % 2"),
        lambda source, out: sort(source, out, "hash(u)"),
        lambda source, out: join([source, source], out, "hash(u)"),
    ],
)
def test_every_job_that_decides_over_samples_refuses(source, tmp_path, run):
    with pytest.raises(ConfigError, match=r"hash\(\) cannot be part"):
        run(source, Output(tmp_path / "out", processes=0))
    assert not (tmp_path / "out").exists()


def test_values_to_store_can_be_any_python(source, tmp_path, read):
    texts = {"id": "(lambda a: __import__('math').floor(a))(id + 0.5)", "u": "str(xxh64(u))"}
    process(source, Output(tmp_path / "out", processes=0), texts, columns=Columns())
    assert read(tmp_path / "out")["id"].tolist() == list(range(50))
    assert read(tmp_path / "out")["u"][3] == str(evaluate("xxh64('u3')"))


def test_selections_agree_between_processes(source, tmp_path):
    code = (
        "import sys; from streamplug_tools import Output, select\n"
        "text = \"(xxh64(u) + xxh64([u, id, {'a': u}], 7)) % 5 == 0 and u not in {'u1', 'u2'}\"\n"
        "select(sys.argv[1], Output(sys.argv[2], processes=0), text)"
    )
    indexes = set()
    for seed in ("1", "2"):
        out = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, source, str(out)], check=True, env=environment)
        indexes.add((out / "index.json").read_bytes())
    assert len(indexes) == 1


def test_times_are_those_of_numpy_in_every_job(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("streamplug_parquet")
    from streamplug import Stream, StreamingDataset

    days = np.datetime64("2024-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D")
    names = {unit: pa.array(days.astype(f"M8[{unit}]")) for unit in ("ns", "us", "s", "D")}
    (tmp_path / "times").mkdir()
    parquet.write_table(pa.table({**names, "n": [0, 1, 2, 3]}), tmp_path / "times" / "0.parquet")
    source = Stream(remote=str(tmp_path / "times"), format="parquet")
    rows = {"columns": Columns(select=["n"])}
    for unit in names:
        for number, (text, kept) in enumerate(
            [
                (f"{unit} == np.datetime64('2024-01-03')", [2]),
                (f"{unit} >= np.datetime64('2024-01-03')", [2, 3]),
                (f"{unit}.year == 2024 and {unit}.day < 3", [0, 1]),
                (f"xxh64({unit}) == xxh64(np.datetime64('2024-01-02', 'h'))", [1]),
            ]
        ):
            out = tmp_path / f"{unit}-{number}"
            select(source, Output(out, format="mds", processes=0), text, **rows)
            assert StreamingDataset(local=str(out))[:] == [{"n": n} for n in kept], text
        with pytest.raises(DataError, match="a time is compared with text"):
            select(source, Output(tmp_path / "no", format="mds"), f"{unit} == '2024-01-03'", **rows)
        out = tmp_path / f"sorted-{unit}"
        sort(source, Output(out, format="mds", processes=0), unit, descending=True, **rows)
        assert StreamingDataset(local=str(out))[:] == [{"n": n} for n in (3, 2, 1, 0)]


# -- the page ---------------------------------------------------------------------------


def test_the_page_lists_the_grammar():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "expressions.md").read_text("utf-8")
    named = set(re.findall(r"`([\w.]+)`", page))
    grammar = {name.partition(".")[2] for name in (*MODULE_FUNCTIONS, *CONSTANTS)}
    grammar |= {
        *FUNCTIONS,
        *METHODS,
        *ATTRIBUTES,
        *KEYWORDS,
        *TYPES,
        *expression_grammar.ENCODINGS[:3],
    }
    assert grammar - named - {"utf-8", "latin-1"} == set()


def test_the_grammar_is_made_of_nodes_and_names_that_exist():
    assert all(hasattr(ast, name) for name in expression_grammar._ALLOWED_NODES)
    owners = [
        str,
        bytes,
        int,
        float,
        list,
        dict,
        np.ndarray,
        np.datetime64,
        re.Match,
        type(ROW["t"].item(0) or 0),
    ]
    import datetime

    owners += [datetime.datetime, datetime.timedelta]
    assert [name for name in METHODS if not any(hasattr(owner, name) for owner in owners)] == []


@pytest.mark.parametrize("name", [*FUNCTIONS, *MODULE_FUNCTIONS])
def test_functions_can_be_called_and_give_no_value_by_themselves(name):
    with pytest.raises(StreamplugError):
        Expression(f"{name}")(0, {})
