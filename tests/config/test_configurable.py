from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner

import streamplug
from streamplug import MDSWriter, Stream, Writer, config
from streamplug.cli import main
from streamplug.config.signatures import parameters
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError, UnknownKeywordError
from streamplug.types import World


@pytest.fixture
def place(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}) as out:
        for n in range(40):
            out.write({"n": n})
    return str(tmp_path / "set")


TOML = 'local = "{}"\nbatch_size = 4\nshuffle = true\nshuffle_algo = "global"\n'
YAML = "local: {}\nbatch_size: 4\nshuffle: true\nshuffle_algo: global\n"
LAUGHS = "a0: &a0 [lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
JSON = '{{"local": "{}", "batch_size": 4, "shuffle": true, "shuffle_algo": "global"}}'


@pytest.mark.parametrize(("ending", "text"), [("toml", TOML), ("yaml", YAML), ("json", JSON)])
def test_files_of_all_kinds_say_what_arguments_say(place, tmp_path, ending, text):
    if ending == "yaml":
        pytest.importorskip("yaml")
    path = tmp_path / f"c.{ending}"
    path.write_text(text.format(place))
    arguments = {"batch_size": 4, "shuffle": True, "shuffle_algo": "global"}
    expected = [sample["n"] for sample in StreamingDataset(local=place, **arguments)]
    assert [sample["n"] for sample in StreamingDataset.from_config(path)] == expected
    assert StreamingDataset.from_config(str(path), batch_size=8).batch_size == 8


@pytest.mark.parametrize(("ending", "text"), [("toml", TOML), ("yaml", YAML), ("json", JSON)])
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path, ending, text):
    if ending == "yaml":
        pytest.importorskip("yaml")
    path = tmp_path / f"c.{ending}"
    path.write_text(text.format("set"), encoding="utf-8-sig")
    assert config.load(path)["local"] == "set"


class Odd(Mapping):
    """A mapping that is no dict, as those of OmegaConf."""

    def __init__(self, **values):
        self.values_ = values

    def __getitem__(self, key):
        return self.values_[key]

    def __iter__(self):
        return iter(self.values_)

    def __len__(self):
        return len(self.values_)


def test_any_mapping_will_do(place):
    given = Odd(streams=Odd(a=Odd(local=place)), world=Odd(ranks_per_node=2, rank=1), batch_size=5)
    dataset = StreamingDataset.from_config(given)
    assert [stream.local for stream in dataset.streams] == [place]
    assert dataset.batch_size == 5
    assert len(dataset) == 20


def test_a_range_of_rows_is_not_made_a_list(place):
    assert config.load({"select": range(1 << 50)}) == {"select": range(1 << 50)}
    dataset = StreamingDataset.from_config({"local": place, "select": range(5, 8)})
    assert [sample["n"] for sample in dataset] == [5, 6, 7]


def test_configs_of_omegaconf_will_do(place, monkeypatch):
    omegaconf = pytest.importorskip("omegaconf")
    monkeypatch.setenv("BATCH", "5")
    given = omegaconf.OmegaConf.create(
        {"data": {"streams": [{"local": place}], "batch_size": "${oc.decode:${oc.env:BATCH}}"}}
    )
    assert StreamingDataset.from_config(given.data).batch_size == 5


def test_sections_are_of_their_classes(place, tmp_path):
    whole = {
        "$schema": "x",
        "dataset": {"local": place, "batch_size": 4},
        "writer": {"out": str(tmp_path / "new"), "columns": {"n": "int"}, "hashes": ["sha1"]},
    }
    assert StreamingDataset.from_config(whole).batch_size == 4
    with Writer.from_config(whole) as out:
        out.write({"n": 1})
    index = json.loads((tmp_path / "new" / "index.json").read_text())
    assert index["shards"][0]["hashes"] == ["sha1"]
    assert MDSWriter.from_config({"out": str(tmp_path / "o"), "columns": {"n": "int"}})
    assert Stream.from_config({"local": place, "repeat": 2}).repeat == 2


def test_a_loader_is_made_with_its_data_set(place):
    pytest.importorskip("torch")
    whole = {"dataset": {"local": place, "batch_size": 4}, "loader": {"drop_last": True}}
    loader = streamplug.StreamingDataLoader.from_config(whole)
    assert len(list(loader)) == 10
    other = streamplug.StreamingDataset(local=place)
    loader = streamplug.StreamingDataLoader.from_config({"batch_size": 8}, dataset=other)
    assert loader.dataset is other
    with pytest.raises(ConfigError, match=r"^loader\.num_worker: .*Did you mean 'num_workers'"):
        streamplug.StreamingDataLoader.from_config({**whole, "loader": {"num_worker": 1}})
    with pytest.raises(ConfigError, match=r"^dataset: missing. It is: A `StreamingDataset`"):
        streamplug.StreamingDataLoader.from_config({"batch_size": 8})


def test_errors_of_constructors_name_the_section(place):
    pytest.importorskip("torch")
    whole = {"dataset": {"local": place, "batch_size": 4}, "loader": {"batch_size": 8}}
    make = streamplug.StreamingDataLoader.from_config
    with pytest.raises(ConfigError, match=r"^loader: batch_size=8 differs"):
        make(whole)
    with pytest.raises(ConfigError, match=r"^dataset: batch_size=0: must be"):
        make({**whole, "dataset": {"local": place, "batch_size": 0}})
    with pytest.raises(ConfigError, match=r"^batch_size=0: must be"):
        StreamingDataset.from_config({"local": place, "batch_size": 0})


def test_a_loader_overrides_single_arguments_of_its_data_set(place, tmp_path):
    pytest.importorskip("torch")
    make = streamplug.StreamingDataLoader.from_config
    whole = {"dataset": {"remote": place, "batch_size": 4}, "loader": {"drop_last": True}}
    loader = make(whole, dataset={"local": str(tmp_path / "cache"), "batch_size": 8}, num_workers=0)
    assert [len(batch["n"]) for batch in loader] == [8] * 5
    assert loader.dataset.streams[0].remote == place
    assert (tmp_path / "cache" / "index.json").exists()
    assert make({"loader": {}}, dataset={"local": place, "batch_size": 8}).drop_last is False
    assert len(list(make({"batch_size": 8}, dataset={"local": place}))) == 5
    with pytest.raises(UnknownKeywordError, match=r"StreamingDataset\(lokal=…\).* 'local'"):
        make(whole, dataset={"lokal": place})
    with pytest.raises(
        UnknownKeywordError,
        match=r"^StreamingDataLoader\.from_config\(local=…\): an argument of StreamingDataset; pass "
        r"dataset={'local': …}$",
    ):
        make(whole, local=place)


WRONG = [
    ({"streams": {"code": {"remot": "x"}}}, "streams.code.remot: no such key. Did you mean 'remote'?"),
    ({"streams": [{"local": 3}]}, "streams[0].local=3: expected text or null"),
    ({"streams": [{}]}, "streams[0]: a stream needs remote=, local= or both"),
    ({"streams": "a"}, "streams='a': expected a list or null"),
    ({"dataset": {"shufle": True}}, "dataset.shufle: no such key. Did you mean 'shuffle'?"),
    ({"dataset": {}, "lodaer": {}}, "lodaer: no such section. Did you mean 'loader'?"),
    ({"dataset": 3}, "dataset=3: expected a mapping"),
    ({"batch_size": "32"}, "batch_size='32': expected a whole number or null"),
    ({"batch_size": True}, "batch_size=True: expected a whole number or null"),
    ({"batch_size": 1.5}, "batch_size=1.5: expected a whole number or null"),
    ({"shuffle": "yes"}, "shuffle='yes': expected true or false"),
    ({"shuffle": 1}, "shuffle=1: expected true or false"),
    ({"columns": ["a", 3]}, "columns[1]=3: expected text"),
    ({"columns": "n"}, "columns='n': expected a list or null"),
    ({"curriculum": {"0": ["x"]}}, "curriculum.0[0]='x': expected a number"),
    ({"storage_options": "SECRET"}, "storage_options: expected a mapping or null, got str"),
    (
        {"streams": [{"storage_options": "SECRET"}]},
        "streams[0].storage_options: expected a mapping or null, got str",
    ),
    (
        {"dataset": [{"remote": "s3://b", "storage_options": {"secret": "SECRET"}}]},
        "dataset: expected a mapping, got list",
    ),
    (
        {"streams": ["https://me:SECRET@host/set?token=SECRET"]},
        "streams[0]='https://host/set': expected a mapping",
    ),
    ({"batch_size": {"secret": "SECRET"}}, "batch_size: expected a whole number or null, got dict"),
    ({"decoders": {"a": 3}}, "decoders.a=3: a file cannot say it; pass an object to from_config"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error"), WRONG, ids=lambda value: str(value)[:40])
def test_mistakes_are_told_by_the_path_of_the_key(given, error):
    with pytest.raises(ConfigError) as caught:
        StreamingDataset.from_config(given)
    assert str(caught.value) == error


def test_a_key_like_no_other_is_told_with_all_that_there_are():
    with pytest.raises(ConfigError, match=r"^xyz: no such key; there are .*, batch_size, "):
        StreamingDataset.from_config({"xyz": 1})


def test_what_is_needed_is_asked_for():
    with pytest.raises(ConfigError, match=r"^out: missing. It is: A local path"):
        Writer.from_config({"columns": {"n": "int"}})


def test_objects_may_be_in_mappings(place):
    whole = StreamingDataset.from_config({"streams": [Stream(local=place)], "world": World()})
    assert whole.num_samples == 40


@pytest.mark.parametrize("streams", [[{"local": "set"}], {"a": {"local": "set"}}, ["set"], "set"])
def test_streams_as_arguments_are_objects(streams):
    with pytest.raises(
        ConfigError, match=r"^streams= takes a list of Stream objects, got (dict|str);"
    ):
        StreamingDataset.from_config({"batch_size": 4}, streams=streams)


class Untyped(StreamingDataset):
    def __init__(self, streams=None, batch_size=8, own=None, **kwargs):
        super().__init__(streams=streams, batch_size=batch_size, **kwargs)
        self.own = own


def test_subclasses_need_not_repeat_types(place, monkeypatch):
    monkeypatch.setenv("B", "4")
    given = {"streams": {"a": {"local": place}}, "batch_size": "${env:B}", "own": ["x"]}
    dataset = Untyped.from_config(given)
    assert (dataset.size, dataset.batch_size, dataset.own) == (40, 4, ["x"])
    with pytest.raises(ConfigError, match=r"^streams\.a\.locl: no such key"):
        Untyped.from_config({"streams": {"a": {"locl": place}}})


def test_variables_of_the_environment_are_filled_in(place, monkeypatch):
    monkeypatch.setenv("ROOT_OF_SET", place.removesuffix("/set"))
    monkeypatch.setenv("MIX", "TRUE")
    given = {
        "local": "${env:ROOT_OF_SET}/${env:NOT_SET_NAME:-set}",
        "batch_size": "${env:NOT_SET_NAME:-4}",
        "shuffle": "${env:MIX}",
        "download_timeout": "${env:NOT_SET_NAME:-2.5}",
        "cache_limit": None,
    }
    dataset = StreamingDataset.from_config(given)
    assert (dataset.batch_size, dataset.streams[0].download_timeout) == (4, 2.5)
    assert type(dataset.streams[0].local) is str
    assert [sample["n"] for sample in dataset] != list(range(40))
    assert config.load({"a": ["$${env:X}", "$5"]}) == {"a": ["${env:X}", "$5"]}


@pytest.mark.parametrize(("data", "filled"), [(None, "a/x-{00..12}.tar"), ("b/y", "b/y")])
def test_a_default_may_have_pairs_of_braces(monkeypatch, data, filled):
    monkeypatch.delenv("DATA_OF_TEST", raising=False)
    if data is not None:
        monkeypatch.setenv("DATA_OF_TEST", data)
    text = "${env:DATA_OF_TEST:-a/x-{00..12}.tar}"
    assert config.load({"remote": text, "split": f"{text}-{text}"}) == {
        "remote": filled,
        "split": f"{filled}-{filled}",
    }


@pytest.mark.parametrize(("text", "version"), [("1", 1), ("v1", "v1"), ("²", "²")])
def test_a_variable_is_a_number_where_numbers_and_text_are_allowed(monkeypatch, text, version):
    monkeypatch.setenv("V", text)
    given = {"remote": "memory://x", "version": "${env:V}"}
    assert Stream.from_config(given).version == version


@pytest.mark.parametrize(("text", "number"), [("5", 5), ("0.5", 0.5), ("5e0", 5.0)])
def test_a_variable_is_a_whole_number_where_any_number_is_allowed(monkeypatch, text, number):
    monkeypatch.setenv("N", text)
    repeat = Stream.from_config({"remote": "memory://x", "repeat": "${env:N}"}).repeat
    assert (type(repeat), repeat) == (type(number), number)


def test_a_variable_limits_errors_by_a_number_of_samples(place, monkeypatch):
    monkeypatch.setenv("N", "5")
    StreamingDataset.from_config(
        {"local": place, "on_error": "substitute", "max_errors": "${env:N}"}
    )


def test_texts_in_options_of_storages_are_plain(monkeypatch):
    monkeypatch.setenv("SECRET", "s")
    given = {"remote": "memory://x", "storage_options": {"a": {"b": ["${env:SECRET}"]}}}
    options = Stream.from_config(given).storage_options
    assert options == {"a": {"b": ["s"]}}
    assert type(options["a"]["b"][0]) is str


def test_a_variable_that_is_not_set_is_an_error_with_its_key_and_name():
    with pytest.raises(ConfigError, match=r"^streams\.a\.remote: the environment variable NOPE_"):
        StreamingDataset.from_config({"streams": {"a": {"remote": "s3://${env:NOPE_}/x"}}})
    with pytest.raises(ConfigError, match=r"^remote: \$\{HOME\} has no meaning"):
        StreamingDataset.from_config({"remote": "${HOME}"})


@pytest.mark.parametrize(
    "text", ["${env:A:-${env:B}}", "${env:A", "a${", "${env:A:-${x}", "${env:A:-{a,{b}}}"]
)
def test_references_with_an_open_brace_are_refused(text):
    with pytest.raises(
        ConfigError, match=r"^writer\.out: \$\{.* has no meaning; write \$\{env:NAME}"
    ):
        Writer.from_config({"writer": {"out": text, "columns": {"n": "int"}}})


def test_errors_do_not_show_what_is_in_variables(monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    with pytest.raises(ConfigError, match=r"^batch_size='\$\{env:SECRET\}': expected a whole"):
        StreamingDataset.from_config({"batch_size": "${env:SECRET}"})
    with pytest.raises(ConfigError, match=r"^dataset='\$\{env:SECRET\}': expected a mapping$"):
        StreamingDataset.from_config({"dataset": "${env:SECRET}"})


def test_what_is_no_config_is_not_shown_where_it_may_hold_a_secret():
    url = "https://me:SECRET@host/config.yaml?token=SECRET"
    expected = r"^config https://host/config\.yaml: expected a path on this machine$"
    with pytest.raises(ConfigError, match=expected):
        config.load(url)
    with pytest.raises(
        ConfigError, match=r"^config: expected a mapping, or the path .*, got list$"
    ):
        config.load([{"remote": url}])


def test_a_loaded_config_is_not_filled_in_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSWORD", "a${env:NOPE_}b")
    given = {"local": "$${env:NOPE_}", "storage_options": {"password": "${env:PASSWORD}"}}
    expected = {"local": "${env:NOPE_}", "storage_options": {"password": "a${env:NOPE_}b"}}
    assert config.load(config.load(given)) == expected
    result = checked(tmp_path, {"dataset": {**given, "remote": "memory://nowhere/x"}})
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.toml", "x = ", "not TOML"),
        ("a.toml", ".".join("a" * 20_000) + " = 1", r"a\.toml: a key has more than 100 parts"),
        ("a.toml", '"=".' * 2000 + "a = 1", r"a\.toml: a key has more than 100 parts"),
        ("a.json", "{", "not JSON"),
        ("a.json", '{"local": "a", "local": "b"}', "the key 'local' is there twice"),
        ("a.json", "[1]", "expected a mapping"),
        ("a.yaml", "a: [", "not YAML"),
        ("a.yaml", LAUGHS, "more than 1000000 values"),
        ("a.yaml", "a: &a [*a]", "more than 1000000 values"),
        ("a.yaml", "local: a\nlocal: b\n", "the key 'local' is there twice"),
        ("a.yaml", "local: !!python/object:os.system x\n", "not YAML"),
        pytest.param(
            "a.toml", f"a = {'1' * 5000}", "cannot be read: ValueError: Exceeds", id="toml-digits"
        ),
        pytest.param(
            "a.json", f"[{'1' * 5000}]", "cannot be read: ValueError: Exceeds", id="json-digits"
        ),
        pytest.param(
            "a.yaml", f"a: {'1' * 5000}", "cannot be read: ValueError: Exceeds", id="yaml-digits"
        ),
        ("a.yaml", "a: 2024-02-30", "a value cannot be read: ValueError: day is out of range"),
        ("a.yaml", "a: 0b_", "a value cannot be read: ValueError: invalid literal"),
        ("a.yaml", "a: !!int ''", "a value cannot be read: IndexError"),
        ("a.yaml", "a: !!bool maybe", "a value cannot be read: KeyError: 'maybe'"),
        ("a.yaml", "a: !!timestamp x", "a value cannot be read: AttributeError"),
        ("a.ini", "", r"expected a file of \.toml, \.yaml"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, name, text, error):
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=error):
        StreamingDataset.from_config(tmp_path / name)


def test_dots_in_values_and_comments_are_no_parts_of_keys(tmp_path):
    text, numbers = "a. " * 200, [0.5] * 200
    lines = [f"# {text}", f"a.b = {numbers}", f'c = "\'{text}"', f'd = """\n{text}""""']
    (tmp_path / "a.toml").write_text("\n".join(lines))
    expected = {"a": {"b": numbers}, "c": f"'{text}", "d": f'{text}"'}
    assert config.load(tmp_path / "a.toml") == expected


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    error = r"config .*a\.toml: no such file; looked for /.*a\.toml$"
    with pytest.raises(ConfigError, match=error):
        StreamingDataset.from_config(tmp_path / "a.toml")


def test_yaml_may_merge_and_replace(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(
        "dataset:\n  streams:\n    a: &a {local: x, proportion: 1}\n    b: {<<: *a, local: y}\n"
    )
    assert config.load(tmp_path / "a.yaml")["dataset"]["streams"] == {
        "a": {"local": "x", "proportion": 1},
        "b": {"local": "y", "proportion": 1},
    }


def test_yaml_may_merge_a_mapping_that_merges_another(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text(
        "<<: &b {<<: &a {x: 1, y: 1}, y: 2}\nz: *a\nown: *b\nchild: {<<: *b, x: 3}\n"
    )
    assert config.load(tmp_path / "a.yaml") == {
        "x": 1, "y": 2, "z": {"x": 1, "y": 1}, "own": {"x": 1, "y": 2}, "child": {"x": 3, "y": 2}
    }  # fmt: skip
    (tmp_path / "a.yaml").write_text("a: &a {x: 1, x: 2}\nb: {<<: *a}\n")
    with pytest.raises(ConfigError, match="the key 'x' is there twice"):
        config.load(tmp_path / "a.yaml")


def test_yaml_has_the_numbers_of_version_1_2(tmp_path):
    pytest.importorskip("yaml")
    (tmp_path / "a.yaml").write_text("a: [1e-3, -.5E2, 1.e+3, 1.5, 7]\nb: [1e, e5, 1e5x, '1e3']\n")
    assert config.load(tmp_path / "a.yaml") == {
        "a": [0.001, -50.0, 1000.0, 1.5, 7],
        "b": ["1e", "e5", "1e5x", "1e3"],
    }
    (tmp_path / "b.yaml").write_text("local: a\non_error: substitute\nmax_errors: 1e-3\n")
    StreamingDataset.check_config(tmp_path / "b.yaml")


def test_yaml_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"pip install 'streamplug\[yaml\]'"):
        config.load(tmp_path / "a.yaml")


CLASSES = {"dataset": StreamingDataset, "writer": Writer}


@pytest.mark.parametrize("cls", [StreamingDataset, Stream, Writer, World])
def test_every_parameter_is_described(cls):
    assert [name for name, parameter in parameters(cls).items() if not parameter.text] == []


@pytest.fixture
def schema():
    return pytest.importorskip("streamplug_tools.config_schema").json_schema(CLASSES)


def test_the_schema_has_what_the_classes_take(schema):
    found = schema["properties"]["dataset"]["properties"]
    assert set(parameters(StreamingDataset)) - set(found) == {"decoders"}
    assert found["shuffle_seed"]["default"] == 9176
    assert schema["properties"]["writer"]["required"] == ["out"]
    assert set(schema["$defs"]) == {"Stream", "World", "environment"}


# What only the classes themselves know: that a stream lies somewhere.
OF_SCHEMA = [given for given, error in WRONG if not error.startswith("streams[0]: a stream")]


@pytest.mark.parametrize("given", OF_SCHEMA, ids=lambda value: str(value)[:40])
def test_the_schema_refuses_what_is_refused(given, schema):
    jsonschema = pytest.importorskip("jsonschema")
    for whole in [given] if "dataset" in given else [given, {"dataset": given}]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(whole, schema)


def test_the_schema_takes_what_is_taken(schema):
    jsonschema = pytest.importorskip("jsonschema")
    given = {
        "streams": {"a": {"local": "x", "repeat": 2}},
        "batch_size": "${env:B}",
        "columns": None,
    }
    given |= {"cache_limit": "10gb", "curriculum": {"0": [1, 0.5]}, "storage_options": {"a": [1]}}
    writer = {"out": ["a", "s3://b"], "columns": {"n": "int"}, "size_limit": 5}
    jsonschema.validate({"dataset": given, "writer": writer, "$schema": "x"}, schema)
    jsonschema.validate(given, schema)


def test_commands_check_files_and_print_the_schema(place, tmp_path):
    pytest.importorskip("streamplug_tools")
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"dataset": {"local": place}}))
    result = CliRunner().invoke(main, ["config", "check", str(path), "--open"])
    assert (result.exit_code, result.stdout) == (0, f"{path}: dataset: OK\n")
    path.write_text(json.dumps({"local": place, "shuffle_alg": "x"}))
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.exit_code == 2
    mistake = "shuffle_alg: no such key. Did you mean 'shuffle_algo'?"
    assert result.stderr == f"error: config {path}: {mistake}\n"
    path.write_text("[]")
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.stderr.startswith(f"error: config {path}: expected a mapping")
    result = CliRunner().invoke(main, ["config", "schema"])
    assert json.loads(result.stdout)["properties"]["writer"]
    assert CliRunner().invoke(main, ["config", "schema", str(path)]).exit_code == 2
    assert CliRunner().invoke(main, ["config", "check"]).exit_code == 2


def test_a_file_may_be_checked_where_nothing_of_it_is_there(tmp_path):
    pytest.importorskip("streamplug_tools")
    path = tmp_path / "a.json"
    path.write_text(
        '{"dataset": {"remote": "memory://nowhere/x", "local": "y"}, "writer": {"size_limit": 9}}'
    )
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    missing = "writer.out: missing. It is: A local path, a URL, or a pair (local path, URL)."
    assert result.stderr == f"error: config {path}: {missing}\n"


# -- names in a config --------------------------------------------------------------------


RIGHT = {
    "dataset": {
        "remote": "memory://nowhere/set",
        "local": "never-made",
        "shuffle": True,
        "callbacks": ["log"],
        "validate_hash": "sha1",
    },
    "writer": {"out": "memory://nowhere/out", "columns": {"n": "int"}, "compression": "gz:3"},
}


def checked(tmp_path, config, *options):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(config))
    pytest.importorskip("streamplug_tools")
    return CliRunner().invoke(main, ["config", "check", str(path), *options])


MISSPELT = [
    ("dataset", {"shuffle_algo": "windw"}, "dataset: unknown shuffle 'windw'. Did you mean 'window'?"),
    ("dataset", {"shuffle_algo": "windw", "shuffle": False}, "dataset: unknown shuffle 'windw'. Did"),
    ("dataset", {"remote": "htp://host/set"}, "htp://host/set: unknown storage 'htp'. Did you mean 'http'?"),
    ("dataset", {"format": "parqet"}, "unknown format 'parqet'. Did you mean 'parquet'?"),
    ("dataset", {"callbacks": ["lgo"]}, "dataset: unknown callback 'lgo'. Did you mean 'log'?"),
    ("dataset", {"partition_algo": "elstic"}, "partition_algo='elstic': expected 'elastic', or an"),
    ("dataset", {"batching_method": "randm"}, "unknown order 'randm'. Did you mean 'random'?"),
    ("dataset", {"sampling_method": "fixt"}, "sampling_method='fixt': "),
    ("dataset", {"access": "shards"}, "unknown access 'shards'. Did you mean 'shard'?"),
    ("dataset", {"validate_hash": "sha11"}, "validate_hash='sha11': unknown hash"),
    ("dataset", {"cache_limit": "10gbb"}, "10gbb"),
    ("writer", {"compression": "gzz"}, "writer.compression: unknown compression 'gzz'. Did you mean 'gz'?"),
    ("writer", {"format": "msd"}, "writer.format: unknown format 'msd'. Did you mean 'mds'?"),
    ("writer", {"columns": {"n": "itn"}}, "writer.columns: column 'n': unknown encoding 'itn'. Did you"),
    ("writer", {"hashes": ["sha11"]}, "writer.hashes: "),
    ("writer", {"size_limit": "5 quarts"}, "writer.size_limit: size_limit='5 quarts'"),
    ("writer", {"out": ["x", "htp://host/x"]}, "writer.out: htp://host/x: unknown storage 'htp'"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "change", "said"), MISSPELT, ids=lambda v: str(v)[:50])
def test_a_misspelt_name_is_found_without_opening_anything(
    tmp_path, monkeypatch, section, change, said
):
    monkeypatch.chdir(tmp_path)
    result = checked(tmp_path, {**RIGHT, section: {**RIGHT[section], **change}})
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert said in result.stderr


def test_a_config_whose_names_are_right_is_checked_where_nothing_of_it_is_there(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = checked(tmp_path, RIGHT)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("dataset, writer: OK\n")
    assert [path.name for path in tmp_path.iterdir()] == ["train.json"]


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[dataset]\nremot = "x"\nbatch_size = "many"\n'
        'streams = [{remote = 3}, {remote = "x", chose = 4}]\n[writer]\ncolums = 3\n'
    )
    in_dataset = (
        "dataset.remot: no such key. Did you mean 'remote'?; "
        "also dataset.batch_size='many': expected a whole number or null; "
        "also dataset.streams[0].remote=3: expected text or a list or null; "
        "also dataset.streams[1].chose: no such key. Did you mean 'choose'?"
    )
    with pytest.raises(ConfigError) as caught:
        StreamingDataset.from_config(path)
    assert str(caught.value) == f"config {path}: {in_dataset}"
    with pytest.raises(ConfigError) as caught:
        Writer.check_config(path)
    missing = "writer.out: missing. It is: "
    assert str(caught.value).startswith(
        f"config {path}: writer.colums: no such key. Did you mean 'columns'?; also {missing}"
    )
    pytest.importorskip("streamplug_tools")
    result = CliRunner().invoke(main, ["config", "check", str(path)])
    assert result.exit_code == 2
    assert f"error: config {path}: {in_dataset}; also writer.colums: no such key" in result.stderr
