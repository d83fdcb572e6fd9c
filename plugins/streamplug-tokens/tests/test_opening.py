"""Opening a remote data set of documents reads their lengths, and no shards."""

from __future__ import annotations

import logging
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from streamplug_tokens.dataset import TokenDataset
from streamplug_tokens.options import TokenBlocks

from streamplug import MDSWriter

LENGTH = 64


class Bucket(BaseHTTPRequestHandler):
    """Objects of S3: the files of a directory, by range or not; counts requests and bytes."""

    root: ClassVar[Path]
    requests: ClassVar[list[tuple[str, str, int]]]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.root / self.path.partition("?")[0].lstrip("/")
        data = path.read_bytes() if path.is_file() else None
        status, extra, body = 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        if data is not None:
            status, body = 200, data
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if match:
                start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
                status, body = 206, data[start:stop]
                extra["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self.send_response(status)
        for name, value in {"ETag": f'"{path.name}"', **extra}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = b"" if self.command == "HEAD" else body
        self.requests.append((self.command, path.name, len(sent)))
        self.wfile.write(sent)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """Return the directory of a bucket, and where its requests are counted."""
    pytest.importorskip("streamplug_s3fs")
    handler = type("_Bucket", (Bucket,), {"root": tmp_path / "s3", "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("S3_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    yield handler.root / "bucket", handler.requests
    server.shutdown()
    server.server_close()
    thread.join()


def write(out: Path, **options: Any) -> list[int]:
    """Write shards of documents with text as their ids, and return all tokens."""
    rng, tokens = np.random.default_rng(0), []
    columns = {"id": "str", "tokens": "ndarray:uint16"}
    with MDSWriter(out=out, columns=columns, size_limit=8_000, **options) as writer:
        for number in range(2000):
            document = rng.integers(0, 50_000, number % 200).astype(np.uint16)
            writer.write({"id": "x" * (number % 7), "tokens": document})
            tokens += document.tolist()
    return tokens


@pytest.mark.parametrize("access", ["shard", "range"])
def test_ids_of_text_cost_three_requests(bucket, tmp_path, access):
    root, requests = bucket
    tokens = write(root / "set")
    blocks = TokenBlocks(column="tokens", length=LENGTH)
    dataset = TokenDataset(
        tokens=blocks,
        remote="s3://bucket/set",
        local=str(tmp_path / "cache"),
        batch_size=8,
        access=access,
        predownload=0,
    )
    opening = len(requests)
    batch = next(iter(dataset.batches()))
    assert batch["tokens"].reshape(-1).tolist() == tokens[: 8 * LENGTH]
    index = [request for request in requests if request[1] == "index.json"]
    others = [request for request in requests if request not in index]
    assert requests[opening - 1][1] == "shard.00000.sizes"
    assert len(index) <= 2
    assert len(others) <= 3, others
    rows = sum(sent for _, name, sent in others if name.endswith(".mds"))
    assert sum(sent for _, _, sent in others) - 2 * 8 * LENGTH <= 100_000
    assert rows <= 16_000
    assert len({name for _, name, _ in others}) <= 2


def test_lengths_are_counted_without_the_file(bucket, tmp_path, caplog):
    root, _ = bucket
    tokens = write(root / "set")
    next(root.rglob("*.sizes")).unlink()
    options: dict[str, Any] = {"remote": "s3://bucket/set", "local": str(tmp_path / "cache")}
    blocks = TokenBlocks(column="tokens", length=LENGTH)
    with caplog.at_level(logging.WARNING, "streamplug"):
        dataset = TokenDataset(tokens=blocks, download_retry=0, batch_size=8, **options)
    assert "sizes of values are read from the shards" in caplog.text
    assert dataset[1]["tokens"].tolist() == tokens[LENGTH : 2 * LENGTH]
