"""``streamplug explain`` tells of the order that a run has."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
from click.testing import CliRunner

from streamplug import MDSWriter, Stream, TokenBlocks, TokenPacks
from streamplug.cli import main
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.tokens import TokenDataset


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
    assert code == 1
    assert "streams" in output


def test_what_has_no_meaning_is_refused(folder):
    code, output = run(folder)
    assert code == 2
    assert "give either --step or --sample" in output
    code, output = run(folder, "--step", 0, "--ranks", 3, "--nodes", 2)
    assert (code, output) == (1, "error: --ranks=3 is not a multiple of --nodes=2\n")
    code, output = run(folder, "--step", 1000)
    assert (code, output) == (1, "error: step=1000: epoch 0 has the steps 0 to 499\n")


def test_a_state_tells_what_an_epoch_takes(folder, tmp_path):
    arguments = {"shuffle": True, "batch_size": 8, "epoch_size": 80, "sampling_method": "fixed"}
    dataset = StreamingDataset(local=folder, **arguments)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    code, output = run(folder, "--step", 9, "--state", saved, "--json")
    assert code == 0
    assert [u["sample"] for u in json.loads(output)] == [u.sample for u in dataset.explain(9)]


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[1]", "holds no state: save what state_dict()")]
)
def test_a_file_that_holds_no_state_is_refused(folder, tmp_path, text, message):
    saved = tmp_path / "state.json"
    saved.write_text(text)
    code, output = run(folder, "--step", 0, "--state", saved)
    assert code == 1
    assert output.startswith(f"error: {saved} {message}")


# -- rows of tokens --------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(3)
    with MDSWriter(
        out=tmp_path / "corpus", columns={"tokens": "ndarray:uint16"}, size_limit="1kb"
    ) as out:
        for size in rng.integers(1, 90, 60).tolist():
            out.write({"tokens": rng.integers(1, 5000, size).astype(np.uint16)})
    return str(tmp_path / "corpus")


VIEWS = [
    TokenBlocks(column="tokens", length=32, separator=0),
    TokenBlocks(column="tokens", length=32, extras=["targets", "documents"], stride=20),
    TokenBlocks(column="tokens", length=32, across=False, short="pad"),
    TokenPacks(column="tokens", length=64, group=16, separator=0),
]


def config_of(folder, corpus, view):
    """Return the path of a config file about rows of tokens."""
    tokens = {name: getattr(view, name) for name in type(view).__dataclass_fields__}
    path = folder / "train.json"
    given = {"local": corpus, "batch_size": 4, "shuffle": True, "shuffle_seed": 5}
    path.write_text(json.dumps({"dataset": {**given, "tokens": tokens}}))
    return path


def row_of(use, documents):
    """Return the tokens of a row, put together from what is told of its documents."""
    row: list[int] = []
    for piece in use["documents"]:
        assert piece["offset"] == len(row)
        row += documents[piece["document"]]["tokens"][piece["begin"] : piece["end"]].tolist()
        row += [0] * piece["separator"]
    return row


@pytest.mark.parametrize("view", VIEWS, ids=["separated", "targets", "within", "packs"])
def test_a_config_of_token_rows_tells_the_documents_of_each_row(corpus, tmp_path, view):
    dataset = TokenDataset(tokens=view, local=corpus, batch_size=4, shuffle=True, shuffle_seed=5)
    documents = StreamingDataset(local=corpus)
    path = config_of(tmp_path, corpus, view)
    code, output = run(path, "--step", 2, "--json")
    assert code == 0, output
    uses = json.loads(output)
    assert [use["sample"] for use in uses] == [use.sample for use in dataset.explain(2)]
    for use in uses:
        row = row_of(use, documents)
        expected = dataset[use["sample"]]["tokens"].tolist()
        assert expected == row + [0] * (view.length - len(row))
        lies = [(d["stream"], d["shard"], d["file"], d["index"]) for d in use["documents"]]
        assert lies == [documents._reader.locate(d["document"]) for d in use["documents"]]
    code, output = run(path, "--step", 2)
    assert code == 0
    assert output.splitlines()[0].split()[-1] == "documents"
    first = uses[0]["documents"][0]
    assert f" {first['document']}[{first['begin']}:{first['end']}]" in output.splitlines()[1]
    assert len(re.findall(r"\d+\[\d+:\d+\]", output)) == sum(len(u["documents"]) for u in uses)


@pytest.mark.parametrize("view", VIEWS, ids=["separated", "targets", "within", "packs"])
def test_a_state_of_token_rows_tells_how_they_are_made(corpus, tmp_path, view):
    dataset = TokenDataset(tokens=view, local=corpus, batch_size=4, shuffle=True)
    loop = dataset.batches()
    next(loop)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    expected = next(loop)["tokens"].tolist()
    for place in (corpus, config_of(tmp_path, corpus, view)):
        code, output = run(place, "--step", 1, "--state", saved, "--json")
        if place != corpus:  # its seed is another one
            assert (code, "shuffle_seed: saved 9176, now 5" in output) == (1, True)
            continue
        assert code == 0, output
        documents = StreamingDataset(local=corpus)
        rows = [row_of(use, documents) for use in json.loads(output)]
        assert [row + [0] * (view.length - len(row)) for row in rows] == expected


def test_a_config_of_samples_tells_the_order_too(folder, tmp_path):
    path = tmp_path / "train.json"
    given = {"local": folder, "shuffle": True, "shuffle_seed": 7}
    path.write_text(json.dumps({"dataset": given, "loader": {"batch_size": 8}}))
    dataset = StreamingDataset(batch_size=8, **given)
    code, output = run(path, "--step", 3, "--json")
    assert [use["sample"] for use in json.loads(output)] == [u.sample for u in dataset.explain(3)]
    code, output = run(path, "--step", 3, "--ranks", 2, "--rank", 1, "--json")
    assert [use["rank"] for use in json.loads(output)] == [1] * 8
    code, output = run(path, "--step", 3, "--seed", 4, "--storage-options", "a=1")
    assert code == 2
    assert "--seed, --storage-options: for a URL; the config says it" in output


@pytest.mark.parametrize(
    ("tokens", "message"),
    [(3, "tokens=3"), ({"view": "X"}, "says of no rows"), ({"view": "TokenPacks"}, "missing")],
)
def test_a_state_whose_tokens_mean_nothing_is_refused(corpus, tmp_path, tokens, message):
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps({"version": 1, "tokens": tokens}))
    code, output = run(corpus, "--step", 0, "--state", saved)
    assert code == 1
    assert output.startswith("error: the state has tokens=")
    assert message in output


def test_a_row_that_does_not_exist_is_refused(corpus):
    dataset = TokenDataset(tokens=VIEWS[0], local=corpus)
    with pytest.raises(ConfigError, match=f"row={dataset.size}: there are the rows 0 to"):
        dataset.pieces(dataset.size)
