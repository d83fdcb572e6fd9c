"""URLs that lead into the network of whoever crawls them."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from typing import ClassVar

import pytest
from streamplug_datasets.convert.crawl import Crawl, Failed, fetch_all
from streamplug_datasets.convert.public_addresses import is_public

PUBLIC = "93.184.216.34"


class Site(http.server.BaseHTTPRequestHandler):
    """Answers with a redirect to what follows `/to/` in the path, else with its host; notes who asks."""

    requests: ClassVar[list[str]] = []

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.requests.append(self.path)
        _, is_redirect, target = self.path.partition("/to/")
        self.send_response(302 if is_redirect else 200)
        if is_redirect:
            self.send_header("Location", target)
        data = b"" if is_redirect else self.headers["Host"].encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def site():
    """A server on this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    Site.requests = []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def names(monkeypatch):
    """Addresses by name, one for each look-up; connections to the public one reach this machine."""
    addresses = {PUBLIC: ["127.0.0.1"] * 100}
    resolve = socket.getaddrinfo

    def fake(host, *args, **kwargs):
        known = addresses.get(host, [host])
        found = known.pop(0) if len(known) > 1 else known[0]
        return [each for name in found.split() for each in resolve(name, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    return addresses


def fetch(*urls, **options):
    crawl = Crawl(threads=2, timeout=10, deadline=10, retries=1, max_bytes=1000, **options)
    return [str(r.kind) if isinstance(r, Failed) else r.decode() for r in fetch_all(urls, crawl)]


def test_addresses():
    for address in ("8.8.8.8", PUBLIC, "2606:2800:220:1::1", "64:ff9b::808:808"):
        assert is_public(address), address
    for address in (
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1"),
        *("169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%eth0"),
        *("fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "ff02::1"),
    ):
        assert not is_public(address), address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "127.1", "0.0.0.0"])
def test_addresses_of_this_machine_are_refused_unless_allowed(site, host):
    url = f"http://{host}:{site.server_port}/a"
    [failed] = fetch_all([url], Crawl(1, 10, 10, 1, 1000))
    assert (failed.kind, failed.passing) == ("private address", False)
    assert str(failed).startswith(f"{host} has the address ")
    assert str(failed).endswith("pass --allow-private to fetch from such addresses")
    assert not Site.requests
    assert fetch("http://[::1]/") == ["private address"]
    assert fetch(url, allow_private=True) == [f"{host}:{site.server_port}"]


def test_each_redirect_is_checked(site, names):
    names["good.example"] = [PUBLIC]
    names["bad.example"] = ["169.254.169.254 10.0.0.1"]
    good = f"http://good.example:{site.server_port}"
    targets = ["/a", f"{good}/b", "http://127.0.0.1:1/c", "https://bad.example/d", "//127.1:1/e"]
    assert fetch(*(f"{good}/to/{target}" for target in targets)) == [
        *[f"good.example:{site.server_port}"] * 2,
        *["private address"] * 3,
    ]


def test_connections_go_to_the_address_that_was_checked(site, names):
    # The second look-up of this name would lead elsewhere; so would one of the addresses of the other.
    names["changes.example"] = [PUBLIC, "127.0.0.1"]
    names["both.example"] = [f"10.0.0.1 {PUBLIC}"]
    port = site.server_port
    urls = [f"http://{name}.example:{port}/a" for name in ("changes", "both", "changes")]
    first, second = fetch(urls[0]), fetch(urls[1])
    assert (first, second) == ([f"changes.example:{port}"], [f"both.example:{port}"])
    assert fetch(urls[2]) == ["private address"]


def test_certificates_must_be_of_the_name_in_the_url(site, names, tmp_path, monkeypatch):
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asked_for = []
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    authority.issue_cert("good.example").configure_cert(context)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    names["good.example"] = names["other.example"] = [PUBLIC]
    assert fetch(f"https://good.example:{site.server_port}/a") == [
        f"good.example:{site.server_port}"
    ]
    assert fetch(f"https://other.example:{site.server_port}/b") == ["connection"]
    assert asked_for == ["good.example", "other.example", "other.example"]  # which is tried twice
    assert Site.requests == ["/a"]


def test_other_failures_are_as_before(names, monkeypatch):
    names["silent.example"] = [PUBLIC]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert fetch(f"http://silent.example:{port}/") == ["connection"]
    assert fetch(f"http://{'a' * 70}.example/") == ["bad URL"]

    def unknown(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert fetch("http://unknown.example/") == ["connection"]


def test_a_proxy_may_be_private(site, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{site.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert fetch("http://some.example/a") == ["some.example"]
    assert Site.requests == ["http://some.example/a"]
