"""Data sets of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug_datasets.transform import TransformedDataset

Tokenizer = Callable[..., Any]
_IGNORED = -100
"""The label of tokens that are not to be predicted, as torch's cross entropy has it."""


class TokenizedText(TransformedDataset):
    """What a tokenizer makes of texts, one row for each.

    Rows that are cut at `max_seq_len`, and filled up to it, waste much of a batch and of the texts;
    `streamplug.TokenDataset` reads tokens that were stored as such.

    Args:
        tokenizer_name: A tokenizer of the transformers library: a name, or the path of a folder.
        tokenizer: Instead of a name, what is called with a text, ``truncation=True``,
            ``padding="max_length"`` and ``max_length``.
        max_seq_len: How many tokens a row has.
        group_method: ``"truncate"``, the only one.
        **kwargs: As for `streamplug.StreamingDataset`.

    Raises:
        ConfigError: If there is not one tokenizer, or an argument has no meaning.
    """

    def __init__(
        self,
        *,
        tokenizer_name: str | None = None,
        tokenizer: Tokenizer | None = None,
        max_seq_len: int,
        group_method: str = "truncate",
        **kwargs: Any,
    ) -> None:
        if group_method != "truncate":
            raise ConfigError(
                f"group_method={group_method!r}: there is only 'truncate'; for rows that go on into "
                "the next text, store tokens and read them with streamplug.TokenDataset"
            )
        if max_seq_len < 1:
            raise ConfigError(f"max_seq_len={max_seq_len}: must be at least 1")
        if (tokenizer_name is None) == (tokenizer is None):
            raise ConfigError("give either tokenizer_name= or tokenizer=")
        super().__init__(**kwargs)
        self.tokenizer_name, self.max_seq_len = tokenizer_name, max_seq_len
        self.group_method = group_method
        self.tokenizer = tokenizer or _named(tokenizer_name)

    def change(self, sample: dict[str, Any]) -> Any:
        """Return the tokens of a text."""
        return self.tokenizer(
            sample["text"], truncation=True, padding="max_length", max_length=self.max_seq_len
        )


def _named(name: str | None) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            "tokenizer_name= needs transformers: pip install 'streamplug-datasets[tokenizer]'; or pass "
            "tokenizer="
        ) from error
    tokenizer: Any = AutoTokenizer.from_pretrained(name)
    if tokenizer.pad_token is None:  # of models that were trained without padding
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer  # type: ignore[no-any-return]  # transformers has no types here


class StreamingC4(TokenizedText):  # noqa: D101 - below
    __doc__ = f"C4. {TokenizedText.__doc__}"


class StreamingPile(TokenizedText):  # noqa: D101 - below
    __doc__ = f"The Pile. {TokenizedText.__doc__}"


class StreamingEnWiki(TransformedDataset):
    """English Wikipedia, made ready for BERT: arrays of shape ``[length]`` by name.

    ``input_ids``, ``token_type_ids`` and ``attention_mask`` are int32; ``labels`` is int64, and -100 but for
    tokens that are to be predicted.
    """

    def change(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return the arrays of a sample."""
        named = {name: np.frombuffer(sample[name], np.int32) for name in _INTEGERS}
        meant = np.frombuffer(sample["masked_lm_weights"], np.float32) > 0
        labels = np.full(len(named["input_ids"]), _IGNORED, np.int64)
        labels[named["masked_lm_positions"][meant]] = named["masked_lm_ids"][meant]
        return {
            "input_ids": named["input_ids"].copy(),
            "token_type_ids": named["segment_ids"].copy(),
            "attention_mask": named["input_mask"].copy(),
            "labels": labels,
        }


_INTEGERS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids")
