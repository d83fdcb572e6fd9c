"""The commands on whole data sets, from a bucket and to one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter
from streamplug.cli import main

SOAK = bool(os.environ.get("STREAMPLUG_TEST_SOAK"))


@pytest.fixture
def temporary(endpoint, monkeypatch, tmp_path):
    """The directory for temporary files of commands that find the server in their environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def sets(endpoint, client):
    """Two sets without a column in common but the key, in a bucket."""
    client.create_bucket(Bucket="sets")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"}.items():
            patch.setenv(f"AWS_{name}", value)
        patch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        for name, columns in (("a", {"id": "int"}), ("b", {"id": "int", "half": "int"})):
            out = f"s3://sets/{name}"
            with MDSWriter(columns=columns, out=out, size_limit=600, compression="gz") as writer:
                for n in range(100):
                    writer.write({key: {"id": n, "half": n // 2}[key] for key in columns})
    return "s3://sets/a", "s3://sets/b"


def run(*arguments):
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def ids(place):
    return [json.loads(line)["id"] for line in run("cat", place).splitlines()]


COMMANDS = [
    ("join {0} {1} -o {out} --by id", list(range(100))),
    ("sort {0} {out} --by -id", list(range(99, -1, -1))),
    ("split {0} {out} --samples 60", None),
]
if SOAK:  # those that read and write as the others do
    COMMANDS += [
        ("cat {0} {0} -o {out}", [*range(100), *range(100)]),
        ("convert {0} {out} --compression zstd --size-limit 600", list(range(100))),
        ("proc {0} {out} --set id=id+1", list(range(1, 101))),
        ("select {0} {out} --where id%2", list(range(1, 100, 2))),
        ("shuffle {0} {out}", None),
    ]


@pytest.mark.parametrize(("command", "expected"), COMMANDS)
def test_a_command_goes_from_a_bucket_to_a_bucket(sets, bucket, temporary, command, expected):
    out = f"s3://{bucket}/out"
    run(*command.format(*sets, out=out).split(), "--processes", "0")
    if expected is not None:
        assert ids(out) == expected
    elif command.startswith("split"):
        assert [ids(f"{out}/0000{n}") for n in (0, 1)] == [list(range(60)), list(range(60, 100))]
    else:
        assert ids(out) != sorted(ids(out)) == list(range(100))
    assert list(temporary.glob("*/*")) == []


def test_sets_in_a_bucket_are_compared_and_looked_at(sets, temporary):
    assert run("diff", sets[0], sets[0]) == "100 samples compared: 0 differ\n"
    told = json.loads(run("inspect", sets[1], "--json"))
    assert (told["url"], told["samples"], len(told["first"])) == (sets[1], 100, 3)
    assert list(temporary.glob("*/*")) == []


LIMITED = """
    import resource, sys, threading
    from pathlib import Path
    import numpy as np
    from streamplug import Writer
    from streamplug.cli import main

    # A stack counts as a whole, of which next to nothing is ever used.
    threading.stack_size(1 << 19)

    home, size = sys.argv[1], 1 << 17
    for name, count in (("few", 3), ("many", 1000)):
        with Writer(columns={"x": "bytes"}, out=f"{home}/{name}", size_limit="300kb") as writer:
            for n in range(count):
                writer.write({"x": bytes([n % 256]) * size})
    commands = sys.stdin.read().splitlines()
    for command in commands:  # on a few samples, what is needed anyway is imported and connected
        main(command.format("few").split(), standalone_mode=False)
    used = next(line for line in Path("/proc/self/status").open() if line.startswith("VmData"))
    limit = int(used.split()[1]) * 1024 + (96 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        np.ones(104 << 20, np.uint8)
    except MemoryError:
        print("limited")
    for command in commands:
        main(command.format("many").split(), standalone_mode=False)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
@pytest.mark.skipif(not SOAK, reason="it takes long: tox -e soak")
def test_memory_does_not_grow_with_a_set_in_a_bucket(bucket, temporary, monkeypatch):
    """Commands that have 96 MiB for a set of 125 MiB."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    home, small = f"s3://{bucket}", "--size-limit 1mb --processes 0 --exist-ok"
    commands = [
        f"cat {home}/{{0}} -o {home}/out {small}",
        f"inspect {home}/{{0}} --samples 1000",
        f"inspect {home}/{{0}} --samples 1000 --json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), home],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr[-3000:]) == (0, "")
    lines = done.stdout.partition("limited\n")[2].splitlines()
    assert ["1,000 samples" in line for line in lines if "written" in line] == [True]
    assert sum(line.strip() == "131,072 bytes" for line in lines) == 1000
    assert sum(line.startswith('      "x": ') for line in lines) == 1000
