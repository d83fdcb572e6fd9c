"""Jobs on whole data sets of any format and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_tools.appending import AppendResult as AppendResult
    from streamplug_tools.appending import append as append
    from streamplug_tools.bad_samples import BadSample as BadSample
    from streamplug_tools.comparison import Difference as Difference
    from streamplug_tools.comparison import SampleDifference as SampleDifference
    from streamplug_tools.comparison import diff as diff
    from streamplug_tools.deletion import DeleteResult as DeleteResult
    from streamplug_tools.deletion import delete as delete
    from streamplug_tools.duplicates import dedup as dedup
    from streamplug_tools.expressions import Expression as Expression
    from streamplug_tools.file_copy import CopyResult as CopyResult
    from streamplug_tools.file_copy import copy_files as copy_files
    from streamplug_tools.input_adapters import iterate_batches as iterate_batches
    from streamplug_tools.inspection import DatasetInfo as DatasetInfo
    from streamplug_tools.inspection import ShardKind as ShardKind
    from streamplug_tools.inspection import inspect as inspect
    from streamplug_tools.join_by_key import join as join
    from streamplug_tools.json_lines import as_lines as as_lines
    from streamplug_tools.options import Columns as Columns
    from streamplug_tools.options import Output as Output
    from streamplug_tools.options import WriteResult as WriteResult
    from streamplug_tools.processing import process as process
    from streamplug_tools.processing import process_with as process_with
    from streamplug_tools.progress import progress_bars as progress_bars
    from streamplug_tools.report import InlinePage as InlinePage
    from streamplug_tools.report import page_about as page_about
    from streamplug_tools.tasks import describe_task_error as describe_task_error
    from streamplug_tools.tasks import pack_task as pack_task
    from streamplug_tools.tasks import run_packed_task as run_packed_task
    from streamplug_tools.tasks import run_tasks as run_tasks
    from streamplug_tools.transforms import convert as convert
    from streamplug_tools.transforms import select as select
    from streamplug_tools.transforms import shuffle as shuffle
    from streamplug_tools.transforms import sort as sort
    from streamplug_tools.transforms import split_by_fractions as split_by_fractions
    from streamplug_tools.transforms import split_by_size as split_by_size
    from streamplug_tools.value_hash import xxh64 as xxh64
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "appending": "AppendResult append",
            "bad_samples": "BadSample",
            "comparison": "Difference SampleDifference diff",
            "deletion": "DeleteResult delete",
            "duplicates": "dedup",
            "expressions": "Expression",
            "file_copy": "CopyResult copy_files",
            "input_adapters": "iterate_batches",
            "inspection": "DatasetInfo ShardKind inspect",
            "join_by_key": "join",
            "json_lines": "as_lines",
            "options": "Columns Output WriteResult",
            "processing": "process process_with",
            "progress": "progress_bars",
            "report": "InlinePage page_about",
            "tasks": "describe_task_error pack_task run_packed_task run_tasks",
            "transforms": "convert select shuffle sort split_by_fractions split_by_size",
            "value_hash": "xxh64",
        },
    )
