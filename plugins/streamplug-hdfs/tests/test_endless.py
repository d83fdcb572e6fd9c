from __future__ import annotations

from streamplug_hdfs.storage import HdfsStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: HdfsStorage("hdfs://nn/f", endpoint_url=url), has_http_ranges=False
    )
