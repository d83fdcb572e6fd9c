"""WebDataset and DataPipeline, with the arguments that users of webdataset know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streamplug.config import parse_bytes
from streamplug.errors import ConfigError
from streamplug_webdataset.handlers import reraise_exception
from streamplug_webdataset.pipeline import Pipeline, Wish
from streamplug_webdataset.source import Archives
from streamplug_webdataset.stages import Shuffle

Urls = str | Sequence[str]

_OURS = {"streams", "remote", "format", "shuffle", "shuffle_seed", "shuffle_block_size"}
_OURS |= {"curriculum", "epoch_size", "decoders"}


class Splitter:
    """Stands for what deals archives to processes: the plan deals samples, so there is nothing to do."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


split_by_node = Splitter("split_by_node")
split_by_worker = Splitter("split_by_worker")
single_node_only = Splitter("single_node_only")


class WebDataset(Pipeline):
    """Samples of tar archives, for programs that were written for the package webdataset.

    It is an `IterableDataset` of torch, where that is installed, on a `StreamingDataset`: the order is the
    same on any hardware, samples are dealt to ranks and workers by themselves, and `state_dict` is exact.
    Values are bytes until `decode`.

    Args:
        urls: The archives: a path or URL with ``{…}`` or ``*``, several with ``::`` between them, a
            directory, or a list.
        handler: Only `reraise_exception`: a damaged archive is an error.
        mode: None, or ``"resampled"``, as `resampled`.
        resampled: Whether to go on without end, pass after pass, archives in random order; every sample comes
            once in a pass.
        repeat: Whether to go on without end; as the method.
        shardshuffle: Whether archives come in random order, all of them if true or any number; `shuffle`
            does this, too.
        cache_size: How many bytes of archives to keep in `cache_dir`; -1 for any number, 0 for no directory.
        cache_dir: Where archives from far away are kept; None for the directory for temporary files.
        detshuffle: Taken for the sake of existing programs: every order can be had again.
        nodesplitter: One of `split_by_node`, `single_node_only` or None: samples are dealt to all ranks.
        workersplitter: `split_by_worker` or None: samples are dealt to all workers.
        empty_check: Whether a data set without samples is an error.
        verbose: Whether to show what is downloaded.
        seed: Of the order; the same on all ranks.
        batch_size: Samples after which workers take turns, where a plain `DataLoader` makes the batches: give
            it the same. `batched` and `WebLoader` say it themselves.
        allow_unsafe_types: Whether `decode` may decode values that can run code, such as pickles.
        storage_options: Settings of the storage.
        **options: Further ones of `StreamingDataset`, such as `columns` and `predownload`.

    Raises:
        ConfigError: If an argument has no meaning here; says what to do instead.
        StreamplugError: If the archives cannot be opened.
    """

    def __init__(  # noqa: PLR0917 - those of webdataset, in its order
        self,
        urls: Urls,
        handler: Callable[[Exception], Any] = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: bool | int | None = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        url_to_name: None = None,
        detshuffle: bool = False,
        nodesplitter: Any = None,
        workersplitter: Any = None,
        select_files: None = None,
        rename_files: None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        batch_size: int | None = None,
        allow_unsafe_types: bool = False,
        storage_options: Any = None,
        **options: Any,
    ) -> None:
        check_handler(handler)
        if mode not in (None, "resampled"):
            raise ConfigError(f"mode={mode!r}: None and 'resampled' are there")
        for name, splitter in (("nodesplitter", nodesplitter), ("workersplitter", workersplitter)):
            if splitter is not None and not isinstance(splitter, Splitter):
                raise ConfigError(
                    f"{name}={splitter!r:.80}: samples are dealt to ranks and workers by the plan; leave it "
                    "out, or pass world="
                )
        if detshuffle not in (True, False):
            raise ConfigError(f"detshuffle={detshuffle!r}: expected True or False")
        refused = {"url_to_name": url_to_name, "select_files": select_files}
        refused["rename_files"] = rename_files
        for name, value in refused.items():
            if value is not None:
                raise ConfigError(f"{name}= is not there: {_INSTEAD[name]}")
        if taken := sorted(_OURS & options.keys()):
            raise ConfigError(f"{', '.join(taken)}: set by the pipeline; see its methods")
        resampled = resampled or mode == "resampled"
        if verbose:
            options = {"progress_bar": True, **options}
        keep = cache_dir if cache_size else None
        limit = parse_bytes(cache_size, "cache_size") if keep and cache_size > 0 else None
        stream = Archives(
            remote=located(urls),
            local=keep,
            cache_limit=limit,
            format="webdataset:raw",
            storage_options=storage_options,
        )
        wish = Wish(
            stream,
            options,
            mix=1 if shardshuffle or resampled else None,
            seed=seed,
            batch=batch_size,
            trusted=allow_unsafe_types,
            empty=not empty_check,
            passes=0 if resampled or repeat else 1,
        )
        super().__init__(wish)


_INSTEAD = {
    "url_to_name": "the cache keeps archives apart by itself",
    "select_files": "name the extensions in columns=, or select samples with select()",
    "rename_files": "rename values with rename()",
}


def check_handler(handler: Any) -> None:
    """Refuse what would leave out archives.

    Raises:
        ConfigError: If a handler is anything but `reraise_exception`.
    """
    if getattr(handler, "__name__", "") != "reraise_exception":
        raise ConfigError(
            f"handler={getattr(handler, '__name__', handler)!r:.80}: an archive that cannot be read is an "
            "error, for the order depends on all of them; repair it, or leave it out of the list. Stages, "
            "such as decode(), take handlers"
        )


def located(urls: Any) -> str | list[str]:
    """Return where archives are, as a stream takes it.

    Raises:
        ConfigError: If that is nothing it can read.
    """
    if isinstance(urls, str):
        parts = urls.split("::")
        return _url(parts[0]) if len(parts) == 1 else [_url(each) for each in parts]
    if isinstance(urls, Iterable) and not isinstance(urls, (dict, bytes)):
        found = [_url(each) for each in urls]
        if found:
            return found
    raise ConfigError(f"urls={urls!r:.80}: expected paths or URLs of archives")


def _url(url: Any) -> str:
    text = str(url)
    if text.startswith("pipe:") or text == "-":
        raise ConfigError(
            f"{text[:80]!r}: what a program prints has no order to return to; name the URL itself, such as "
            "s3://bucket/x-{0000..0099}.tar, which the storages read"
        )
    if text.endswith((".yaml", ".yml", ".json")):
        raise ConfigError(
            f"{text!r:.80}: expected archives; mix data sets with streams of StreamingDataset"
        )
    return text


# -- as a list of stages ----------------------------------------------------------------


class SimpleShardList:
    """The archives that a `DataPipeline` begins with."""

    endless = False

    def __init__(self, urls: Urls, seed: int | None = None) -> None:
        """Read these; in random order if there is a seed."""
        self.urls, self.seed = urls, seed


class ResampledShards(SimpleShardList):
    """Archives that are read without end, pass after pass, in random order."""

    endless = True


class Expander:
    """Stands for what makes samples of archives."""


def tarfile_to_samples(handler: Callable[[Exception], Any] = reraise_exception) -> Expander:
    """Make samples of archives, in a `DataPipeline`; a damaged archive is an error."""
    check_handler(handler)
    return Expander()


class DataPipeline(Pipeline):
    """A pipeline that is written as a list of stages: `SimpleShardList`, …, `tarfile_to_samples`, ….

    Raises:
        ConfigError: If the list does not begin so.
    """

    def __init__(self, *stages: Any, **options: Any) -> None:
        """Read the archives in `stages`; `options` as for `WebDataset`."""
        flat = [s for each in stages for s in (each if isinstance(each, list) else [each])]
        flat = [each for each in flat if each is not None]
        at = next((i for i, each in enumerate(flat) if isinstance(each, Expander)), 0)
        if not at or not isinstance(flat[0], SimpleShardList):
            raise ConfigError(
                "a DataPipeline begins with SimpleShardList(urls), and has tarfile_to_samples() before what "
                "is done with samples"
            )
        shards, mixed = flat[0], flat[0].endless or flat[0].seed is not None
        for each in flat[1:at]:
            if not isinstance(each, (Splitter, Shuffle)):
                raise ConfigError(
                    f"{each!r:.80}: between archives and samples there may be shuffle()"
                )
            mixed = mixed or isinstance(each, Shuffle)
        settings = {"shardshuffle": mixed, "seed": shards.seed, "resampled": shards.endless}
        made: Pipeline = WebDataset(shards.urls, **{**settings, **options})
        if flat[at + 1 :]:
            made = made.compose(*flat[at + 1 :])
        self.__dict__.update(made.__dict__)
