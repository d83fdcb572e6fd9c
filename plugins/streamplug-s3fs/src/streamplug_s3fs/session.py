"""What botocore knows of S3, read once in a process."""

from __future__ import annotations

from functools import cache
from typing import Any


def new_session(profile: str | None) -> Any:
    """Return a new session of aiobotocore.

    It has credentials and settings of its own. But what botocore says of S3, in files that take longer to
    parse than all the rest of making a client, it has in common with the others of this process.

    Args:
        profile: Name of the AWS profile; None for the one that the environment names.

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
