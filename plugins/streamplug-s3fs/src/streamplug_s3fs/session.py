"""aiobotocore sessions that share botocore's service models."""

from __future__ import annotations

from functools import cache
from typing import Any


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
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader  # type: ignore[import-untyped]  # it has no types

    return create_loader(data_path)
