"""What differs where a program for mosaicml-streaming runs on streamplug: one list, for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple


class PeerDifference(NamedTuple):
    """One thing that is not the same.

    Attributes:
        what: Of which parameter, class or circumstance.
        theirs: How it is with mosaicml-streaming.
        ours: How it is here.
    """

    what: str
    theirs: str
    ours: str


ALWAYS = (
    PeerDifference("`download_retry=2`", "Two attempts", "Tried again twice"),
    PeerDifference("`predownload=None`", "8 batches", "Adapts to the size and speed of shards"),
    PeerDifference(
        "`validate_hash=None`",
        "Checks nothing",
        "Checks what is downloaded, by a fast digest of the index",
    ),
    PeerDifference(
        "`merge_index` of parts with other columns",
        "Writes an index that cannot be read as one",
        "Refused, with the part, the column and both encodings",
    ),
    PeerDifference(
        "A download that fails for good",
        "May end the epoch early, or hang",
        "An error in the training loop",
    ),
    PeerDifference(
        "Leaving a writer by an exception",
        "Writes the index all the same",
        "Leaves no index: the set is plainly unfinished",
    ),
    PeerDifference(
        "`pkl` in a `LocalDataset`",
        "Decoded",
        "Refused unless `StreamingDataset(local=…, allow_unsafe_types=True)`",
    ),
    PeerDifference(
        "`state_dict`",
        "Says where the run stands",
        "Also what order it has, and refuses another one",
    ),
    PeerDifference(
        "Resuming just before the end of an epoch",
        "Ranks that would get a sample less repeat one of those that are left",
        "They repeat one of the epoch's, as without the interruption",
    ),
    PeerDifference(
        "Epochs after a resumed one, with workers and without `num_canonical_nodes=`",
        "May have the canonical nodes of a new run, unless a state was taken meanwhile",
        "Have those of the state",
    ),
    PeerDifference(
        "An epoch without one whole batch, such as of a stream that is too small for `batching_method=`",
        "May be empty, with a warning in the log",
        "An error",
    ),
    PeerDifference(
        "`len(dataset)`",
        "The size of the epoch by the number of ranks",
        "The samples that a rank gets: also those that are repeated, none that are left out",
    ),
    PeerDifference(
        "Samples above `size_limit`",
        "A shard each; an empty one before, if it is the first sample",
        "A shard each, none empty, and a warning",
    ),
    PeerDifference(
        "`predownload` of a data set, where it was not given",
        "8 batches, or 64 samples",
        "None",
    ),
    PeerDifference(
        "`num_canonical_nodes`, `shuffle_block_size` of a data set, where they were not given",
        "None until the first epoch",
        "The defaults, at once",
    ),
    PeerDifference(
        "`next_epoch`, `cache_usage`, `cache_limit` and others of a data set",
        "Can be set",
        'Are read only; `load_state_dict({…, "epoch": 3})` begins another epoch',
    ),
    PeerDifference(
        "`prepare_shard(…, blocking=False)`",
        "Does not wait for other processes",
        "Waits",
    ),
    PeerDifference(
        "`evict_shard`, where the data set is read in place",
        "Deletes it",
        "An error",
    ),
    PeerDifference(
        "`new_samples` of a writer",
        "The bytes of samples",
        "Their numbers alone",
    ),
    PeerDifference(
        "`StreamingDataLoader` with batches of another size than the data set's: states",
        "At any batch",
        "Where whole global batches of the data set were used; an error elsewhere",
    ),
    PeerDifference(
        "`get_item` of well-known data sets: name of its parameter",
        "`idx`",
        "`sample_id`; give it by position",
    ),
    PeerDifference(
        "A shard that is deleted from `local` while a data set reads it",
        "Is downloaded again",
        "Is read on as it was opened; `evict_shard` has it downloaded again",
    ),
    PeerDifference(
        "Fewer samples than a batch of each rank",
        "An error",
        "Taken",
    ),
    PeerDifference(
        "Arrays without dimensions or without elements, in `MDSWriter`",
        "An error",
        "Stored",
    ),
    PeerDifference(
        "`get_item(…, retry=)`",
        "How often a shard that was evicted is fetched again",
        "Means nothing: `download_retry` says it",
    ),
    PeerDifference(
        "`clean_stale_shared_memory()`",
        "Removes what killed runs left behind",
        "Does nothing, and says so: nothing shared has a name",
    ),
    PeerDifference(
        "Data sets of `streaming.vision`",
        "Also a class of torchvision; images become tensors",
        "No class of torchvision; images become arrays, of which a loader makes tensors",
    ),
    PeerDifference(
        "Labels of `StreamingEnWiki`",
        "Also where the weight of a prediction is 0",
        "Only where it is above",
    ),
    PeerDifference(
        "`cache_limit` of a data set with several streams",
        "Of all streams together",
        "Of each directory",
    ),
    PeerDifference(
        "`merge_index(…, keep_local=False)`",
        "Removes the local directory of `out`, with all data",
        "Leaves no merged index there, and all else as it is",
    ),
    PeerDifference(
        "Two data sets at once with the same `local=`, and a remote",
        "An error",
        "They share the files",
    ),
    PeerDifference(
        "A complete copy in `local=`, and no index in the remote",
        "Read without asking the remote",
        "An error; leave `remote=` out",
    ),
    PeerDifference(
        "`progress_bar=True` of `CloudUploader`",
        "Shows a bar for each file",
        "An error",
    ),
)
"""Both with ``import streaming`` as the alias gives it, and with the names of streamplug itself."""

EXCEPTIONS = (
    PeerDifference(
        "an encoding that there is not", "`TypeError`", "`UnknownNameError`, a `LookupError`"
    ),
    PeerDifference(
        "a compression that there is not", "`ValueError`", "`UnknownNameError`, a `LookupError`"
    ),
    PeerDifference(
        "a value by an encoding that there is not",
        "`ValueError`",
        "`UnknownNameError`, a `LookupError`",
    ),
    PeerDifference("a sample without a column", "`KeyError`", "`EncodeError`, a `ValueError`"),
    PeerDifference(
        "a value of another type",
        "`AttributeError`",
        "`EncodeTypeError`, a `ValueError` and a `TypeError`",
    ),
    PeerDifference(
        "bytes of another size", "`KeyError`", "`EncodeTypeError`, a `ValueError` and a `TypeError`"
    ),
    PeerDifference("a sample of no number", "`ValueError`", "`IndexError`"),
)
"""What is raised for a mistake where a script that catches it for mosaicml-streaming would not."""

BY_DEFAULT = (
    PeerDifference(
        "`shuffle_algo`",
        '`"py1e"`: works out a whole epoch before its first batch',
        '`"window"`: any position at once',
    ),
    PeerDifference(
        "`hashes=None` of writers",
        "No digests",
        '`["xxh3_64"]`, by which damage is noticed; `hashes=[]` for none, and the same bytes',
    ),
    PeerDifference(
        "`partition_algo`",
        '`"relaxed"`: what is repeated at the end of an epoch depends on the world',
        '`"elastic"`: the same on all worlds',
    ),
    PeerDifference(
        "Files in `local`",
        "Shards and the index",
        "Also `.streamplug`, with locks; the alias has it beside, as `.NAME.streamplug`",
    ),
    PeerDifference("No `batch_size`", "An error", "Taken"),
    PeerDifference(
        "Fewer samples than canonical nodes with `py1e`",
        "An error",
        "Taken",
    ),
    PeerDifference(
        "An index without samples",
        "A `RuntimeError`",
        "Nothing until the first epoch",
    ),
    PeerDifference(
        "Exception for a missing index, and for one that is no JSON",
        "`RuntimeError`, `JSONDecodeError`",
        "`NotFound`, `InvalidIndexError`; those of the alias are both",
    ),
    PeerDifference(
        "`cache_limit` below the index, or below four shards",
        "An error",
        "Taken if the largest shard fits",
    ),
    PeerDifference(
        "`shuffle_block_size` below the size of shards, `predownload` below `batch_size`",
        "A `UserWarning`",
        "A message of the logger `streamplug`, or none",
    ),
    PeerDifference(
        "`local=None`",
        "A directory that must not be there yet",
        "A directory for temporary files that is used again",
    ),
    PeerDifference(
        "`remote=` a local path",
        "Copied into `local`",
        "Read in place unless `local=` is another directory",
    ),
    PeerDifference(
        "`size_limit` below what a shard takes without samples",
        "A shard for each sample",
        "An error",
    ),
    PeerDifference(
        "`cache_limit`",
        "Of shards and indexes",
        "Of shards",
    ),
)
"""Only with the names of streamplug itself: the alias has the defaults of mosaicml-streaming."""

MISSING = {
    "`simulation`": "`streamplug simulate`",
    "`streaming.base.array`, `.constant`, `.shared`, `.spanner`": "nothing: they serve its own insides",
    "`streaming.base.batching.*`": "`generate_work` in `streaming.base.batching`",
    "`streaming.base.compression.*`: classes": "`compress` and `decompress` in `streaming.base.compression`",
    "`streaming.base.converters.*`: other functions": (
        "`dataframe_to_mds`, which infers the columns"
    ),
    "`streaming.base.format.*`: readers, and classes of encodings": (
        "`LocalDataset`; `mds_encode` and `mds_decode` in `streaming.base.format.mds.encodings`"
    ),
    "`streaming.base.partition.*`": "`get_partitions` in `streaming.base.partition`",
    "`streaming.base.registry_utils.create_registry`, `.import_file`, `.save_registry`": (
        "`TypedRegistry`; `importlib`"
    ),
    "`TypedRegistry.get_entry_point`, `.get_entry_points`, `.register_class`": "`get`, `get_all`, `register`",
    "`streaming.base.shuffle.*`": "`get_shuffle` in `streaming.base.shuffle`",
    "`streaming.base.storage.*`: classes of single providers": (
        "`CloudDownloader`, `CloudUploader`, or a storage, `streamplug.plugin.open_storage`"
    ),
    "`streaming.base.util.get_import_exception_message`": "nothing: errors say what to install",
    "`streaming.*.convert`: scripts": "`streamplug-datasets`",
    "`streaming.vision.base`": "a `StreamingDataset` whose `get_item` transforms",
    "`Stream.apply_default`, `.apply_weights`, `.validate_weights`, `.prepare_shard`, `.set_up_local`": (
        "nothing before a data set is made; `StreamingDataset.prepare_shard` after that"
    ),
    "`StreamingDataset.on_exception`, `.spanner`, `.max_shard_size_across_all_streams`, "
    "`LocalDataset.spanner`": (
        "errors of the loop; `samples_per_shard`; `shard.get_max_size()` of each of `shards`"
    ),
    "`MDSWriter.cancel_future_jobs`, `.cloud_writer`, `.config_data`, `.event`, `.exception_callback`, "
    "`.executor`, `.encode_joint_shard`, `.encode_split_shard`": (
        "nothing: errors of uploads are raised by `write` and `finish`; `get_config`, `flush_shard`"
    ),
    "`Reader.decode_sample`, `.evict`, `.from_json`, `.get_sample_data`, `.set_up_local`, `.validate`": (
        "`shard[number]`; `StreamingDataset.evict_shard`, `.prepare_shard`"
    ),
}
"""What the alias has not, and what to use instead."""

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
    yield f"The names of mosaicml-streaming {version} that are there:\n"
    for module, names in modules.items():
        yield f"  {module}: {', '.join(names)}"
    yield "\nWhat differs (theirs -> ours):\n"
    for entry in ALWAYS:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nOther exceptions (theirs -> ours):\n"
    for entry in EXCEPTIONS:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nOnly without the alias, where the names are imported from streamplug:\n"
    for entry in BY_DEFAULT:
        yield f"  {entry.what}\n    {entry.theirs} -> {entry.ours}"
    yield "\nNot there -> what to use instead:\n"
    for missing, instead in MISSING.items():
        yield f"  {missing} -> {instead}"
