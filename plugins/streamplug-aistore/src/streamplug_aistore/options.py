"""Options of the AIStore storage, and the client for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
_WHAT = "ais storage"

_KNOWN: OptionTypes = {
    "ca_cert": str,
    "connect_timeout": (int, float),
    "endpoint_url": str,
    "get_batch": bool,
    "max_concurrency": int,
    "provider": str,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "token": str,
}


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    check_url(_WHAT, options, "endpoint_url", "http://ais.example:51080")
    check_positive(_WHAT, options, "connect_timeout", "read_timeout", "max_concurrency")


def aistore_client(options: Mapping[str, Any], url: str) -> Any:
    """Return a client of `aistore` for checked options and the environment.

    Raises:
        ConfigError: If no endpoint is set.
    """
    from aistore.sdk import Client
    from aistore.sdk.retry_config import RetryConfig
    from tenacity import Retrying, stop_after_attempt
    from urllib3.util.retry import Retry

    endpoint = options.get("endpoint_url") or os.environ.get("AIS_ENDPOINT")
    if not endpoint:
        raise ConfigError(
            f"nothing names the cluster of {url}; set AIS_ENDPOINT, or pass storage_options with "
            "'endpoint_url', such as http://ais.example:51080"
        )
    # The client retries for minutes by default; streamplug has its own retries.
    once = RetryConfig(
        http_retry=Retry(total=0, read=False),
        network_retry=Retrying(stop=stop_after_attempt(1), reraise=True),
    )
    return Client(
        endpoint,
        ca_cert=options.get("ca_cert"),
        timeout=(
            options.get("connect_timeout") or CONNECT_TIMEOUT,
            options.get("read_timeout") or READ_TIMEOUT,
        ),
        token=options.get("token"),
        retry_config=once,
        max_pool_size=32,
    )
