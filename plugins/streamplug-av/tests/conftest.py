"""Fixtures of files of video and sound."""

from __future__ import annotations

import pytest
from streamplug_testing.media import decode_frames, make_media


@pytest.fixture(scope="session")
def media():
    """Return the function that makes files."""
    return make_media


@pytest.fixture(scope="session")
def all_frames():
    """Return a function that decodes all frames of a file, without any seeking."""
    return decode_frames
