"""Options of rows of tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.config import check_flags, is_integer, suggest_keywords, whole_number
from streamplug.errors import ConfigError, StateError

if TYPE_CHECKING:
    from typing_extensions import Self

EXTRAS = ("targets", "documents", "positions", "mask")
"""Names of the extra columns of rows."""


_MAX_LENGTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRowOptions:
    """Options that blocks and packs share.

    Attributes:
        column: Name of the column that holds the tokens of a document.
        length: Tokens of a row.
        separator: Token that is added after each document; None for none.
        padding: Token that fills a row up.
        dtype: Dtype of the tokens, such as ``"uint16"``, for columns without one: ``bytes`` and ``ndarray``.
        extras: Extra columns, each of shape ``[batch, length]``:
            ``"targets"``, the next tokens;
            ``"documents"``, int64, the sample of the data set that a token is from, -1 for padding;
            ``"positions"``, int32, counted from 0 at the start of the row, of each document in it, and
            of the padding;
            ``"mask"``, bool, whether the target, or without targets the token itself, can be predicted
            from the same document: neither padding nor the first token of its document in the row.
    """

    column: str
    length: int
    separator: int | None = None
    padding: int = 0
    dtype: str | None = None
    extras: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not (is_integer(self.length) and 1 <= self.length <= _MAX_LENGTH):
            raise ConfigError(
                f"length={self.length!r:.60}: must be a whole number of 1 to {_MAX_LENGTH}"
            )
        for name, token in (("separator", self.separator), ("padding", self.padding)):
            if not is_integer(token) and (name, token) != ("separator", None):
                raise ConfigError(f"{name}={token!r:.60}: must be a token, which is a whole number")
        extras: Any = self.extras  # unchecked so far
        is_list = isinstance(extras, Collection) and not isinstance(extras, str)
        if not (is_list and all(name in EXTRAS for name in extras)):
            raise ConfigError(f"extras={extras!r}: a list of some of {', '.join(EXTRAS)}")
        if self.column in self.extras:
            raise ConfigError(f"extras: the tokens' own column is named {self.column!r}")
        object.__setattr__(self, "extras", tuple(self.extras))
        dtype: Any = self.dtype
        if isinstance(dtype, (type, np.dtype)):
            dtype = np.dtype(dtype)
            object.__setattr__(self, "dtype", dtype.name if dtype.isnative else dtype.str)
        for name in ("length", "separator", "padding"):
            self._set_plain(name, getattr(self, name))

    def _set_plain(self, name: str, value: Any) -> None:
        """Set an option to a number of Python, also if it is one of NumPy: states are JSON."""
        object.__setattr__(self, name, value.item() if isinstance(value, np.generic) else value)

    def check(self, dtype: np.dtype[Any]) -> None:
        """Check that a dtype holds the separator and the padding.

        Raises:
            ConfigError: If it does not.
        """
        bounds = np.iinfo(dtype)
        for name in ("separator", "padding"):
            token = getattr(self, name)
            if token is not None and not bounds.min <= token <= bounds.max:
                raise ConfigError(
                    f"{name}={token}: tokens of {dtype.name} are {bounds.min} to {bounds.max}"
                )

    @property
    def lookahead(self) -> int:
        """Tokens after the row that are read for its last target."""
        return 0

    def without_extras(self) -> Self:
        """Return the options that rows depend on: no extras but targets that need one more token."""
        return replace(self, extras=("targets",) if self.lookahead else ())


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBlocks(TokenRowOptions):
    """Rows of one length over the concatenation of the documents, in stored order.

    Attributes:
        stride: Tokens from the start of a row to the start of the next, at most `length`; None is `length`.
        cross_documents: Whether rows continue into the next document; else each document has its own rows.
        remainder: Tokens after the last full row, of the stream or else of each document: ``"drop"`` leaves
            them out, ``"pad"`` pads them to a row.
    """

    stride: int | None = None
    cross_documents: bool = True
    remainder: str = "drop"

    def __post_init__(self) -> None:
        TokenRowOptions.__post_init__(self)
        check_flags(cross_documents=self.cross_documents)
        if self.cross_documents is None:
            raise ConfigError("cross_documents=None: must be True or False")
        stride = whole_number("stride", self.stride, 1)
        if stride is not None and stride > self.length:
            raise ConfigError(
                f"stride={stride}: more than length={self.length} would leave out tokens"
            )
        if self.remainder not in ("drop", "pad"):
            raise ConfigError(f"remainder={self.remainder!r}: choose 'drop' or 'pad'")
        self._set_plain("stride", stride)
        self._set_plain("cross_documents", self.cross_documents)

    @property
    def lookahead(self) -> int:
        """Tokens after the row that are read for its last target."""
        return int("targets" in self.extras)


@suggest_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPacks(TokenRowOptions):
    """Rows of whole documents, packed with little padding.

    Of each group of consecutive documents, the longest is placed first, and each into the row that it
    fills best. Documents longer than a row are cut into full rows and a rest.

    Attributes:
        documents_per_group: Documents that are packed together.
        extras: As for `TokenRowOptions`; by default all but the targets, which are a row's own tokens.
    """

    documents_per_group: int = 1024
    extras: Sequence[str] = ("documents", "positions", "mask")

    def __post_init__(self) -> None:
        TokenRowOptions.__post_init__(self)
        if whole_number("documents_per_group", self.documents_per_group, 1) is None:
            raise ConfigError("documents_per_group=None: must be a whole number of at least 1")
        self._set_plain("documents_per_group", self.documents_per_group)


def options_to_state(options: TokenBlocks | TokenPacks) -> dict[str, Any]:
    """Return what a state has under ``tokens``, as JSON gives it back."""
    return {
        "view": type(options).__name__,
        **asdict(options),
        "extras": list(options.extras),
    }


def options_from_state(saved: Any) -> TokenBlocks | TokenPacks:
    """Return the options that a state has under ``tokens``.

    Raises:
        StateError: If it has none of rows of tokens.
    """
    classes: Mapping[Any, type[TokenBlocks | TokenPacks]]
    classes = {"TokenBlocks": TokenBlocks, "TokenPacks": TokenPacks}
    cls = classes.get(saved.get("view")) if isinstance(saved, Mapping) else None
    if cls is None:
        raise StateError(f"the state has tokens={saved!r:.200}, which describes no rows of tokens")
    try:
        return cls(**{name: value for name, value in saved.items() if name != "view"})
    except TypeError as error:
        raise StateError(f"the state has tokens={saved!r:.200}: {error}") from None
