"""The data set or the version of a view that a view is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from streamplug_tools.options import ProgressCallback, ignore_progress

from streamplug.plugin import join
from streamplug.source import OpenStream
from streamplug.stream import Stream
from streamplug_views.snapshot import Snapshot
from streamplug_views.version_store import VersionStore
from streamplug_views.view_source import OpenView, version_of
from streamplug_views.workspace import Context, ViewWorkspace, open_stream, snapshot_of


@dataclass(frozen=True)
class EvaluationOptions:
    """How operations are evaluated; the attributes are those of `View.of`."""

    engine: str = "local"
    workspace: str | None = None
    allow_unsafe_types: bool = False
    on_progress: ProgressCallback = ignore_progress


class ViewBase:
    """What views are made of; it is opened once, at first use, so that all of them have one version of it.

    Attributes:
        stream: Its stream.
        workspace: Files that the operations write.
    """

    def __init__(self, stream: Stream, options: EvaluationOptions) -> None:
        self.stream, self._options = stream, options

    @cached_property
    def workspace(self) -> ViewWorkspace:
        """Files that operations write."""
        return ViewWorkspace()

    @property
    def context(self) -> Context:
        """What operations need."""
        return Context(
            self.workspace,
            replace(self.stream, version=None),
            self._options.engine,
            self._options.workspace,
            self._options.on_progress,
            self._options.allow_unsafe_types,
        )

    @cached_property
    def _opened(self) -> OpenStream:
        return open_stream(self.stream)

    @cached_property
    def snapshot(self) -> Snapshot:
        """All its samples."""
        return snapshot_of(self._opened)

    @cached_property
    def versions(self) -> tuple[VersionStore | None, int]:
        """Its versions and its version; None and 0 of a data set."""
        opened, stream = self._opened, self.stream
        if not isinstance(opened, OpenView):
            return None, 0
        url = join(stream.location.parent, stream.split or "")
        return VersionStore(url, stream.storage_options, stream.retries), version_of(opened)

    @property
    def digest(self) -> str | None:
        """Digest of the manifest of its version; None for a data set."""
        opened = self._opened
        return opened.index.digest if isinstance(opened, OpenView) else None

    def at_latest(self) -> ViewBase:
        """Return the latest version."""
        return ViewBase(replace(self.stream, version=None), self._options)
