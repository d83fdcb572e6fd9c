"""A name node and a data node of HDFS, for the tests: python hdfs_server.py FOLDER.

They speak WebHDFS over one tree in memory, each on a port of its own: the name node redirects whoever
reads or writes to the data node, and knows the user ``me`` alone. The ports are in ``FOLDER/port``, a
name node on standby among them. Tests go round the client below ``/raw/``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit


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
folders: set[str] = {""}
lock = threading.RLock()
STATUS = {
    "AccessControlException": 403,
    "FileAlreadyExistsException": 403,
    "FileNotFoundException": 404,
    "IOException": 403,
    "ParentNotDirectoryException": 403,
    "StandbyException": 403,
    "UnsupportedOperationException": 400,
}


class Refused(Exception):
    pass


class Node(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True

    def serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query))
        try:
            with lock:
                if parts.path.startswith("/raw/"):
                    return self.raw(unquote(parts.path)[4:])
                self.serve_operation(unquote(parts.path).removeprefix("/webhdfs/v1").rstrip("/"))
        except Refused as refused:
            name = str(refused)
            found = {"exception": name, "javaClassName": f"java.{name}", "message": "no"}
            self.answer(STATUS[name], {"RemoteException": found})

    do_GET = do_PUT = do_DELETE = serve

    def answer(self, status, body=b"", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

    def raw(self, path):
        if self.command == "PUT":
            make_folders(path.rpartition("/")[0])
            files[path] = self.body
        self.answer(200, files[path])


class Standby(Node):
    def serve_operation(self, path):
        raise Refused("StandbyException")


class NameNode(Node):
    def serve_operation(self, path):
        if self.query.get("user.name") != "me":
            raise Refused("AccessControlException")
        operation = self.query["op"]
        above = path.rpartition("/")[0]
        while above:
            if above in files:
                raise Refused("ParentNotDirectoryException")
            above = above.rpartition("/")[0]
        getattr(self, operation.lower(), self.unknown)(path)

    def unknown(self, path):
        raise Refused("UnsupportedOperationException")

    def to_data_node(self, path):
        query = urlencode({**self.query, "namenoderpcaddress": "nn"})
        url = f"http://127.0.0.1:{self.server.data_port}/webhdfs/v1{quote(path)}?{query}"
        self.answer(307, Location=url)

    def open(self, path):
        if path not in files:
            raise Refused("FileNotFoundException")
        offset = int(self.query.get("offset", 0))
        if offset >= len(files[path]) and offset > 0:
            raise Refused("IOException")
        self.to_data_node(path)

    def create(self, path):
        if self.body:
            raise Refused("UnsupportedOperationException")  # a name node takes no content
        if path in folders:
            raise Refused("FileAlreadyExistsException")
        self.to_data_node(path)

    def getfilestatus(self, path):
        if path not in files and path not in folders:
            raise Refused("FileNotFoundException")
        self.answer(200, {"FileStatus": status_of(path, "")})

    def liststatus(self, path):
        if path in files:
            found = [status_of(path, "")]
        elif path in folders:
            top = f"{path}/"
            inside = sorted(n for n in {*files, *folders} if n.startswith(top) and n != top)
            names = [name[len(top) :] for name in inside if "/" not in name[len(top) :]]
            found = [status_of(top + name, name) for name in names]
        else:
            raise Refused("FileNotFoundException")
        self.answer(200, {"FileStatuses": {"FileStatus": found}})

    def rename(self, path):
        target = self.query["destination"]
        if target in folders:
            raise Refused("FileAlreadyExistsException")
        if "renameoptions" not in self.query:
            free = target not in files
            if free:
                files[target] = files.pop(path)
            return self.answer(200, {"boolean": free})
        files[target] = files.pop(path)
        return self.answer(200)

    def delete(self, path):
        found = files.pop(path, None) is not None
        if path in folders:
            raise Refused("IOException")
        self.answer(200, {"boolean": found})


class DataNode(Node):
    def serve_operation(self, path):
        if "namenoderpcaddress" not in self.query:
            raise Refused("UnsupportedOperationException")
        if self.query["op"] == "CREATE":
            make_folders(path.rpartition("/")[0])
            files[path] = self.body
            return self.answer(201)
        start = int(self.query.get("offset", 0))
        end = start + int(self.query.get("length", len(files[path])))
        return self.answer(200, files[path][start:end])


def status_of(path, name):
    kind = "DIRECTORY" if path in folders else "FILE"
    return {
        "pathSuffix": name,
        "type": kind,
        "length": len(files.get(path, b"")),
        "modificationTime": files.times.get(path, 0),
    }


def make_folders(path):
    while path:
        folders.add(path)
        path = path.rpartition("/")[0]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(folder):
    data, names, standby = (Server(("127.0.0.1", 0), k) for k in (DataNode, NameNode, Standby))
    names.data_port = data.server_port
    for server in (data, standby):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "port.part").write_text(f"{names.server_port} {standby.server_port}")
    (folder / "port.part").rename(folder / "port")
    names.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
