"""Stages with the names of webdataset: the methods of pipelines as functions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import wraps
from typing import Any

from streamplug.errors import ConfigError, DataError
from streamplug.interfaces import MAX_VALUE_BYTES
from streamplug_webdataset.collate import apart, collated
from streamplug_webdataset.collate import listed as as_list
from streamplug_webdataset.decoding import Decode, Decoder, Decoding
from streamplug_webdataset.handlers import Handler, reraise_exception
from streamplug_webdataset.names import KEY
from streamplug_webdataset.progress import Progress
from streamplug_webdataset.stages import (
    LEFT_OUT,
    Batched,
    FunctionStage,
    LogKeys,
    MapStage,
    Sampled,
    Shuffle,
    Slice,
    Stage,
    Unbatched,
)
from streamplug_webdataset.utils import identity

Function = Callable[[Any], Any]


def shuffle(
    bufsize: int = 1000,
    initial: int = 100,
    rng: None = None,
    seed: int | None = None,
    handler: None = None,
) -> Stage:
    """Shuffle samples in blocks of `bufsize`.

    Before samples are batched this is the shuffle of the plan with this block size: archives are read in
    random order, samples of several are shuffled together, and no samples are held in memory. After other
    stages it shuffles the samples of each block.

    Args:
        bufsize: Block size in samples; below 1, the order is kept.
        initial: Accepted for compatibility: there is no buffer to fill.
        rng: Only None: the order depends on a seed, so that it can be repeated.
        seed: Shuffle seed; None is that of the data set.
        handler: Only None: shuffling does not fail.

    Raises:
        ConfigError: If an argument is invalid.
    """
    _check_initial(initial)
    if rng is not None:
        raise ConfigError(
            f"shuffle(rng={rng!r:.60}): orders are those of a seed, so that a run can be resumed: "
            "pass seed="
        )
    if handler is not None:
        raise ConfigError("shuffle(handler=…): mixing samples does not fail; leave it out")
    return Shuffle(bufsize, seed)


def _check_initial(initial: Any) -> None:
    if initial is not None and (isinstance(initial, bool) or not isinstance(initial, int)):
        raise ConfigError(f"shuffle(initial={initial!r:.60}): expected a number of samples")


def decode(
    *handlers: Decode | str,
    pre: Iterable[Decode] | None = None,
    post: Iterable[Decode] | None = None,
    only: str | Iterable[str] | None = None,
    partial: bool = False,
    handler: Handler = reraise_exception,
    allow_unsafe_types: bool = False,
    max_value_bytes: int = MAX_VALUE_BYTES,
) -> Stage:
    """Decode values by their extensions.

    Args:
        *handlers: Image specifications, such as ``"pil"`` or ``"rgb8"``; see `imagehandler`. Or functions
            of an extension, with a leading dot, and bytes that return the value, or None for unknown
            extensions.
        pre: Functions that are tried first; None decompresses ``.gz``.
        post: Functions that are tried last; None decodes text, numbers, JSON, arrays and so on.
        only: The extensions to decode; None is all.
        partial: Whether values that are not bytes are left unchanged; otherwise they are an error.
        handler: Handler of samples that cannot be decoded.
        allow_unsafe_types: Whether to decode values that can run code, such as pickles.
        max_value_bytes: Maximum bytes of a value that is decompressed.
    """
    decoder = Decoder(
        handlers,
        pre,
        post,
        only,
        partial,
        unsafe=allow_unsafe_types,
        max_value_bytes=max_value_bytes,
    )
    return Decoding(decoder, handler)


def map(f: Function, handler: Handler = reraise_exception) -> Stage:  # noqa: A001 - the word that users know
    """Apply a function to each sample; None leaves the sample out.

    If it returns a dict for a dict, the ``__key__`` is kept.
    """
    _functions("map", [f])

    def apply(sample: Any) -> Any:
        output = f(sample)
        if output is None:
            return LEFT_OUT
        if isinstance(sample, dict) and isinstance(output, dict) and KEY in sample:
            output[KEY] = sample[KEY]
        return output

    stage = MapStage("map", apply, handler)
    stage.counts = False
    return stage


def map_dict(handler: Handler = reraise_exception, **functions: Function) -> Stage:
    """Apply functions to the values of dicts, by name."""
    _functions("map_dict", functions.values())

    def apply(sample: Any) -> Any:
        return {**sample, **{name: function(sample[name]) for name, function in functions.items()}}

    return MapStage("map_dict", apply, handler)


def map_tuple(*functions: Function | None, handler: Handler = reraise_exception) -> Stage:
    """Apply functions to the values of tuples by position; None leaves a value unchanged."""
    _functions("map_tuple", [function for function in functions if function is not None])

    def apply(sample: Any) -> Any:
        done = [value if f is None else f(value) for f, value in zip(functions, sample)]
        return (*done, *sample[len(done) :])

    return MapStage("map_tuple", apply, handler)


def select(predicate: Function) -> Stage:
    """Keep the samples for which a function returns true."""
    _functions("select", [predicate])
    return MapStage("select", lambda s: s if predicate(s) else LEFT_OUT, keeps=False)


def rename(handler: Handler = reraise_exception, keep: bool = True, **names: str) -> Stage:
    """Rename values: ``rename(image="jpg;png")`` names the first of these that exists ``image``.

    Args:
        handler: Handler of samples that have none of them.
        keep: Whether other values are kept.
        **names: The old names of each new one.
    """
    old_names = {new: _names("rename", old) for new, old in names.items()}
    replaced = {old for choices in old_names.values() for old in choices}

    def apply(sample: Any) -> Any:
        renamed = {new: _first(sample, old) for new, old in old_names.items()}
        if not keep:
            return renamed
        return {**{name: v for name, v in sample.items() if name not in replaced}, **renamed}

    return MapStage("rename", apply, handler)


def rename_keys(
    *pairs: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **patterns: str,
) -> Stage:
    """Rename values by patterns, and drop others: ``rename_keys(image="*g")``.

    Args:
        *pairs: New name and shell pattern. The last pattern that matches is used.
        keep_unselected: Whether values that match no pattern are kept.
        must_match: Whether a pattern without a match is an error.
        duplicate_is_error: Whether two values with the same new name are an error; else the first is used.
        **patterns: Further patterns by new name.
    """
    patterns_by_name: list[Any] = [*pairs, *patterns.items()]
    for pair in patterns_by_name:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not _are_texts(pair):
            raise ConfigError(
                f"rename_keys() takes pairs of a name and a pattern, got {pair!r:.80}"
            )

    def apply(sample: Any) -> Any:
        renamed: dict[str, Any] = {}
        used = set()
        for name, value in sample.items():
            fits = [
                pair
                for pair in patterns_by_name
                if fnmatch(name.rpartition("/")[2].lower(), pair[1])
            ]
            if not fits:
                if keep_unselected:
                    renamed[name] = value
                continue
            used.add(fits[-1])
            new = fits[-1][0]
            if new in renamed and duplicate_is_error:
                raise DataError(
                    f"{sample.get(KEY)!r} has more than one value for {new!r}: {sorted(sample)}"
                )
            renamed.setdefault(new, value)
        if must_match and (
            left := sorted({pattern for _, pattern in set(patterns_by_name) - used})
        ):
            raise DataError(
                f"{sample.get(KEY)!r} has nothing that {left} fit, only {sorted(sample)}"
            )
        return renamed

    return MapStage("rename_keys", apply)


def extract_keys(
    *patterns: str | Iterable[str], duplicate_is_error: bool = True, ignore_missing: bool = False
) -> Stage:
    """Make tuples of the values whose names fit patterns: ``extract_keys("*.png;*.jpg", "json")``.

    Args:
        *patterns: As for the shell, of the name with or without a dot before it; several with ``;`` between
            them.
        duplicate_is_error: Whether it is one that several names fit a pattern; else the first is taken.
        ignore_missing: Whether a pattern that no name fits is passed over, else it is an error.
    """
    pattern_lists = [_names("extract_keys", alternatives) for alternatives in patterns]

    def apply(sample: Any) -> Any:
        values = []
        for alternatives in pattern_lists:
            fits = [
                n for n in sample if any(fnmatch(n, p) or fnmatch(f".{n}", p) for p in alternatives)
            ]
            if len(fits) > 1 and duplicate_is_error:
                raise DataError(f"{sample.get(KEY)!r} has {fits}, which all fit {alternatives}")
            if not fits and not ignore_missing:
                raise DataError(
                    f"{sample.get(KEY)!r} has nothing that {alternatives} fit, only {sorted(sample)}"
                )
            values += [sample[name] for name in fits[:1]]
        return tuple(values)

    return MapStage("extract_keys", apply)


def associate(
    associator: Mapping[str, Mapping[str, Any]] | Callable[[str], Mapping[str, Any]],
) -> Stage:
    """Add values by the samples' keys, from a dict of dicts or a function that returns one."""
    if not callable(associator) and not isinstance(associator, Mapping):
        raise ConfigError(
            f"associate() takes a dict or a function of a key, got {associator!r:.80}"
        )
    find = associator if callable(associator) else lambda key: associator.get(key, {})
    return MapStage("associate", lambda sample: {**sample, **find(sample[KEY])})


def to_tuple(
    *names: str,
    handler: Handler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
) -> Stage:
    """Make tuples of the values with these names; ``"jpg;png"`` is the first of these that is there.

    Args:
        *names: The names, or one text with blanks between them.
        handler: What to do about samples that lack one.
        missing_is_error: Whether that is an error; else the value is None.
        none_is_error: Whether values that are None are an error; None for as `missing_is_error`.
    """
    split = names[0].split() if len(names) == 1 and isinstance(names[0], str) else names
    name_lists = [_names("to_tuple", alternatives) for alternatives in split]
    refuse = missing_is_error if none_is_error is None else none_is_error

    def apply(sample: Any) -> Any:
        values = tuple(
            [_first(sample, alternatives, missing_is_error) for alternatives in name_lists]
        )
        if refuse and any(value is None for value in values):
            raise DataError(f"to_tuple{names}: {sample.get(KEY)!r} has a value that is None")
        return values

    return MapStage("to_tuple", apply, handler)


def batched(
    batchsize: int = 20,
    collation_fn: Callable[[list[Any]], Any] | None = collated,
    partial: bool = True,
) -> Stage:
    """Make batches.

    Args:
        batchsize: Samples of a batch.
        collation_fn: Makes a batch of a list of samples; None leaves it a list.
        partial: Whether the last batch may be short, else it is left out.
    """
    return Batched("batched", batchsize, collation_fn, partial=partial)


def listed(batchsize: int = 20, partial: bool = True) -> Stage:
    """Make lists of `batchsize` samples."""
    return Batched("listed", batchsize, None, partial=partial)


def unbatched() -> Stage:
    """Split batches into samples."""
    return Unbatched("unbatched", apart)


def unlisted() -> Stage:
    """Split lists into samples."""
    return Unbatched("unlisted", as_list)


def slice(*bounds: int | None) -> Stage:  # noqa: A001 - the word that users know
    """Select samples by number in each process, as `itertools.islice`."""
    return Slice(*bounds)


def rsample(p: float = 0.5) -> Stage:
    """Keep each sample with a probability; the same ones each time that an epoch is read."""
    return Sampled(p)


class detshuffle(Shuffle):  # noqa: N801 - the word that users know
    """Mixes samples, as `shuffle`: every order can be had again.

    Attributes:
        epoch: Which one it mixed last, from -1.
    """

    name = "detshuffle"

    def __init__(
        self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1
    ) -> None:
        """Mix over `bufsize` samples; the order is that of `seed` and of the epoch.

        Raises:
            ConfigError: If an argument has no meaning.
        """
        _check_initial(initial)
        if epoch != -1:
            raise ConfigError(
                f"detshuffle(epoch={epoch!r:.60}): the data set counts epochs; leave it out"
            )
        super().__init__(bufsize, seed)
        self.epoch = epoch

    def run(self, source: Iterator[Any], progress: Progress, at: int) -> Iterator[Any]:
        for output in super().run(source, progress, at):
            self.epoch = progress.epoch or 0
            yield output


def pipelinefilter(function: Callable[..., Iterable[Any]]) -> Callable[..., Stage]:
    """Return a function that makes stages of a function of an iterator and further arguments."""

    @wraps(function)
    def stage(*args: Any, **kwargs: Any) -> Stage:
        def run(source: Iterator[Any]) -> Iterable[Any]:
            return function(source, *args, **kwargs)

        run.__name__ = getattr(function, "__name__", "stage")
        return FunctionStage(run)

    return stage


def log_keys(logfile: str | None = None) -> Stage:
    """Log the keys of samples to a file, with the process that read each; None logs nothing."""
    return LogKeys(logfile) if logfile else MapStage("log_keys", identity)


def _functions(stage: str, functions: Iterable[Any]) -> None:
    stages = list(functions)
    if not stages or not all(builtins.map(callable, stages)):
        raise ConfigError(f"{stage}() takes functions, got {stages!r:.80}")


def _names(stage: str, names: Any) -> list[str]:
    if isinstance(names, str):
        return names.split(";")
    if not isinstance(names, Iterable) or not _are_texts(found := list(names)):
        raise ConfigError(f"{stage}() takes names as text, got {names!r:.80}")
    return found


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _first(sample: Any, names: list[str], needed: bool = True) -> Any:
    if not isinstance(sample, Mapping):
        raise DataError(f"values by name are those of dicts, not of {type(sample).__name__}")
    for name in names:
        if name in sample:
            return sample[name]
    if needed:
        raise DataError(f"{sample.get(KEY)!r} has none of {names}, only {sorted(sample)}")
    return None
