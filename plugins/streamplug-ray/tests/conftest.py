from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def cluster():
    """A cluster of this machine alone."""
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=200 << 20,
        log_to_driver=False,
    )
    yield ray
    ray.shutdown()
