from __future__ import annotations

import datetime
import gzip
import pickle
import traceback
from types import SimpleNamespace

import pytest
from azure.core.exceptions import ClientAuthenticationError
from streamplug_adlfs.storage import AzureStorage
from streamplug_testing.answers import check_limit
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage

KEY = "bm90IGEga2V5"
# aiohttp's advice to the client on how to send large bodies.
RAW = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")


@RAW
class TestAzure(StorageTests):
    many = 250  # Azurite lists thousands in one answer

    @pytest.fixture(autouse=True)
    def location(self, container, monkeypatch):
        self.container = container
        # Of the class, since the tests ask for it without an instance of the storage.
        monkeypatch.setattr(TestAzure, "secret", container.key)

    def make_storage(self):
        return AzureStorage(f"az://{self.container.name}/some/set", **self.container.options)

    def put_raw(self, key, data):
        self.container.put(f"some/set/{key}", data)

    def get_raw(self, key):
        return self.container.get(f"some/set/{key}")


def at(container, path=""):
    return AzureStorage(f"az://{container.name}{path}", **container.options)


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss", "azure", "azure-dl"])
def test_is_found_by_its_schemes(container, scheme):
    container.put("k", b"data")
    storage = open_storage(f"{scheme}://{container.name}", container.options)
    assert type(storage) is AzureStorage
    assert storage.read("k") == b"data"
    assert [o.key for o in storage.list()] == ["k"]


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss", "azure", "azure-dl"])
def test_the_account_may_be_in_the_url(container, scheme):
    container.put("set/k", b"data")
    location = f"{scheme}://{container.name}@{container.account}.dfs.core.windows.net/set/"
    options = {"endpoint_url": container.endpoint, "account_key": container.key}
    storage = AzureStorage(location, **options)
    assert storage.read("k") == b"data"
    assert storage.url == location[:-1]


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("mine", "mine.blob.core.windows.net"),
        ("mine.dfs.core.windows.net", "mine.blob.core.windows.net"),
        ("mine.blob.core.windows.net", "mine.blob.core.windows.net"),
        ("mine.dfs.core.chinacloudapi.cn", "mine.blob.core.chinacloudapi.cn"),
        ("mine.z12.dfs.storage.azure.net", "mine.z12.blob.storage.azure.net"),
        ("onelake.dfs.fabric.microsoft.com", "onelake.blob.fabric.microsoft.com"),
    ],
)
def test_without_endpoint_the_host_gives_the_server(host, server):
    storage = AzureStorage(f"abfs://c@{host}/set", account_key=KEY)
    assert storage.filesystem().service_client.url == f"https://{server}/"


def test_names_are_not_parsed_as_urls(container, tmp_path):
    keys = ["a", "a#", "a?", "a\tb", "ab", "q?x=1#2", "a?versionid=3", "#", "?"]
    storage = at(container, "/set")
    for key in keys:
        storage.write(key, key.encode())
    assert {container.get(f"set/{key}").decode(): key for key in keys} == {k: k for k in keys}
    assert [info.key for info in storage.list()] == sorted(keys)
    for key in keys:
        assert storage.read(key) == storage.read_range(key, 0, 99) == key.encode()
        assert storage.stat(key).size == len(key)
        storage.download(key, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == key.encode()
        storage.upload(tmp_path / "copy", f"{key}/#")
        assert container.get(f"set/{key}/#") == key.encode()
        storage.delete(key)
        assert not storage.exists(key)


def test_a_neighbour_with_the_same_start_is_not_listed(container):
    for key in ("set/1", "set2/1", "set"):
        container.put(key, b"")
    assert [o.key for o in at(container, "/set").list()] == ["1"]


def test_markers_of_directories_are_no_objects(container):
    container.put("set/sub/1", b"")
    container.put("set/empty/", b"")
    container.client.upload_blob("set/sub", b"", metadata={"hdi_isfolder": "true"})
    assert [o.key for o in at(container, "/set").list()] == ["sub/1"]
    with pytest.raises(NotFound):
        at(container, "/set").stat("sub")


@RAW
def test_uploads_in_parts(container, tmp_path):
    data = bytes(range(256)) * (270 * 1024)
    (tmp_path / "source").write_bytes(data)
    at(container).upload(tmp_path / "source", "k")
    at(container).download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data


def test_a_missing_container_is_not_found(container, tmp_path):
    (tmp_path / "source").write_bytes(b"x")
    storage = AzureStorage("az://no-such-container/set", **container.options)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
        lambda: storage.upload(tmp_path / "source", "k"),
    ):
        with pytest.raises(NotFound, match="az://no-such-container/set"):
            operation()


def test_a_container_cannot_be_deleted(container):
    with pytest.raises(StorageError):
        at(container).delete("")
    assert list(at(container).list()) == []


# -- credentials --------------------------------------------------------------


def test_a_wrong_key_is_refused(container):
    options = {**container.options, "account_key": KEY}
    with pytest.raises(AccessDenied, match=f"az://{container.name}/k"):
        AzureStorage(f"az://{container.name}", **options).read("k")


def test_a_connection_string(container, monkeypatch):
    container.put("k", b"data")
    text = (
        f"DefaultEndpointsProtocol=http;AccountName={container.account};"
        f"AccountKey={container.key};BlobEndpoint={container.endpoint};"
    )
    location = f"az://{container.name}"
    assert AzureStorage(location, connection_string=text).read("k") == b"data"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert AzureStorage(location).read("k") == b"data"
    same = {"account_name": container.account, "endpoint_url": f"{container.endpoint}/"}
    assert AzureStorage(location, **same).read("k") == b"data"


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("az://c", {"account_name": "mine"}),
        ("abfs://c@mine.dfs.core.windows.net", {}),
        ("az://c", {"endpoint_url": "http://127.0.0.1:10001/mine"}),
    ],
)
def test_a_connection_string_of_the_environment_for_another_place_is_refused(
    monkeypatch, location, options
):
    text = f"BlobEndpoint=https://theirs.blob.core.windows.net;AccountName=theirs;AccountKey={KEY};"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    with pytest.raises(ConfigError, match=r"CONNECTION_STRING is for the .*theirs.* have .*mine"):
        AzureStorage(location, **options).read("k")


@pytest.mark.parametrize("mark", ["", "?"])
def test_a_shared_access_signature(container, mark):
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    container.put("k", b"data")
    token = generate_account_sas(
        container.account,
        container.key,
        ResourceTypes(object=True, container=True),
        AccountSasPermissions(read=True),
        datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1),
    )
    options = {"endpoint_url": container.endpoint, "sas_token": mark + token}
    storage = AzureStorage(f"az://{container.name}", **options)
    assert storage.read("k") == b"data"
    with pytest.raises(AccessDenied) as caught:
        storage.write("k", b"x")
    signature = token.partition("sig=")[2]
    assert signature not in "".join(traceback.format_exception(caught.value)) + repr(storage)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("AZURE_ACCOUNT_NAME", "AZURE_ACCOUNT_ACCESS_KEY"),
    ],
)
def test_the_account_may_come_from_the_environment(container, monkeypatch, name, key):
    container.put("k", b"data")
    monkeypatch.setenv(name, container.account)
    monkeypatch.setenv(key, container.key)
    for more in ({}, {"anon": False}):
        storage = AzureStorage(f"az://{container.name}", endpoint_url=container.endpoint, **more)
        assert storage.read("k") == b"data"


def test_names_of_azure_win_over_those_of_mosaicml(monkeypatch):
    for name, other, value in (("NAME", "NAME", "mine"), ("KEY", "ACCESS_KEY", KEY)):
        monkeypatch.setenv(f"AZURE_STORAGE_ACCOUNT_{name}", value)
        monkeypatch.setenv(f"AZURE_ACCOUNT_{other}", "other")
    filesystem = AzureStorage("az://c").filesystem()
    assert (filesystem.account_name, filesystem.account_key) == ("mine", KEY)


def test_options_win_over_the_environment(container, monkeypatch):
    container.put("k", b"data")
    nowhere = f"BlobEndpoint=http://127.0.0.1:9/a;AccountName=a;AccountKey={KEY};"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", nowhere)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=x")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    assert at(container).read("k") == b"data"


@pytest.mark.parametrize(
    "variables",
    [
        [("AZURE_STORAGE_ACCOUNT_KEY", KEY)],
        [(f"AZURE_STORAGE_{n}", "x") for n in ("CLIENT_ID", "CLIENT_SECRET", "TENANT_ID")],
    ],
    ids=["key", "principal"],
)
def test_anonymous_is_anonymous_whatever_the_environment_has(
    recorder, anonymous, monkeypatch, variables
):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    for name, value in variables:
        monkeypatch.setenv(name, value)
    recorder.answers = [(404, error("BlobNotFound"))]
    with pytest.raises(NotFound):
        anonymous.read("k")
    assert recorder.requests[0].headers["authorization"] is None


def test_a_service_principal_wins_over_a_key_of_the_environment(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    options = {"tenant_id": "t", "client_id": "i", "client_secret": "s", "account_name": "a"}
    filesystem = AzureStorage("az://c", **options).filesystem()
    assert type(filesystem.service_client.credential).__name__ == "ClientSecretCredential"


def test_without_an_account_the_ways_to_name_it_are_told():
    with pytest.raises(ConfigError, match=r"no storage account is named.*'account_name'"):
        AzureStorage("az://c", anon=True).read("k")


def test_shows_no_secrets():
    storage = AzureStorage("az://c/set", account_name="a", sas_token="sig=SECRET")
    assert "SECRET" not in f"{storage!r} {storage} {storage.url}"
    assert pickle.loads(pickle.dumps(storage)).filesystem_options()["sas_token"] == "sig=SECRET"


# -- what goes over the wire --------------------------------------------------


@pytest.fixture
def anonymous(recorder, monkeypatch):
    monkeypatch.setattr("streamplug_adlfs.options.ATTEMPTS", 1)
    recorder.headers = {
        "x-ms-blob-type": "BlockBlob",
        "Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT",
        "ETag": '"1"',
    }
    return AzureStorage("az://c/set", endpoint_url=recorder.url, anon=True)


def test_anonymous_requests_are_not_signed(recorder, anonymous):
    recorder.answers = [(206, b"data")]
    recorder.headers["Content-Range"] = "bytes 0-3/4"
    assert anonymous.read("k") == b"data"
    [request] = recorder.requests
    assert (request.command, request.path) == ("GET", "/c/set/k")
    assert request.headers["authorization"] is None


def error(code):
    return f"<Error><Code>{code}</Code><Message>sig=feedbeef</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (404, "BlobNotFound", NotFound),
        (404, "ContainerNotFound", NotFound),
        (401, "NoAuthenticationInformation", AccessDenied),
        (403, "AuthenticationFailed", AccessDenied),
        (403, "AuthorizationPermissionMismatch", AccessDenied),
        (408, "RequestTimeout", Transient),
        (429, "TooManyRequests", Transient),
        (500, "InternalError", Transient),
        (503, "ServerBusy", Transient),
        (504, "GatewayTimeout", Transient),
        (400, "InvalidUri", StorageError),
    ],
)
def test_answers_become_our_errors(recorder, anonymous, status, code, wanted):
    recorder.answers = [(status, error(code))]
    recorder.headers["x-ms-error-code"] = code
    for operation in (lambda: anonymous.read("k"), lambda: anonymous.read_range("k", 0, 5)):
        with pytest.raises(StorageError, match="az://c/set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


def test_requests_wait_where_the_server_refuses_some(recorder, anonymous, monkeypatch):
    monkeypatch.setattr("streamplug_adlfs.options.ATTEMPTS", 1)
    recorder.headers["x-ms-error-code"] = "ServerBusy"
    check_limit(anonymous, recorder, (503, error("ServerBusy")))


def test_a_busy_server_is_asked_again(recorder, anonymous, monkeypatch):
    monkeypatch.setattr("streamplug_adlfs.options.ATTEMPTS", 2)
    monkeypatch.setattr(
        "streamplug_adlfs.filesystem.ExponentialRetry.get_backoff_time", lambda *_: 0.01
    )
    recorder.answers = [(503, error("ServerBusy")), (206, b"data")]
    recorder.headers["Content-Range"] = "bytes 0-3/4"
    assert anonymous.read("k") == b"data"


def test_a_connection_that_is_refused_is_transient(refusing, monkeypatch):
    monkeypatch.setattr("streamplug_adlfs.options.ATTEMPTS", 1)
    with pytest.raises(Transient, match="az://c/k"):
        AzureStorage("az://c", endpoint_url=refusing, anon=True).read("k")


def test_a_connection_that_breaks_is_transient(recorder, anonymous):
    recorder.answers = [(0, b"")]
    with pytest.raises(Transient, match="az://c/set/k"):
        anonymous.read("k")


@pytest.mark.parametrize("operation", ["read", "stat", "list", "delete"])
@pytest.mark.usefixtures("anonymous")
def test_a_server_that_stalls_is_transient(recorder, operation):
    recorder.wait = 60.0
    url = recorder.url
    storage = AzureStorage("az://c/set", endpoint_url=url, anon=True, read_timeout=0.2)
    with pytest.raises(Transient, match="az://c/set"):
        list(storage.list()) if operation == "list" else getattr(storage, operation)("k")


def test_timeouts_are_set_by_default():
    limits = AzureStorage("az://c", account_name="a").filesystem_options()["limits"]
    assert 0 < limits["connection_timeout"] <= 10
    assert 0 < limits["read_timeout"] <= 60


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acount_name": "x"}, r"no option 'acount_name'. Did you mean 'account_name'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: account_key, account_name, anon, "),
        ({"anon": "yes"}, "'anon' must be bool, not str"),
        ({"account_key": 12345}, "'account_key' must be str, not int"),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"account_key": "k", "sas_token": "s"}, "'account_key' and 'sas_token' exclude"),
        ({"anon": True, "account_key": "k"}, "'anon' and 'account_key' exclude each other"),
        ({"client_id": "i"}, "'tenant_id', 'client_id' and 'client_secret' go together"),
        ({"endpoint_url": "localhost:10000"}, "must start with http:// or https://"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        AzureStorage("az://c", **options)


def test_none_is_the_default():
    options = dict.fromkeys(("endpoint_url", "anon", "account_key", "read_timeout"))
    assert (
        AzureStorage("az://c", **options).filesystem_options()
        == AzureStorage("az://c").filesystem_options()
    )


@pytest.mark.parametrize("url", ["az://", "abfs://@account.dfs.core.windows.net/set"])
def test_a_url_without_container_is_refused(url):
    with pytest.raises(ConfigError, match="names no container"):
        AzureStorage(url)


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Transient), (429, Transient), (400, AccessDenied)]
)
def test_a_service_of_credentials_that_fails_is_tried_again(status, kind):
    response = SimpleNamespace(status_code=status, reason="", headers={}, request=None)
    storage = AzureStorage("az://c", account_name="a", anon=True)
    with pytest.raises(kind), storage.translated("k"):
        raise ClientAuthenticationError("secret", response=response)


@pytest.fixture
def encoded(recorder):
    """A blob with ``Content-Encoding: gzip``, of which any range is the whole."""
    data = gzip.compress(b"hello" * 100)
    recorder.answers = [(206, data)]
    recorder.headers = {
        "Content-Encoding": "gzip",
        "Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}",
        "ETag": '"1"',
        "x-ms-blob-type": "BlockBlob",
        "Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT",
    }
    return data


def test_blobs_with_a_content_encoding_are_read_as_they_are_stored(encoded, recorder, tmp_path):
    storage = AzureStorage("az://c", endpoint_url=recorder.url, account_name="a", anon=True)
    assert storage.read("k") == encoded
    assert storage.read_range("k", 0, len(encoded)) == encoded
    parts, _ = storage.read_version("k", [(0, len(encoded))])
    assert bytes(parts[0]) == encoded
    storage.download("k", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == encoded


def test_an_endpoint_over_http_without_credentials_is_named(recorder):
    storage = AzureStorage("az://c", endpoint_url=recorder.url, account_name="a")
    with pytest.raises(
        AccessDenied, match=r"az://c/k that may be sent to its endpoint.*plain http"
    ):
        storage.read("k")


def test_storages_of_one_account_share_a_session():
    options = {"account_name": "a", "account_key": KEY}
    first = AzureStorage("az://c/set", **options)
    assert AzureStorage("az://d", **options).filesystem() is first.filesystem()
    other = AzureStorage("az://d", account_name="b", account_key=KEY)
    assert other.filesystem() is not first.filesystem()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (f"AccountName=a;AccountKey={KEY}", "https://a.blob.core.windows.net"),
        ("AccountName=a;EndpointSuffix=example.cn;", "https://a.blob.example.cn"),
        ("BlobEndpoint=http://a:10000/b/;SharedAccessSignature=sig=x", "http://a:10000/b"),
        ("damaged", ""),
    ],
)
def test_accounts_of_connection_strings_are_told_apart(monkeypatch, text, endpoint):
    given = {"connection_string": text, "endpoint_url": "http://not.used"}
    assert AzureStorage("az://c/set", **given).endpoint == endpoint
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert AzureStorage("az://c/set").endpoint == endpoint
