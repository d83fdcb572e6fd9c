from __future__ import annotations

from streamplug_gcsfs.storage import GCSStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(lambda url: GCSStorage("gs://b", endpoint_url=url, anon=True))
