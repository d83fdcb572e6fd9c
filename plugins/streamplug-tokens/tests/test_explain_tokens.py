"""``streamplug explain`` lists the documents of rows of tokens."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from streamplug_tokens.dataset import TokenDataset

from streamplug import MDSWriter, TokenBlocks, TokenPacks
from streamplug.cli import main
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError


def run(*arguments):
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)])
    return result.exit_code, result.output


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
    TokenBlocks(column="tokens", length=32, cross_documents=False, remainder="pad"),
    TokenPacks(column="tokens", length=64, documents_per_group=16, separator=0),
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
            assert (code, "shuffle_seed: saved 9176, now 5" in output) == (2, True)
            continue
        assert code == 0, output
        documents = StreamingDataset(local=corpus)
        rows = [row_of(use, documents) for use in json.loads(output)]
        assert [row + [0] * (view.length - len(row)) for row in rows] == expected


def test_a_refused_state_says_in_words_what_differs(corpus, tmp_path):
    view = TokenBlocks(column="tokens", length=32, extras=["mask"])
    order = {"batch_size": 4, "shuffle": True, "shuffle_seed": 5}
    saved = tmp_path / "state.json"

    def refusal(place, dataset):
        saved.write_text(json.dumps(dataset.state_dict()))
        code, output = run(place, "--step", 1, "--state", saved)
        assert code == 2
        assert not re.search(r"\b[0-9a-f]{16}", output)  # no digests
        return " ".join(output.split())

    state = TokenDataset(tokens=view, local=corpus, **order)
    longer = config_of(tmp_path, corpus, TokenBlocks(column="tokens", length=48))
    assert "tokens.length: saved 32, now 48" in refusal(longer, state)
    packs = config_of(tmp_path, corpus, VIEWS[3])
    assert "tokens.view: saved 'TokenBlocks', now 'TokenPacks'" in refusal(packs, state)
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"dataset": {"local": corpus, **order}}))
    assert "tokens: saved rows by 'TokenBlocks', now samples as they are" in refusal(plain, state)
    selected = TokenDataset(tokens=view, local=corpus, select=range(30), **order)
    assert "other rows of stream 0 (from 0) are selected than in the state: saved of a select=" in (
        refusal(corpus, selected)
    )


@pytest.mark.parametrize("extras", [["mask"], ["documents", "positions"], []])
def test_a_config_with_other_extra_columns_explains_a_state(corpus, tmp_path, extras):
    order = {"batch_size": 4, "shuffle": True, "shuffle_seed": 5}
    views = [TokenBlocks(column="tokens", length=32, extras=e) for e in (["positions"], extras)]
    dataset = TokenDataset(tokens=views[0], local=corpus, **order)
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps(dataset.state_dict()))
    outputs = [
        run(place, "--step", 2, "--state", saved, "--json")
        for place in (corpus, config_of(tmp_path, corpus, views[1]))
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == 0
    assert [use["sample"] for use in json.loads(outputs[0][1])] == [
        use.sample for use in dataset.explain(2)
    ]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [(3, "tokens=3"), ({"view": "X"}, "describes no rows"), ({"view": "TokenPacks"}, "missing")],
)
def test_a_state_whose_tokens_mean_nothing_is_refused(corpus, tmp_path, tokens, message):
    saved = tmp_path / "state.json"
    saved.write_text(json.dumps({"version": 1, "tokens": tokens}))
    code, output = run(corpus, "--step", 0, "--state", saved)
    assert code == 2
    assert output.startswith("error: the state has tokens=")
    assert message in output


def test_a_row_that_does_not_exist_is_refused(corpus):
    dataset = TokenDataset(tokens=VIEWS[0], local=corpus)
    with pytest.raises(ConfigError, match=f"row={dataset.size}: there are the rows 0 to"):
        dataset.document_spans(dataset.size)
