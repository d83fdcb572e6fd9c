from __future__ import annotations

import pytest

from streamplug.interfaces.cancel import Scope


def test_one_that_cannot_be_ended_does_not_keep_the_others_from_it():
    ended = []

    def fails():
        raise RuntimeError("its loop is closed")

    scope = Scope()
    with (
        scope.on_stop(lambda: ended.append(1)),
        scope.on_stop(fails),
        scope.on_stop(lambda: ended.append(2)),
    ):
        with pytest.raises(RuntimeError, match="its loop is closed"):
            scope.stop()
        assert sorted(ended) == [1, 2]
        scope.stop()
    assert scope.stopped
    assert sorted(ended) == [1, 2]
