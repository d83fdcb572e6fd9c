"""A small server that speaks Object Storage's REST, for the tests: python oci_server.py FOLDER.

It makes a key, writes ``FOLDER/config`` for clients, and then ``FOLDER/port``. Every request must be
signed with that key (https://docs.oracle.com/iaas/Content/API/Concepts/signingrequests.htm), except
those below ``/raw/BUCKET/``, by which tests go round the client.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

NAMESPACE = "tests"
USER, TENANCY = "ocid1.user.oc1..someone", "ocid1.tenancy.oc1..somewhere"
FINGERPRINT = ":".join(["ab"] * 16)
KEY_ID = f"{TENANCY}/{USER}/{FINGERPRINT}"
PAGE = 100


class Refused(Exception):
    def __init__(self, status, code, message=""):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


@dataclass
class Store:
    key: rsa.RSAPrivateKey
    buckets: dict = field(default_factory=dict)
    uploads: dict = field(default_factory=dict)
    failures: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def bucket(self, name):
        if name not in self.buckets:
            raise Refused(404, "BucketNotFound", f"no bucket {name}")
        return self.buckets[name]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16
    disable_nagle_algorithm = True

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            if parts.path.startswith("/raw/"):
                return self.raw(unquote(parts.path)[5:].partition("/"), body)
            self.check_signature(body)
            with self.server.store.lock:
                self.route(unquote(parts.path), body)
        except Refused as refused:
            answer = json.dumps({"code": refused.code, "message": refused.message}).encode()
            self.answer(refused.status, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("opc-request-id", uuid.uuid4().hex)
        self.send_header("Content-Type", headers.pop("kind", "application/json"))
        self.send_header("Content-Length", str(headers.pop("length", len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass

    # -- who asks -----------------------------------------------------------------

    def check_signature(self, body):
        given = dict(re.findall(r'(\w+)="(.*?)"', self.headers.get("Authorization", "")))
        signed = given.get("headers", "").split()
        needed = {"date", "(request-target)", "host"}
        # Uploads of objects are the exception: their content is not signed.
        if self.command == "POST":
            needed |= {"x-content-sha256", "content-length", "content-type"}
        if given.get("keyId") != KEY_ID or not needed <= set(signed):
            raise Refused(401, "NotAuthenticated", "who are you?")
        if "x-content-sha256" in signed:
            digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
            if self.headers["x-content-sha256"] != digest:
                raise Refused(401, "NotAuthenticated", "another body was signed")
        target = f"{self.command.lower()} {self.path}"
        text = "\n".join(
            f"{name}: {target if name == '(request-target)' else self.headers[name]}"
            for name in signed
        )
        try:
            self.server.store.key.public_key().verify(
                base64.b64decode(given["signature"]),
                text.encode(),
                padding.PKCS1v15(),
                hashes.SHA256(),
            )
        except InvalidSignature:
            raise Refused(401, "NotAuthenticated", "wrong signature") from None

    # -- what is asked --------------------------------------------------------------

    def route(self, path, body):
        if path.rstrip("/") == "/n":
            return self.answer(200, json.dumps(NAMESPACE).encode())
        found = re.fullmatch(r"/n/([^/]+)/b/([^/]+)/([ou])(?:/(.*))?", path, re.DOTALL)
        if found is None or found[1] != NAMESPACE:
            raise Refused(404, "NamespaceNotFound", path)
        bucket = self.server.store.bucket(found[2])
        if found[3] == "u":
            return self.multipart(bucket, found[4], body)
        if found[4]:
            return self.object(bucket, found[4], body)
        return self.listing(bucket)

    def object(self, bucket, name, body):
        if self.command == "PUT":
            bucket[name] = body
            return self.answer(200, etag=etag(body))
        if name not in bucket:
            raise Refused(404, "ObjectNotFound", f"no object {name}")
        if self.command == "DELETE":
            del bucket[name]
            return self.answer(204)
        data, status, headers = bucket[name], 200, {}
        if self.headers.get("If-Match", etag(data)) != etag(data):
            raise Refused(412, "IfMatchFailed")
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
            if start >= len(data):
                raise Refused(416, "InvalidRange")
            headers = {"content_range": f"bytes {start}-{last}/{len(data)}"}
            data, status = data[start : last + 1], 206
        headers["etag"] = etag(bucket[name])
        return self.answer(status, data, kind="application/octet-stream", **headers)

    def listing(self, bucket):
        prefix, start = self.query.get("prefix", ""), self.query.get("start", "")
        limit = min(int(self.query.get("limit", PAGE)), PAGE)
        names = sorted(n for n in bucket if n.startswith(prefix) and n >= start)
        fields = self.query.get("fields", "name").split(",")
        objects = [
            {"name": n, "size": len(bucket[n]), "etag": etag(bucket[n])} for n in names[:limit]
        ]
        found = {
            "objects": [{field: one[field] for field in fields} for one in objects],
            "prefixes": [],
            **({"nextStartWith": names[limit]} if len(names) > limit else {}),
        }
        self.answer(200, json.dumps(found).encode())

    def multipart(self, bucket, name, body):
        store = self.server.store
        uploads = store.uploads
        if self.command == "POST" and not name:
            upload = uuid.uuid4().hex
            uploads[upload] = {}
            wanted = json.loads(body)["object"]
            found = {"bucket": "", "namespace": NAMESPACE, "object": wanted, "uploadId": upload}
            return self.answer(200, json.dumps(found).encode())
        parts = uploads.get(self.query.get("uploadId"))
        if parts is None:
            raise Refused(404, "NoSuchUpload")
        if self.command == "PUT" and self.query["uploadPartNum"] == "2" and store.failures:
            store.failures -= 1
            raise Refused(503, "ServiceUnavailable")
        if self.command == "PUT":
            tag = uuid.uuid4().hex
            parts[int(self.query["uploadPartNum"])] = (tag, body)
            md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
            return self.answer(200, etag=tag, opc_content_md5=md5)
        del uploads[self.query["uploadId"]]
        if self.command == "DELETE":
            return self.answer(204)
        wanted = sorted((p["partNum"], p["etag"]) for p in json.loads(body)["partsToCommit"])
        if wanted != sorted((number, tag) for number, (tag, _) in parts.items()):
            raise Refused(400, "InvalidUploadPart")
        bucket[name] = b"".join(parts[number][1] for number, _ in wanted)
        return self.answer(200, etag=etag(bucket[name]))

    def raw(self, place, body):
        store, (name, _, key) = self.server.store, place
        with store.lock:
            if self.command == "POST":
                store.buckets[name] = {}
            elif name == "uploads":  # how often parts fail; then how many uploads are open
                store.failures = int(key)
                return self.answer(200, str(len(store.uploads)).encode())
            elif self.command == "PUT":
                store.bucket(name)[key] = body
            else:
                return self.answer(200, store.bucket(name)[key])
        return self.answer(200)


def etag(data):
    return hashlib.md5(data).hexdigest()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(folder):
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (folder / "key.pem").chmod(0o600)
    (folder / "config").write_text(
        f"[DEFAULT]\nuser={USER}\ntenancy={TENANCY}\nfingerprint={FINGERPRINT}\n"
        f"key_file={folder / 'key.pem'}\nregion=us-ashburn-1\n"
    )
    (folder / "config").chmod(0o600)
    server = Server(("127.0.0.1", 0), Handler)
    server.store = Store(key)
    (folder / "port.part").write_text(str(server.server_port))
    (folder / "port.part").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
