from __future__ import annotations

from streamplug_s3fs.storage import S3Storage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: S3Storage("s3://b", endpoint_url=url, addressing_style="path")
    )
