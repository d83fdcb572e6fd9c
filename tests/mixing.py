"""Whether streamplug-mixing is installed, without which proportions of streams do not change."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

HAS_MIXING = find_spec("streamplug_mixing") is not None
needs_mixing = pytest.mark.skipif(not HAS_MIXING, reason="streamplug-mixing is not installed")
