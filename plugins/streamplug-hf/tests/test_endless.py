from __future__ import annotations

from streamplug_hf.storage import HfStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: HfStorage("hf://datasets/o/n", endpoint_url=url), may_ignore_ranges=True
    )
