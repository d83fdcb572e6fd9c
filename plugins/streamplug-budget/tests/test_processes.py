from __future__ import annotations

import threading

import pytest
from streamplug_budget.processes import map_processes

from streamplug.errors import StreamplugError


class TwoArguments(Exception):
    def __init__(self, name, reason):
        super().__init__(f"{name} is {reason}")


class Locked(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TwoArguments("n", "bad"), "TwoArguments: n is bad"),
        (lambda: Locked("n is locked"), "Locked: n is locked"),
    ],
)
def test_an_error_that_cannot_be_pickled_comes_back_as_its_text(make, message):
    def fail(part):
        raise make()

    with pytest.raises(StreamplugError, match=f"^{message}$"):
        map_processes(fail, [0])


def test_an_error_that_can_be_pickled_keeps_its_type():
    def fail(part):
        raise KeyError(part)

    with pytest.raises(KeyError, match="7"):
        map_processes(fail, [7])
    assert map_processes(abs, [-1, 2]) == [1, 2]


@pytest.mark.usefixtures("new_processes")
def test_modules_of_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    """It may be that of a data set, or have modules with names of the standard library."""
    for name in ("pickle", "cloudpickle"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    assert map_processes(abs, [-1, 2]) == [1, 2]
