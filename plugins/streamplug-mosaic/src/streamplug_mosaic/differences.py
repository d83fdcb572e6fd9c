"""Differences between mosaicml-streaming and streamplug: the list that ``--list`` and the guide show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple


class PeerDifference(NamedTuple):
    """One difference.

    Attributes:
        what: The parameter, class or situation.
        theirs: Behavior of mosaicml-streaming.
        ours: Behavior of streamplug.
    """

    what: str
    theirs: str
    ours: str


ALWAYS = (
    PeerDifference("`download_retry=2`", "Two attempts", "Two retries after the first attempt"),
    PeerDifference(
        "A storage that is away while samples are read",
        "An error after the attempts",
        "Waited for, 10 minutes by default; set `download_patience`",
    ),
    PeerDifference(
        "`predownload=None`", "8 batches", "Adapts to the size of shards and the speed of downloads"
    ),
    PeerDifference(
        "`validate_hash=None`",
        "No check",
        "Downloads are verified with a fast checksum from the index",
    ),
    PeerDifference(
        "`merge_index` of parts whose columns differ",
        "Writes an index that cannot be read",
        "An error that names the part, the column and both encodings",
    ),
    PeerDifference(
        "A download that fails after all retries",
        "May end the epoch early or hang",
        "An error in the training loop",
    ),
    PeerDifference(
        "An exception inside `with MDSWriter(…)`",
        "The index is written anyway",
        "No index is written, so the data set is visibly incomplete",
    ),
    PeerDifference(
        "Bytes as the value of an `MDSWriter`, for example of a `str` column",
        "Stored unchecked",
        "Stored if the encoding can decode them, otherwise an error; `pkl` pickles them",
    ),
    PeerDifference(
        "A number too large for `float16` or `float32`",
        "Stored as infinity",
        "An error",
    ),
    PeerDifference(
        "An image with a palette as the value of a `pil` column",
        "Stored without the palette",
        "An error, if its colors differ without the palette",
    ),
    PeerDifference(
        "`pkl` columns in a `LocalDataset`",
        "Decoded",
        "An error; use `StreamingDataset(local=…, allow_unsafe_types=True)`",
    ),
    PeerDifference(
        "`state_dict`",
        "Holds the position",
        "Also identifies the order; loading it into a run with another order is an error",
    ),
    PeerDifference(
        "Resuming just before the end of an epoch",
        "Ranks that are one sample short repeat one of the remaining samples",
        "They repeat the same sample as in an uninterrupted run",
    ),
    PeerDifference(
        "Resuming `stratified`, `per_stream` or `device_per_stream` on other numbers of nodes or ranks",
        "Another order: samples may be lost or repeated",
        "The order of the run in which the state was saved; that of mosaicml-streaming if it saved the state",
    ),
    PeerDifference(
        "Epochs after a resumed epoch, with workers and without `num_canonical_nodes=`",
        "May use the canonical nodes of a new run, unless a state was saved in between",
        "Use the canonical nodes of the state",
    ),
    PeerDifference(
        (
            "An epoch without a whole batch, for example a stream that is too small for "
            "`batching_method=`"
        ),
        "May be empty, with a logged warning",
        "An error",
    ),
    PeerDifference(
        "`len(dataset)`",
        "The size of the epoch divided by the number of ranks",
        "The number of samples that the rank yields, with repeated and without dropped samples",
    ),
    PeerDifference(
        "Samples larger than `size_limit`",
        "One shard each, preceded by an empty shard if it is the first sample",
        "One shard each and a warning; no shard is empty",
    ),
    PeerDifference(
        "`predownload` of a data set, if it was not set", "8 batches, or 64 samples", "None"
    ),
    PeerDifference(
        "`num_canonical_nodes`, `shuffle_block_size` of a data set, if they were not set",
        "None until the first epoch",
        "The defaults, immediately",
    ),
    PeerDifference(
        "`next_epoch`, `cache_usage`, `cache_limit` and other attributes of a data set",
        "Writable",
        'Read-only; `load_state_dict({…, "epoch": 3})` starts another epoch',
    ),
    PeerDifference(
        "`prepare_shard(…, blocking=False)`", "Does not wait for other processes", "Waits"
    ),
    PeerDifference(
        "A subclass that overrides `Stream.get_shards`, `StreamingDataset.resample_streams` and the like",
        "They are called",
        "An error",
    ),
    PeerDifference(
        "`evict_shard` of a data set that is read in place", "Deletes the shard", "An error"
    ),
    PeerDifference(
        "`new_samples` of a writer", "The encoded samples", "Only the indices of the samples"
    ),
    PeerDifference(
        (
            "State of samples that are not whole global batches of the data set, for example of a "
            "loader with another batch size"
        ),
        "Possible",
        "Possible only at the end of an epoch; otherwise an error",
    ),
    PeerDifference(
        "`get_item` of well-known data sets: name of its parameter",
        "`idx`",
        "`sample_id`; pass it by position",
    ),
    PeerDifference(
        "A shard that is deleted from `local` while a data set reads it",
        "Is downloaded again",
        "The open file stays readable; `evict_shard` forces a new download",
    ),
    PeerDifference("Fewer samples than one batch per rank", "An error", "Allowed"),
    PeerDifference("Zero-dimensional and empty arrays in `MDSWriter`", "An error", "Stored"),
    PeerDifference(
        "`get_item(…, retry=)`",
        "How often to download an evicted shard again",
        "Ignored; set `download_retry`",
    ),
    PeerDifference(
        "`clean_stale_shared_memory()`",
        "Removes shared memory that killed runs left behind",
        "Does nothing and logs that: there is no named shared memory",
    ),
    PeerDifference(
        "Data sets of `streaming.vision`",
        "Subclass `VisionDataset` of torchvision; images become tensors",
        "Do not depend on torchvision; images become arrays, which a loader converts to tensors",
    ),
    PeerDifference(
        "Labels of `StreamingEnWiki`",
        "Also set at positions whose prediction weight is 0",
        "Set only where the weight is above 0",
    ),
    PeerDifference(
        "`cache_limit` of a data set with several streams",
        "Applies to all streams together",
        "Applies to each directory",
    ),
    PeerDifference(
        "Directory of `local=None`",
        "In the temporary directory",
        "In a directory `streamplug-UID` of it that belongs to the user",
    ),
    PeerDifference(
        "`dataframe_to_mds` of a column of maps without `columns`", "An error", "Stored as `json`"
    ),
    PeerDifference(
        "`dataset[::-1]` and other slices backwards without a start",
        "Empty",
        "The samples from the last one",
    ),
    PeerDifference(
        "`merge_index(…, keep_local=False)`",
        "Removes the local directory of `out` with all its data",
        "Removes only the merged index from it",
    ),
    PeerDifference(
        "Two data sets with one remote and the same `local=` at once",
        "An error",
        "Allowed; they share the files",
    ),
    PeerDifference(
        "A complete copy in `local=` and no index in the remote",
        "The local copy is read",
        "An error; omit `remote=`",
    ),
    PeerDifference(
        "`progress_bar=True` of `CloudUploader`", "Shows a progress bar for each file", "An error"
    ),
)
"""Differences of the alias ``streaming`` and of the names of streamplug itself."""

EXCEPTIONS = (
    PeerDifference("a sample without a column", "`KeyError`", "`EncodeError`, a `ValueError`"),
    PeerDifference(
        "a value of the wrong type",
        "`AttributeError`",
        "`EncodeTypeError`, a `ValueError` and a `TypeError`",
    ),
    PeerDifference(
        "bytes of the wrong size",
        "`KeyError`",
        "`EncodeTypeError`, a `ValueError` and a `TypeError`",
    ),
    PeerDifference(
        "an unknown `shuffle_algo` or `partition_algo`",
        "`KeyError`",
        "`UnknownNameError`, a `LookupError`",
    ),
    PeerDifference(
        "a separator or newline in a value of `CSVWriter`",
        "`AssertionError`",
        "`EncodeError`, a `ValueError`",
    ),
    PeerDifference(
        "an empty `separator` or `newline`", "`AssertionError`", "`ConfigError`, a `ValueError`"
    ),
)
"""Exceptions that an ``except`` clause written for mosaicml-streaming would not catch."""

BY_DEFAULT = (
    PeerDifference(
        "`shuffle_algo`",
        '`"py1e"`: computes the whole epoch before its first batch',
        '`"window"`: computes any position directly',
    ),
    PeerDifference(
        "`hashes=None` of writers",
        "No checksums",
        (
            '`["xxh3_64"]`, which detects damage; `hashes=[]` writes the same bytes as '
            "mosaicml-streaming"
        ),
    ),
    PeerDifference(
        "`partition_algo`",
        '`"relaxed"`: the samples repeated at the end of an epoch depend on the number of ranks',
        '`"elastic"`: the same samples on any number of ranks',
    ),
    PeerDifference(
        "Files in `local`",
        "Shards and the index",
        (
            "Also a directory `.streamplug` with locks; the alias creates it next to `local`, "
            "as `.NAME.streamplug`"
        ),
    ),
    PeerDifference("No `batch_size`", "An error", "Allowed"),
    PeerDifference(
        "An epoch of fewer samples than canonical nodes with `py1e`", "An error", "Allowed"
    ),
    PeerDifference(
        "An index without samples", "A `RuntimeError`", "No error until the first epoch"
    ),
    PeerDifference(
        "Exceptions for a missing index and for an index that is not JSON",
        "`RuntimeError`, `JSONDecodeError`",
        "`NotFound`, `InvalidIndexError`; those of the alias are instances of both",
    ),
    PeerDifference(
        (
            "Exceptions for an unknown encoding or compression, and for a sample index that is not "
            "an integer"
        ),
        "`TypeError` or `ValueError`, `ValueError`",
        "`UnknownNameError`, `IndexError`; those of the alias are instances of both",
    ),
    PeerDifference(
        "`cache_limit` smaller than the index or than four shards",
        "An error",
        "Allowed if the largest shard fits",
    ),
    PeerDifference(
        "`shuffle_block_size` smaller than a shard, `predownload` smaller than `batch_size`",
        "A `UserWarning`",
        "A message of the logger `streamplug`, or nothing",
    ),
    PeerDifference(
        "`local=None`",
        "A directory that must not exist yet",
        "A temporary directory that later runs reuse",
    ),
    PeerDifference(
        "`remote=` a local path",
        "Copied into `local`",
        "Read in place unless `local=` is another directory",
    ),
    PeerDifference(
        "`size_limit` smaller than an empty shard", "One shard for each sample", "An error"
    ),
    PeerDifference("`cache_limit`", "Limits shards and indexes", "Limits shards only"),
)
"""Differences of the names of streamplug itself; the alias has the defaults of mosaicml-streaming."""

MISSING = {
    "`simulation`": "`streamplug simulate`",
    "`streaming.base.array`, `.constant`, `.shared`, `.spanner`": "nothing; these are internal",
    "`streaming.base.batching.*`": "`generate_work` in `streaming.base.batching`",
    "`streaming.base.compression.*`: classes": (
        "`compress` and `decompress` in `streaming.base.compression`"
    ),
    "`streaming.base.converters.*`: other functions": "`dataframe_to_mds`, which infers the columns",
    "`streaming.base.format.*`: readers, and classes of encodings": (
        "`LocalDataset`; `mds_encode` and `mds_decode` in `streaming.base.format.mds.encodings`"
    ),
    "`streaming.base.partition.*`": "`get_partitions` in `streaming.base.partition`",
    "`streaming.base.registry_utils.create_registry`, `.import_file`, `.save_registry`": (
        "`TypedRegistry`; `importlib`"
    ),
    "`TypedRegistry.get_entry_point`, `.get_entry_points`, `.register_class`": (
        "`get`, `get_all`, `register`"
    ),
    "`streaming.base.shuffle.*`": "`get_shuffle` in `streaming.base.shuffle`",
    "`streaming.base.storage.*`: classes of single providers": (
        "`CloudDownloader`, `CloudUploader`, or a storage, `streamplug.plugin.open_storage`"
    ),
    "`streaming.base.util.get_import_exception_message`": "nothing; errors name the package to install",
    "`streaming.*.convert`: scripts": "`streamplug-datasets`",
    "`streaming.vision.base`": "a subclass of `StreamingDataset` whose `get_item` applies the transform",
    (
        "`Stream.apply_default`, `.apply_weights`, `.validate_weights`, "
        "`.prepare_shard`, `.set_up_local`"
    ): ("nothing before the data set is created; `StreamingDataset.prepare_shard` after that"),
    (
        "`StreamingDataset.on_exception`, `.spanner`, "
        "`.max_shard_size_across_all_streams`, `LocalDataset.spanner`"
    ): (
        "exceptions in the training loop; `samples_per_shard`; `shard.get_max_size()` "
        "of each of `shards`"
    ),
    (
        "`MDSWriter.cancel_future_jobs`, `.cloud_writer`, `.config_data`, `.event`, "
        "`.exception_callback`, `.executor`, `.encode_joint_shard`, "
        "`.encode_split_shard`"
    ): ("nothing: `write` and `finish` raise the errors of uploads; `get_config`, `flush_shard`"),
    (
        "`Reader.decode_sample`, `.evict`, `.from_json`, `.get_sample_data`, "
        "`.set_up_local`, `.validate`"
    ): ("`shard[number]`; `StreamingDataset.evict_shard`, `.prepare_shard`"),
}
"""Names that the alias lacks, and their replacements."""

_NAME = re.compile(r"`([^`]+)`")


def list_names(entry: str) -> list[str]:
    """Return the names that an entry of `MISSING` is about: dotted, and ``*`` stands for any.

    Args:
        entry: Names in backticks, of which one that begins with a dot is beside the one before it.
    """
    names: list[str] = []
    for name in _NAME.findall(entry):
        beside = names[-1].rpartition(".")[0] if name.startswith(".") else ""
        names.append(beside + name)
    return names


def find_entry(name: str) -> str | None:
    """Return the entry of `MISSING` that is about a name of mosaicml-streaming; None if none is.

    Args:
        name: With its module, such as ``"streaming.base.storage.download"``.
    """
    entries = ((entry, missing) for entry in MISSING for missing in list_names(entry))
    return next((e for e, missing in entries if fnmatchcase(f"{name}.", f"{missing}.*")), None)


def replacement_of(name: str) -> str:
    """Return what to use instead of a module or name of mosaicml-streaming that is not here.

    Args:
        name: As for `find_entry`.
    """
    entry = find_entry(name)
    return "what `python -m streamplug_mosaic --list` prints" if entry is None else MISSING[entry]


def describe(modules: Mapping[str, tuple[str, ...]], version: str) -> Iterator[str]:
    """Yield lines that say what there is, and what differs.

    Args:
        modules: The names of each module that the alias has.
        version: Whose names these are.
    """
    yield f"Supported names of mosaicml-streaming {version}:\n"
    for module, names in modules.items():
        yield f"  {module}: {', '.join(names)}"
    yield "\nDifferences (theirs -> ours):\n"
    for entry in ALWAYS:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nExceptions that differ (theirs -> ours):\n"
    for entry in EXCEPTIONS:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nOnly for names imported from streamplug, without the alias:\n"
    for entry in BY_DEFAULT:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nMissing -> replacement:\n"
    for missing, instead in MISSING.items():
        yield f"  {missing} -> {instead}"
