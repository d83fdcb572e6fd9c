"""aiobotocore sessions that share botocore's service models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from streamplug_fsspec import acquire_request, note_answer

_METADATA_URL = "http://169.254.169.254"
_ROLES = "/latest/meta-data/iam/security-credentials/"
_MAX_ANSWER_BYTES = 4096


def new_session(profile: str | None) -> Any:
    """Return a new session of aiobotocore.

    It has its own credentials and settings, but shares the loader of service models with all sessions of
    the process, as parsing them takes longer than the rest of creating a client.

    Args:
        profile: Name of the AWS profile; None is the one from the environment.

    Raises:
        Exception: botocore's own, if there is no such profile.
    """
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]  # it has no types

    session = AioSession(profile=profile)

    session.register("before-send.s3", _acquire)
    session.register("response-received.s3", _note)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


async def _acquire(**_: Any) -> None:
    await acquire_request()  # for each attempt of botocore


def _note(parsed_response: Mapping[str, Any] | None = None, **_: Any) -> None:
    answer = parsed_response or {}
    told, code = answer.get("ResponseMetadata", {}), answer.get("Error", {}).get("Code", "")
    note_answer(told.get("HTTPStatusCode"), told.get("HTTPHeaders"), code)


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader  # type: ignore[import-untyped]  # it has no types

    return create_loader(data_path)


def credential_files() -> tuple[str, str]:
    """Return the paths of the AWS configuration files."""
    return (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials",
        os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config",
    )


def serves_credentials(session: Any) -> bool:
    """Return whether this machine has a service that gives credentials, even if it fails for now.

    botocore takes a failure of the service for a machine without credentials.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    base = session.get_config_variable("ec2_metadata_service_endpoint") or _METADATA_URL
    base = base.rstrip("/")
    timeout = float(session.get_config_variable("metadata_service_timeout") or 1)
    opener = build_opener(ProxyHandler({}))  # the service is not behind a proxy
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = Request(f"{base}/latest/api/token", None, headers, method="PUT")  # noqa: S310 - of this machine
    try:
        with opener.open(token, timeout=timeout) as response:
            headers = {
                "X-aws-ec2-metadata-token": response.read(_MAX_ANSWER_BYTES).decode("latin-1")
            }
    except HTTPError as error:
        if error.code == 429 or error.code >= 500:
            return True
        headers = {}
    except (OSError, ValueError):
        return False
    try:
        roles = Request(f"{base}{_ROLES}", headers=headers)  # noqa: S310 - of this machine
        with opener.open(roles, timeout=timeout) as response:
            return bool(response.read(_MAX_ANSWER_BYTES).strip())
    except HTTPError as error:  # 404: the machine has no role
        return error.code == 429 or error.code >= 500
    except (OSError, ValueError):
        return True
