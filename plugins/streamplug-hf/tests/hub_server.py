"""A small Hub, for the tests: python hub_server.py FOLDER.

It writes its port to ``FOLDER/port`` and speaks what a reader of repositories needs: resolve, tree and
paths-info. Of buckets, it also changes files, whose content comes through Xet; they are the revision
``BUCKET`` of a repository here. Repositories are made, and files put and read, below ``/raw/``. Files from
`LARGE` bytes on are redirected to another host name, as the Hub does; that host refuses to be shown a token.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

import xet_store

LARGE = 1_000_000
PAGE = 100
TOKEN = "hf_letmein"
PRIVATE = "private-"
BUCKET = "(bucket)"
XET_TOKEN = "xet_letmein"

repositories: dict[str, dict[str, bytes]] = {}
lock = threading.RLock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        parts = urlsplit(self.path)
        self.query = {k: v[-1] for k, v in parse_qs(parts.query).items()}
        with lock:
            self.route(parts.path, body)

    do_GET = do_HEAD = do_PUT = do_POST = serve

    def answer(self, status, body=b"", **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass

    def route(self, path, body):
        if found := re.fullmatch(r"/raw/([^/]+/[^/@]+)(@[^/]*)?(?:/(.*))?", path):
            return self.raw(found[1] + unquote(found[2] or "@main"), unquote(found[3] or ""), body)
        if found := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.*)", path):
            if "Authorization" in self.headers:
                return self.answer(400, b"a token was shown to another host")
            return self.content(repositories[unquote(found[1])][unquote(found[2])])
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path):
            return self.resolve(found[1], unquote(found[2]), unquote(found[3]))
        if found := re.fullmatch(
            r"/api/datasets/([^/]+/[^/]+)/(tree|paths-info)/([^/]+)(?:/(.*))?", path
        ):
            files = self.repository(found[1], unquote(found[3]))
            if files is None:
                return None
            if found[2] == "tree":
                return self.tree(files, unquote(found[4] or ""))
            return self.answer(200, [e for p in json.loads(body)["paths"] for e in entry(files, p)])
        return self.route_bucket(path, body)

    def route_bucket(self, path, body):
        if found := re.fullmatch(r"/buckets/([^/]+/[^/]+)/resolve/(.*)", path):
            return self.resolve(found[1], BUCKET, unquote(found[2]))
        if found := re.fullmatch(
            r"/api/buckets/([^/]+/[^/]+)/(tree|paths-info|batch|xet-(?:read|write)-token)(?:/(.*))?",
            path,
        ):
            files = self.repository(found[1], BUCKET)
            return files if files is None else self.bucket(files, *found.groups()[1:], body)
        if re.fullmatch(r"/api/datasets/[^/]+/[^/]+/xet-read-token/[^/]+", path):
            return self.xet_token()
        if path.startswith(("/v1/", "/v2/", "/xorbs/")):
            return self.xet(path.split("/")[1:], body)
        return self.answer(404, {"error": f"no route {path}"})

    def bucket(self, files, what, rest, body):
        if what == "tree":
            # Unlike those of repositories, the prefix is one of names, and nothing is not an error.
            names = {p: files[p] for p in files if p.startswith(unquote(rest or ""))}
            return self.tree(names, "", is_bucket=True)
        if what == "paths-info":
            paths = [path for path in json.loads(body)["paths"] if path in files]
            return self.answer(200, [e for p in paths for e in entry(files, p, is_bucket=True)])
        if what.startswith("xet"):
            return self.xet_token()
        failed = []
        for line in body.splitlines():
            change = json.loads(line)
            if change["type"] == "deleteFile" and change["path"] in files:
                del files[change["path"]]
            elif change["type"] == "addFile" and change["xetHash"] in xet_store.files:
                files[change["path"]] = xet_store.files[change["xetHash"]]
            else:
                failed.append({"path": change["path"], "error": "invalid"})
        return self.answer(422 if failed else 200, {"success": not failed, "failed": failed})

    def xet_token(self):
        url = f"http://127.0.0.1:{self.server.server_port}"
        return self.answer(200, {"accessToken": XET_TOKEN, "exp": 4_000_000_000, "casUrl": url})

    def xet(self, path, body):
        if path[0] == "xorbs":
            return self.content(xet_store.packed(xet_store.files[path[1]]))
        if self.headers.get("Authorization") != f"Bearer {XET_TOKEN}":
            return self.answer(401)
        if path[:2] == ["v1", "xorbs"]:
            xet_store.put_xorb(path[-1], body)
            return self.answer(200, {"was_inserted": True})
        if path[:2] == ["v1", "shards"]:
            xet_store.put_shard(body)
            return self.answer(200, {"result": 1})
        if path[:2] == ["v1", "reconstructions"] and path[-1] in xet_store.files:
            url = f"http://127.0.0.1:{self.server.server_port}/xorbs/{path[-1]}"
            return self.answer(200, xet_store.reconstruction(path[-1], url))
        return self.answer(404)

    def repository(self, name, revision):
        known = any(each.startswith(f"{name}@") for each in repositories)
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if not allowed and (PRIVATE in name or not known):
            self.answer(
                401, {"error": "Invalid username or password."}, X_Error_Code="RepoNotFound"
            )
        elif not known:
            self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        elif f"{name}@{revision}" not in repositories:
            self.answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        else:
            return repositories[f"{name}@{revision}"]
        return None

    def resolve(self, name, revision, path):
        files = self.repository(name, revision)
        if files is None:
            return None
        if path not in files:
            return self.answer(404, b"Entry not found", X_Error_Code="EntryNotFound")
        if len(files[path]) >= LARGE:
            host = f"localhost:{self.server.server_port}"
            place = f"{quote(f'{name}@{revision}')}/{quote(path)}"
            tag = f'"{hashlib.sha256(files[path]).hexdigest()}"'
            return self.answer(302, Location=f"http://{host}/cdn/{place}", X_Linked_ETag=tag)
        return self.content(files[path])

    def content(self, data):
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        tag = f'"{hashlib.sha1(data).hexdigest()}"'
        if not found:
            return self.answer(200, data, ETag=tag)
        start, last = int(found[1]), min(int(found[2]), len(data) - 1)
        if start >= len(data):
            return self.answer(416)
        span = f"bytes {start}-{last}/{len(data)}"
        return self.answer(206, data[start : last + 1], Content_Range=span, ETag=tag)

    def tree(self, files, folder, *, is_bucket=False):
        top = f"{folder}/" if folder else ""
        below = sorted(path for path in files if path.startswith(top))
        if folder and not below:
            return self.answer(404, {"error": "no such folder"}, X_Error_Code="EntryNotFound")
        folders = {str(p) for path in below for p in Path(path[len(top) :]).parents} - {"."}
        entries = [e for path in below for e in entry(files, path, is_bucket=is_bucket)]
        entries += [{"type": "directory", "path": top + each, "size": 0} for each in folders]
        start = int(self.query.get("cursor", 0))
        page, more = entries[start : start + PAGE], {}
        if len(entries) > start + PAGE:
            url = f"http://{self.headers['Host']}{urlsplit(self.path).path}"
            more["Link"] = f'<{url}?recursive=true&cursor={start + PAGE}>; rel="next"'
        return self.answer(200, page, **more)

    def raw(self, name, path, body):
        if self.command == "POST":
            repositories[name] = {}
        elif self.command == "PUT":
            repositories[name][path] = body
        else:
            return self.answer(200, repositories[name][path])
        return self.answer(200)


def entry(files, path, *, is_bucket=False):
    if path in files:
        data = files[path]
        found = {"type": "file", "path": path, "size": len(data)}
        if not is_bucket:
            found["oid"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        if is_bucket or len(data) >= LARGE:
            found["xetHash"] = xet_store.add(data)
        return [found]
    if any(each.startswith(f"{path}/") for each in files):
        return [{"type": "directory", "path": path, "size": 0}]
    return []


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
