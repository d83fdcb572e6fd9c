from __future__ import annotations

from streamplug_ocifs.storage import OciStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range(service):
    def make(url):
        return OciStorage("oci://b@n", config=service.options["config"], endpoint_url=url)

    check_ranges_are_bounded(make, may_ignore_ranges=True)
