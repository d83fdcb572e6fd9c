"""Batches of sequences of tokens with labels, padded and for attention over varying lengths."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_packing import PackedSamples, PaddingCollator, VarlenCollator

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import ConfigError, DataError

COLUMNS = {"input_ids": "ndarray:uint16", "mask": "ndarray:uint8", "weights": "ndarray:float32"}


def samples(lengths: Any) -> list[dict[str, Any]]:
    """Return samples in which every third token is not trained on."""
    starts = np.cumsum([1, *lengths])
    tokens = [np.arange(start, start + n) for start, n in zip(starts, lengths)]
    return [
        {
            "input_ids": each.astype(np.uint16),
            "mask": (each % 3 != 0).astype(np.uint8),
            "weights": (each / 8).astype(np.float32),
            "id": number,
        }
        for number, each in enumerate(tokens)
    ]


def columns(batch: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [sample[name] for sample in batch] for name in batch[0]}


def labels_of(tokens: np.ndarray) -> list[int]:
    """Return the labels of one sequence: none for the first token."""
    labels = [token if token % 3 else -100 for token in tokens.tolist()]
    return [-100, *labels[1:]]


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8), data=st.data())
def test_sequences_follow_each_other_in_one_row(lengths, data):
    batch = samples(lengths)
    names = data.draw(st.sampled_from(["pack", "flash_attn", "transformers"]))
    collator = VarlenCollator(columns=["weights"], loss_mask="mask", names=names)
    form = data.draw(st.sampled_from([list, columns]))
    found = collator(form(batch))
    offsets, largest = {
        "pack": (["cu_seqlens"], ["max_seqlen"]),
        "flash_attn": (["cu_seqlens_q", "cu_seqlens_k"], ["max_seqlen_q", "max_seqlen_k"]),
        "transformers": (["cu_seq_lens_q", "cu_seq_lens_k"], ["max_length_q", "max_length_k"]),
    }[names]
    arrays = ["input_ids", "labels", "position_ids", "weights"]
    assert list(found) == [*arrays, *offsets, *largest, "id"]
    for name in offsets:
        assert found[name].dtype == np.int32
        assert found[name].tolist() == [0, *np.cumsum(lengths)]
    assert all(found[name] == max(lengths) and type(found[name]) is int for name in largest)
    total = sum(lengths)
    for name in arrays:
        assert found[name].shape == ((1, total) if names == "transformers" else (total,))
        assert found[name].dtype == (np.float32 if name == "weights" else np.int64)
    assert found["input_ids"].reshape(-1).tolist() == list(range(1, total + 1))
    labels = [label for sample in batch for label in labels_of(sample["input_ids"])]
    assert found["labels"].reshape(-1).tolist() == labels
    positions = [position for length in lengths for position in range(length)]
    assert found["position_ids"].reshape(-1).tolist() == positions
    assert list(found["id"]) == list(range(len(lengths)))


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    multiple=st.sampled_from([None, 1, 8]),
)
def test_sequences_are_padded_to_the_longest(lengths, multiple):
    batch = samples(lengths)
    collator = PaddingCollator(
        columns=["weights"],
        loss_mask="mask",
        padding=7,
        column_padding={"weights": 0.5},
        multiple_of=multiple,
    )
    found = collator(columns(batch))
    width = -(-max(lengths) // (multiple or 1)) * (multiple or 1)
    rows = zip(
        *(found[name].tolist() for name in ("input_ids", "labels", "position_ids", "weights"))
    )
    for sample, length, row, mask in zip(batch, lengths, rows, found["attention_mask"].tolist()):
        tokens, rest = sample["input_ids"], width - length
        assert row == (
            tokens.tolist() + [7] * rest,
            labels_of(tokens) + [-100] * rest,
            [*range(length)] + [0] * rest,
            sample["weights"].tolist() + [0.5] * rest,
        )
        assert mask == [1] * length + [0] * rest


def test_labels_may_be_stored_or_shifted():
    tokens = np.arange(1, 6)
    batch = [{"tokens": tokens, "labels": np.array([-100, -100, 3, 4, 5])}] * 2
    stored = {"column": "tokens", "labels": "labels"}
    varlen = VarlenCollator(**stored)(batch)["labels"]
    assert varlen.tolist() == [[-100, -100, 3, 4, 5] * 2]
    shifted = VarlenCollator(**stored, shift_labels=True, ignore_index=-1)(batch)["labels"]
    assert shifted.tolist() == [[-100, 3, 4, 5, -1] * 2]
    padded = PaddingCollator(column="tokens", shift_labels=True)([{"tokens": tokens}])["labels"]
    assert padded.tolist() == [[2, 3, 4, 5, -100]]


def test_collators_can_be_sent_to_workers():
    for collator in (PaddingCollator(columns=["a"]), VarlenCollator(names="pack")):
        assert pickle.loads(pickle.dumps(collator)) == collator
        assert hash(collator) == hash(pickle.loads(pickle.dumps(collator)))


# -- rows of tokens -----------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    out = tmp_path_factory.mktemp("collators") / "set"
    with MDSWriter(out=out, columns=COLUMNS) as writer:
        for sample in samples(np.random.default_rng(0).integers(1, 12, 40).tolist()):
            writer.write({name: sample[name] for name in COLUMNS})
    return str(out)


@pytest.fixture
def tokens():
    return pytest.importorskip("streamplug_tokens")


def test_packs_of_documents_are_their_sequences(corpus, tokens):
    options = {"column": "input_ids", "length": 16, "columns": ["mask", "weights"]}
    view = tokens.TokenPacks(**options, extras=["documents", "positions"])
    dataset = tokens.TokenDataset(tokens=view, local=corpus, batch_size=3)
    stored = StreamingDataset(local=corpus, batch_size=1)
    collator = VarlenCollator(loss_mask="mask")
    for rows in dataset.batches():
        documents = rows["documents"]
        numbers = [n for row in documents for n in dict.fromkeys(row[row >= 0].tolist())]
        expected = VarlenCollator(loss_mask="mask", columns=["weights"])(
            [stored[number] for number in numbers]
        )
        found = collator(rows)
        assert list(found) == list(expected)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), name
            assert getattr(found[name], "dtype", None) == getattr(values, "dtype", None)


def test_rows_of_one_document_are_padded_sequences(corpus, tokens):
    view = tokens.TokenBlocks(
        column="input_ids",
        length=16,
        columns=["mask", "weights"],
        cross_documents=False,
        remainder="pad",
        extras=["documents", "positions"],
    )
    dataset = tokens.TokenDataset(tokens=view, local=corpus, batch_size=4)
    stored = StreamingDataset(local=corpus, batch_size=4)
    collator = PaddingCollator(loss_mask="mask", columns=["weights"], multiple_of=16)
    for rows, sequences in zip(dataset.batches(), stored.batches(), strict=True):
        found, expected = PaddingCollator(loss_mask="mask")(rows), collator(sequences)
        assert list(found) == list(expected)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), name


def test_rows_of_several_documents_are_not_padded(corpus, tokens):
    dataset = tokens.TokenDataset(
        tokens=tokens.TokenPacks(column="input_ids", length=64), local=corpus, batch_size=2
    )
    with pytest.raises(
        ConfigError, match=r"row 0 of the batch has several documents.*VarlenCollator"
    ):
        PaddingCollator()(next(dataset.batches()))


def test_rows_that_do_not_say_where_documents_begin_are_refused(corpus, tokens):
    view = tokens.TokenPacks(column="input_ids", length=64, extras=["documents"])
    dataset = tokens.TokenDataset(tokens=view, local=corpus, batch_size=2)
    with pytest.raises(ConfigError, match=r"extras=\['documents', 'positions'\]"):
        VarlenCollator()(next(dataset.batches()))


# -- packs in a loader --------------------------------------------------------


def test_packs_of_a_loader_are_those_of_the_collator(corpus):
    datasets = [StreamingDataset(local=corpus, batch_size=8) for _ in range(2)]
    options = {"length": 24, "size": "input_ids", "open_bins": 4}
    plain = PackedSamples(datasets[0], **options)
    collator = VarlenCollator(columns=["mask", "weights"], names="pack")
    packs = PackedSamples(datasets[1], **options, collate_fn=collator)
    for pack, expected in zip(packs, plain, strict=True):
        for name in ("input_ids", "weights", "cu_seqlens", "max_seqlen", "position_ids"):
            assert np.array_equal(pack[name], expected[name])


def test_a_packing_loader_makes_tensors_of_them(corpus):
    torch = pytest.importorskip("torch")
    from streamplug_packing import PackingDataLoader

    from streamplug import StreamingDataLoader
    from streamplug.adapters import StreamingDataset as TorchDataset

    def encode(sample: dict[str, Any]) -> dict[str, Any]:
        return {"input_ids": torch.from_numpy(sample["input_ids"].astype(np.int64))}

    dataset = TorchDataset(local=corpus, batch_size=8)
    loader = PackingDataLoader(
        dataset,
        length=24,
        size="input_ids",
        open_bins=4,
        transform=encode,
        collate_fn=VarlenCollator(),
    )
    pack = next(iter(loader))
    assert pack["input_ids"].dtype == torch.int64
    assert pack["cu_seq_lens_q"].dtype == torch.int32
    assert pack["labels"].shape == pack["position_ids"].shape == (1, pack["cu_seq_lens_q"][-1])
    for how in ("batch_transform", "collate_fn"):
        collator = PaddingCollator(columns=["mask", "weights"])
        batch = next(
            iter(StreamingDataLoader(TorchDataset(local=corpus, batch_size=8), **{how: collator}))
        )
        assert isinstance(batch["weights"], torch.Tensor)
        assert batch["input_ids"].shape == batch["attention_mask"].shape


# -- what is refused ----------------------------------------------------------


@pytest.mark.parametrize("collator", [PaddingCollator, VarlenCollator])
@pytest.mark.parametrize(
    ("options", "change", "error", "match"),
    [
        ({}, {"mask": np.ones(4)}, None, ""),  # it is not named, and so kept
        ({"loss_mask": "mask"}, {"mask": np.ones(4)}, DataError, r"sample 1 of the batch, column 'mask': 4"),
        ({"columns": ["weights"]}, {"weights": np.ones((5, 2))}, DataError, r"'weights': float64 \(5, 2\)"),
        ({}, {"input_ids": np.ones((5, 1), int)}, DataError, r"sample 1 .*'input_ids': int64 \(5, 1\)"),
        ({}, {"input_ids": np.ones(0, int)}, DataError, r"sample 1 .*'input_ids': no tokens; leave"),
        ({}, {"input_ids": np.ones(5)}, DataError, r"'input_ids': tokens are whole numbers, not float64"),
        ({"labels": "weights"}, {"weights": np.ones(5)}, DataError, r"'weights': labels are whole numbers"),
        ({"loss_mask": "mask"}, {"mask": np.full(5, "0")}, DataError, r"'mask': loss_mask= has numbers"),
        ({"labels": "lables"}, {}, ConfigError, r"a batch has no column 'lables', only \['input_ids'"),
        ({"column": "mask"}, {}, ConfigError, r"column 'input_ids': the batch has another column"),
        ({"columns": ["id"]}, {}, DataError, r"sample 0 .*'id': int64 \(\) where a one-dimensional"),
    ],
)  # fmt: skip
def test_samples_without_a_number_for_each_token_are_named(collator, options, change, error, match):
    batch = samples([3, 5])
    batch[1] |= change
    if error is None:
        assert len(collator(**options)(batch)["mask"]) == 2
        return
    with pytest.raises(error, match=match):
        collator(**options)(batch)


def test_columns_of_the_names_of_labels_are_asked_for():
    batch = [{"input_ids": np.arange(3), "labels": np.arange(3)}]
    with pytest.raises(ConfigError, match=r"column 'labels': .*give column= or labels= that name"):
        VarlenCollator()(batch)
    with pytest.raises(ConfigError, match="samples of a batch must be dicts of the same columns"):
        VarlenCollator()([{"input_ids": np.arange(3)}, {"tokens": np.arange(3)}])


@pytest.mark.parametrize(
    ("make", "wrong", "match"),
    [
        (
            VarlenCollator,
            {"names": "torch"},
            "names='torch': choose one of pack, flash_attn, trans",
        ),
        (VarlenCollator, {"columns": "weights"}, "columns='weights': a list of names"),
        (VarlenCollator, {"column": None}, "column=None: the name of a column"),
        (VarlenCollator, {"labels": 1}, "labels=1: the name of a column"),
        (VarlenCollator, {"ignore_index": "no"}, "ignore_index='no': must be a whole number"),
        (VarlenCollator, {"shift_labels": "no"}, "shift_labels='no': must be True or False"),
        (PaddingCollator, {"padding": 0.5}, "padding=0.5: must be a whole number of 64 bits"),
        (
            PaddingCollator,
            {"padding": 1 << 63},
            f"padding={1 << 63}: must be a whole number of 64 bits",
        ),
        (PaddingCollator, {"multiple_of": 0}, "multiple_of=0: must be"),
        (PaddingCollator, {"column_padding": {"a": "b"}}, "column_padding=.*: a mapping"),
        (PaddingCollator, {"lables": "a"}, r"PaddingCollator\(lables=…\): .* 'labels'"),
    ],
)
def test_options_without_meaning_are_refused(make, wrong, match):
    with pytest.raises(ConfigError, match=match):
        make(**wrong)


def test_padding_of_a_column_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match=r"no further column 'weight', only \['weights'\]"):
        PaddingCollator(columns=["weights"], column_padding={"weight": 1})(samples([2]))


@pytest.mark.parametrize(("dtype", "number"), [("uint8", -1), ("int64", 0.5), ("bool", 2)])
def test_padding_that_is_beyond_the_dtype_of_a_column_is_refused(dtype, number):
    batch = [{"input_ids": np.arange(n), "weights": np.ones(n, dtype)} for n in (2, 3)]
    collator = PaddingCollator(columns=["weights"], column_padding={"weights": number})
    with pytest.raises(ConfigError, match=f"{number} for column 'weights' is no {dtype}"):
        collator(batch)


@pytest.mark.parametrize("lengths", [[3, 5], [4, 4]])
@pytest.mark.parametrize("as_columns", [False, True])
def test_other_columns_may_be_called_as_those_of_rows(lengths, as_columns):
    rows = [
        {"input_ids": np.arange(n), "documents": f"page {n}", "positions": number}
        for number, n in enumerate(lengths)
    ]
    batch: Any = rows
    if as_columns:
        batch = {name: [row[name] for row in rows] for name in rows[0]}
        batch["positions"] = np.array(batch["positions"])
    found = PaddingCollator()(batch)
    assert found["attention_mask"].sum(1).tolist() == lengths
    assert list(found["documents"]) == [f"page {n}" for n in lengths]
    assert list(found["positions"]) == [0, 1]
