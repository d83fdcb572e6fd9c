"""What differs where a program for mosaicml-streaming runs on streamplug: one list, for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Difference(NamedTuple):
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
    Difference("`download_retry=2`", "Two attempts", "Tried again twice"),
    Difference("`predownload=None`", "8 batches", "Adapts to the size and speed of shards"),
    Difference(
        "`local=None`",
        "A directory that must not be there yet",
        "A directory for temporary files that is used again",
    ),
    Difference(
        "`remote=` a local path",
        "Copied into `local`",
        "Read in place unless `local=` is another directory",
    ),
    Difference(
        "`validate_hash=None`",
        "Checks nothing",
        "Checks what is downloaded, by a fast digest of the index",
    ),
    Difference(
        "A download that fails for good",
        "May end the epoch early, or hang",
        "An error in the training loop",
    ),
    Difference(
        "Leaving a writer by an exception",
        "Writes the index all the same",
        "Leaves no index: the set is plainly unfinished",
    ),
    Difference(
        "`pkl` in a `LocalDataset`",
        "Decoded",
        "Refused unless `StreamingDataset(local=…, allow_unsafe_types=True)`",
    ),
    Difference(
        "`state_dict`",
        "Says where the run stands",
        "Also what order it has, and refuses another one",
    ),
    Difference(
        "`stream_name=`, `stream_config=`",
        "Look a class of streams up in a registry",
        "There is none: a name is refused, a config is taken as arguments",
    ),
    Difference(
        "`get_item(…, retry=)`",
        "How often a shard that was evicted is fetched again",
        "Means nothing: `download_retry` says it",
    ),
    Difference(
        "`clean_stale_shared_memory()`",
        "Removes what killed runs left behind",
        "Does nothing, and says so: nothing shared has a name",
    ),
    Difference(
        "Data sets of `streaming.vision`",
        "Also a class of torchvision; images become tensors",
        "No class of torchvision; images become arrays, of which a loader makes tensors",
    ),
    Difference(
        "Labels of `StreamingEnWiki`",
        "Also where the weight of a prediction is 0",
        "Only where it is above",
    ),
)
"""Both with ``import streaming`` as the alias gives it, and with the names of streamplug itself."""

BY_DEFAULT = (
    Difference(
        "`shuffle_algo`",
        '`"py1e"`: works out a whole epoch before its first batch',
        '`"window"`: any position at once',
    ),
    Difference(
        "`partition_algo`",
        '`"relaxed"`: what is repeated at the end of an epoch depends on the world',
        '`"elastic"`: the same on all worlds',
    ),
)
"""Only with the names of streamplug itself: the alias has the defaults of mosaicml-streaming."""

MISSING = {
    "`streaming.base.storage`: downloaders and uploaders": "a storage, `streamplug.plugin.open_storage`",
    "`streaming.base.spanner`, `.array`, `.shared`": "nothing: they serve its own insides",
    "`streaming.base.registry_utils`": "streams made by the program, `streams=`",
    "`streaming.*.convert`: scripts": "`streamplug-datasets`",
    "`simulation`": "`streamplug simulate`",
}
"""What the alias has not, and what to use instead."""


def told(modules: Mapping[str, tuple[str, ...]], version: str) -> Iterator[str]:
    """Yield lines that say what there is, and what differs.

    Args:
        modules: The names of each module that the alias has.
        version: Whose names these are.
    """
    yield f"The names of mosaicml-streaming {version} that are there:\n"
    for module, names in modules.items():
        yield f"  {module}: {', '.join(names)}"
    yield "\nWhat differs (theirs -> ours):\n"
    for each in ALWAYS:
        yield f"  {each.what}\n    {each.theirs} -> {each.ours}"
    yield "\nOnly without the alias, where the names are imported from streamplug:\n"
    for each in BY_DEFAULT:
        yield f"  {each.what}\n    {each.theirs} -> {each.ours}"
    yield "\nNot there -> what to use instead:\n"
    for missing, instead in MISSING.items():
        yield f"  {missing} -> {instead}"
