"""The public `View`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from os import PathLike, fspath
from typing import Any

import numpy as np
from streamplug_tools.options import ProgressCallback, ignore_progress, job_streams
from streamplug_tools.row_access import absolute_streams

from streamplug.config import check_flags, whole_number
from streamplug.display import ObjectSummary, SummaryRepr
from streamplug.errors import ConfigError
from streamplug.plan import parse_selection
from streamplug.plugin import absolute_location
from streamplug.source import check_column_names
from streamplug.stream import Stream
from streamplug_views import operations
from streamplug_views.commit import CommitWriter
from streamplug_views.expression_source import load_rows
from streamplug_views.manifest import Step
from streamplug_views.operations import Operation
from streamplug_views.snapshot import Snapshot
from streamplug_views.version_store import VersionStore
from streamplug_views.view_base import EvaluationOptions, ViewBase

_RETRIES = 2
_MISSING_POLICIES = ("error", "drop", "null")


def _are_names(values: object) -> bool:
    return isinstance(values, Collection) and all(isinstance(value, str) for value in values)


def _check_key(column: Any) -> None:
    if column is not None and not isinstance(column, str):
        raise ConfigError(f"on={column!r:.40}: expected the name of a column")


def check_message(message: Any) -> None:
    """Raise `ConfigError` unless a message is text: readers would take its manifest for damaged."""
    if not isinstance(message, str):
        raise ConfigError(f"message={message!r:.60}: expected text; leave it out for none")


@dataclass(frozen=True)
class Commit:
    """A committed version of a view.

    Attributes:
        url: URL of the view, without credentials.
        version: Number of the version.
        digest: Digest of its manifest, which states record.
        samples: Number of samples.
    """

    url: str
    version: int
    digest: str
    samples: int


class View(SummaryRepr):
    """Rows and columns of data sets that stay where they are.

    A view is immutable and lazy: each method returns a new one, and nothing is read before its samples are
    counted or it is committed. `View.of` starts from all of a data set, or from a version of a view.
    """

    def __init__(
        self, base: ViewBase, before: View | None = None, operation: Operation | None = None
    ) -> None:
        """Use `View.of`; without `operation`, the view is that of all samples of the base."""
        self.base, self._before, self._operation = base, before, operation

    @classmethod
    def of(
        cls,
        location: str | PathLike[str] | Stream,
        *,
        version: int | str | None = None,
        format: str | None = None,  # noqa: A002 - the word that users know
        storage_options: Mapping[str, Any] | None = None,
        engine: str = "local",
        workspace: str | None = None,
        allow_unsafe_types: bool = False,
        on_progress: ProgressCallback = ignore_progress,
    ) -> View:
        """Return a view of all samples of a data set, or of those of a view.

        Args:
            location: URL or path of a data set or a view; or a stream with more options.
            version: Version of a view, or its tag; None for the latest.
            format: Format of a data set without index.json.
            storage_options: ViewOptions of the storages.
            engine: Engine that evaluates expressions, such as ``"local"``, ``"local:4"``, ``"ray"``.
            workspace: Directory or URL that all machines of an engine can write to; needed unless it is
                ``local``.
            allow_unsafe_types: Whether expressions and keys may use columns whose decoding can run code.
            on_progress: Called with the progress of each task, from time to time.

        Raises:
            ConfigError: If an option is invalid.
            StorageError: If the stream selects the rows in a file, which cannot be read.
        """
        check_flags(allow_unsafe_types=allow_unsafe_types)
        if not isinstance(location, Stream):
            location = Stream(
                remote=absolute_location(fspath(location)),
                format=format,
                version=version,
                storage_options=storage_options,
            )
        elif any(option is not None for option in (version, format, storage_options)):
            raise ConfigError(
                "View.of(Stream(…)): give version=, format= and storage_options= to the stream"
            )
        # It raises for weights, which are for epochs.
        [location] = absolute_streams(job_streams(location))
        location = location.with_defaults(download_retry=_RETRIES)
        options = EvaluationOptions(engine, workspace, allow_unsafe_types, on_progress)
        if location.select is not None:
            plain = cls(ViewBase(replace(location, select=None), options))
            is_text = isinstance(location.select, str)
            rows = load_rows(location) if is_text else location.select
            return plain.where(location.select) if rows is None else plain.select(rows)
        return cls(ViewBase(location, options))

    def _with(self, operation: Operation) -> View:
        return View(self.base, self, operation)

    @property
    def operations(self) -> list[Operation]:
        """Operations that make the view of its base."""
        if self._before is None or self._operation is None:
            return []
        return [*self._before.operations, self._operation]

    # -- rows ---------------------------------------------------------------------

    def where(self, expression: str, *, columns: Sequence[str] | None = None) -> View:
        """Keep the samples for which a Python expression is true.

        Args:
            expression: Expression of the names of columns, such as ``"score > 0.5 and lang == 'en'"``; see
                `streamplug_tools.expressions.Expression`. Only the columns that it names are read.
            columns: Columns that it may name; None for all.
        """
        check_column_names(columns)
        columns = None if columns is None else list(columns)  # the caller may change it
        return self._with(operations.Where(expression, columns))

    def select(self, rows: Any) -> View:
        """Keep rows: a boolean mask with a value for each sample, distinct row numbers, or a range.

        Raises:
            ConfigError: If it is none of these.
        """
        return self._with(operations.Select(parse_selection(rows)))

    def exclude(
        self,
        rows: Any = None,
        *,
        keys: Sequence[Any] | str | PathLike[str] | None = None,
        on: str | None = None,
        format: str | None = None,  # noqa: A002 - the word that users know
    ) -> View:
        """Leave out rows, or the samples with certain keys.

        Args:
            rows: Rows, as for `select`.
            keys: Keys in a list, or the location of a data set that has them.
            on: Column of the keys, in both.
            format: Format of the data set of the keys if it has no index.json.

        Raises:
            ConfigError: If not one of `rows` and `keys` is given, `keys` without `on`, or `format` without a
                data set of keys.
        """
        if (rows is None) == (keys is None) or (keys is None) != (on is None):
            raise ConfigError("exclude: give either rows, or keys= and on=")
        if format is not None and not isinstance(keys, (str, PathLike)):
            raise ConfigError(
                f"exclude: format={format!r:.40} is for keys= that are the location of a data set"
            )
        if keys is None or on is None:
            return self._with(operations.Select(parse_selection(rows), exclude=True))
        _check_key(on)
        if isinstance(keys, (str, PathLike)):
            keys = absolute_location(fspath(keys))
        elif isinstance(keys, (bytes, Mapping)) or not isinstance(keys, Collection | np.ndarray):
            raise ConfigError(
                f"exclude: keys= takes a list, or the location of a data set, got {type(keys).__name__}"
            )
        else:  # the caller may change them before they are used
            keys = list(keys)
        return self._with(operations.ExcludeKeys(keys, on, format))

    def sample(self, share: float, *, seed: int = 0) -> View:
        """Keep a random share of the samples, in their order.

        Args:
            share: From 0 to 1.
            seed: Seed of the choice.

        Raises:
            ConfigError: If the share is not in that range.
        """
        is_number = isinstance(share, Real) and not isinstance(share, bool)
        if not (is_number and 0 <= share <= 1):
            raise ConfigError(f"sample({share!r:.40}): expected a number from 0 to 1")
        return self._with(operations.Sample(share, whole_number("seed", seed, 0) or 0))

    def concat(
        self,
        location: str | PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 - the word that users know
    ) -> View:
        """Append the samples of another data set or view, which must have the same columns and types."""
        return self._with(operations.Concat(absolute_location(fspath(location)), format))

    # -- columns ------------------------------------------------------------------

    def add(
        self,
        location: str | PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        on: str | None = None,
        missing: str = "error",
        format: str | None = None,  # noqa: A002 - the word that users know
    ) -> View:
        """Add columns of another data set or view.

        Args:
            location: Its URL or path.
            columns: Columns to add; None for all but the key.
            on: Column of a key that both have; None if it has one sample for each of this view, in order.
            missing: What to do with samples whose key it does not have: ``"error"``, ``"drop"`` leaves them
                out, ``"null"`` gives them None.
            format: Its format if it has no index.json.

        Raises:
            ConfigError: If an option is invalid.
        """
        if missing not in _MISSING_POLICIES:
            raise ConfigError(
                f"missing={missing!r:.40}: expected one of {', '.join(_MISSING_POLICIES)}"
            )
        if on is None and missing != "error":
            raise ConfigError(f"missing={missing!r} is for keys: give on=")
        check_column_names(columns)
        _check_key(on)
        columns = None if columns is None else list(columns)
        url = absolute_location(fspath(location))
        return self._with(operations.Add(url, columns, on, missing, format))

    def rename(self, names: Mapping[str, str]) -> View:
        """Rename columns; `names` has the new name of each."""
        given: Any = names  # unchecked so far
        if not isinstance(given, Mapping) or not _are_names([*given, *given.values()]):
            raise ConfigError(f"rename({given!r:.80}): expected names, such as {{'old': 'new'}}")
        return self._with(operations.ChangeColumns(rename=dict(names)))

    def drop(self, columns: Sequence[str]) -> View:
        """Leave out columns."""
        if isinstance(columns, str):
            raise ConfigError(f"drop({columns!r}): expected a list of names, such as [{columns!r}]")
        if not _are_names(columns):
            raise ConfigError(f"drop({columns!r:.80}): expected a list of names")
        return self._with(operations.ChangeColumns(drop=list(columns)))

    # -- results ------------------------------------------------------------------

    @cached_property
    def snapshot(self) -> Snapshot:
        """Rows and columns after all operations, each of which is evaluated once."""
        if self._before is None or self._operation is None:
            return self.base.snapshot
        changed = self._operation.apply(self._before.snapshot, self.base.context)
        return changed.with_step(str(self._operation))

    def __len__(self) -> int:
        """Return the number of samples; evaluates the operations."""
        return self.snapshot.size

    @property
    def columns(self) -> list[str]:
        """Names of the columns; evaluates the operations."""
        return self.snapshot.columns

    @property
    def steps(self) -> list[Step]:
        """Operations that made the view, with the number of samples after each; evaluates them."""
        return list(self.snapshot.steps)

    def commit(self, location: str | PathLike[str] | None = None, *, message: str = "") -> Commit:
        """Write the view as the next version of a view.

        The version is written at once or not at all; of concurrent commits, one succeeds.

        Args:
            location: URL or path of the view; None for the view that this one is made of.
            message: What changed.

        Raises:
            ConflictError: If another commit wrote a version since this view was read, see `rebase`.
            OutputExistsError: If the location has a data set, which would be read rather than the view.
            StreamplugError: If it cannot be evaluated or written.
        """
        check_message(message)  # before the view is evaluated
        return self.commit_snapshot(self.snapshot, location, message=message)

    def commit_snapshot(
        self, snapshot: Snapshot, location: str | PathLike[str] | None = None, *, message: str = ""
    ) -> Commit:
        """Write a snapshot as `commit` writes that of this view."""
        check_message(message)
        store, version = self.base.versions
        parent = self.base.digest  # not read again: the version may be removed meanwhile
        if location is not None:
            if not fspath(location):
                raise ConfigError("commit(''): the location of the view is empty")
            url = absolute_location(fspath(location))
            target = VersionStore(url, self.base.stream.storage_options, self.base.stream.retries)
            if store is None or target.place != store.place:
                version, parent = 0, None
                if not target.exists():
                    target.check_no_data_set()
                elif version := target.latest():
                    parent = target.read(version)[1]
            store = target
        if store is None:
            raise ConfigError("commit: name the location of the view")
        writer = CommitWriter(store, snapshot, self.base.workspace)
        manifest, digest = writer.write(version + 1, parent, message)
        return Commit(store.url, manifest.version, digest, snapshot.size)

    def rebase(self) -> View:
        """Return the same operations on the latest version of the view that this one is made of.

        Raises:
            ConfigError: If it is made of a data set, which has no versions.
        """
        if self.base.versions[0] is None:
            raise ConfigError("rebase: this view is made of a data set, which has no versions")
        view = View(self.base.at_latest())
        for operation in self.operations:
            view = View(view.base, view, operation)
        return view

    def __repr__(self) -> str:
        steps = "".join(f", {operation}" for operation in self.operations)
        return f"View({self.base.stream.shown_url!r}{steps})"

    def object_summary(self) -> ObjectSummary:
        """Return a summary, without evaluating anything."""
        steps = [("step", str(operation)) for operation in self.operations]
        return ObjectSummary("View", [("of", self.base.stream.shown_url), *steps])
