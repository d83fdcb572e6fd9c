"""Options of the Oracle Cloud storage, and their translation for ocifs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
# The SDK retries for ten minutes by default; streamplug retries on top of that.
ATTEMPTS = 2
_WHAT = "oci storage"
_IAM_TYPES = ("api_key", "resource_principal", "instance_principal", "oke_principal")

_KNOWN: OptionTypes = {
    "compartment_id": str,
    "config": (str, Mapping),
    "config_kwargs": Mapping,
    "connect_timeout": (int, float),
    "endpoint_url": str,
    "iam_type": str,
    "max_concurrency": int,
    "namespace": str,
    "part_size": int,
    "profile": str,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "region": str,
}


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    iam = options.get("iam_type")
    if iam is not None and iam not in _IAM_TYPES:
        raise ConfigError(f"{_WHAT} option iam_type={iam!r}: use {', '.join(_IAM_TYPES)}")
    if iam not in (None, "api_key"):
        for name in ("config", "profile"):
            if options.get(name) is not None:
                raise ConfigError(
                    f"{_WHAT} options {name!r} and iam_type={iam!r} exclude each other"
                )
    check_url(_WHAT, options, "endpoint_url", "https://objectstorage.REGION.oraclecloud.com")
    check_positive(
        _WHAT, options, "connect_timeout", "read_timeout", "max_concurrency", "part_size"
    )


class SecretConfig(dict[str, Any]):
    """A configuration with an empty repr: ocifs logs it, and it may hold a key."""

    def __repr__(self) -> str:
        return "SecretConfig(...)"

    def copy(self) -> SecretConfig:
        """Return a copy of the same class."""
        return SecretConfig(self)


def ocifs_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ocifs.OCIFileSystem` for checked options and the environment."""
    from oci.circuit_breaker import NoCircuitBreakerStrategy
    from oci.retry import RetryStrategyBuilder

    set_options = {name: value for name, value in options.items() if value is not None}
    client = {
        "timeout": (
            set_options.get("connect_timeout", CONNECT_TIMEOUT),
            set_options.get("read_timeout", READ_TIMEOUT),
        ),
        "retry_strategy": RetryStrategyBuilder(
            max_attempts_check=True,
            max_attempts=ATTEMPTS,
            retry_max_wait_between_calls_seconds=2,
            retry_base_sleep_time_seconds=0.2,
        ).get_retry_strategy(),
        # By default, ten busy responses in a row block all clients of the process for half a minute.
        "circuit_breaker_strategy": NoCircuitBreakerStrategy(),
        **set_options.get("config_kwargs", {}),
    }
    if set_options.get("endpoint_url"):
        client["service_endpoint"] = set_options["endpoint_url"].rstrip("/")
    unchanged = ("region", "compartment_id", "namespace")
    return {
        **{name: set_options[name] for name in unchanged if name in set_options},
        **_credentials(set_options),
        "config_kwargs": client,
    }


def _credentials(set_options: Mapping[str, Any]) -> dict[str, Any]:
    iam = set_options.get("iam_type")
    # What is given wins over the environment as a whole.
    if set_options.keys().isdisjoint(("iam_type", "config", "profile")):
        iam = os.environ.get("OCIFS_IAM_TYPE")
    if iam not in (None, "api_key"):
        return {"iam_type": iam}
    config = set_options.get("config")
    if isinstance(config, Mapping):
        return {"iam_type": "api_key", "config": SecretConfig(config)}
    location = config or _location()
    if iam is None and location is None and "profile" not in set_options:
        return {}  # ocifs then tries the resource principal
    from oci.config import DEFAULT_LOCATION, DEFAULT_PROFILE, from_file

    profile = set_options.get("profile")
    if profile is None and config is None:
        profile = os.environ.get("OCIFS_CONFIG_PROFILE")
    settings = SecretConfig(from_file(location or DEFAULT_LOCATION, profile or DEFAULT_PROFILE))
    token = settings.get("security_token_file")
    if token is None:
        return {"iam_type": "api_key", "config": settings}
    return {"signer": _session(settings, token), "config": settings, "iam_type": "unknown_signer"}


def _location() -> str | None:
    places = (
        os.environ.get("OCIFS_CONFIG_LOCATION"),
        os.environ.get("OCI_CONFIG_FILE"),
        "~/.oci/config",
    )
    for place in filter(None, places):
        # Not `Path`, which raises without a home directory, or if it is another user's.
        if os.path.isfile(os.path.expanduser(place)):  # noqa: PTH111, PTH113
            return place
    return None


def _session(config: Mapping[str, Any], token: str) -> Any:
    """Return the signer of a session started by `oci session authenticate`."""
    from oci.auth.signers import SecurityTokenSigner
    from oci.signer import load_private_key_from_file

    key = load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
    return SecurityTokenSigner(Path(token).expanduser().read_text().strip(), key)
