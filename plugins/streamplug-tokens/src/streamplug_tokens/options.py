"""Options of rows of tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.config import check_flags, is_integer, suggest_keywords, whole_number
from streamplug.errors import ConfigError, StateError

if TYPE_CHECKING:
    from typing_extensions import Self

EXTRAS = ("targets", "documents", "positions", "mask")
"""Names of the extra columns of rows."""
LONG_DOCUMENTS = ("split", "truncate", "drop", "raise")
IGNORE_INDEX = -100
"""Label of tokens that are not trained on, which losses of torch leave out."""
_ADDED = ("lengths", "columns", "column_padding", "column_dtypes", "long_documents")
"""Options that earlier versions lacked; their defaults are what rows were then."""

_MAX_LENGTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRowOptions:
    """Options that blocks and packs share.

    Attributes:
        column: Name of the column that holds the tokens of a document.
        length: Tokens of a row.
        separator: Token that is added after each document; None for none.
        padding: Token that fills a row up.
        dtype: Dtype of the tokens, such as ``"uint16"``, for columns without one: ``bytes``, ``ndarray`` and
            lists in JSON. Lists in Parquet are converted to it, and have their own by default.
        lengths: Name of a column of whole numbers: the tokens of each document, which are then not counted.
        columns: Names of further columns that have one number for each token of their document, such as
            labels, masks and weights; each is read with the tokens, in the dtype that it is stored with.
        column_padding: Number by column that fills rows up and stands for the separator; by default -100
            for a column named ``"labels"`` and 0 for others.
        column_dtypes: Dtype by column, for further columns without one.
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
    lengths: str | None = None
    columns: Sequence[str] = ()
    column_padding: Mapping[str, float] = field(default_factory=dict, hash=False)
    column_dtypes: Mapping[str, str] = field(default_factory=dict, hash=False)
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
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        lengths: Any = self.lengths
        if lengths is not None and (not isinstance(lengths, str) or lengths == self.column):
            raise ConfigError(f"lengths={lengths!r:.60}: the name of a column of whole numbers")
        self._check_columns()
        for name in ("length", "separator", "padding"):
            self._set_plain(name, getattr(self, name))

    def _check_columns(self) -> None:
        columns: Any = self.columns  # unchecked so far
        is_list = isinstance(columns, Collection) and not isinstance(columns, (str, Mapping))
        if not (is_list and all(isinstance(name, str) for name in columns)):
            raise ConfigError(f"columns={columns!r:.80}: a list of names of columns")
        names = [self.column, *columns, *self.extras]
        twice = next((name for name in columns if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"columns={list(columns)!r:.80}: rows have another column {twice!r}; of the tokens' column, "
                "columns= and extras=, each needs a name of its own"
            )
        for option in ("column_padding", "column_dtypes"):
            given: Any = getattr(self, option)
            if not isinstance(given, Mapping):
                raise ConfigError(f"{option}={given!r:.80}: a mapping by names of columns=")
            unknown = next((name for name in given if name not in columns), None)
            if unknown is not None:
                raise ConfigError(
                    f"{option}: {unknown!r} is none of columns={list(columns)!r:.80}; add it there"
                )
        padding: dict[str, float] = {}
        for name, number in self.column_padding.items():
            if not isinstance(number, Real | np.bool_):
                raise ConfigError(f"column_padding[{name!r}]={number!r:.60}: must be a number")
            padding[name] = number.item() if isinstance(number, np.generic) else number
        dtypes = {name: _dtype_name(dtype) for name, dtype in self.column_dtypes.items()}
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "column_padding", padding)
        object.__setattr__(self, "column_dtypes", dtypes)

    def padding_of(self, column: str) -> float:
        """Return the number that fills the rows of one of `columns` up."""
        return self.column_padding.get(column, IGNORE_INDEX if column == "labels" else 0)

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
        """Return the options that rows depend on: no further columns, no extras but targets of blocks."""
        extras = ("targets",) if self.lookahead else ()
        return replace(
            self, lengths=None, columns=(), column_padding={}, column_dtypes={}, extras=extras
        )

    def row_key(self) -> str:
        """Return text that is equal for options of equal rows, and the same in all versions."""
        options = self.without_extras()
        described = [(each.name, getattr(options, each.name)) for each in fields(options)]
        stated = [
            f"{name}={value!r}"
            for name, value in described
            if name not in _ADDED or value not in (None, (), {}, "split")
        ]
        return f"{type(self).__name__}({', '.join(stated)})"


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
    fills best.

    Attributes:
        documents_per_group: Documents that are packed together.
        long_documents: What to do with documents longer than a row: ``"split"`` cuts them into full rows
            and a rest, ``"truncate"`` keeps their first `length` tokens, ``"drop"`` leaves them out, and
            ``"raise"`` raises an error that names the first.
        extras: As for `TokenRowOptions`; by default all but the targets, which are a row's own tokens.
    """

    documents_per_group: int = 1024
    long_documents: str = "split"
    extras: Sequence[str] = ("documents", "positions", "mask")

    def __post_init__(self) -> None:
        TokenRowOptions.__post_init__(self)
        if whole_number("documents_per_group", self.documents_per_group, 1) is None:
            raise ConfigError("documents_per_group=None: must be a whole number of at least 1")
        if self.long_documents not in LONG_DOCUMENTS:
            raise ConfigError(
                f"long_documents={self.long_documents!r:.60}: choose one of {', '.join(LONG_DOCUMENTS)}"
            )
        self._set_plain("documents_per_group", self.documents_per_group)


def options_to_state(options: TokenBlocks | TokenPacks) -> dict[str, Any]:
    """Return what a state has under ``tokens``, as JSON gives it back."""
    return {
        "view": type(options).__name__,
        **asdict(options),
        "columns": list(options.columns),
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


def _dtype_name(dtype: Any) -> Any:
    """Return the name of a dtype of NumPy, and any other value as it is."""
    if not isinstance(dtype, (type, np.dtype)):
        return dtype
    dtype = np.dtype(dtype)
    return dtype.name if dtype.isnative else dtype.str
