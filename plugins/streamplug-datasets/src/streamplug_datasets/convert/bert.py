"""Makes of articles what BERT learns from: pairs of texts, in which some tokens are hidden."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DataError
from streamplug.plugin_kit import parsing

Sentence = list[int]
Article = list[Sentence]
_TRIES = 10
_SPECIALS = 3
"""What stands before, between and behind both texts."""


class Recipe(NamedTuple):
    """What pairs are made like.

    Attributes:
        length: Tokens of a pair, at most.
        predictions: Tokens that are to be predicted, at most.
        masked: Which part of the tokens that is.
        short: Which part of the pairs is shorter than need be.
        passes: How often to go through the articles.
    """

    length: int
    predictions: int
    masked: float
    short: float
    passes: int

    def checked(self) -> Recipe:
        """Return it, if it has a meaning.

        Raises:
            ConfigError: If it has none.
        """
        if self.length < _SPECIALS + 2 or self.predictions < 1 or self.passes < 1:
            raise ConfigError(
                f"at least {_SPECIALS + 2} tokens, 1 prediction and 1 pass, not {self.length}, "
                f"{self.predictions} and {self.passes}"
            )
        if not (0 < self.masked < 1 and 0 <= self.short <= 1):
            raise ConfigError(f"probabilities {self.masked} and {self.short}: from 0 to 1")
        return self


class Vocabulary(NamedTuple):
    """The tokens that have a meaning of their own, and how many there are of all."""

    cls: int
    sep: int
    mask: int
    size: int

    @classmethod
    def of(cls, path: Path) -> Vocabulary:
        """Read a vocabulary: a token to a line.

        Raises:
            DataError: If it lacks one that is needed, the first is not that which fills up, or the text is
                not UTF-8.
        """
        # Not str.splitlines, which splits tokens that have other separators, such as U+2028.
        with parsing(str(path)), path.open(encoding="utf-8", newline="\n") as lines:
            tokens = list(lines)
        places = {token.strip(): number for number, token in enumerate(tokens)}
        for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"):
            if name not in places:
                raise DataError(f"{path}: lacks the token {name}")
        if places["[PAD]"]:
            raise DataError(f"{path}: [PAD] is token {places['[PAD]']}, expected 0")
        return cls(places["[CLS]"], places["[SEP]"], places["[MASK]"], len(tokens))


class Pair(NamedTuple):
    """Two texts, in which tokens are hidden.

    Attributes:
        tokens: Those of both, and what stands around them.
        second: Where among them the second text begins.
        positions: Where tokens are hidden, in rising order.
        labels: What stood there.
        random: Whether the second text does not follow the first.
    """

    tokens: NDArray[np.int32]
    second: int
    positions: NDArray[np.int32]
    labels: NDArray[np.int32]
    random: bool


def pairs(
    articles: Sequence[Article], vocabulary: Vocabulary, recipe: Recipe, chance: random.Random
) -> Iterator[Pair]:
    """Yield the pairs of articles, none of which is empty."""
    for _ in range(recipe.passes):
        for number in range(len(articles)):
            for first, second, is_random in _texts(articles, number, recipe, chance):
                _shorten(first, second, recipe.length - _SPECIALS, chance)
                tokens = [vocabulary.cls, *first, vocabulary.sep, *second, vocabulary.sep]
                yield _hide(tokens, len(first) + 2, vocabulary, recipe, chance, is_random=is_random)


def _texts(
    articles: Sequence[Article], number: int, recipe: Recipe, chance: random.Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Yield pairs of texts of an article: both follow each other, or the second is of another one."""
    article, max_tokens = articles[number], recipe.length - _SPECIALS
    target_length = chance.randint(2, max_tokens) if chance.random() < recipe.short else max_tokens
    at = 0
    while at < len(article):
        end, size = at, 0
        while end < len(article) and size < target_length:
            size += len(article[end])
            end += 1
        cut = chance.randint(at + 1, end - 1) if end - at > 1 else end
        first = _joined(article[at:cut])
        if end - at == 1 or chance.random() < 0.5:
            yield first, _elsewhere(articles, number, target_length - len(first), chance), True
            at = cut  # the rest of it has not been used
        else:
            yield first, _joined(article[cut:end]), False
            at = end


def _elsewhere(
    articles: Sequence[Article], number: int, target_length: int, chance: random.Random
) -> list[int]:
    """Return sentences from somewhere in another article; of the same, if chance finds no other."""
    other = number
    for _ in range(_TRIES):
        other = chance.randrange(len(articles))
        if other != number:
            break
    article = articles[other]
    tokens: list[int] = []
    for sentence in article[chance.randrange(len(article)) :]:
        tokens += sentence
        if len(tokens) >= target_length:
            break
    return tokens


def _joined(sentences: Sequence[Sentence]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def _shorten(first: list[int], second: list[int], max_tokens: int, chance: random.Random) -> None:
    """Take tokens off either end of the longer text, until both have room."""
    while len(first) + len(second) > max_tokens:
        longer = first if len(first) > len(second) else second
        del longer[0 if chance.random() < 0.5 else -1]


def _hide(
    tokens: list[int],
    second: int,
    vocabulary: Vocabulary,
    recipe: Recipe,
    chance: random.Random,
    *,
    is_random: bool,
) -> Pair:
    """Hide some of the tokens: eight of ten behind the mask, one behind any other, one not at all."""
    special = {0, second - 1, len(tokens) - 1}
    places = [at for at in range(len(tokens)) if at not in special]
    count = min(recipe.predictions, max(1, round(len(tokens) * recipe.masked)), len(places))
    places = sorted(chance.sample(places, count))
    labels = [tokens[at] for at in places]
    for at in places:
        draw = chance.random()
        if draw < 0.8:
            tokens[at] = vocabulary.mask
        elif draw < 0.9:
            tokens[at] = chance.randrange(vocabulary.size)
    arrays = [np.array(values, np.int32) for values in (tokens, places, labels)]
    return Pair(arrays[0], second, arrays[1], arrays[2], is_random)
