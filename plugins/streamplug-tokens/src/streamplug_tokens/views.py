"""How documents become rows: what users say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.config import suggest_keywords, whole_number
from streamplug.errors import ConfigError, StateError

EXTRAS = ("targets", "documents", "positions", "mask")
"""What rows can have besides their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """What blocks and packs have in common.

    Attributes:
        column: Name of the column that holds the tokens of a document.
        length: Tokens of a row.
        separator: Token that is put after each document; None for none.
        padding: Token that fills up rows.
        dtype: Of the tokens, such as ``"uint16"``, where the column does not say: of
            ``bytes`` and ``ndarray``.
        extras: What to give besides the tokens, each of shape ``[batch, length]``:
            ``"targets"``, the tokens that follow;
            ``"documents"``, int64, the sample of the data set that a token is of, -1 for padding;
            ``"positions"``, int32, counted from 0 at the beginning of the row, of each document in it, and
            of the padding;
            ``"mask"``, bool, whether the target, or without targets the token itself, is to be predicted
            from the same document: neither padding nor the first of its document in the row.
    """

    column: str
    length: int
    separator: int | None = None
    padding: int = 0
    dtype: str | None = None
    extras: Sequence[str] = ()

    def __post_init__(self) -> None:
        whole_number("length", self.length, 1)
        if isinstance(self.extras, str) or not set(self.extras) <= set(EXTRAS):
            raise ConfigError(f"extras={self.extras!r}: a list of some of {', '.join(EXTRAS)}")
        if self.column in self.extras:
            raise ConfigError(f"extras: the tokens' own column is named {self.column!r}")
        object.__setattr__(self, "extras", tuple(self.extras))

    def check(self, dtype: np.dtype[Any]) -> None:
        """Check that tokens of a dtype can be what this view puts in.

        Raises:
            ConfigError: If one is too large, or negative where they cannot be.
        """
        bounds = np.iinfo(dtype)
        for name in ("separator", "padding"):
            token = getattr(self, name)
            if token is not None and not bounds.min <= token <= bounds.max:
                raise ConfigError(
                    f"{name}={token}: tokens of {dtype.name} are {bounds.min} to {bounds.max}"
                )

    @property
    def ahead(self) -> int:
        """Tokens that are read after those of a row, for its last target."""
        return 0


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBlocks(TokenRows):
    """Rows of one length over the documents, one after the other in the order in which they are stored.

    Attributes:
        stride: Tokens from the beginning of a row to that of the next, at most `length`; None for `length`.
        across: Whether a row goes on into the next document; if not, each document has rows of its own.
        short: What becomes of tokens behind the last whole row, of the stream or else of each
            document: ``"drop"`` leaves them out, ``"pad"`` fills a row up.
    """

    stride: int | None = None
    across: bool = True
    short: str = "drop"

    def __post_init__(self) -> None:
        TokenRows.__post_init__(self)
        stride = whole_number("stride", self.stride, 1)
        if stride is not None and stride > self.length:
            raise ConfigError(
                f"stride={stride}: more than length={self.length} would leave out tokens"
            )
        if self.short not in ("drop", "pad"):
            raise ConfigError(f"short={self.short!r}: choose 'drop' or 'pad'")

    @property
    def ahead(self) -> int:
        """Tokens that are read after those of a row, for its last target."""
        return int("targets" in self.extras)


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPacks(TokenRows):
    """Rows of whole documents, packed so that little is left to fill up.

    Of each `group` documents that are stored one after the other, the longest goes first, and each into the
    row that it fills best. Documents longer than a row are cut into whole rows and a rest.

    Attributes:
        group: Documents that are packed together.
        extras: As for `TokenRows`; all but the targets, which are a row's own tokens, unless said otherwise.
    """

    group: int = 1024
    extras: Sequence[str] = ("documents", "positions", "mask")

    def __post_init__(self) -> None:
        TokenRows.__post_init__(self)
        whole_number("group", self.group, 1)


def view_from_state(saved: Any) -> TokenBlocks | TokenPacks:
    """Return the view that a state describes.

    Raises:
        StateError: If it describes none.
    """
    views: Mapping[Any, type[TokenBlocks | TokenPacks]]
    views = {"TokenBlocks": TokenBlocks, "TokenPacks": TokenPacks}
    view = views.get(saved.get("view")) if isinstance(saved, Mapping) else None
    if view is None:
        raise StateError(f"the state has tokens={saved!r:.200}, which says of no rows of tokens")
    try:
        return view(**{name: value for name, value in saved.items() if name != "view"})
    except TypeError as error:
        raise StateError(f"the state has tokens={saved!r:.200}: {error}") from None
