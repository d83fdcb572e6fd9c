"""Credentials that may read and write objects, but neither list nor delete them."""

from __future__ import annotations

import http.server
import threading

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import AccessDenied

DENIED = b"<Error><Code>AccessDenied</Code><Message>s3cret</Message></Error>"


class Bucket(http.server.BaseHTTPRequestHandler):
    """Objects of which what is missing is denied, as S3 does without ``s3:ListBucket``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_GET(self):
        data = self.server.objects.get(self.path)
        status = 403 if data is None else 200
        data = DENIED if data is None else data
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hash(data):x}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_PUT(self):
        self.server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self):
        self.path = "/denied"
        self.do_GET()

    do_HEAD = do_GET


@pytest.fixture
def options():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    server.daemon_threads, server.objects = True, {}
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield {"endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_data_set_is_written_and_read_without_the_right_to_list(options, tmp_path, caplog):
    with MDSWriter(out="s3://bucket/set", columns={"n": "int"}, storage_options=options) as out:
        out.write({"n": 7})
    assert "whether s3://bucket/set/index.json exists is not told" in caplog.text
    dataset = StreamingDataset(
        remote="s3://bucket/set", local=str(tmp_path / "cache"), storage_options=options
    )
    assert list(dataset) == [{"n": 7}]


def test_a_missing_data_set_may_be_missing_or_denied(options, tmp_path):
    message = r"s3://bucket/set/index.json may not exist, or no permission .*\(AccessDenied\).*list"
    with pytest.raises(AccessDenied, match=message) as caught:
        StreamingDataset(
            remote="s3://bucket/set", local=str(tmp_path / "cache"), storage_options=options
        )
    assert "s3cret" not in str(caught.value)
