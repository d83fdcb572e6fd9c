"""Epochs through a server that fails: every sample arrives once, and is what it was."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

WHOLE = bool(os.environ.get("STREAMPLUG_TEST_FAULTS"))
RANKS = 4
STALL, TIMEOUT = 1.0, 0.5
NO_FLIPS = (
    "latency reset reset-middle truncated short stall stall-middle 500 503 503-after 429 429-after"
)


@dataclass(frozen=True)
class Campaign:
    """What is read, through what.

    Attributes:
        name: What the figures call it.
        rate: Share of requests that fail.
        retries: download_retry.
        haste: What part of the usual time is waited before something is tried again.
        kinds: Kinds of faults; all if empty.
        keeps: Shards that the cache has room for; None if nothing is kept.
        needs: Distributions without which it cannot be run.
        scheme: Of the bucket that it lies in; None for plain HTTP.
    """

    name: str
    rate: float
    retries: int
    epochs: int = 100
    shards: int = 200
    haste: float = 1.0
    workers: int = 0
    kinds: str = ""
    keeps: int | None = 80
    needs: tuple[str, ...] = ()
    scheme: str | None = None
    written: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}-{self.rate:.0%}"


HASHED = {"hashes": ["xxh64"]}
PACKED = {**HASHED, "compression": "zstd"}
NO_WAITS = "latency reset reset-middle truncated short flipped stall stall-middle 500 503 429"
RANGE = Campaign(
    "by range", 0.1, 10, 20, kinds=NO_FLIPS, keeps=None, options={"access": "range"}, haste=0.1
)
LOADER = Campaign("loader workers", 0.1, 10, 5, workers=2, written=HASHED, needs=("torch",))
BUCKET = Campaign("s3fs", 0.1, 10, 5, 60, 0.1, keeps=24, written=HASHED, scheme="s3")
S3FS = replace(BUCKET, needs=("streamplug_s3fs", "moto"))
OBSTORE = replace(
    BUCKET, name="obstore", scheme="obstore+s3", needs=("streamplug_obstore", "boto3", "moto")
)
CAMPAIGNS = [
    Campaign("shards", 0.01, 6, 100, written=HASHED),
    Campaign("shards", 0.1, 10, 100, haste=0.1, written=HASHED),
    Campaign("shards", 0.3, 20, 100, haste=0.1, kinds=NO_WAITS, written=HASHED),
    Campaign("zstd", 0.1, 10, 20, haste=0.1, written=PACKED, needs=("streamplug_zstandard",)),
    RANGE,
    replace(LOADER, haste=0.1),
    S3FS,
    OBSTORE,
    *(
        replace(
            each, name=f"{each.name} by range", kinds=NO_FLIPS, keeps=None, options=RANGE.options
        )
        for each in (S3FS, OBSTORE)
    ),
]
FEW = Campaign("shards", 0.3, 20, 2, 12, 0.02, kinds=NO_WAITS, keeps=6, written=HASHED)
SMALL = [
    FEW,
    replace(FEW, name="gz", rate=0.1, written={**HASHED, "compression": "gz"}),
    replace(RANGE, epochs=2, shards=12, haste=0.02),
]


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Nothing from the configuration of whoever runs the tests."""
    variables = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def place(campaign, tmp_path, write, faulty, request):
    """Write a data set; returns the server in front of it, its URL there, and what reading it takes."""
    far = tmp_path / "far"
    size = write(far, campaign.shards, **campaign.written)
    arguments: list[object] = ["--rate", campaign.rate, "--stall", STALL, "--seed", 5]
    if campaign.kinds:
        arguments += ["--kinds", *campaign.kinds.split()]
    options: dict[str, Any] = {}
    if campaign.scheme is None:
        server = faulty("--root", far, *arguments)
        url = server.url
    else:
        moto = request.getfixturevalue("s3_server")
        bucket = f"faults-{campaign.name.replace(' ', '-')}"
        fill(moto, bucket, far)
        server = faulty("--upstream", moto, *arguments)
        url = f"{campaign.scheme}://{bucket}"
        options["storage_options"] = {"endpoint_url": server.url, **OF_SCHEME[campaign.scheme]}
    if campaign.keeps is not None:
        options |= {"local": str(tmp_path / "near"), "cache_limit": campaign.keeps * size}
    return server, {"remote": url, "predownload": 128, **options, **campaign.options}


OF_SCHEME: dict[str, dict[str, Any]] = {
    "s3": {"key": "test", "secret": "test", "addressing_style": "path"},
    "obstore+s3": {"key": "test", "secret": "test"},
}


def fill(moto, bucket, far):
    import boto3

    client = boto3.client("s3", endpoint_url=moto)
    client.create_bucket(Bucket=bucket)
    for path in far.iterdir():
        client.put_object(Bucket=bucket, Key=path.name, Body=path.read_bytes())
    client.close()


@pytest.mark.parametrize("campaign", CAMPAIGNS if WHOLE else SMALL, ids=str)
@pytest.mark.timeout(3600 if WHOLE else 120)
def test_every_sample_arrives_once_in_every_epoch(
    campaign, tmp_path, write, faulty, processes, environment, figures, request
):
    for module in campaign.needs:
        pytest.importorskip(module)
    server, options = place(campaign, tmp_path, write, faulty, request)
    began, log = time.monotonic(), tmp_path / "log"
    log.touch()
    ranks = [
        processes(
            "rank.py",
            rank=rank,
            ranks=RANKS,
            out=str(tmp_path / f"out{rank}"),
            log=str(log),
            leash=3500 if WHOLE else 110,
            timeout=TIMEOUT,
            haste=campaign.haste,
            workers=campaign.workers,
            epochs=campaign.epochs,
            environment=environment,
            options={**options, "download_retry": campaign.retries},
        )
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.join()
    seconds = time.monotonic() - began
    assert [process.exitcode for process in ranks] == [0] * RANKS
    epochs = read(tmp_path, campaign)
    for number, ids in enumerate(epochs):
        check_epoch(number, ids, 16 * campaign.shards - 5)
    check_cache(tmp_path / "near")
    counts, messages = (
        server.ask(),
        Counter(line.split()[0] for line in log.read_text().splitlines()),
    )
    faults, requests = counts["faults"], sum(counts["requests"].values())
    assert sum(faults.values()) > campaign.rate * requests / 2
    assert messages["retry"] > 0
    if figures is not None:
        figures.setdefault("epochs", {})[str(campaign)] = {
            "name": campaign.name,
            "rate": campaign.rate,
            "epochs": campaign.epochs,
            "shards": campaign.shards,
            "download_retry": campaign.retries,
            "requests": requests,
            "faults": faults,
            "retries": messages["retry"],
            "samples": sum(map(len, epochs)),
            "errors": 0,
            "seconds": round(seconds),
        }


def read(tmp_path: Path, campaign: Campaign) -> list[list[int]]:
    """Return the ids of each epoch, over all ranks."""
    ranks = [(tmp_path / f"out{rank}").read_text().splitlines() for rank in range(RANKS)]
    assert [len(lines) for lines in ranks] == [campaign.epochs] * RANKS
    return [[int(n) for line in lines for n in line.split()] for lines in zip(*ranks)]


def check_epoch(number: int, ids: list[int], size: int) -> None:
    assert set(ids) == set(range(size)), number
    # What fills the last batch of each rank.
    assert len(ids) == -(-size // (8 * RANKS)) * 8 * RANKS, number


def check_cache(near: Path) -> None:
    if near.exists():
        assert list((near / ".streamplug" / "tmp").iterdir()) == []
