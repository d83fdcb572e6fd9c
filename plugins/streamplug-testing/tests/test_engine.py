"""The conformance tests of engines fail where they should."""

from __future__ import annotations

import pytest
from streamplug_testing import EngineTests

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
