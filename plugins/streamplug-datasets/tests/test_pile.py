from __future__ import annotations

import json

import pytest
import zstandard
from streamplug_datasets import StreamingPile
from streamplug_datasets.convert import pile

from streamplug import StreamingDataLoader, StreamingDataset

torch = pytest.importorskip("torch")

LINE = "pile --in original --out converted --allow-partial"
SETS = ["Pile-CC", "Github", "Wikipedia (en)"]
TRAIN = ["train/00", "train/01", "train/29"]


def line(name, n):
    return {"text": f"{name} line {n}\n" * n, "meta": {"pile_set_name": SETS[n % 3]}}


@pytest.fixture
def home(tmp_path):
    """Files as the original has them; some have two frames, one is decompressed."""
    home = tmp_path / "original"
    (home / "train").mkdir(parents=True)
    for name in (*TRAIN, "val", "test"):
        texts = [json.dumps(line(name, n)) + "\n" for n in range(7)]
        halves = ["".join(texts[:3]).encode(), "".join(texts[3:]).encode()]
        if name == "train/29":
            (home / f"{name}.jsonl").write_bytes(b"".join(halves))
        else:
            (home / f"{name}.jsonl.zst").write_bytes(b"".join(map(zstandard.compress, halves)))
    return home


def test_what_comes_out_is_what_was_there(home, converted):
    assert [split["samples"] for split in converted(LINE)] == [21, 7, 7]
    for split, names in (("train", TRAIN), ("val", ["val"]), ("test", ["test"])):
        wanted = [line(name, n) for name in names for n in range(7)]
        found = StreamingDataset(local=f"converted/{split}")[:]
        assert [s["text"] for s in found] == [w["text"] for w in wanted]
        assert [s["pile_set_name"] for s in found] == [w["meta"]["pile_set_name"] for w in wanted]


def test_it_trains(home, converted, learns):
    converted(f"{LINE} --splits val")

    def letters(text, max_length, **_):
        return {"input_ids": torch.tensor(list(text.encode().ljust(max_length)[:max_length]))}

    dataset = StreamingPile(local="converted/val", tokenizer=letters, max_seq_len=16, batch_size=3)
    tokens = next(iter(StreamingDataLoader(dataset)))["input_ids"]
    model = torch.nn.Sequential(torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256))

    def loss_of(model):
        return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])

    learns(model, loss_of)


def test_real_set_must_be_whole(home, refused, monkeypatch):
    whole = LINE.replace(" --allow-partial", "")
    assert "train/02.jsonl.zst: there is no such file" in refused(whole)
    assert "converted/test: 7 samples, where test has 214,584" in refused(f"{whole} --splits test")
    monkeypatch.setattr(pile, "SIZES", {"train": 21, "val": 7, "test": 7})
    monkeypatch.setattr(pile, "NAMES", {"train": TRAIN, "val": ["val"], "test": ["test"]})
    (home / "val.jsonl.zst").unlink()
    assert "val.jsonl.zst: there is no such file" in refused(LINE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"text": "a"}, "line 1: expected ['meta', 'text'], got ['text']"),
        ({"text": "a", "meta": {}}, "line 1: meta is {}, not a pile_set_name"),
        ({"text": "a", "meta": {"pile_set_name": 1}}, "not a pile_set_name"),
    ],
)
def test_bad_line_is_named(home, refused, content, message):
    (home / "val.jsonl.zst").write_bytes(zstandard.compress(json.dumps(content).encode()))
    error = refused(f"{LINE} --splits val")
    assert "val.jsonl.zst: " in error
    assert message in error


def test_damaged_file_is_named(home, refused):
    path = home / "train" / "01.jsonl.zst"
    whole = path.read_bytes()
    for data in (whole[:-3], whole[:10], whole + b"junk"):
        path.write_bytes(data)
        assert "train/01.jsonl.zst: " in refused(LINE)
