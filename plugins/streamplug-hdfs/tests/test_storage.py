from __future__ import annotations

import json
import pickle
import sys
import traceback
from contextlib import nullcontext
from types import SimpleNamespace
from typing import ClassVar

import pytest
from streamplug_hdfs.options import parse
from streamplug_hdfs.storage import HdfsStorage
from streamplug_hdfs.webhdfs import WebHdfs
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import OversizeError, Scope, inside


class TestHdfs(StorageTests):
    many = 250  # a folder is listed in one answer

    @pytest.fixture(autouse=True)
    def location(self, cluster, folder):
        self.cluster, self.folder = cluster, folder

    def make_storage(self):
        url = f"webhdfs://127.0.0.1:{self.cluster.ports[0]}{self.folder}/some/set"
        return HdfsStorage(url, user="me")

    def put_raw(self, key, data):
        self.cluster.raw("PUT", self.folder, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.cluster.raw("GET", self.folder, f"some/set/{key}")


@pytest.fixture
def storage(cluster, folder):
    storage = HdfsStorage(f"hdfs://nn{folder}", endpoint_url=cluster.url, user="me")
    yield storage
    storage.close()


@pytest.mark.parametrize("scheme", ["hdfs", "webhdfs", "swebhdfs"])
def test_is_found_by_its_schemes(cluster, folder, scheme):
    cluster.raw("PUT", folder, "k", b"data")
    options = {"endpoint_url": cluster.url}
    storage = open_storage(f"{scheme}://me@nn{folder}", options)
    assert type(storage) is HdfsStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]
    storage.close()


def test_what_is_being_written_is_no_object(cluster, folder, storage):
    cluster.raw("PUT", folder, ".streamplug-0123", b"half of")
    storage.write("k", b"x")
    assert [o.key for o in storage.list()] == ["k"]


def test_a_write_that_fails_leaves_nothing_behind(cluster, folder, storage):
    cluster.raw("PUT", folder, "k/there", b"")
    with pytest.raises(StorageError, match="FileAlreadyExistsException"):
        storage.write("k", b"x")
    parent = HdfsStorage(f"hdfs://nn{folder}", endpoint_url=cluster.url, user="me")
    found = parent._request("", "GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
    assert [entry["pathSuffix"] for entry in found] == ["k"]
    parent.close()


@pytest.fixture
def gateway(storage, monkeypatch):
    """A storage behind HttpFS, which ignores the options of a rename; and the renames asked for."""
    renames = []
    answer = WebHdfs.answer

    def without_options(self, method, path, operation, data=None, **parameters):
        if operation == "RENAME":
            renames.append(parameters.pop("renameoptions"))
            if len(renames) in storage.failures:
                raise ConnectionError
            if len(renames) in storage.refusals:
                return nullcontext(SimpleNamespace(content=b'{"boolean": false}'))
        return answer(self, method, path, operation, data, **parameters)

    monkeypatch.setattr(WebHdfs, "answer", without_options)
    storage.failures = storage.refusals = ()
    storage.renames = renames
    return storage


def names(storage):
    found = storage._request("", "GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
    return [entry["pathSuffix"] for entry in found]


def test_a_gateway_that_does_not_rename_over_a_file_replaces_it(gateway):
    for content in (b"old", b"new", b"newest"):
        gateway.write("k", content)
        assert gateway.read("k") == content
    assert names(gateway) == ["k"]


@pytest.mark.parametrize(
    ("failures", "refusals"),
    [
        ((2,), ()),
        ((3,), ()),
        ((3, 4), ()),
        ((), (2,)),
        ((), (3,)),
        ((), (3, 4)),
        ((3,), (4,)),
        ((4,), (3,)),
    ],
)
def test_a_file_behind_a_gateway_survives_when_its_replacement_fails(gateway, failures, refusals):
    gateway.write("k", b"old")
    gateway.renames.clear()
    gateway.failures, gateway.refusals = failures, refusals
    with pytest.raises(Transient, match=r"/k: ") as caught:
        gateway.write("k", b"new")
    if len(failures + refusals) == 1:
        assert names(gateway) == ["k"]
        assert gateway.read("k") == b"old"
    else:
        [old] = names(gateway)
        assert f"its old content may be in {old} beside it" in str(caught.value)
        assert gateway.read(old) == b"old"
    gateway.write("k", b"new")
    assert gateway.read("k") == b"new"


def test_a_folder_is_not_deleted(cluster, folder, storage):
    cluster.raw("PUT", folder, "sub/k", b"x")
    storage.delete("sub")
    assert storage.read("sub/k") == b"x"


def test_a_name_node_on_standby_is_passed_over(cluster, folder, refusing):
    cluster.raw("PUT", folder, "k", b"data")
    nodes = [refusing, cluster.standby, cluster.url]
    storage = HdfsStorage(f"hdfs://cluster{folder}", endpoint_url=nodes, user="me")
    assert storage.read("k") == b"data"
    storage.write("new", b"x")
    assert storage.read("new") == b"x"
    storage.close()
    only = HdfsStorage(f"hdfs://cluster{folder}", endpoint_url=nodes[1:2], user="me")
    with pytest.raises(Transient, match="StandbyException"):
        only.read("k")
    only.close()


def test_another_user_is_denied(cluster, folder):
    storage = HdfsStorage(f"hdfs://you@nn{folder}", endpoint_url=cluster.url)
    for operation in (lambda: storage.read("k"), lambda: list(storage.list())):
        with pytest.raises(AccessDenied, match="AccessControlException"):
            operation()
    storage.close()


def test_a_delegation_token_is_sent_and_not_shown(recorder):
    storage = HdfsStorage("hdfs://nn/set", endpoint_url=recorder.url, token="feedbeef")
    assert storage.read("k") == b"data"
    assert recorder.requests[0].path == "/webhdfs/v1/set/k?op=OPEN&delegation=feedbeef"
    recorder.answers = [(500, b"")]
    with pytest.raises(Transient) as caught:
        storage.read("k")
    shown = "".join(traceback.format_exception(caught.value))
    assert "feedbeef" not in f"{shown} {storage!r} {storage.client()!r}"
    storage.close()


def test_kerberos_signs_in(recorder, monkeypatch):
    def sign(request):
        request.headers["Authorization"] = "Negotiate x"
        return request

    module = SimpleNamespace(HTTPKerberosAuth=lambda: sign)
    monkeypatch.setitem(sys.modules, "requests_kerberos", module)
    storage = HdfsStorage("hdfs://nn", endpoint_url=recorder.url, kerberos=True)
    storage.read("k")
    assert recorder.requests[0].headers["Authorization"] == "Negotiate x"
    storage.close()


def test_kerberos_asks_for_its_package(recorder, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    with pytest.raises(StorageError, match="requests_kerberos"):
        HdfsStorage("hdfs://nn", endpoint_url=recorder.url, kerberos=True).read("k")


# -- locations ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "node", "user", "folder"),
    [
        ("hdfs://nn/a/b/", "http://nn:9870", None, "/a/b"),
        ("hdfs://nn:8020/a", "http://nn:9870", None, "/a"),
        ("hdfs://me@nn", "http://nn:9870", "me", ""),
        ("hdfs://me%40realm@nn", "http://nn:9870", "me@realm", ""),
        ("webhdfs://nn:50070/a", "http://nn:50070", None, "/a"),
        ("swebhdfs://nn/a", "https://nn:9871", None, "/a"),
        ("webhdfs://[::1]/a", "http://[::1]:9870", None, "/a"),
    ],
)
def test_locations(url, node, user, folder):
    assert parse(url, {}) == ((node,), user, folder)


def test_a_url_without_host_needs_an_endpoint(cluster):
    for url in ("hdfs:///set", "hdfs:/set"):
        assert parse(url, {"endpoint_url": "http://h"}) == (("http://h",), None, "/set")
        with pytest.raises(ConfigError, match="names no host; write hdfs://namenode"):
            parse(url, {})
    with pytest.raises(ConfigError, match="names no host; write hdfs://namenode"):
        HdfsStorage("hdfs:///a")
    HdfsStorage("hdfs:///a", endpoint_url=cluster.url)


# -- what goes over the wire --------------------------------------------------


class TestHdfsAnswers(AnswerTests):
    location = "hdfs://h/set"
    first_request = ("GET", "/webhdfs/v1/set/k?op=OPEN")
    deviations: ClassVar = {
        "test_a_server_that_knows_no_ranges_is_understood": "a data node serves every range"
    }

    def test_a_download_of_more_than_was_asked_for_ends(self, storage, tmp_path):
        scope = Scope()
        scope.max_bytes = 2
        with inside(scope), pytest.raises(OversizeError):
            storage.download("k", tmp_path / "k")

    def make_storage(self, url, **options):
        return HdfsStorage(self.location, endpoint_url=url, **options)


@pytest.fixture
def recorded(recorder):
    storage = HdfsStorage("hdfs://h/set", endpoint_url=recorder.url)
    yield storage
    storage.close()


@pytest.mark.parametrize(
    ("status", "name", "wanted"),
    [
        (404, "FileNotFoundException", NotFound),
        (403, "AccessControlException", AccessDenied),
        (401, "SecurityException", AccessDenied),
        (403, "InvalidToken", AccessDenied),
        (403, "StandbyException", Transient),
        (403, "RetriableException", Transient),
        (403, "IOException", StorageError),
        (400, "IllegalArgumentException", StorageError),
        (500, "RuntimeException", StorageError),
    ],
)
def test_exceptions_of_nodes_become_our_errors(recorder, recorded, tmp_path, status, name, wanted):
    found = {"exception": name, "message": "token feedbeef"}
    recorder.answers = [(status, json.dumps({"RemoteException": found}).encode())]
    for operation in (
        lambda: recorded.read("k"),
        lambda: recorded.read_range("k", 0, 5),
        lambda: recorded.download("k", tmp_path / "target"),
        lambda: recorded.write("k", b"x"),
        lambda: recorded.stat("k"),
        lambda: recorded.delete("k") if wanted is not NotFound else recorded.read("k"),
    ):
        with pytest.raises(StorageError, match="hdfs://h/set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: connect_timeout, endpoint_url, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"token": 5}, "'token' must be str, not int"),
        ({"endpoint_url": ["http://a", "b"]}, "must start with http:// or https://"),
        ({"user": "me", "token": "t"}, "'kerberos', 'token' and 'user' exclude each other"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        HdfsStorage("hdfs://nn/a", **options)


def test_an_open_storage_pickles(storage):
    storage.write("k", b"x")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read("k") == b"x"
    copy.close()


def test_clusters_of_options_are_told_apart():
    assert HdfsStorage("hdfs:///set", endpoint_url="http://a:9870").endpoint == "http://a:9870"
    nodes = ["http://a:9870", "http://b:9870"]
    assert HdfsStorage("hdfs:///set", endpoint_url=nodes).endpoint == "http://a:9870 http://b:9870"
    assert HdfsStorage("hdfs://namenode/set").endpoint == ""
