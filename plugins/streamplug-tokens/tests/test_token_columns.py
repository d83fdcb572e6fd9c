"""Rows with further columns of one number for each token: labels, masks and weights."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_tokens.dataset import TokenDataset
from streamplug_tokens.options import TokenBlocks, TokenPacks

import streamplug
from streamplug import MDSWriter, Stream, World
from streamplug.builtin.encodings.array import NDArrayEncoding
from streamplug.errors import ConfigError, DataError, EncodeError, StateError

SPECS = {"tokens": "ndarray:uint16", "labels": "ndarray:int64", "weights": "ndarray:float32"}
Document = dict[str, Any]


def documents(lengths: list[int]) -> list[Document]:
    """Return documents in which a token's label is 1,000 more than it, and its weight a tenth."""
    starts = np.cumsum([0, *lengths])
    values = [np.arange(start, start + n) + 1 for start, n in zip(starts, lengths)]
    return [
        {
            "tokens": tokens.astype(np.uint16),
            "labels": tokens + 1000,
            "weights": (tokens / 10).astype(np.float32),
        }
        for tokens in values
    ]


def write(out: Path, samples: list[Document], specs: dict[str, str] = SPECS, **options: Any) -> str:
    with MDSWriter(
        out=out, columns=specs, **{"size_limit": 1200, "exist_ok": True, **options}
    ) as writer:
        for sample in samples:
            writer.write({name: sample[name] for name in specs})
    return str(out)


def assert_aligned(row: Document, padding: dict[str, float]) -> None:
    """Check that the columns of a row belong to its tokens, which are 0 where the row is padded."""
    tokens = row["tokens"].astype(np.int64)
    is_token = tokens > 0
    assert row["labels"].dtype == np.int64
    assert row["weights"].dtype == np.float32
    assert row["labels"].tolist() == np.where(is_token, tokens + 1000, padding["labels"]).tolist()
    weights = np.where(is_token, tokens / 10, padding["weights"]).astype(np.float32)
    assert row["weights"].tolist() == weights.tolist()


@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_columns_are_those_of_the_tokens_beside_them(tmp_path, data):
    lengths = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=20))
    options = {
        "column": "tokens",
        "length": data.draw(st.integers(1, 30)),
        "columns": ["labels", "weights"],
        "separator": data.draw(st.none() | st.just(0)),
        "extras": data.draw(st.sampled_from([(), ("targets",), ("documents", "mask")])),
    }
    weight = data.draw(st.sampled_from([0, 0.5]))
    options["column_padding"] = {"weights": weight} if weight else {}
    if data.draw(st.booleans()):
        view = TokenPacks(**options)
    else:
        view = TokenBlocks(
            **options,
            cross_documents=data.draw(st.booleans()),
            remainder=data.draw(st.sampled_from(["drop", "pad"])),
        )
    codec = data.draw(st.sampled_from([None, "gz"]))
    out = tmp_path / "set"
    folder = write(out, documents(lengths), compression=codec)
    dataset = TokenDataset(tokens=view, local=folder, batch_size=2)
    plain = TokenDataset(
        tokens=type(view)(**{**options, "columns": (), "column_padding": {}}), local=folder
    )
    if isinstance(view, TokenPacks):
        assert [row["tokens"].tolist() for row in dataset[:]] == [
            row["tokens"].tolist() for row in plain[:]
        ]
    for row in dataset[:]:
        assert list(row) == ["tokens", "labels", "weights", *view.extras]
        assert_aligned(row, {"labels": -100, "weights": weight})


@pytest.mark.parametrize("options", [{}, {"access": "range"}, {"select": range(1, 40, 2)}])
@pytest.mark.parametrize("specs", [SPECS, {**SPECS, "weights": "ndarray", "tokens": "bytes"}])
def test_columns_are_read_in_any_way(tmp_path, options, specs):
    samples = documents([7, 30, 0, 12] * 10)
    if specs["tokens"] == "bytes":
        samples = [{**sample, "tokens": sample["tokens"].tobytes()} for sample in samples]
    dtypes = {} if specs is SPECS else {"column_dtypes": {"weights": np.float32}, "dtype": "uint16"}
    view = TokenPacks(column="tokens", length=64, columns=["labels", "weights"], **dtypes)
    folder = write(tmp_path / "set", samples, specs)
    dataset = TokenDataset(
        tokens=view, remote=folder, local=str(tmp_path / "cache"), batch_size=2, **options
    )
    rows = dataset[:]
    assert len(rows) > 3
    for row in rows:
        assert_aligned(row, {"labels": -100, "weights": 0})


def test_formats_without_values_in_memory_decode_each_document_once(tmp_path, monkeypatch):
    pytest.importorskip("streamplug_webdataset")
    columns = {"__key__": "str", "tokens.bin": "bytes", "mask.bin": "bytes"}
    out = tmp_path / "set"
    with streamplug.Writer(out=out, columns=columns, format="webdataset") as writer:
        for n in range(4):
            tokens = np.arange(8 * n + 1, 8 * n + 9, dtype="<u2")
            mask = (tokens % 2).astype(np.uint8).tobytes()
            writer.write({"__key__": str(n), "tokens.bin": tokens.tobytes(), "mask.bin": mask})
    view = TokenBlocks(
        column="tokens.bin",
        length=6,
        dtype="uint16",
        columns=["mask.bin"],
        column_dtypes={"mask.bin": "bool"},
    )
    dataset = TokenDataset(tokens=view, local=str(out))
    rows = dataset[:]
    assert rows[0]["mask.bin"].dtype == bool
    for row in rows:
        assert (row["mask.bin"] == row["tokens.bin"] % 2).all()


# -- configs, states, ranks ---------------------------------------------------


def test_a_config_names_columns(tmp_path):
    folder = write(tmp_path / "set", documents([9] * 20))
    tokens = {
        "column": "tokens",
        "length": 24,
        "documents_per_group": 8,
        "columns": ["labels", "weights"],
        "column_padding": {"labels": -1, "weights": 0.5},
        "long_documents": "truncate",
    }
    dataset = streamplug.StreamingDataset.from_config(
        {"dataset": {"local": folder, "batch_size": 2, "tokens": tokens}}
    )
    assert dataset.tokens == TokenPacks(**tokens)
    assert hash(dataset.tokens) == hash(TokenPacks(**tokens))
    for row in dataset[:]:
        assert_aligned(row, {"labels": -1, "weights": 0.5})
    with pytest.raises(ConfigError, match=r"^tokens\.column_padding\.labels='x': expected"):
        streamplug.StreamingDataset.from_config(
            {"local": folder, "tokens": {**tokens, "column_padding": {"labels": "x"}}}
        )


def test_every_world_reads_the_same_columns_and_resumes(tmp_path):
    folder = write(tmp_path / "set", documents([5, 17, 30, 2] * 15))
    view = TokenPacks(column="tokens", length=32, columns=["labels", "weights"])

    def opened(ranks: int, rank: int, view: Any = view) -> TokenDataset:
        world = World(ranks_per_node=ranks, rank=rank)
        options = {"local": folder, "batch_size": 4 // ranks, "shuffle": True, "world": world}
        return TokenDataset(tokens=view, **options)

    def steps(dataset: TokenDataset) -> list[list[Any]]:
        return [
            [row.tolist() for row in np.hstack([batch["tokens"], batch["labels"]])]
            for batch in dataset.batches()
        ]

    alone = [sorted(step) for step in steps(opened(1, 0))]
    parts = [steps(opened(2, rank)) for rank in range(2)]
    assert [sorted(chain(*step)) for step in zip(*parts, strict=True)] == alone
    dataset = opened(1, 0)
    loop = dataset.batches()
    _ = [next(loop) for _ in range(2)]
    state = json.loads(json.dumps(dataset.state_dict()))
    two = [opened(2, rank) for rank in range(2)]
    for each in two:
        each.load_state_dict(state)
    rest = [steps(each) for each in two]
    assert [sorted(chain(*step)) for step in zip(*rest, strict=True)] == alone[2:]
    # Rows are the same with other columns.
    other = opened(1, 0, TokenPacks(column="tokens", length=32, columns=["weights"]))
    other.load_state_dict(state)
    assert len(list(other.batches())) == len(alone) - 2
    # With other documents in them, they are not.
    cut = opened(1, 0, TokenPacks(column="tokens", length=32, long_documents="drop"))
    with pytest.raises(StateError, match="long_documents: saved 'split', now 'drop'"):
        cut.load_state_dict(state)


def test_states_of_earlier_versions_name_the_same_rows():
    # What states were made of before rows had further columns.
    assert TokenBlocks(column="tokens", length=32, extras=["mask"]).row_key() == (
        "TokenBlocks(column='tokens', length=32, separator=None, padding=0, dtype=None, extras=(), "
        "stride=None, cross_documents=True, remainder='drop')"
    )
    packs = TokenPacks(column="tokens", length=32, columns=["labels"], column_padding={"labels": 0})
    assert packs.row_key() == (
        "TokenPacks(column='tokens', length=32, separator=None, padding=0, dtype=None, extras=(), "
        "documents_per_group=1024)"
    )
    assert "long_documents='drop'" in (
        TokenPacks(column="tokens", length=32, long_documents="drop").row_key()
    )


# -- documents longer than a row, and empty ones ------------------------------


@pytest.mark.parametrize("spec", ["ndarray:uint16", "ndarray:uint16:20"])
def test_packs_split_truncate_or_drop_long_documents(tmp_path, spec):
    lengths = [20] * 4 if spec.endswith("20") else [3, 20, 8, 9, 0, 16]
    samples = documents(lengths)
    folder = write(tmp_path / "set", samples, {**SPECS, "tokens": spec})

    def parts(long_documents: str, **options: Any) -> list[list[int]]:
        view = TokenPacks(
            column="tokens", length=8, columns=["labels", "weights"], long_documents=long_documents,
            **options,
        )  # fmt: skip
        found: dict[tuple[int, int], list[int]] = {}
        dataset = TokenDataset(tokens=view, local=folder)
        for number, row in enumerate(dataset[:]):
            assert_aligned(row, {"labels": -100, "weights": 0})
            for span in dataset.document_spans(number):
                tokens = row["tokens"][span.offset : span.offset + span.end - span.begin]
                found[span.document, span.begin] = tokens.tolist()
        return [tokens for _, tokens in sorted(found.items()) if tokens]

    whole = [sample["tokens"].tolist() for sample in samples if len(sample["tokens"])]
    assert parts("split") == [doc[at : at + 8] for doc in whole for at in range(0, len(doc), 8)]
    assert parts("truncate") == [doc[:8] for doc in whole]
    if spec == "ndarray:uint16":
        assert parts("drop") == [doc for doc in whole if len(doc) <= 8]
        # The separator counts, too.
        assert parts("drop", separator=0) == [doc for doc in whole if len(doc) <= 7]


def test_a_document_longer_than_a_row_is_named(tmp_path):
    folder = write(tmp_path / "set", documents([30, 5, 8] * 30))
    view = TokenPacks(column="tokens", length=16, long_documents="raise")
    text = (
        r"set/index\.json: shard 0 \(shard\.00000\.mds\): sample 0, column 'tokens': 30 tokens, with .*"
        r"length=16; 30 documents are too long: give a larger length=, or long_documents="
    )
    with pytest.raises(DataError, match=text):
        TokenDataset(tokens=view, local=folder)
    short = [n for n in range(90) if n % 3]
    assert TokenDataset(tokens=view, local=folder, select=short).size
    text = r"shard 16 \(shard\.00016\.mds\): sample 0, .*; 1 documents are"
    with pytest.raises(DataError, match=text):
        TokenDataset(tokens=view, local=folder, select=[*short[:30], 48])


def test_documents_without_tokens_are_in_no_row(tmp_path):
    folder = write(tmp_path / "set", documents([0, 4, 0, 0, 3, 0]))
    view = TokenPacks(column="tokens", length=8, columns=["labels", "weights"])
    [row] = TokenDataset(tokens=view, local=folder)[:]
    assert row["labels"].tolist() == [*range(1001, 1008), -100]
    assert sorted(set(row["documents"].tolist())) == [-1, 1, 4]
    empty = TokenDataset(tokens=view, local=write(tmp_path / "none", documents([0, 0])))
    assert empty.size == 0
    with pytest.raises(ConfigError, match="no samples"):
        next(iter(empty))


# -- what is refused ----------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gz"])
@pytest.mark.parametrize("view", [TokenBlocks, TokenPacks])
def test_columns_of_another_length_than_the_tokens_are_named(tmp_path, view, codec):
    samples = documents([6, 5, 7, 4])
    samples[2]["labels"] = samples[2]["labels"][:-1]
    folder = write(tmp_path / "set", samples, compression=codec)
    dataset = TokenDataset(tokens=view(column="tokens", length=4, columns=["labels"]), local=folder)
    text = (
        r"shard 0 \(shard\.00000\.mds\): sample 2, column 'labels': 6 numbers for the 7 tokens in column "
        r"'tokens'; write one for each token"
    )
    with pytest.raises(DataError, match=text):
        _ = dataset[:]


def test_columns_that_are_not_one_dimensional_are_named(tmp_path):
    samples = documents([6, 5])
    samples[1]["weights"] = np.ones((5, 2), np.float32)
    view = TokenBlocks(column="tokens", length=4, columns=["weights"])
    dataset = TokenDataset(tokens=view, local=write(tmp_path / "set", samples))
    with pytest.raises(
        DataError, match=r"sample 1, column 'weights': float32 \(5, 2\) where a one-"
    ):
        _ = dataset[:]


Shifted = type("Shifted", (NDArrayEncoding,), {"decode": lambda self, data: data})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"columns": ["lables"]}, "'lables'"),
        ({"columns": ["name"]}, "column 'name', 'str': numbers are read of 'bytes' or one-dim"),
        (
            {"columns": ["any"]},
            r"column 'any', 'ndarray': does not say .* pass column_dtypes\['any'\]=",
        ),
        (
            {"columns": ["any"], "column_dtypes": {"any": "float23"}},
            r"column_dtypes\['any'\]='float23': expected the name of a dtype",
        ),
        (
            {"columns": ["any"], "column_dtypes": {"any": ">f4"}},
            r"column_dtypes\['any'\]='>f4': .* little-endian byte order",
        ),
        (
            {"columns": ["labels"], "column_dtypes": {"labels": "int32"}},
            r"has numbers of int64, not column_dtypes\['labels'\]='int32'",
        ),
        (
            {"columns": ["small"]},
            r"column 'small': its padding, 300, is no uint8; give column_padding=\{'small'",
        ),
    ],
)
def test_columns_without_numbers_for_tokens_are_refused(tmp_path, options, match):
    specs = {**SPECS, "name": "str", "any": "ndarray", "small": "ndarray:uint8"}
    sample = {**documents([4])[0], "name": "a", "any": np.ones(4), "small": np.ones(4, np.uint8)}
    folder = write(tmp_path / "set", [sample], specs)
    if options["columns"] == ["small"]:
        options = {**options, "column_padding": {"small": 300}}
    with pytest.raises(ConfigError, match=match):
        TokenDataset(tokens=TokenBlocks(column="tokens", length=2, **options), local=folder)


def test_values_of_another_dtype_than_the_one_asked_for_are_named(tmp_path):
    sample = {**documents([4])[0], "any": np.ones(4)}
    folder = write(tmp_path / "set", [sample], {**SPECS, "any": "ndarray"})
    view = TokenBlocks(column="tokens", length=2, columns=["any"], column_dtypes={"any": "float32"})
    with pytest.raises(DataError, match=r"sample 0, column 'any': float64 \(4,\) where"):
        _ = TokenDataset(tokens=view, local=folder)[:]


def test_tokens_beyond_the_dtype_are_refused_as_they_are_written(tmp_path):
    with MDSWriter(out=tmp_path / "set", columns={"tokens": "ndarray:uint16"}) as out:
        with pytest.raises(EncodeError, match=r"'tokens'.*uint16"):
            out.write({"tokens": np.array([1, 70_000])})
        out.write({"tokens": np.array([1, 2], np.uint16)})


def test_decoders_that_change_columns_are_refused(tmp_path):
    view = TokenBlocks(column="tokens", length=2, columns=["labels"])
    decoders: dict[str, Any] = {"labels": lambda _: Shifted.from_spec("int64")}
    with pytest.raises(ConfigError, match=r"column 'labels'.*Shifted has a decode\(\) of its own"):
        TokenDataset(tokens=view, local=write(tmp_path / "set", documents([4])), decoders=decoders)


def test_streams_with_columns_of_different_dtypes_are_refused(tmp_path):
    samples = documents([4])
    one = write(tmp_path / "one", samples)
    samples[0]["weights"] = samples[0]["weights"].astype(np.float64)
    other = write(tmp_path / "other", samples, {**SPECS, "weights": "ndarray:float64"})
    view = TokenBlocks(column="tokens", length=2, columns=["weights"])
    with pytest.raises(ConfigError, match=r"'weights'.*different dtypes.*float32.*float64"):
        TokenDataset(tokens=view, streams=[Stream(local=one), Stream(local=other)])


def test_columns_that_a_view_adds_to_the_tokens_are_refused(tmp_path):
    views = pytest.importorskip("streamplug_views")
    samples = documents([4, 3])
    one = write(tmp_path / "one", samples, {"tokens": SPECS["tokens"]})
    other = write(tmp_path / "other", samples, {"labels": SPECS["labels"]})
    views.View.of(one).add(other, columns=["labels"]).commit(str(tmp_path / "view"))
    tokens = TokenBlocks(column="tokens", length=2, columns=["labels"])
    with pytest.raises(ConfigError, match=r"'labels' is stored in .*other.*view compact"):
        TokenDataset(tokens=tokens, remote=str(tmp_path / "view"))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"columns": "labels"}, "columns='labels': a list of names"),
        ({"columns": [1]}, r"columns=\[1\]: a list of names"),
        ({"columns": ["tokens"]}, "another column 'tokens'"),
        ({"columns": ["mask"], "extras": ["mask"]}, "another column 'mask'"),
        ({"columns": ["labels", "labels"]}, "another column 'labels'"),
        ({"column_padding": {"labels": 0}}, "column_padding: 'labels' is none of columns="),
        ({"column_dtypes": {"labels": "int8"}}, "column_dtypes: 'labels' is none of columns="),
        ({"columns": ["labels"], "column_padding": -100}, "column_padding=-100: a mapping"),
        (
            {"columns": ["labels"], "column_padding": {"labels": "0"}},
            r"column_padding\['labels'\]='0': must be a number",
        ),
        ({"long_documents": "cut"}, "long_documents='cut': choose one of split, truncate, drop"),
    ],
)
def test_options_of_columns_without_meaning_are_refused(wrong, match):
    with pytest.raises(ConfigError, match=match) as caught:
        TokenPacks(**{"column": "tokens", "length": 8, "extras": [], **wrong})
    assert re.match(r"column|long_documents", str(caught.value))
