from __future__ import annotations

from streamplug_aistore.storage import AistoreStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: AistoreStorage("ais://b", endpoint_url=url), may_ignore_ranges=True
    )
