from __future__ import annotations

from streamplug_adlfs.storage import AzureStorage
from streamplug_testing.body_server import check_ranges_are_bounded


def test_no_more_is_read_than_the_range():
    check_ranges_are_bounded(
        lambda url: AzureStorage("az://c", endpoint_url=f"{url}/a", account_name="a", anon=True)
    )
