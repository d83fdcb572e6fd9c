"""The conformance tests of engines fail where they should."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from streamplug_testing import EngineTests
from streamplug_testing.scaffold import new_plugin

from streamplug import Engine
from streamplug.errors import WriterError


def suite(engine):
    class Suite(EngineTests):
        cls = engine

    return Suite()


class Forgetful(Engine):
    def run(self, task, numbers):
        for number in numbers[1:]:
            task(number)
            yield number


class Silent(Engine):
    def run(self, task, numbers):
        for number in numbers:
            task(number)
        return iter(())


class Raw(Engine):
    def run(self, task, numbers):
        for number in numbers:
            task(number)
            yield number


class Stubborn(Engine):
    def run(self, task, numbers):
        for number in numbers:
            for last in (False, True):
                try:
                    task(number)
                except Exception as error:
                    if last:
                        raise WriterError(str(error)) from error
            yield number


class Eager(Engine):
    def run(self, task, numbers):
        task(0)
        try:
            yield 0
        finally:
            for number in numbers[1:]:
                task(number)


@pytest.mark.parametrize("engine", [Forgetful, Silent])
def test_one_that_leaves_something_out_is_found(engine, tmp_path):
    with pytest.raises(AssertionError):
        suite(engine).test_calls_each_number_and_says_so(tmp_path)


def test_one_whose_errors_are_not_ours_is_found():
    with pytest.raises(RuntimeError, match="nothing there"):
        suite(Raw).test_what_a_call_raises_comes_back_as_an_error_of_ours(
            RuntimeError("nothing there")
        )


def test_one_that_repeats_what_fails_is_found(tmp_path):
    with pytest.raises(AssertionError):
        suite(Stubborn).test_what_fails_is_not_called_again(tmp_path)


def test_one_that_goes_on_when_it_is_left_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug_testing.engine._PATIENCE", 0)
    with pytest.raises(AssertionError):
        suite(Eager).test_leaving_gives_up_what_has_not_begun(tmp_path)


def test_one_in_which_nothing_travels_is_found():
    with pytest.raises(pytest.fail.Exception):
        suite(Raw).test_what_cannot_travel_is_refused()


AT_EXIT = """
import concurrent.futures.process as futures, operator, sys, time

class Slow(futures._ThreadWakeup):
    def wakeup(self):
        if not self._closed:
            if sys._getframe(1).f_code.co_name == "_python_exit":
                time.sleep(1)  # the pool ends meanwhile
            self._writer.send_bytes(b"")

if __name__ == "__main__":
    futures._ThreadWakeup = Slow
    from streamplug_pooled.engine import Pooled
    for number in Pooled(1).run(operator.neg, [1]):
        pass
"""


def test_the_example_has_no_pool_that_ends_with_the_interpreter(tmp_path):
    source = new_plugin("pooled", "engine", tmp_path) / "src"
    (tmp_path / "program.py").write_text(AT_EXIT)
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
