from __future__ import annotations

import numpy as np
import pytest
from streamplug_datasets import StreamingEnWiki
from streamplug_datasets.convert.bert import Vocabulary
from streamplug_datasets.convert.enwiki import _tokenizer

from streamplug import StreamingDataLoader, StreamingDataset

pytest.importorskip("tokenizers")
torch = pytest.importorskip("torch")

WORDS = [
    "the",
    "city",
    "was",
    "built",
    "in",
    "a",
    "river",
    "##s",
    "old",
    "town",
    "##ship",
    "cafe",
    ".",
]
VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
PAD, UNK, CLS, SEP, MASK = (
    VOCABULARY.index(f"[{n}]") for n in ("PAD", "UNK", "CLS", "SEP", "MASK")
)
LENGTH, PREDICTIONS = 32, 4
TEXT = "enwiki-text --in original --out converted --allow-partial"
LINE = (
    "enwiki --in original --out converted --allow-partial --vocab vocab.txt "
    f"--max-seq-length {LENGTH} --max-predictions {PREDICTIONS} --dupe-factor 3 --val-samples 5"
)


def article(rng):
    words = ["The", "city", "rivers", "café", "township", "old", "in", "a", "built"]
    return [
        " ".join(rng.choice(words, rng.integers(3, 12))) + " ." for _ in range(rng.integers(2, 9))
    ]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    home = tmp_path / "original"
    home.mkdir()
    rng = np.random.default_rng(5)
    for name in ("part-00000-of-00500", "part-00499-of-00500", "eval.txt"):
        articles = ["\n".join(article(rng)) + "\n" for _ in range(6)]
        (home / name).write_text("\n".join(articles), encoding="utf-8")
    return home


def arrays(sample):
    types = dict.fromkeys(sample, np.int32) | {"masked_lm_weights": np.float32}
    return {name: np.frombuffer(value, types[name]) for name, value in sample.items()}


def sentences(path):
    """Return the tokens of the sentences of each article, by the rules of BERT, the slow way."""
    found = [[]]
    for line in path.read_text().splitlines():
        if not line:
            found.append([])
            continue
        plain = line.lower().replace("é", "e")
        plain = plain.replace("rivers", "river ##s").replace("township", "town ##ship")
        found[-1].append([VOCABULARY.index(word) for word in plain.split()])
    return found


def test_a_vocabulary_that_has_changed_is_read_again(home, converted):
    converted(f"{LINE} --splits val")
    lines = [*VOCABULARY[: -len(WORDS)], *("[unused1]", "[unused2]"), *WORDS]
    (home.parent / "vocab.txt").write_text("\n".join(lines) + "\n")
    converted(LINE.replace("--out converted", "--out again") + " --splits val")
    for name, first in (("converted", MASK + 1), ("again", MASK + 3)):
        sample = arrays(StreamingDataset(local=str(home.parent / name / "val"))[0])
        ids = sample["masked_lm_ids"][sample["masked_lm_weights"] > 0]
        assert len(ids)
        assert (ids >= first).all()


def test_tokens_may_have_separators_of_lines(tmp_path):
    path = tmp_path / "vocab.txt"
    tokens = ["[PAD]", "a\u2028b", "\x85", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert Vocabulary.of(path) == (4, 5, 6, len(tokens))
    assert _tokenizer(str(path), lower=True).get_vocab_size() == len(tokens)


def test_text_comes_out_as_it_was(home, converted):
    assert [split["split"] for split in converted(TEXT)] == ["train", "val"]
    for split, names in (
        ("train", ["part-00000-of-00500", "part-00499-of-00500"]),
        ("val", ["eval.txt"]),
    ):
        wanted = [line for name in names for line in (home / name).read_text().splitlines() if line]
        assert [
            sample["text"] for sample in StreamingDataset(local=f"converted/{split}")[:]
        ] == wanted


def test_every_sample_is_a_pair_of_texts_that_are_there(home, converted):
    train, val = converted(LINE)
    assert (train["split"], val["samples"]) == ("train", 5)
    articles = [a for path in sorted(home.glob("part*")) for a in sentences(path)]
    runs = [[token for sentence in each for token in sentence] for each in articles]
    follows = 0
    samples = [arrays(sample) for sample in StreamingDataset(local="converted/train")[:]]
    for sample in samples:
        count = int(sample["input_mask"].sum())
        used = int(sample["masked_lm_weights"].sum())
        assert [len(sample[name]) for name in ("input_ids", "segment_ids")] == [LENGTH, LENGTH]
        assert sample["input_mask"].tolist() == [1] * count + [0] * (LENGTH - count)
        assert used == min(PREDICTIONS, max(1, round(count * 0.15)))
        tokens, positions = sample["input_ids"].copy(), sample["masked_lm_positions"]
        assert (np.diff(positions[:used]) > 0).all()
        assert not positions[used:].any()
        tokens[positions[:used]] = sample["masked_lm_ids"][:used]
        first = int((sample["segment_ids"][:count] == 0).sum())
        assert (tokens[0], tokens[first - 1], tokens[count - 1]) == (CLS, SEP, SEP)
        texts = tokens[1 : first - 1].tolist(), tokens[first : count - 1].tolist()
        assert all(any(within(text, run) for run in runs) for text in texts)
        assert not {CLS, SEP, MASK, PAD} & {*texts[0], *texts[1]}
        if not sample["next_sentence_labels"][0]:
            follows += 1
            assert any(within(texts[0], run) and within(texts[1], run) for run in runs)
    assert 0.2 < follows / len(samples) < 0.8
    hidden = [
        sample["input_ids"][at] == MASK
        for sample in samples
        for at in sample["masked_lm_positions"][sample["masked_lm_weights"] > 0]
    ]
    assert 0.6 < np.mean(hidden) < 0.95


def within(part, whole):
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def test_bytes_depend_on_seed_and_name_alone(home, converted, tmp_path):
    def shards(out, seed):
        converted(f"{LINE.replace('converted', out)} --seed {seed} --splits train")
        return [path.read_bytes() for path in sorted((tmp_path / out).rglob("shard*"))]

    first, other = shards("a", 1), shards("b", 2)
    assert first != other
    (home / "part-00000-of-00500").unlink()
    assert shards("c", 1) == first[1:]


def test_it_trains(home, converted, learns):
    converted(LINE)
    dataset = StreamingEnWiki(local="converted/train", batch_size=8, shuffle=True)
    batch = next(iter(StreamingDataLoader(dataset)))
    assert {name: values.dtype for name, values in batch.items()} == {
        "input_ids": torch.int32,
        "token_type_ids": torch.int32,
        "attention_mask": torch.int32,
        "labels": torch.int64,
    }
    known = batch["labels"] != -100
    assert (known.sum(1) >= 1).all()
    assert not known[:, 0].any()
    size = len(VOCABULARY)
    model = torch.nn.Sequential(torch.nn.Embedding(size, 8), torch.nn.Linear(8, size))

    def loss_of(model):
        return torch.nn.functional.cross_entropy(model(batch["input_ids"]).mT, batch["labels"])

    learns(model, loss_of)


def test_real_set_must_be_whole(home, refused):
    for line in (LINE, TEXT):
        error = refused(line.replace(" --allow-partial", ""))
        assert "original/part-00001-of-00500: there is no such file" in error
    for path in home.glob("part*"):
        path.unlink()
    assert "there is no part-00000-of-00500, nor any other" in refused(LINE)


def test_bad_files_are_named(home, refused, tmp_path):
    path = home / "part-00499-of-00500"
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + b"\xff" + whole[40:])
    for line in (LINE, TEXT.replace("converted", "text")):
        assert "part-00499-of-00500: line 1: 'utf-8' codec can't decode byte 0xff" in refused(line)
    path.write_text("\n\n")
    assert "part-00499-of-00500: there is no text in it" in refused(LINE)
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(VOCABULARY[1:]))
    assert "vocab.txt: lacks the token [PAD]" in refused(LINE)
    vocab.write_bytes(b"\xff")
    assert "vocab.txt is damaged: UnicodeDecodeError" in refused(LINE)
    vocab.write_text("\n".join(reversed(VOCABULARY)))
    assert "vocab.txt: [PAD] is token 18, expected 0" in refused(LINE)


def test_a_finished_set_is_replaced_only_on_request(home, converted, refused):
    converted(f"{TEXT} --compression gz")
    error = refused(f"{TEXT} --compression bz2")
    assert "already holds a data set, or a part of one" in error
    assert "pass --exist-ok to" in error
    converted(f"{TEXT} --compression bz2 --exist-ok")


def test_arguments_that_mean_nothing_are_refused(home, refused):
    assert "at least 5 tokens" in refused(
        LINE.replace(f"--max-seq-length {LENGTH}", "--max-seq-length 4")
    )
    assert "probabilities 1.5" in refused(f"{LINE} --masked-lm-prob 1.5")
