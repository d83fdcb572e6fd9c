"""A small workspace, for the tests: python workspace_server.py FOLDER.

It speaks the Files interface (/api/2.0/fs) for volumes and that of DBFS (/api/2.0/dbfs), both over one
tree in memory, to whoever shows the right token, and writes its port to ``FOLDER/port``. Tests go round
the clients below ``/raw/``.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "dapi-letmein"
PAGE = 100
BLOCK = 2**20


class Files(dict):
    """Contents by path.

    Attributes:
        times: When each was written, in milliseconds.
    """

    def __init__(self):
        super().__init__()
        self.times = {}

    def __setitem__(self, path, data):
        super().__setitem__(path, data)
        self.times[path] = time.time_ns() // 1_000_000


files = Files()
folders: set[str] = set()
handles: dict[int, list] = {}
numbers = itertools.count(1)
lock = threading.RLock()


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True

    def serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
        try:
            with lock:
                if path.startswith("/raw/"):
                    return self.raw(path[4:])
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Refused(401, "UNAUTHENTICATED")
                if found := re.fullmatch(r"/api/2\.0/fs/(files|directories)(/.*)", path, re.DOTALL):
                    return getattr(self, found[1])(found[2].rstrip("/"))
                if found := re.fullmatch(r"/api/2\.0/dbfs/([a-z-]+)", path):
                    return self.dbfs(found[1])
                raise Refused(404, "ENDPOINT_NOT_FOUND")
        except Refused as refused:
            self.answer(refused.status, {"error_code": refused.code, "message": "no"})

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def answer(self, status, body=b"", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def log_message(self, *args):
        pass

    def raw(self, path):
        if self.command == "PUT":
            make_folder(path.rpartition("/")[0])
            files[path] = self.body
        elif path not in files:
            return self.answer(404)
        return self.answer(200, files[path])

    # -- volumes ------------------------------------------------------------------

    def files(self, path):
        if self.command == "PUT":
            if path.rpartition("/")[0] not in folders:
                raise Refused(404, "NOT_FOUND")
            if path in files and self.query.get("overwrite") != "true":
                raise Refused(409, "ALREADY_EXISTS")
            files[path] = self.body
            return self.answer(204)
        if path not in files:
            raise Refused(404, "NOT_FOUND")
        if self.command == "DELETE":
            del files[path]
            return self.answer(204)
        data = files[path]
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, last = int(found[1]), min(int(found[2]), len(data) - 1)
            if start >= len(data):
                raise Refused(416, "INVALID_RANGE")
            span = f"bytes {start}-{last}/{len(data)}"
            return self.answer(206, data[start : last + 1], Content_Range=span)
        modified = formatdate(files.times[path] // 1000, usegmt=True)
        return self.answer(200, data, Last_Modified=modified)

    def directories(self, path):
        if self.command == "PUT":
            make_folder(path)
            return self.answer(204)
        if path not in folders:
            raise Refused(404, "NOT_FOUND")
        entries = [
            {"path": name, "name": name.rpartition("/")[2], "is_directory": is_folder}
            | ({} if is_folder else {"file_size": len(files[name])})
            | ({} if is_folder else {"last_modified": files.times[name]})
            for name, is_folder in children(path)
        ]
        start = int(self.query.get("page_token", 0))
        end = start + min(int(self.query.get("page_size", PAGE)), PAGE)
        more = {"next_page_token": str(end)} if len(entries) > end else {}
        return self.answer(200, {"contents": entries[start:end], **more})

    # -- DBFS ---------------------------------------------------------------------

    def dbfs(self, operation):
        wanted = json.loads(self.body) if self.body else self.query
        if operation in ("create", "add-block", "close"):
            return self.answer(200, written(operation, wanted))
        path = wanted.get("path", wanted.get("source_path"))
        if path not in files and path not in folders:
            if operation == "delete":
                return self.answer(200, {})
            raise Refused(404, "RESOURCE_DOES_NOT_EXIST")
        if operation == "get-status":
            return self.answer(200, status_of(path))
        if operation == "list":
            names = [path] if path in files else [name for name, _ in children(path)]
            return self.answer(200, {"files": [status_of(name) for name in names]})
        if operation == "read":
            return self.answer(200, block(path, int(wanted["offset"]), int(wanted["length"])))
        if operation in ("delete", "move"):
            return self.answer(200, changed(operation, path, wanted))
        raise Refused(404, "ENDPOINT_NOT_FOUND")


def written(operation, wanted):
    if operation == "create":
        if wanted["path"] in files:
            raise Refused(400, "RESOURCE_ALREADY_EXISTS")
        handle = next(numbers)
        make_folder(wanted["path"].rpartition("/")[0])
        handles[handle] = [wanted["path"], []]
        files[wanted["path"]] = b""
        return {"handle": handle}
    path, parts = handles[wanted["handle"]]
    if operation == "add-block":
        data = base64.b64decode(wanted["data"])
        if len(data) > BLOCK:
            raise Refused(400, "MAX_BLOCK_SIZE_EXCEEDED")
        parts.append(data)
        files[path] = b"".join(parts)  # readers see it grow
        return {}
    del handles[wanted["handle"]]
    return {}


def changed(operation, path, wanted):
    if operation == "delete":
        if path in folders:
            raise Refused(400, "IO_ERROR")
        del files[path]
    elif wanted["destination_path"] in files:
        raise Refused(400, "RESOURCE_ALREADY_EXISTS")
    else:
        files[wanted["destination_path"]] = files.pop(path)
    return {}


def block(path, offset, length):
    if path in folders:
        raise Refused(400, "INVALID_PARAMETER_VALUE")
    if length > BLOCK:
        raise Refused(400, "MAX_READ_SIZE_EXCEEDED")
    data = files[path]
    if offset > len(data):
        raise Refused(400, "INVALID_PARAMETER_VALUE")
    data = data[offset : offset + length]
    return {"bytes_read": len(data), "data": base64.b64encode(data).decode()}


def status_of(path):
    return {
        "path": path,
        "is_dir": path in folders,
        "file_size": len(files.get(path, b"")),
        "modification_time": files.times.get(path, 0),
    }


def children(folder):
    top = folder.rstrip("/") + "/"
    inside = [(name, False) for name in files] + [(name, True) for name in folders]
    return sorted(
        (name, is_folder)
        for name, is_folder in inside
        if name.startswith(top) and name != top and "/" not in name[len(top) :]
    )


def make_folder(path):
    while path:
        folders.add(path)
        path = path.rpartition("/")[0]
    folders.add("/")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(folder):
    server = Server(("127.0.0.1", 0), Handler)
    (folder / "port.part").write_text(str(server.server_port))
    (folder / "port.part").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
