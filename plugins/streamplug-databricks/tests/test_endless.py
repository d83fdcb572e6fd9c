from __future__ import annotations

from streamplug_databricks.storage import DatabricksStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: DatabricksStorage("dbfs:/Volumes/a/b/c", host=url, token="t"),
        may_ignore_ranges=True,
    )
