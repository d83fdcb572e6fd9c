from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from streamplug.heap import keep_freed_memory
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytes(12_000) for _ in range(256)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(sum(faults() for _ in range(10)))
"""


def faults(first: str) -> int:
    program = [sys.executable, "-c", PROGRAM.format(first=first)]
    return int(subprocess.run(program, check=True, capture_output=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others take no notice")
def test_what_a_batch_frees_is_there_for_the_next():
    without, kept = faults(""), faults("keep_freed_memory()")
    assert without > 2000 > 200 > kept
