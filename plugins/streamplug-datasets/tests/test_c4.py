from __future__ import annotations

import gzip
import json

import pytest
from streamplug_datasets import StreamingC4
from streamplug_datasets.convert import c4, text

from streamplug import StreamingDataLoader, StreamingDataset
from streamplug.errors import ConfigError, DataError

torch = pytest.importorskip("torch")

LINE = "c4 --in original --out converted --allow-partial"
FILES = {"train": 3, "validation": 2}


def line(split, file, n):
    texts = ["A line.\nAnother.", "Grüße, 世界 🙂", "", "x" * 3000]
    return {
        "text": f"{split} {file} {n} {texts[n % 4]}",
        "timestamp": f"2019-04-2{n}T12:57:54Z",
        "url": f"https://example.com/{n}",
    }


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "original" / "en"
    home.mkdir(parents=True)
    for split, count in FILES.items():
        for file in range(count):
            name = f"c4-{split}.{file:05}-of-{count:05}.json.gz"
            with gzip.open(home / name, "wt", encoding="utf-8") as stream:
                for n in range(5):
                    stream.write(json.dumps(line(split, file, n), ensure_ascii=n % 2 == 0) + "\n")
    return home


def test_what_comes_out_is_what_was_there(home, converted):
    train, val = converted(LINE)
    assert (train["samples"], val["samples"]) == (15, 10)
    for split, name in (("train", "train"), ("val", "validation")):
        wanted = [line(name, file, n) for file in range(FILES[name]) for n in range(5)]
        assert StreamingDataset(local=f"converted/{split}")[:] == wanted


def letters(text, *, truncation, padding, max_length):
    assert (truncation, padding) == (True, "max_length")
    found = [ord(letter) % 128 for letter in text[:max_length]]
    return {
        "input_ids": found + [0] * (max_length - len(found)),
        "attention_mask": [1] * len(found) + [0] * (max_length - len(found)),
    }


def test_it_trains(home, converted, learns):
    converted(LINE)
    dataset = StreamingC4(
        local="converted/train", tokenizer=letters, max_seq_len=32, batch_size=4, shuffle=True
    )

    def collate(rows):
        return torch.tensor([row["input_ids"] for row in rows])

    tokens = next(iter(StreamingDataLoader(dataset, collate_fn=collate)))
    assert tokens.shape == (4, 32)
    model = torch.nn.Sequential(torch.nn.Embedding(128, 8), torch.nn.Linear(8, 128))

    def loss_of(model):
        return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])

    learns(model, loss_of)


def test_real_set_must_be_whole(home, refused, convert, monkeypatch):
    whole = LINE.replace(" --allow-partial", "")
    assert "en/c4-train.00000-of-01024.json.gz: there is no such file" in refused(whole)
    monkeypatch.setattr(c4, "FILES", {"train": 3, "val": 2})
    error = refused(whole)
    assert "converted/train: 15 samples, where train has 364,868,892" in error
    with pytest.raises(Exception, match=r"index\.json"):
        StreamingDataset(local="converted/train")
    assert convert(LINE).code == 0
    assert len(StreamingDataset(local="converted/train", batch_size=1)) == 15
    (home / "c4-train.00000-of-00001.json.gz").write_bytes(b"")
    assert "c4-train.00000-of-00001.json.gz: a file of another C4" in refused(whole)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"text": "a", "timestamp": "b"}',
            "line 1: expected ['text', 'timestamp', 'url'], got ['text'",
        ),
        (b'{"text": 1, "timestamp": "b", "url": "c"}', "line 1: 'text' is a int"),
        (b"{", "line 1: Expecting property name"),
        (b"[]", "line 1: expected ['text', 'timestamp', 'url'], got 'list'"),
        (b'{"text": "\xff"}', "line 1: 'utf-8' codec can't decode"),
    ],
)
def test_bad_line_is_named(home, refused, content, message):
    path = home / "c4-validation.00001-of-00002.json.gz"
    path.write_bytes(gzip.compress(content))
    error = refused(f"{LINE} --splits val")
    assert f"{path.name}: {message}" in error


def test_damaged_file_is_named(home, refused):
    path = home / "c4-train.00001-of-00003.json.gz"
    whole = path.read_bytes()
    deflated = whole[:20] + b"\xff" * 20 + whole[40:]
    for data in (whole[:-3], whole[:50], whole[:-8] + b"\0" * 8, b"x" * 40, deflated):
        path.write_bytes(data)
        assert f"{path.name}: cannot be read behind line " in refused(LINE)


def test_lines_that_take_too_much_memory_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_LINE_LIMIT", 1000)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b"x" * 999 + b"\n" + b"x" * 100_000))
    lines = text.lines(path)
    assert next(lines) == (1, b"x" * 999 + b"\n")
    with pytest.raises(DataError, match=r"a\.json\.gz: line 2 is longer than 1000 bytes"):
        next(lines)


def test_tokenizer_has_to_be_given(home, converted):
    converted(LINE)
    with pytest.raises(ConfigError, match="either tokenizer_name= or tokenizer="):
        StreamingC4(local="converted/val", max_seq_len=4)
    with pytest.raises(ConfigError, match="only 'truncate'"):
        StreamingC4(local="converted/val", max_seq_len=4, tokenizer=letters, group_method="concat")
    with pytest.raises(ConfigError, match="max_seq_len=0"):
        StreamingC4(local="converted/val", max_seq_len=0, tokenizer=letters)


def test_tokenizer_can_be_named(home, converted, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<unk>", "</s>", "train", "validation", "x"]
    model = tokenizers.models.WordLevel(
        {word: n for n, word in enumerate(words)}, unk_token="<unk>"
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>"
    )
    fast.save_pretrained(tmp_path / "tokenizer")
    converted(LINE)
    dataset = StreamingC4(
        local="converted/train", tokenizer_name=str(tmp_path / "tokenizer"), max_seq_len=24
    )
    row = dataset[0]
    assert len(row["input_ids"]) == len(row["attention_mask"]) == 24
    assert row["input_ids"][0] == words.index("train")
    used = sum(row["attention_mask"])
    assert 1 < used < 24
    assert row["input_ids"][used:] == [words.index("</s>")] * (
        24 - used
    )  # it had no token to fill up with
