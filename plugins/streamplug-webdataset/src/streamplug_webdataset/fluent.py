"""Methods of pipelines that add stages."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from streamplug.config import whole_number
from streamplug.interfaces import MAX_VALUE_BYTES
from streamplug_webdataset import filters
from streamplug_webdataset.collate import collated
from streamplug_webdataset.decoding import Decode
from streamplug_webdataset.handlers import Handler, reraise_exception
from streamplug_webdataset.samples import info, xdecode

if TYPE_CHECKING:
    from typing_extensions import Self


class Fluent(abc.ABC):
    """Base class of pipelines. Each method returns a new pipeline and leaves this one unchanged."""

    _length: int | None
    """Length set by `with_length`."""

    @abc.abstractmethod
    def compose(self, *stages: Any) -> Self:
        """Add stages: of this package, objects of `PipelineStage`, or functions of an iterator.

        It is unknown which samples a function holds, so a resumed run calls it again from the beginning of
        the epoch.
        """

    def then(self, function: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any) -> Self:
        """Add a function of an iterator and further arguments."""
        return self.compose(_Then(function, args, kwargs))

    def shuffle(self, size: int = 1000, *, bufsize: int | None = None, **kw: Any) -> Self:
        """Shuffle samples in blocks of `size`; see `filters.shuffle`.

        Args:
            size: Block size in samples.
            bufsize: Alias of `size`, which takes precedence.
            **kw: `initial` and `seed`.
        """
        return self.compose(filters.shuffle(size if bufsize is None else bufsize, **kw))

    def detshuffle(self, bufsize: int = 1000, initial: int = 100, seed: int = 0) -> Self:
        """Shuffle samples; see `filters.detshuffle`."""
        return self.compose(filters.detshuffle(bufsize, initial, seed))

    def info(self, *args: Any, **kw: Any) -> Self:
        """Print some samples; see `samples.info`."""
        return self.compose(info(*args, **kw))

    def xdecode(self, *args: Any, **kw: Any) -> Self:
        """Decode values by patterns; see `samples.xdecode`."""
        return self.compose(xdecode(*args, **kw))

    def decode(
        self,
        *handlers: Decode | str,
        pre: Iterable[Decode] | None = None,
        post: Iterable[Decode] | None = None,
        only: str | Iterable[str] | None = None,
        partial: bool = False,
        handler: Handler = reraise_exception,
        allow_unsafe_types: bool = False,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> Self:
        """Decode values by their extensions; see `filters.decode`."""
        return self.compose(
            filters.decode(
                *handlers,
                pre=pre,
                post=post,
                only=only,
                partial=partial,
                handler=handler,
                allow_unsafe_types=allow_unsafe_types,
                max_value_bytes=max_value_bytes,
            )
        )

    def map(self, f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Self:
        """Apply a function to each sample; see `filters.map`."""
        return self.compose(filters.map(f, handler=handler))

    def map_dict(
        self, handler: Handler = reraise_exception, **functions: Callable[[Any], Any]
    ) -> Self:
        """Apply functions to values by name; see `filters.map_dict`."""
        return self.compose(filters.map_dict(handler=handler, **functions))

    def map_tuple(
        self, *functions: Callable[[Any], Any] | None, handler: Handler = reraise_exception
    ) -> Self:
        """Apply functions to values by position; see `filters.map_tuple`."""
        return self.compose(filters.map_tuple(*functions, handler=handler))

    def select(self, predicate: Callable[[Any], Any]) -> Self:
        """Keep the samples for which a function returns true."""
        return self.compose(filters.select(predicate))

    def rename(self, handler: Handler = reraise_exception, keep: bool = True, **names: str) -> Self:
        """Rename values; see `filters.rename`."""
        return self.compose(filters.rename(handler=handler, keep=keep, **names))

    def rename_keys(self, *pairs: tuple[str, str], **options: Any) -> Self:
        """Rename values by patterns; see `filters.rename_keys`."""
        return self.compose(filters.rename_keys(*pairs, **options))

    def extract_keys(
        self,
        *patterns: str | Iterable[str],
        duplicate_is_error: bool = True,
        ignore_missing: bool = False,
    ) -> Self:
        """Make tuples of values by patterns; see `filters.extract_keys`."""
        return self.compose(
            filters.extract_keys(
                *patterns, duplicate_is_error=duplicate_is_error, ignore_missing=ignore_missing
            )
        )

    def rsample(self, p: float = 0.5) -> Self:
        """Keep each sample with a probability; see `filters.rsample`."""
        return self.compose(filters.rsample(p))

    def associate(self, associator: Any) -> Self:
        """Add values by the samples' keys; see `filters.associate`."""
        return self.compose(filters.associate(associator))

    def to_tuple(
        self,
        *names: str,
        handler: Handler = reraise_exception,
        missing_is_error: bool = True,
        none_is_error: bool | None = None,
    ) -> Self:
        """Make tuples of values by name; see `filters.to_tuple`."""
        return self.compose(
            filters.to_tuple(
                *names,
                handler=handler,
                missing_is_error=missing_is_error,
                none_is_error=none_is_error,
            )
        )

    def batched(
        self,
        batchsize: int,
        collation_fn: Callable[[list[Any]], Any] | None = collated,
        partial: bool = True,
    ) -> Self:
        """Make batches; see `filters.batched`."""
        return self.compose(filters.batched(batchsize, collation_fn, partial))

    def listed(self, batchsize: int, partial: bool = True) -> Self:
        """Make lists of `batchsize` samples, of fewer at the end if `partial`."""
        return self.compose(filters.listed(batchsize, partial))

    def unbatched(self) -> Self:
        """Split batches into samples."""
        return self.compose(filters.unbatched())

    def unlisted(self) -> Self:
        """Split lists into samples."""
        return self.compose(filters.unlisted())

    def slice(self, *bounds: int | None) -> Self:
        """Select samples by number in each process, as `itertools.islice`."""
        return self.compose(filters.slice(*bounds))

    def log_keys(self, logfile: str | None = None) -> Self:
        """Log the keys of samples to a file, with the process that read each; None logs nothing."""
        return self if not logfile else self.compose(filters.log_keys(logfile))

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of the last loop; the next one opens them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Set the number of outputs of each loop of a rank, over all its workers.

        The data set is read pass after pass, and a loop continues where the last one ended. If stages leave
        out or rebatch samples, each loop starts with a new pass.

        Args:
            nsamples: Number of outputs, after all stages.
            nbatches: Alias of `nsamples`; the larger one is used.
        """

    @abc.abstractmethod
    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Set the number of passes over the data set in each loop.

        Args:
            nepochs: Number of passes; below 1, they are unlimited.
            nbatches: Number of outputs instead, as for `with_epoch`.
        """

    @abc.abstractmethod
    def with_length(self, n: int, silent: bool = False) -> Self:
        """Set ``len()`` to `n`; warns if another length is known, unless `silent`."""

    @abc.abstractmethod
    def known_length(self) -> int | None:
        """Return the number of outputs of a loop, or None if it is unknown."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Prepare for the current options and stages; the next loop starts anew."""

    def changed(self, **attributes: Any) -> Self:
        """Return a copy with other values of attributes, which starts anew."""
        # Not copy.copy, which pickles the functions of stages.
        pipeline = object.__new__(type(self))
        pipeline.__dict__.update(self.__dict__, **attributes)
        pipeline.reset()
        return pipeline

    def __len__(self) -> int:
        """Return the number of outputs of a loop of this rank.

        Raises:
            TypeError: If it is unknown.
        """
        length = self._length if self._length is not None else self.known_length()
        if length is None:
            raise TypeError("the number of outputs is known after a loop only; see with_length()")
        return length

    def __bool__(self) -> bool:
        return True


class _Then:
    """A function of an iterator with its further arguments."""

    def __init__(
        self, function: Callable[..., Iterable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self.__name__ = getattr(function, "__name__", "then")

    def __call__(self, source: Iterator[Any]) -> Iterable[Any]:
        return self._function(source, *self._args, **self._kwargs)


def number_of_outputs(what: str, nsamples: int, nbatches: int) -> int:
    """Return the number of outputs that a user sets by either argument.

    Raises:
        ConfigError: If it is below 1.
    """
    counts = [whole_number(what, number, -1) for number in (nsamples, nbatches)]
    count: int = whole_number(what, max(counts), 1)
    return count


def checked_length(n: int, known: int | None, *, silent: bool) -> int:
    """Return the length that a user sets; warn if a different one is known.

    Raises:
        ConfigError: If it is negative or no whole number.
    """
    n = whole_number("with_length", n, 0)
    if known not in (None, n) and not silent:
        warnings.warn(f"with_length({n}): a loop has {known} outputs", stacklevel=3)
    return n
