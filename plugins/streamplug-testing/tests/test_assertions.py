"""Failed conformance tests show the values that differ, and how long these are does not matter."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

TESTS = """
from streamplug.builtin.compressions.gzip import Gzip
from streamplug_testing import CompressionTests


class Lossy(Gzip):
    def decompress(self, *given, **options):
        return bytes(len(super().decompress(*given, **options)))


class TestLossy(CompressionTests):
    cls = Lossy
"""


def test_a_failed_assertion_shows_its_values(tmp_path):
    (tmp_path / "test_lossy.py").write_text(textwrap.dedent(TESTS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "much"]
    result = subprocess.run(
        [*command, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "CI": "true"},
        timeout=120,
    )
    assert result.returncode == 1, result.stdout
    assert "PytestAssertRewriteWarning" not in result.stdout
    assert "E        +  where False = same(b" in result.stdout, result.stdout
