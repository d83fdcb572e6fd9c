"""WebDataset and DataPipeline with the arguments of webdataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamplug.config import check_flags, parse_bytes
from streamplug.errors import ConfigError, DataError
from streamplug.source import check_column_names
from streamplug_webdataset.handlers import reraise_exception
from streamplug_webdataset.iterable import IterablePipeline, flattened
from streamplug_webdataset.names import KEY, URL, split_name
from streamplug_webdataset.pipeline import Pipeline, PipelineOptions
from streamplug_webdataset.shardlists import (
    ResampledShards,
    SimpleShardList,
    Splitter,
    Urls,
    located,
)
from streamplug_webdataset.source import Archives
from streamplug_webdataset.stages import LEFT_OUT, MapStage, Shuffle, Stage
from streamplug_webdataset.tariterators import (
    Expander,
    RenameFiles,
    SelectFiles,
    check_handler,
    chosen_name,
    tarfile_samples,
)
from streamplug_webdataset.utils import PipelineStage

_OURS = {"streams", "remote", "format", "shuffle", "shuffle_seed", "shuffle_block_size"}
_OURS |= {"curriculum", "epoch_size", "decoders"}


class WebDataset(Pipeline):
    """Samples of tar archives, for programs written for the package webdataset.

    It is an `IterableDataset` of torch, if that is installed, on a `StreamingDataset`: the order is the same
    on any hardware, samples are distributed to ranks and workers, and `state_dict` is exact. Values are
    bytes until `decode`.

    Args:
        urls: The archives: a path or URL with ``{…}`` or ``*``, several with ``::`` between them, a
            directory, or a list.
        handler: Only `reraise_exception`: a damaged archive is an error.
        mode: None, or ``"resampled"``, as `resampled`.
        resampled: Whether passes are unlimited, with archives in random order; each pass has every sample
            once.
        repeat: Whether passes are unlimited, as the method.
        shardshuffle: Whether archives are read in random order; any number is true. `shuffle` does this, too.
        cache_size: Limit of downloaded archives in bytes, or text such as ``"10gb"``; -1 is unlimited, 0
            disables `cache_dir`.
        cache_dir: Directory for downloaded archives; None is the directory for temporary files.
        detshuffle: Accepted for compatibility: every order can be repeated.
        nodesplitter: `split_by_node`, `single_node_only` or None: samples are distributed to all ranks.
        workersplitter: `split_by_worker` or None: samples are distributed to all workers.
        empty_check: Whether a data set without samples is an error.
        verbose: Whether to show downloads.
        seed: Shuffle seed, the same on all ranks.
        batch_size: Samples after which workers take turns, if a plain `DataLoader` makes the batches: pass
            its batch size. `batched` and `WebLoader` set it.
        last_dot: Whether extensions begin at the last dot of a name rather than at the first.
        allow_unsafe_types: Whether `decode` may decode values that can run code, such as pickles.
        storage_options: Options of the storage.
        **options: Further ones of `StreamingDataset`, such as `columns` and `predownload`.

    Raises:
        ConfigError: If an argument is invalid or unsupported; the error says what to do instead.
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
        cache_size: float | str = -1,
        cache_dir: str | None = None,
        url_to_name: None = None,
        detshuffle: bool = False,
        nodesplitter: Any = None,
        workersplitter: Any = None,
        select_files: SelectFiles | None = None,
        rename_files: RenameFiles | None = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        batch_size: int | None = None,
        last_dot: bool = False,
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
        check_flags(allow_unsafe_types=allow_unsafe_types, last_dot=last_dot)
        flags = {"resampled": resampled, "repeat": repeat, "detshuffle": detshuffle}
        for name, flag in {**flags, "empty_check": empty_check, "verbose": verbose}.items():
            if flag not in (True, False):
                raise ConfigError(f"{name}={flag!r:.60}: expected True or False")
        if url_to_name is not None:
            raise ConfigError("url_to_name= is not there: the cache keeps archives apart by itself")
        if taken := sorted(_OURS & options.keys()):
            raise ConfigError(f"{', '.join(taken)}: set by the pipeline; see its methods")
        resampled = resampled or mode == "resampled"
        if verbose:
            options = {"progress_bar": True, **options}
        keep = cache_dir if cache_size else None
        is_limited = cache_size not in (-1, 0)
        limit = parse_bytes(cache_size, "cache_size") if is_limited else None
        chosen = select_files is not None or rename_files is not None
        stream = Archives(
            remote=located(urls),
            local=keep,
            cache_limit=limit,
            format=f"webdataset:raw{',case' * chosen}{',last_dot' * last_dot}",
            storage_options=storage_options,
            reads_files=chosen,
        )
        settings = PipelineOptions(
            stream,
            options,
            shuffle_block=1 if shardshuffle or resampled else None,
            seed=seed,
            batch=batch_size,
            trusted=allow_unsafe_types,
            empty=not empty_check,
            passes=0 if resampled or repeat else 1,
        )
        columns = options.get("columns")
        check_column_names(columns)
        kept = (KEY, URL) if columns is None or KEY in columns else (URL,)
        super().__init__(
            settings, [_files_stage(select_files, rename_files, kept, last_dot)] if chosen else []
        )


def _files_stage(
    select: SelectFiles | None, rename: RenameFiles | None, kept: Sequence[str], last_dot: bool
) -> Stage:
    """Return the stage that selects and renames the files of samples, and keeps the columns `kept`."""

    def apply(sample: dict[str, Any]) -> Any:
        changed = {name: sample[name] for name in kept if name in sample}
        before = len(changed)
        for own_extension, value in sample.items():
            if own_extension in (KEY, URL):
                continue
            name = chosen_name(f"{sample[KEY]}.{own_extension}", select, rename)
            if name is None:
                continue
            key, extension = split_name(name, last_dot=last_dot) or ("", "")
            if key != sample[KEY]:
                raise DataError(
                    f"rename_files made {name!r} of a file of {sample[KEY]!r}: only extensions may change; "
                    "tarfile_to_samples(rename_files=…) in a DataPipeline takes any names"
                )
            if extension in changed:
                raise DataError(f"after rename_files {key!r} has two files {extension!r}")
            changed[extension] = value
        return changed if len(changed) > before else LEFT_OUT

    return MapStage("select_files", apply, keeps=False)


class DataPipeline(Pipeline):
    """A pipeline given as a list of stages.

    If it begins with `SimpleShardList` or `ResampledShards`, and has only splitters and `shuffle` before
    `tarfile_to_samples`, it has a plan and a state, as `WebDataset`; the last of these stages that has a seed
    sets the shuffle seed. Otherwise it is an `IterablePipeline` without a state over its first stage, an
    iterable or a function that returns an iterator; subclass that class for such stages.
    """

    def __new__(cls, *stages: Any, **options: Any) -> Any:
        """Return a pipeline of the kind that the stages require.

        Raises:
            ConfigError: If there are `options`, but no plan to apply them to.
        """
        # Copies are made without arguments, and a subclass may have others than stages.
        if cls is not DataPipeline or not stages or _planned(flattened(stages)):
            return super().__new__(cls)
        if options:
            raise ConfigError(
                f"{', '.join(options)}: options of data sets, for pipelines that begin with "
                "SimpleShardList(urls), and have tarfile_to_samples() before what is done with samples; this "
                "one is over an iterable"
            )
        return IterablePipeline(*stages)

    def __init__(self, *stages: Any, **options: Any) -> None:
        """Read the archives in `stages`; `options` as for `WebDataset`."""
        flat = flattened(stages)
        if not flat:
            raise ConfigError(
                "a DataPipeline begins with SimpleShardList(urls), or with an iterable"
            )
        if not _planned(flat):  # of a subclass
            raise ConfigError(
                f"{type(self).__name__}: a subclass of DataPipeline begins with SimpleShardList(urls), and "
                "has only splitters and shuffle() before tarfile_to_samples(); subclass IterablePipeline "
                "for other stages"
            )
        shards, at = flat[0], _expander_of(flat)
        expander = flat[at] if isinstance(flat[at], Expander) else Expander()
        endless = isinstance(shards, ResampledShards)
        shuffles = [stage for stage in flat[1:at] if isinstance(stage, Shuffle) and stage.size > 0]
        seeds = [stage.seed for stage in (shards, *shuffles) if stage.seed is not None]
        mixed = bool(endless or seeds or shuffles)
        seed = seeds[-1] if seeds else None
        settings: dict[str, Any] = {"shardshuffle": mixed, "seed": seed, "resampled": endless}
        settings |= {"select_files": expander.select_files, "rename_files": expander.rename_files}
        settings["last_dot"] = expander.last_dot
        made: Pipeline = WebDataset(shards.remote, **{**settings, **options})
        if flat[at + 1 :]:
            made = made.compose(*flat[at + 1 :])
        self.__dict__.update(made.__dict__)


DataPipeline.register(IterablePipeline)


def _expander_of(flat: Sequence[Any]) -> int:
    """Return the number of the stage that reads archives; 0 if there is none."""
    return next(
        (
            i
            for i, stage in enumerate(flat)
            if isinstance(stage, Expander) or stage is tarfile_samples
        ),
        0,
    )


def _planned(flat: Sequence[Any]) -> bool:
    """Return whether a plan can order the samples of these stages."""
    at = _expander_of(flat)
    if not at or any(isinstance(stage, PipelineStage) for stage in flat):
        return False
    shards = flat[0]
    known = type(shards) is SimpleShardList or (type(shards) is ResampledShards and shards.plain)
    between = all(isinstance(stage, (Splitter, Shuffle)) for stage in flat[1:at])
    return known and between and not getattr(flat[at], "rename_files", None)
