"""Servers for tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamplug_testing.http import free_port

ASSIGNED = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not ASSIGNED.exists(), reason="only Linux says which ports it assigns")
def test_a_free_port_is_none_that_the_system_assigns_to_another_process():
    first, last = map(int, ASSIGNED.read_text().split())
    assert not any(first <= free_port() <= last for _ in range(50))
