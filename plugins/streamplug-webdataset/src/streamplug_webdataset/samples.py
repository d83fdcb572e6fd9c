"""Further stages and functions of samples: printing them, and decoding by patterns."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any, TextIO

from streamplug.display import visible
from streamplug.errors import ConfigError, DataError
from streamplug_webdataset.names import KEY
from streamplug_webdataset.progress import Progress
from streamplug_webdataset.stages import MapStage, Stage

Function = Callable[[Any], Any]
Open = Callable[[Any], Any]
"""Takes a file that is open for reading, and returns the value in it."""


def _text(stream: Any) -> str:
    return bytes(stream.read()).decode()


def _bytes(stream: Any) -> bytes:
    return bytes(stream.read())


DEFAULT_DECODERS: tuple[tuple[str, Open], ...] = (("*.bin", _bytes), ("*.txt", _text))


def info(  # noqa: PLR0917 - those of webdataset, in its order
    fmt: str | Callable[[Any], str] | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: TextIO | None = None,
    name: str = "",
) -> Stage:
    """Print what some samples are like.

    Args:
        fmt: Text with names of values in braces, such as ``"{__key__}"``, or a function that makes text of a
            sample; None for the name, type and beginning of each value.
        n: How many samples to print at the beginning of each loop.
        every: After how many to print one again; below 1, none.
        width: How much to print of a value, in characters.
        stream: Where to; None for the standard error stream.
        name: What to print in front.
    """

    def apply(number: int, sample: Any) -> Any:
        if number < n or (every > 0 and (number + 1) % every == 0):
            if isinstance(fmt, str):
                text = fmt.format(**sample)
            else:
                shown = fmt(sample) if fmt is not None else _summary(sample, width)
                text = f"--- {name} {number}\n{shown}"
            # Keys of archives may have control characters.
            text = re.sub(r"[^\n\t]+", lambda part: visible(part[0]), text)
            print(text, file=stream or sys.stderr)
        return sample

    return _Numbered("info", apply)


class _Numbered(MapStage):
    """Applies a function to the number of each sample in a loop, from 0, and the sample."""

    def __init__(self, name: str, apply: Callable[[int, Any], Any]) -> None:
        super().__init__(name, partial(apply, 0))
        self._numbered = apply

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        numbers = count()
        stage = MapStage(self.name, lambda sample: self._numbered(next(numbers), sample))
        return stage.run(source, progress, at)


def _summary(sample: Any, width: int) -> str:
    items: Iterable[tuple[Any, Any]] = [("", sample)]
    if isinstance(sample, dict):
        items = sample.items()
    if isinstance(sample, (list, tuple)):
        items = enumerate(sample)
    return "\n".join(f"{key}\t{type(v).__name__}\t{repr(v)[:width]}" for key, v in items)


def getfirst(
    a: Mapping[str, Any],
    keys: str | Iterable[str],
    default: Any = None,
    missing_is_error: bool = True,
) -> Any:
    """Return the value of the first of some names, with ``;`` between them, that a dict has.

    Raises:
        DataError: If it has none, and that `missing_is_error`.
    """
    names = keys.split(";") if isinstance(keys, str) else list(keys)
    values = [a[name] for name in names if name in a]
    if not values and missing_is_error:
        raise DataError(f"none of {names}, only {sorted(a)}")
    return values[0] if values else default


def transform_with(sample: Sequence[Any], transformers: Sequence[Function | None] | None) -> Any:
    """Return a list of values that functions were applied to, by place; None leaves a value alone.

    Raises:
        ConfigError: If there are more functions than values.
    """
    if not transformers:
        return sample
    if len(transformers) > len(sample):
        raise ConfigError(f"transform_with: {len(transformers)} functions for {len(sample)} values")
    done = [value if f is None else f(value) for f, value in zip(transformers, sample)]
    return [*done, *sample[len(done) :]]


def xdecode(
    *args: tuple[str, Open | bool],
    must_decode: bool = True,
    defaults: Sequence[tuple[str, Open]] = DEFAULT_DECODERS,
    **kw: Open,
) -> Stage:
    """Decode values by patterns, with functions that take an open file.

    Args:
        *args: Patterns as for the shell, such as ``"*.png"``, each with its function, or False to leave
            values as they are. The last one that fits counts.
        must_decode: Whether a value that no pattern fits is an error.
        defaults: Pairs that come first: bytes and text. Pickles are not among them.
        **kw: Functions by extension.

    Raises:
        ConfigError: If a decoder is no function.
    """
    pairs = [*defaults, *args, *((f"*.{name}", f) for name, f in kw.items())]
    for pattern, f in pairs:
        if f is not False and not callable(f):
            raise ConfigError(
                f"xdecode: {pattern!r}: expected a function of an open file, got {f!r:.60}"
            )

    def decoded(name: str, value: Any, sample: Mapping[str, Any]) -> Any:
        last = name.rpartition("/")[2].lower()
        if last.startswith("__"):
            return value
        for pattern, f in reversed(pairs):
            if fnmatch(last, pattern) or fnmatch(f".{last}", pattern):
                return (
                    f(BytesIO(value) if isinstance(value, bytes) else value)
                    if callable(f)
                    else value
                )
        if must_decode:
            raise DataError(
                f"xdecode: {sample.get(KEY)!r}: no pattern fits {name!r}; give one, or must_decode=False"
            )
        return value

    return MapStage("xdecode", lambda sample: {n: decoded(n, v, sample) for n, v in sample.items()})
