"""English Wikipedia for BERT: sentences to masked pairs of them, as MLPerf's reference does."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from streamplug.errors import ConfigError, DataError, NotFound
from streamplug_datasets.convert import files
from streamplug_datasets.convert.bert import Pair, Recipe, Vocabulary, pairs
from streamplug_datasets.convert.run import Split
from streamplug_datasets.convert.text import text_lines
from streamplug_datasets.options import converter

COLUMNS = dict.fromkeys(
    (
        "input_ids",
        "input_mask",
        "segment_ids",
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
        "next_sentence_labels",
    ),
    "bytes",
)
FILES = 500
_TEXTS_PER_BATCH = 4096
_UNKNOWN = "[UNK]"


@converter(
    splits=["train", "val"], compression="zstd:16", size_limit="128mb", hashes="sha1,xxh3_64"
)
@click.option(
    "--vocab",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="vocab.txt of BERT.",
)
@click.option("--cased", is_flag=True, help="Keep upper case and accents.")
@click.option("--max-seq-length", default=512, show_default=True, help="Tokens of a sample.")
@click.option(
    "--max-predictions", default=20, show_default=True, help="Tokens to predict, at most."
)
@click.option(
    "--masked-lm-prob", default=0.15, show_default=True, help="Part of tokens to predict."
)
@click.option("--short-seq-prob", default=0.1, show_default=True, help="Part of shorter samples.")
@click.option(
    "--dupe-factor", default=10, show_default=True, help="How often train is gone through."
)
@click.option("--val-samples", default=10_000, show_default=True, help="Samples of val; 0 for all.")
@click.option("--seed", default=12_345, show_default=True, help="Of all that is left to chance.")
def command(
    root: Path,
    splits: Sequence[str],
    *,
    vocab: Path,
    cased: bool,
    max_seq_length: int,
    max_predictions: int,
    masked_lm_prob: float,
    short_seq_prob: float,
    dupe_factor: int,
    val_samples: int,
    seed: int,
    allow_partial: bool,
) -> list[Split]:
    """Convert English Wikipedia into pairs of sentences with masked tokens, for BERT.

    --in has part-00000-of-00500 … and eval.txt, the results of MLPerf's clean-up: a sentence to a line, an
    empty line between articles. What is random in a file depends on --seed and its name alone.
    """
    recipe = Recipe(
        max_seq_length, max_predictions, masked_lm_prob, short_seq_prob, dupe_factor
    ).checked()
    common = {
        "vocab": str(vocab),
        "vocab_sha256": hashlib.sha256(vocab.read_bytes()).hexdigest(),
        "lower": not cased,
        "recipe": list(recipe),
        "seed": seed,
    }
    _tokenizer.cache_clear()  # the file may have changed since another call in this process
    Vocabulary.of(vocab)  # is looked at before hours of work
    planned = []
    for split in splits:
        paths = text_files(root, split, allow_partial=allow_partial)
        picks = val_samples if split == "val" else 0
        parts = [{**common, "path": str(path), "picks": picks} for path in paths]
        planned.append(Split(split, COLUMNS, samples, parts))
    return planned


def text_files(root: Path, split: str, *, allow_partial: bool) -> list[Path]:
    """Return the files of a split.

    Raises:
        NotFound: If one is missing.
        DataError: If one is empty.
    """
    if split == "val":
        return [files.file(root / "eval.txt")]
    paths = [root / f"part-{number:05}-of-{FILES:05}" for number in range(FILES)]
    if allow_partial:
        paths = [path for path in paths if path.is_file()]
        if not paths:
            raise NotFound(f"{root}: there is no part-00000-of-{FILES:05}, nor any other")
    return [files.file(path) for path in paths]


def samples(part: dict[str, Any]) -> Iterator[dict[str, bytes]]:
    """Yield the samples of a file."""
    path, recipe = Path(part["path"]), Recipe(*part["recipe"])
    vocabulary = Vocabulary.of(Path(part["vocab"]))
    documents = list(_documents(path, part["vocab"], lower=part["lower"]))
    if not documents:
        raise DataError(f"{path}: there is no text in it")
    chance = random.Random(f"{part['seed']}/{path.name}")
    pairs_of_sentences = list(pairs(documents, vocabulary, recipe, chance))
    chance.shuffle(pairs_of_sentences)
    picks = min(part["picks"] or len(pairs_of_sentences), len(pairs_of_sentences))
    for at in range(picks):
        yield _stored(pairs_of_sentences[at * len(pairs_of_sentences) // picks], recipe)


def _documents(path: Path, vocab: str, *, lower: bool) -> Iterator[list[list[int]]]:
    """Yield the articles of a file: for each sentence, its tokens."""
    document: list[list[int]] = []
    for text, tokens in _sentences(path, vocab, lower=lower):
        if tokens:
            document.append(tokens)
        elif not text and document:
            yield document
            document = []
    if document:
        yield document


def _sentences(path: Path, vocab: str, *, lower: bool) -> Iterator[tuple[str, list[int]]]:
    tokenizer, texts = _tokenizer(vocab, lower), text_lines(path)
    while batch := list(islice(texts, _TEXTS_PER_BATCH)):
        encoded = tokenizer.encode_batch(batch, add_special_tokens=False)
        yield from zip(batch, (encoding.ids for encoding in encoded))


@lru_cache(1)
def _tokenizer(vocab: str, lower: bool) -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigError(
            "enwiki needs tokenizers: pip install 'streamplug-datasets[enwiki]'"
        ) from error
    os.environ.setdefault(
        "TOKENIZERS_PARALLELISM", "false"
    )  # there is a process for each processor
    model = tokenizers.models.WordPiece.from_file(
        vocab, unk_token=_UNKNOWN, max_input_chars_per_word=200
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=lower, strip_accents=lower
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _stored(pair: Pair, recipe: Recipe) -> dict[str, bytes]:
    """Return a pair as the columns of a sample, filled up with zeros."""
    length, predictions = recipe.length, recipe.predictions
    columns: dict[str, tuple[Any, int]] = {
        "input_ids": (pair.tokens, length),
        "input_mask": (np.ones(len(pair.tokens)), length),
        "segment_ids": (np.arange(len(pair.tokens)) >= pair.second, length),
        "masked_lm_positions": (pair.positions, predictions),
        "masked_lm_ids": (pair.labels, predictions),
        "masked_lm_weights": (np.ones(len(pair.labels), np.float32), predictions),
        "next_sentence_labels": (np.array([pair.random]), 1),
    }
    return {name: _filled(values, size, name) for name, (values, size) in columns.items()}


def _filled(values: Any, length: int, name: str) -> bytes:
    filled = np.zeros(length, np.float32 if name == "masked_lm_weights" else np.int32)
    filled[: len(values)] = values
    return filled.tobytes()
