"""A gateway and a target of AIStore, for the tests: python ais_server.py FOLDER.

Both keep one set of buckets in memory, each on a port of its own: the gateway redirects whoever reads or
writes objects to the target, and lists buckets in msgpack, in pages. Whoever shows a token must show the
right one. The gateway's port is in ``FOLDER/port``. Tests go round the client below ``/raw/``.

GetBatch is as docs/get_batch.md and api/apc/ml.go of AIStore describe it. What is put as ``.faults`` of a
bucket is how it fails there; ``.requests`` of a bucket are those that read its objects.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import tarfile
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

TOKEN = "letmein"
PAGE = 100

MAX_SOFT_ERRORS = 6

buckets: dict[str, dict[str, bytes]] = {}
faults: dict[str, dict] = {}
requests: dict[str, list[str]] = {}
lock = threading.RLock()


class Node(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True

    def serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
        with lock:
            if found := re.fullmatch(r"/raw/([^/]+)(?:/(.*))?", parts.path):
                return self.raw(found[1], unquote(found[2] or ""))
            if self.headers.get("Authorization", f"Bearer {TOKEN}") != f"Bearer {TOKEN}":
                return self.fail(401, "token is not valid")
            found = re.fullmatch(r"/v1/(objects|buckets|ml/moss)/([^/]+)(?:/(.*))?", parts.path)
            if not found or self.query.get("provider") not in ("ais", "aws"):
                return self.fail(400, "what?")
            if found[2] not in buckets:
                return self.fail(404, f'bucket "ais://{found[2]}" does not exist')
            if found[1] == "ml/moss":
                return self.get_batch(found[2], faults.get(found[2], {}))
            if found[1] == "buckets":
                return self.listing(found[2])
            return self.object(found[2], unquote(found[3]))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

    def answer(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, message):
        found = {"status": status, "message": message}
        self.answer(status, json.dumps(found).encode(), Content_Type="application/json")

    def log_message(self, *args):
        pass

    def raw(self, bucket, name):
        if self.command == "POST":
            buckets[bucket], requests[bucket] = {}, []
        elif name == ".faults":
            faults[bucket] = json.loads(self.body)
            return self.answer(200)
        elif name == ".requests":
            return self.answer(200, json.dumps(requests[bucket]).encode())
        elif self.command == "PUT":
            buckets[bucket][name] = self.body
        return self.answer(200, buckets[bucket].get(name, b""))


class Gateway(Node):
    def get_batch(self, bucket, faults):
        requests[bucket].append("getbatch")
        if faults.get("gateway"):
            return self.fail(faults["gateway"], "invalid request URI")
        if self.command != "GET" or not all(
            is_valid(entry) for entry in json.loads(self.body)["in"]
        ):
            return self.fail(400, "invalid entry")
        path = f"/v1/ml/moss/{bucket}/g-xid/wid/1"
        target = f"http://127.0.0.1:{self.server.target_port}{path}"
        return self.answer(307, Location=f"{target}?{urlsplit(self.path).query}&tid=t1&pid=gw")

    def object(self, bucket, name):
        parts = urlsplit(self.path)
        target = f"http://127.0.0.1:{self.server.target_port}{parts.path}?{parts.query}&pid=gw"
        self.answer(307, Location=target)

    def listing(self, bucket):
        wanted = json.loads(self.body)["value"]
        after = wanted.get("continuation_token", "")
        names = sorted(n for n in buckets[bucket] if n.startswith(wanted.get("prefix", "")))
        names = [name for name in names if name > after]
        page = names[:PAGE]
        found = {
            "UUID": wanted.get("uuid") or uuid.uuid4().hex,
            "ContinuationToken": page[-1] if len(names) > PAGE else "",
            "Flags": 0,
            "Entries": [entry(name, buckets[bucket][name], wanted["props"]) for name in page],
        }
        self.answer(200, msgspec.msgpack.encode(found), Content_Type="application/msgpack")


class Target(Node):
    def listing(self, bucket):
        self.fail(400, "ask the gateway")

    def get_batch(self, bucket, faults):
        if self.query.get("pid") != "gw":
            return self.fail(400, "come by the gateway")
        if faults.get("target"):
            return self.fail(faults["target"], "x-moss: xid not active")
        asked = json.loads(self.body)
        assert asked["strm"], "metadata is not emulated"
        assert asked.get("coer"), "one missing object would fail all"
        if faults.get("reversed"):
            asked["in"].reverse()
        body = faults.get("body", "").encode() or archive(buckets[bucket], asked, faults)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = body[: faults.get("cut")]
        for start in range(0, len(body), 5000):
            chunk = body[start : start + 5000]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.close_connection |= bool(faults.get("break"))
        return self.wfile.write(b"" if faults.get("break") else b"0\r\n\r\n")

    def object(self, bucket, name):
        if self.query.get("pid") != "gw":
            return self.fail(400, "come by the gateway")
        if self.command == "PUT":
            buckets[bucket][name] = self.body
            return self.answer(200)
        if self.command == "GET":
            requests[bucket].append(name)
        if name not in buckets[bucket]:
            return self.fail(404, f'object "ais://{bucket}/{name}" does not exist')
        data = buckets[bucket][name]
        if self.command == "DELETE":
            del buckets[bucket][name]
            return self.answer(204)
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, last = int(found[1]), min(int(found[2]), len(data) - 1)
            if start >= len(data):
                return self.fail(416, "out of range")
            span = f"bytes {start}-{last}/{len(data)}"
            return self.answer(206, data[start : last + 1], Content_Range=span)
        checksum = "checksum" in self.query.get("props", "")
        return self.answer(200, data, **({"Ais_Checksum_Value": digest(data)} if checksum else {}))


def is_valid(entry):
    start, length = entry.get("start", 0), entry.get("length", 0)
    return (
        start >= 0 and length >= -1 and (length or not start) and not entry["objname"].endswith("/")
    )


def archive(objects, asked, faults):
    """Return the TAR archive for a request, which ends where AIStore stops sending it."""
    out, errors = io.BytesIO(), 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, entry in enumerate(asked["in"]):
            name, start, length = entry["objname"], entry.get("start", 0), entry.get("length", 0)
            data, prefix = objects.get(name), "" if asked["onob"] else f"{entry['bucket']}/"
            if data is None or number in faults.get("unreadable", ()):
                prefix, data, errors = f"__404__/{prefix}", b"", errors + 1
            elif length and not faults.get("whole"):
                if start + length > len(data):
                    return out.getvalue()
                data = data[start : start + length]
            if number == faults.get("longer"):
                data += bytes(1 << 20)
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            if errors > MAX_SOFT_ERRORS:
                return out.getvalue()
    return out.getvalue()


def entry(name, data, props):
    return {"n": name, "s": len(data), **({"cs": digest(data)} if "checksum" in props else {})}


def digest(data):
    return hashlib.md5(data).hexdigest()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(folder):
    gateway, target = Server(("127.0.0.1", 0), Gateway), Server(("127.0.0.1", 0), Target)
    gateway.target_port = target.server_port
    threading.Thread(target=target.serve_forever, daemon=True).start()
    (folder / "port.part").write_text(str(gateway.server_port))
    (folder / "port.part").rename(folder / "port")
    gateway.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
