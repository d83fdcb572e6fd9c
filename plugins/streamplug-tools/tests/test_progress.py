"""Progress of jobs, as their callers and terminals see it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress
from streamplug_tools import Expression, Output, progress_bars, sort, sort_keys
from streamplug_tools.column_mapping import ColumnMapping
from streamplug_tools.copy import CopyInput, CopyTask
from streamplug_tools.options import JobProgress
from streamplug_tools.processing import ExpressionTransform
from streamplug_tools.progress import _CountsColumn
from streamplug_tools.selection_order import SequentialOrder
from streamplug_tools.transforms import convert
from streamplug_tools.verification import verify

from streamplug import MDSWriter
from streamplug.stream import Stream


def write(out, **options):
    with MDSWriter(out=out, columns={"n": "int"}, **options) as writer:
        for n in range(3000):
            writer.write({"n": n})
    return out


def test_writing_counts_samples_and_bytes(tmp_path):
    seen = []
    convert(write(tmp_path / "set"), Output(tmp_path / "new"), on_progress=seen.append)
    last = seen[-1]
    assert (last.task, last.done, last.total, last.unit) == ("writing", 3000, 3000, "samples")
    assert last.num_bytes >= 3000 * 8


def test_verification_counts_samples_within_shards(tmp_path):
    seen = []
    result = verify(Stream(local=str(write(tmp_path / "set"))), on_progress=seen.append)
    assert result.ok
    assert [progress.done for progress in seen] == [1024, 2048, 3000, 3000]
    assert seen[-1].num_bytes == result.bytes == (tmp_path / "set/shard.00000.mds").stat().st_size


def test_samples_of_damaged_shards_are_counted(tmp_path):
    path = write(tmp_path / "set", size_limit=10_000) / "shard.00001.mds"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    seen = []
    result = verify(Stream(local=str(tmp_path / "set")), num_threads=3, on_progress=seen.append)
    assert not result.ok
    assert seen[-1].done == seen[-1].total == 3000


def test_terminals_show_amounts_and_rates(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("streamplug_tools.progress.Console", lambda **_: screen)
    monkeypatch.setattr("streamplug_tools.progress.interactive", lambda: True)
    with progress_bars() as on_progress:
        on_progress(JobProgress("writing", 1200, 4000, num_bytes=5_000_000))
        on_progress(JobProgress("simulating", 3, 10, unit="runs"))
        on_progress(JobProgress("copying [/a]", 3, 10))
    shown = screen.file.getvalue()
    assert "1,200 samples, " in shown or "4,000 samples, " in shown
    assert "5.0 MB, " in shown
    assert " runs, " in shown
    assert "copying [/a]" in shown


def test_rates_are_of_this_run_and_this_data_set(monkeypatch):
    seconds, bars = [0.0], []

    def make_bars(*columns, **options):
        bars.append(Progress(*columns, **options, get_time=lambda: seconds[0], auto_refresh=False))
        return bars[0]

    monkeypatch.setattr("streamplug_tools.progress.make_progress", make_bars)
    monkeypatch.setattr("streamplug_tools.progress.interactive", lambda: True)
    with progress_bars() as on_progress:
        for amounts, expected in (
            [(3000, 3200), "3,200 samples, 20/s"],  # the job was resumed
            [(0, 800), "800 samples, 80/s"],  # the next data set
        ):
            on_progress(JobProgress("writing", amounts[0], 4000))
            seconds[0] += 10
            on_progress(JobProgress("writing", amounts[1], 4000))
            assert str(_CountsColumn().render(bars[0].tasks[0])) == expected


@pytest.mark.parametrize("forced", [False, True])
def test_nothing_is_written_elsewhere(monkeypatch, capsys, forced):
    # As in rich 13.7, although the bars are disabled.
    monkeypatch.setattr("rich.progress.Progress.stop", lambda self: self.console.print())
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bars() as on_progress:
        on_progress(JobProgress("writing", 1200, 4000, num_bytes=5_000_000))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("short_step_seconds", "steps"), [(0, range(0, 3000, 256)), (1e9, [0, 256, 768, 1792])]
)
def test_progress_of_expressions_is_counted_in_small_steps_unless_they_are_short(
    tmp_path, monkeypatch, short_step_seconds, steps
):
    monkeypatch.setattr(sort_keys, "_SHORT_STEP_SECONDS", short_step_seconds)
    source = write(tmp_path / "source")
    seen = []
    sort(source, Output(tmp_path / "sorted", processes=0), "-n", on_progress=seen.append)
    assert [p.done for p in seen if p.task == "reading keys"] == list(steps)


def test_transforms_are_computed_in_small_steps(tmp_path):
    source = write(tmp_path / "source")
    change = ExpressionTransform({"n": Expression("n + 1", is_free=True)}, ["n"])
    columns = [ColumnMapping("n", "int", "n", stored=False)]
    inputs = [CopyInput([Stream(remote=str(source))], SequentialOrder(3000), columns)]
    batches = CopyTask(inputs, change=change)({"samples": [0, 3000]})
    sizes = [len(batch["n"]) for batch in batches]
    assert max(sizes) == 256
    assert sum(sizes) == 3000
