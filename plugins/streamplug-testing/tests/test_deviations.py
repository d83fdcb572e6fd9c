from __future__ import annotations

import pytest
from streamplug_testing.deviations import ConformanceBase

pytest_plugins = ["pytester"]


class Base(ConformanceBase):
    def test_a(self):
        pass

    def test_b(self):
        pass


def test_redefining_a_base_test_is_refused():
    with pytest.raises(TypeError, match=r"Sub redefines test_a: name it in `deviations`"):
        type("Sub", (Base,), {"test_a": lambda self: None})


def test_switching_a_base_test_off_with_none_is_refused():
    with pytest.raises(TypeError, match="Sub redefines test_b"):
        type("Sub", (Base,), {"test_b": None})


def test_new_tests_need_no_reason():
    sub = type("Sub", (Base,), {"test_c": lambda self: None})
    assert sub.test_a is Base.test_a


def test_a_named_deviation_may_redefine():
    def test_a(self):
        pass

    sub = type("Sub", (Base,), {"deviations": {"test_a": "differs"}, "test_a": test_a})
    assert sub.test_a is test_a
    assert not hasattr(test_a, "pytestmark")


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_deviation_needs_a_reason(reason):
    with pytest.raises(TypeError, match="no reason for test_a"):
        type("Sub", (Base,), {"deviations": {"test_a": reason}})


@pytest.mark.parametrize("name", ["test_z", "deviations"])
def test_a_deviation_must_name_a_base_test(name):
    with pytest.raises(TypeError, match=f"names {name}, which no base class tests"):
        type("Sub", (Base,), {"deviations": {name: "why"}})


def test_the_mark_stays_with_its_class():
    sub = type("Sub", (Base,), {"deviations": {"test_a": "why"}})
    [mark] = sub.test_a.pytestmark
    assert (mark.name, mark.kwargs) == ("xfail", {"strict": True, "reason": "why"})
    assert not hasattr(Base.test_a, "pytestmark")
    assert sub.test_b is Base.test_b


def test_a_subclass_of_a_deviating_class_inherits_the_mark():
    sub = type("Sub", (Base,), {"deviations": {"test_a": "why"}})
    leaf = type("Leaf", (sub,), {})
    assert leaf.test_a is sub.test_a


def test_a_deviating_test_must_fail(pytester):
    pytester.makepyfile(
        """
        import pytest
        from hypothesis import given, strategies
        from streamplug_testing.deviations import ConformanceBase

        class Suite(ConformanceBase):
            @pytest.fixture
            def number(self):
                return 1
            @pytest.mark.parametrize("wanted", [2, 3])
            def test_fails(self, number, wanted):
                assert number == wanted
            def test_passes(self, number):
                assert number == 1
            @given(strategies.integers())
            def test_property(self, n):
                assert n < 0

        class TestHonest(Suite):
            deviations = {"test_fails": "known", "test_property": "known"}
        class TestStale(Suite):
            deviations = {"test_fails": "known", "test_property": "known", "test_passes": "fixed"}
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rxf")
    result.assert_outcomes(passed=1, xfailed=6, failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*fixed*", "XFAIL *TestHonest::test_fails* - known"])
