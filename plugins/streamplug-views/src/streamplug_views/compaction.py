"""Writing of a view's samples as a data set of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import Any

from streamplug_tools.options import Output, ProgressCallback, ignore_progress
from streamplug_tools.transforms import convert

from streamplug.errors import ConfigError
from streamplug.plugin import absolute_location
from streamplug_views.history import Location
from streamplug_views.manifest import Step
from streamplug_views.view import Commit, View, check_message
from streamplug_views.workspace import open_location


def compact(
    location: Location,
    out: str | PathLike[str],
    *,
    message: str = "",
    processes: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Commit:
    """Write the samples of a view to a new data set, and commit a version that refers to that alone.

    What was deleted from the view is in none of the new files: once older versions are expired and the data
    sets that they referred to are removed, it is erased. The new version has the same samples in the same
    order, but other shards: states of older versions do not resume with it.

    Args:
        location: URL or path of the view.
        out: URL or path of the new data set.
        message: What changed.
        processes: Number of processes that write; None for one per processor.
        storage_options: ViewOptions of the storages.
        on_progress: Called with the progress of each task, from time to time.

    Raises:
        ConfigError: If `location` is a data set, or the view has no samples.
        ConflictError: If another commit wrote a version meanwhile.
        StreamplugError: If the view cannot be read, or the data set cannot be written.
    """
    check_message(message)  # before the data set is written
    view = View.of(location, storage_options=storage_options)
    snapshot = view.snapshot
    url = absolute_location(fspath(out))
    output = Output(url, processes=processes, storage_options=storage_options)
    store, version = view.base.versions
    if store is None:
        raise ConfigError(
            f"compact: {view.base.stream.shown_url} is a data set, which has no versions"
        )
    if not snapshot.size:
        raise ConfigError(
            f"compact: {view.base.stream.shown_url} has no samples, and a data set without any would not say "
            "which columns the view has; commit a version with samples first"
        )
    # The digest of the version tells the job from one of other samples, as which it must not continue.
    stream = replace(view.base.stream, format="view", version=version)
    result = convert(stream, output, on_progress=on_progress)
    new = open_location(url, None, view.base.stream)
    steps = [*snapshot.steps, Step(f"compact to {result.url}", new.size)]
    return view.commit_snapshot(replace(new, steps=steps), message=message)
