"""``streamplug explain`` tells of the order that a run has."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, Stream
from streamplug.cli import main
from streamplug.dataset import StreamingDataset
from streamplug.plan.state import unpack


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}, size_limit="1kb") as out:
        out.write_batch({"n": list(range(500))})
    return str(tmp_path / "set")


def run(*arguments):
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_state_tells_the_order(folder, tmp_path):
    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=5, batch_size=8)
    batches = dataset.batches()
    next(batches)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    expected = next(batches)["n"].tolist()
    code, output = run(folder, "--step", 1, "--state", saved, "--json")
    assert code == 0
    assert [use["sample"] for use in json.loads(output)] == expected
    code, output = run(folder, "--step", 1, "--state", saved, "--json", "--ranks", 4, "--rank", 2)
    assert [use["sample"] for use in json.loads(output)] == expected[2::4]


def test_options_tell_the_order(folder):
    arguments = (folder, "--batch-size", 8, "--shuffle", "window", "--seed", 7)
    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=7, batch_size=8)
    code, output = run(*arguments, "--step", 3, "--epoch", 2, "--json")
    assert code == 0
    samples = [use["sample"] for use in json.loads(output)]
    assert samples == [use.sample for use in dataset.explain(3, epoch=2)]
    code, output = run(*arguments, "--sample", samples[0], "--epoch", 2)
    assert code == 0
    use = dataset.where(samples[0], epoch=2)[0]
    assert output.split()[9:] == [str(value) for value in asdict(use).values()]


@pytest.mark.parametrize(
    "changes",
    [
        {"curriculum": {0: [1, 0], 3: [1, 2]}, "epoch_size": 160},
        {"batching_method": "stratified"},
        {"batching_method": "per_stream", "partition_algo": "orig"},
        {"batching_method": "stratified", "partition_algo": "relaxed", "epoch_size": 333},
        {"batching_method": "device_per_stream"},
    ],
)
def test_a_state_tells_of_a_mixture(folder, tmp_path, changes):
    pytest.importorskip("streamplug_mosaic")
    with MDSWriter(out=tmp_path / "more", columns={"n": "int"}) as out:
        out.write_batch({"n": list(range(1000, 1300))})
    places = [folder, str(tmp_path / "more")]
    streams = [Stream(local=place) for place in places]
    dataset = StreamingDataset(streams=streams, shuffle=True, batch_size=8, **changes)
    batches = dataset.batches()
    for _ in range(5):
        next(batches)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    expected = next(batches)["n"].tolist()
    code, output = run(*places, "--step", 5, "--state", saved, "--json")
    assert code == 0, output
    uses = json.loads(output)
    assert [use["index"] for use in uses if use["stream"]] == [
        n - 1000 for n in expected if n >= 1000
    ]
    assert [use["sample"] for use in uses if not use["stream"]] == [n for n in expected if n < 1000]
    code, output = run(folder, "--step", 1, "--state", saved)
    assert code == 2
    assert "streams" in output


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_at_a_planned_change_tells_of_it(folder, tmp_path, version):
    with MDSWriter(out=tmp_path / "more", columns={"n": "int"}) as out:
        out.write_batch({"n": list(range(1000, 1300))})
    places, curriculum = [folder, str(tmp_path / "more")], {0: [1, 0], 3: [0, 1]}
    dataset = StreamingDataset(
        streams=[Stream(local=place) for place in places],
        shuffle=True,
        batch_size=8,
        curriculum=curriculum,
        epoch_size=160,
    )
    batches = dataset.batches()
    for _ in range(3):
        next(batches)
    state = dataset.state_dict()
    if version == 1:
        changes = [{"step": step, "proportions": shares} for step, shares in curriculum.items()]
        past = {"curriculum": changes, "curriculum_changes": 2}
        state = {**unpack(state), "version": 1, "segments": None, **past}
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(state))
    for step in (2, 3):
        code, output = run(*places, "--step", step, "--state", saved, "--json")
        assert code == 0, output
        samples = [use["sample"] for use in json.loads(output)]
        assert samples == [use.sample for use in dataset.explain(step)]


@pytest.mark.parametrize("method", ["random", "stratified"])
def test_a_state_tells_of_changed_proportions(folder, tmp_path, method):
    with MDSWriter(out=tmp_path / "more", columns={"n": "int"}) as out:
        out.write_batch({"n": list(range(1000, 1300))})
    places = [folder, str(tmp_path / "more")]
    streams = [Stream(local=place, proportion=n) for place, n in zip(places, (0.3, 0.61))]
    dataset = StreamingDataset(
        streams=streams, shuffle=True, batch_size=8, epoch_size=99, batching_method=method
    )
    next(dataset.batches())
    dataset.load_state_dict(dataset.state_dict())
    dataset.set_proportions([1, 3])
    next(iter(dataset.batches()))
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    for step in (0, 1, 5):
        code, output = run(*places, "--step", step, "--state", saved, "--json")
        assert code == 0, output
        assert [use["sample"] for use in json.loads(output)] == [
            use.sample for use in dataset.explain(step, epoch=0)
        ]


def test_what_has_no_meaning_is_refused(folder):
    code, output = run(folder)
    assert code == 2
    assert "give either --step or --sample" in output
    code, output = run(folder, "--step", 0, "--ranks", 3, "--nodes", 2)
    assert (code, output) == (2, "error: --ranks=3 is not a multiple of --nodes=2\n")
    code, output = run(folder, "--step", 1000)
    assert (code, output) == (2, "error: --step=1000: epoch 0 has the steps 0 to 499\n")


def test_options_without_an_effect_are_refused(folder, tmp_path):
    dataset = StreamingDataset(local=folder, batch_size=8)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    for options, words in (
        (("--sample", 3, "--rank", 0), "--rank: only with --step"),
        (("--step", 0, "--block-size", 9), "--block-size: only with --shuffle"),
        (
            ("--step", 0, "--state", saved, "--shuffle", "global", "--seed", 3),
            "--shuffle, --seed: not with a --state that defines it",
        ),
    ):
        code, output = run(folder, *options)
        assert code == 2
        assert f"Error: {words}\n" in output


def test_options_complete_a_state_that_lacks_them(folder, tmp_path):
    saved = tmp_path / "state.json"
    state = {"epoch": 0, "sample_in_epoch": 8, "num_canonical_nodes": 1, "shuffle_seed": 9176}
    saved.write_text(json.dumps(state))
    code, output = run(
        folder, "--step", 1, "--state", saved, "--shuffle", "global", "--batch-size", 8
    )
    assert code == 0, output
    code, output = run(folder, "--step", 1, "--state", saved, "--canonical-nodes", 2)
    assert code == 2
    assert "Error: --canonical-nodes: not with a --state that defines it\n" in output


def test_errors_advise_what_the_command_can_do(tmp_path):
    code, output = run(tmp_path, "--step", 0)
    assert code == 2
    assert output.endswith("its writer has not finished; check the location\n")


def test_errors_name_the_options(folder):
    arguments = ("--canonical-nodes", 7, "--nodes", 2, "--ranks", 2, "--partition", "orig")
    code, output = run(folder, "--step", 0, *arguments)
    assert code == 2
    assert "error: --canonical-nodes=7 and 2 nodes: --partition='orig' needs" in output
    code, output = run(folder, "--step", 0, "--shuffle", "window", "--seed", -1)
    assert code == 2
    assert "Invalid value for '--seed': -1 is not in the range x>=0" in output


def test_a_state_tells_what_an_epoch_takes(folder, tmp_path):
    arguments = {"shuffle": True, "batch_size": 8, "epoch_size": 80, "sampling_method": "fixed"}
    dataset = StreamingDataset(local=folder, **arguments)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    code, output = run(folder, "--step", 9, "--state", saved, "--json")
    assert code == 0
    assert [u["sample"] for u in json.loads(output)] == [u.sample for u in dataset.explain(9)]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ("[1]", "holds no state: save the result of state_dict()")],
)
def test_a_file_that_holds_no_state_is_refused(folder, tmp_path, text, message):
    saved = tmp_path / "state.json"
    saved.write_text(text)
    code, output = run(folder, "--step", 0, "--state", saved)
    assert code == 2
    assert output.startswith(f"error: {saved} {message}")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"batch_budget": 3}, "batch_budget=3"),
        ({"batch_options": []}, "batch_options=[]"),
        ({"global_batch": "x"}, "global_batch='x'"),
        ({"curriculum": 3}, "curriculum=3"),
        ({"curriculum": [1]}, "1 in its curriculum"),
        ({"curriculum": [{"step": []}]}, "{'step': []} in its curriculum"),
        ({"segments": 3}, "segments=3"),
        ({"segments": [1]}, "1 in its segments"),
        ({"choose": [1], "shares": 3}, "shares=3"),
    ],
)
def test_a_state_with_values_of_another_type_is_refused(folder, tmp_path, state, message):
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(state))
    code, output = run(folder, "--step", 0, "--state", saved)
    assert code == 2
    assert output == f"error: the state has {message}: it was changed\n"


@pytest.mark.parametrize("batch", [8, "${env:BATCH_OF_TEST}"])
def test_a_config_of_samples_tells_the_order_too(folder, tmp_path, monkeypatch, batch):
    monkeypatch.setenv("BATCH_OF_TEST", "8")
    path = tmp_path / "train.json"
    given = {"local": folder, "shuffle": True, "shuffle_seed": 7}
    path.write_text(json.dumps({"dataset": given, "loader": {"batch_size": batch}}))
    dataset = StreamingDataset(batch_size=8, **given)
    code, output = run(path, "--step", 3, "--json")
    assert [use["sample"] for use in json.loads(output)] == [u.sample for u in dataset.explain(3)]
    code, output = run(path, "--step", 3, "--ranks", 2, "--rank", 1, "--json")
    assert [use["rank"] for use in json.loads(output)] == [1] * 8
    code, output = run(path, "--step", 3, "--seed", 4, "--storage-options", "a=1")
    assert code == 2
    assert "--seed, --storage-options: only for a URL; set it in the config" in output


def test_a_misspelt_key_of_the_loader_is_refused(folder, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "train.json"
    config = {"dataset": {"local": folder, "batch_size": 8}, "loader": {"num_worker": 2}}
    path.write_text(json.dumps(config))
    code, output = run(path, "--step", 3)
    assert (code, output) == (
        2,
        "error: loader.num_worker: no such key. Did you mean 'num_workers'?\n",
    )


def test_rows_of_tokens_name_the_distribution_that_reads_them(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "streamplug_tokens.dataset", None)
    monkeypatch.setitem(sys.modules, "streamplug_tokens", None)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps({"version": 1, "tokens": {"view": "TokenBlocks"}}))
    config = tmp_path / "train.json"
    config.write_text(json.dumps({"dataset": {"local": folder, "tokens": {}}}))
    for arguments in ((folder, "--state", saved), (config,)):
        code, output = run(*arguments, "--step", 0)
        assert code == 2
        assert output.startswith(
            "error: rows of tokens are read by streamplug-tokens, which is not"
        )
