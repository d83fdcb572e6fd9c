"""The commands on whole data sets, from a bucket and to one."""

from __future__ import annotations

import json
import tempfile

import pytest
from click.testing import CliRunner

from streamplug import MDSWriter
from streamplug.cli import main


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


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat {0} {0} -o {out}", [*range(100), *range(100)]),
        ("convert {0} {out} --compression zstd --size-limit 600", list(range(100))),
        ("join {0} {1} -o {out} --by id", list(range(100))),
        ("proc {0} {out} --set id=id+1", list(range(1, 101))),
        ("select {0} {out} --where id%2", list(range(1, 100, 2))),
        ("shuffle {0} {out}", None),
        ("sort {0} {out} --by -id", list(range(99, -1, -1))),
        ("split {0} {out} --samples 60", None),
    ],
)
def test_a_command_goes_from_a_bucket_to_a_bucket(sets, bucket, temporary, command, expected):
    out = f"s3://{bucket}/out"
    run(*command.format(*sets, out=out).split(), "--processes", "0")
    if expected is not None:
        assert ids(out) == expected
    elif command.startswith("split"):
        assert [ids(f"{out}/0000{n}") for n in (0, 1)] == [list(range(60)), list(range(60, 100))]
    else:
        assert ids(out) != sorted(ids(out)) == list(range(100))
    assert list(temporary.iterdir()) == []


def test_sets_in_a_bucket_are_compared_and_looked_at(sets, temporary):
    assert run("diff", sets[0], sets[0]) == "100 samples compared: 0 differ\n"
    told = json.loads(run("inspect", sets[1], "--json"))
    assert (told["url"], told["samples"], len(told["first"])) == (sets[1], 100, 3)
    assert list(temporary.iterdir()) == []
