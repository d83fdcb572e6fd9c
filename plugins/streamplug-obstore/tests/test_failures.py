"""What goes wrong, and options without meaning."""

from __future__ import annotations

import http.server
import pickle
import threading
import time
import traceback
from datetime import timedelta

import pytest
from streamplug_obstore.clouds import ObstoreAzure, ObstoreGCS, ObstoreHttp, ObstoreS3
from streamplug_obstore.error_mapping import storage_error
from streamplug_obstore.options import transport
from streamplug_testing.answers import check_limit, recording
from streamplug_testing.http import serving

from streamplug.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigError,
    NotFound,
    StorageError,
    Transient,
)
from streamplug.transfer.stall_timeout import TimeoutStorage

HEADERS = {"Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT", "ETag": '"1"'}
AT_ONCE = {"retry_config": {"max_retries": 0}}


@pytest.fixture(params=["s3", "gs", "az", "http"])
def make(request, recorder):
    return lambda **options: stored(request.param, recorder, {**AT_ONCE, **options})


@pytest.fixture
def storage(make):
    return make()


def stored(kind, recorder, common):
    if kind == "http":
        return ObstoreHttp(f"{recorder.url}/set", **common)
    common["endpoint_url"] = recorder.url
    if kind == "s3":
        return ObstoreS3("s3://b/set", key="k", secret="s", **common)
    if kind == "gs":
        return ObstoreGCS("gs://b/set", anon=True, **common)
    return ObstoreAzure("az://b/set", anon=True, account_name="a", **common)


def error(code):
    return f"<Error><Code>{code}</Code><Message>sig=feedbeef</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (404, "NoSuchKey", NotFound),
        (401, "Whatever", AccessDenied),
        (403, "AccessDenied", AccessDenied),
        (400, "ExpiredToken", AccessDenied),
        (400, "RequestTimeout", Transient),
        (408, "RequestTimeout", Transient),
        (429, "TooManyRequests", Transient),
        (500, "InternalError", Transient),
        (503, "SlowDown", Transient),
        (504, "GatewayTimeout", Transient),
        (400, "InvalidArgument", StorageError),
    ],
)
def test_answers_become_our_errors(recorder, storage, status, code, wanted):
    recorder.answers = [(status, error(code))]
    for operation in (lambda: storage.read("k"), lambda: storage.read_range("k", 0, 5)):
        with pytest.raises(StorageError, match="set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


def test_a_connection_that_breaks_is_transient(recorder, storage):
    recorder.answers = [(0, b"")]
    with pytest.raises(Transient, match="set/k"):
        storage.read("k")


def test_a_server_that_stalls_is_transient(recorder, make):
    recorder.wait = 60.0
    with pytest.raises(Transient, match="set/k"):
        make(read_timeout=0.2).read("k")


def test_a_slow_download_is_not_one_that_stalls(tmp_path):
    def slow(_):
        time.sleep(0.1)
        return False

    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "k").write_bytes(bytes(1 << 22))
    with serving(tmp_path) as server:
        server.holds = slow  # the second half of it, which takes longer than it may take to stall
        storage = ObstoreS3("s3://b", key="k", secret="s", endpoint_url=server.url, **AT_ONCE)
        TimeoutStorage(storage, 2.0).download("k", tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size == 1 << 22


def test_all_ranges_of_an_object_are_asked_for_at_once(tmp_path):
    data = bytes(range(256)) * 4096
    (tmp_path / "k").write_bytes(data)
    all_here = threading.Barrier(16)
    ranges = [(at, at + 99) for at in range(0, 16 << 16, 1 << 16)]
    with serving(tmp_path) as server:

        def wait(_where, _range, content):
            all_here.wait(30)
            return content

        server.lie = wait
        parts = ObstoreHttp(server.url, **AT_ONCE).read_ranges("k", [*ranges[::-1], (9, 9)])
    assert [bytes(part) for part in parts] == [
        *(data[slice(*part)] for part in ranges[::-1]),
        b"",
    ]


def test_a_body_that_is_cut_is_transient(recorder, storage):
    recorder.headers, recorder.missing = HEADERS, 5
    with pytest.raises(Transient, match="set/k"):
        storage.read("k")


def test_another_range_than_asked_is_transient(recorder, storage):
    recorder.headers = HEADERS | {"Content-Range": "bytes 0-1/100"}
    recorder.answers = [(206, b"da")]
    with pytest.raises(Transient, match="set/k: the server sent another range than asked"):
        storage.read_range("k", 0, 5)


@pytest.mark.parametrize("operation", ["read", "download"])
def test_a_wrong_content_length_is_transient(recorder, make, tmp_path, operation):
    retries = {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    recorder.headers, recorder.missing = HEADERS, 5
    recorder.answers = [
        (200, b"data"),
        (416, error("InvalidRange")),
    ]  # obstore resumes after "data"
    storage, path = make(retry_config=retries), (tmp_path / "k",) * (operation == "download")
    with pytest.raises(Transient, match="set/k"):
        getattr(storage, operation)("k", *path)
    assert recorder.requests[1].headers["Range"] == "bytes=4-8"


def test_a_connection_that_is_refused_is_transient(refusing):
    with pytest.raises(Transient, match="s3://b/k"):
        ObstoreS3("s3://b", endpoint_url=refusing, key="k", secret="s", **AT_ONCE).read("k")


@pytest.mark.parametrize("kind", ["s3", "gs", "az", "http"])
@pytest.mark.parametrize(
    "key",
    ["posts.parquet", "a b/latest/api/x", "my-credentials", "pem file", "169.254.1", "é/lists.txt"],
)
def test_a_name_that_looks_like_a_credential_lookup_is_only_a_name(recorder, kind, key):
    recorder.answers = [(0, b"")]
    storage = stored(kind, recorder, dict(AT_ONCE))
    with pytest.raises(Transient, match="the connection failed"):
        storage.read(key)
    recorder.answers = [(503, b"")]
    with pytest.raises(Transient, match="503"):
        storage.read(key)


def test_a_listing_of_a_prefix_that_looks_like_a_credential_lookup_fails_transiently(recorder):
    recorder.answers = [(0, b"")]
    options = {"key": "k", "secret": "s", "endpoint_url": recorder.url, **AT_ONCE}
    with pytest.raises(Transient):
        list(ObstoreS3("s3://my-credentials/posts.d", **options).list())


@pytest.mark.parametrize(
    ("location", "request_url"),
    [
        ("s3://b", "POST https://sts.us-east-1.amazonaws.com/"),
        ("s3://b/", "POST https://sts.amazonaws.com/"),
        ("s3://b", "PUT http://credentials.example/"),
        ("s3://b/token", "PUT http://169.254.169.254/latest/api/token"),
        ("s3://b/v2/x", "GET http://169.254.170.2/v2/x"),
        ("gs://b/v1/token", "POST https://sts.googleapis.com/v1/token"),
        ("gs://b/token", "GET http://metadata.google.internal/computeMetadata/v1/token"),
    ],
)
def test_a_credential_lookup_that_ends_like_an_object_is_one(location, request_url):
    text = (
        f"Generic error: Error performing {request_url} in 1.2s - HTTP error: error sending request"
    )
    found = storage_error(OSError(text), location, "pass them")
    assert type(found) is AccessDenied
    assert str(found) == f"no credentials for {location}; pass them"


@pytest.mark.parametrize(
    ("status", "kind", "what"),
    [
        (500, Transient, "the service that gives this machine its credentials failed"),
        (503, Transient, "the service that gives this machine its credentials failed"),
        (429, Transient, "the service that gives this machine its credentials failed"),
        (404, AccessDenied, "no credentials for s3://b/k"),
    ],
)
def test_a_failure_of_the_service_of_credentials_may_pass(recorder, status, kind, what):
    recorder.answers = [(status, b"")]
    config = {"metadata_endpoint": recorder.url}
    storage = ObstoreS3("s3://b", endpoint_url=recorder.url, config=config, **AT_ONCE)
    with pytest.raises(kind, match=what):
        storage.read("k")


@pytest.mark.parametrize("kind", ["s3", "gs", "az", "http"])
def test_requests_wait_where_the_server_refuses_some(recorder, kind):
    check_limit(stored(kind, recorder, {}), recorder, (429, b""))


def test_a_busy_server_is_asked_again(recorder):
    recorder.answers = [(503, error("SlowDown")), (200, b"data")]
    recorder.headers = HEADERS
    assert ObstoreS3("s3://b", endpoint_url=recorder.url, anon=True).read("k") == b"data"


def test_a_server_that_refuses_requests_is_asked_once_to_read(recorder):
    storage = ObstoreS3("s3://b", endpoint_url=recorder.url, anon=True)
    storage.rate_limiter.num_tolerated = 0
    storage.rate_limiter.note(429)
    recorder.answers = [(503, error("SlowDown")), (200, b"data")]
    with pytest.raises(Transient, match="SlowDown"):  # streamplug itself tries again
        storage.read("k")
    assert len(recorder.requests) == 1


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_of_requests_does_not_mean_that_the_object_exists(recorder, code):
    storage = stored("s3", recorder, dict(AT_ONCE))
    recorder.answers = [(409, error(code))]
    with pytest.raises(Transient, match="s3://b/set/k"):
        storage.create("k", b"x")
    recorder.answers = [(412, error("PreconditionFailed"))]
    with pytest.raises(AlreadyExists, match="s3://b/set/k"):
        storage.create("k", b"x")


def test_without_credentials_the_ways_to_give_them_are_told(recorder, refusing):
    config = {"metadata_endpoint": refusing}
    storage = ObstoreS3("s3://b", endpoint_url=recorder.url, config=config, **AT_ONCE)
    with pytest.raises(AccessDenied, match=r"no credentials for s3://b/k; .*'anon': True"):
        storage.read("k")
    assert recorder.requests == []


def test_timeouts_are_set_by_default():
    options = transport({}, 0)["client_options"]
    assert timedelta() < options["connect_timeout"] <= timedelta(seconds=10)
    assert timedelta() < options["read_timeout"] <= timedelta(seconds=60)
    # Large objects may take long, as long as something arrives.
    assert options["timeout"] > timedelta(hours=1)


def test_shows_no_secrets():
    storage = ObstoreS3("s3://b/set", key="k", secret="SECRET")
    assert "SECRET" not in f"{storage!r} {storage} {storage.url}"
    assert pickle.loads(pickle.dumps(storage)).url == "s3://b/set"


@pytest.mark.parametrize(
    ("kind", "url", "options", "message"),
    [
        (ObstoreS3, "s3://b", {"endpont_url": "x"}, r"Did you mean 'endpoint_url'\?"),
        (ObstoreS3, "s3://b", {"zzz": 1}, "no option 'zzz'. Known: addressing_style, anon, "),
        (ObstoreS3, "s3://b", {"profile": "x"}, "no option 'profile'"),
        (ObstoreS3, "s3://b", {"key": "k"}, "'key', 'secret' go together"),
        (ObstoreS3, "s3://b", {"token": "t"}, "'key', 'secret', 'token' go together"),
        (
            ObstoreS3,
            "s3://b",
            {"anon": True, "key": "k", "secret": "s"},
            "'anon' and 'key' exclude",
        ),
        (ObstoreS3, "s3://b", {"addressing_style": "vitual"}, "use auto, path, virtual"),
        (ObstoreS3, "s3://b//set", {}, "s3://b//set: obstore takes no names with empty"),
        (ObstoreS3, "s3://b/a//b/", {}, "obstore takes no names with empty"),
        (ObstoreGCS, "gs://b/./set", {}, "obstore takes no names with empty"),
        (ObstoreAzure, "az://c/../set", {}, "obstore takes no names with empty"),
        (ObstoreS3, "s3://b", {"endpoint_url": "minio:9000"}, "must start with http:// or"),
        (ObstoreS3, "s3://b", {"read_timeout": 0}, "read_timeout=0: must be positive"),
        (ObstoreS3, "s3://", {}, "'s3://' names no bucket"),
        (ObstoreS3, "s3:/b", {}, "'s3:/b' names no bucket; write s3://bucket/prefix"),
        (ObstoreGCS, "gs://b", {"token": 1}, "'token' must be str or dict, not int"),
        (ObstoreGCS, "gs://b", {"anon": True, "token": "t"}, "'anon' and 'token' exclude"),
        (ObstoreAzure, "az://c", {"account_key": "k", "sas_token": "s"}, "exclude each other"),
        (ObstoreAzure, "az://c", {"client_id": "i"}, "go together"),
        (ObstoreHttp, "https://h", {"token": "t"}, "no option 'token'"),
    ],
)
def test_refuses_options_without_meaning(kind, url, options, message):
    with pytest.raises(ConfigError, match=message):
        kind(url, **options)


def test_a_setting_that_obstore_does_not_know_is_an_error():
    with pytest.raises(StorageError, match="s3://b/k: obstore does not know a setting"):
        ObstoreS3("s3://b", config={"zzz": "x"}).read("k")
    with pytest.raises(StorageError, match="s3://b/k: obstore does not know a setting"):
        ObstoreS3("s3://b", config={"zzz": "x"}).read_many([("k", 0, 1), ("l", 0, 1)])


def test_a_key_that_obstore_refuses_is_the_error_of_its_part():
    with recording() as recorder:
        storage = ObstoreS3("s3://b", endpoint_url=recorder.url, anon=True, **AT_ONCE)
        recorder.answers = [(206, b"data")]
        recorder.headers = {"Content-Range": "bytes 0-3/4", "ETag": '"e"'}
        for key in ("a//b", "../k"):
            good, bad = storage.read_many([("k", 0, 4), (key, 0, 4)])
            assert bytes(good) == b"data"
            assert isinstance(bad, StorageError)
            assert f"s3://b/{key}" in str(bad) or "leads out" in str(bad)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, error("Throttling"), Transient, r"400 \(Throttling\)"),
        (400, error("InvalidArgument"), StorageError, r"400 \(InvalidArgument\)"),
        (403, error("AccessDenied"), AccessDenied, r"no permission .*\(AccessDenied\)"),
        (403, error("RequestTimeTooSkewed"), AccessDenied, "the clocks"),
        (403, error("InvalidObjectState"), StorageError, r"in an archive \(InvalidObjectState\)"),
        (400, error("KMS.DisabledException"), AccessDenied, "its encryption key"),
        (
            400,
            error("AuthorizationHeaderMalformed").replace(b"</Err", b"<Region>eu-3</Region></Err"),
            StorageError,
            "in the region eu-3",
        ),
        (400, error("sig=feedbeef"), StorageError, "answered 400$"),
    ],
)
def test_errors_have_the_code_of_the_service(recorder, status, body, kind, message):
    recorder.answers = [(status, body)]
    with pytest.raises(StorageError, match=message) as caught:
        stored("s3", recorder, dict(AT_ONCE)).read("k")
    assert type(caught.value) is kind
    assert "s3://b/set/k" in str(caught.value)
    assert "feedbeef" not in str(caught.value)


def test_the_region_of_a_bucket_elsewhere_is_told(recorder):
    recorder.answers = [(301, error("PermanentRedirect"))]
    storage = stored("s3", recorder, dict(AT_ONCE))
    with pytest.raises(StorageError, match=r"s3://b/set/k: .*in another region"):
        storage.read("k")
    recorder.headers = {"x-amz-bucket-region": "eu-west-3"}
    for read in (storage.read, storage.stat):
        with pytest.raises(StorageError, match=r"in the region eu-west-3, .*region='eu-west-3'"):
            read("k")


def test_an_endpoint_of_the_environment_that_is_no_url_is_named(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL must start with http:// or https://"):
        ObstoreS3("s3://b", anon=True).read("k")


def test_a_server_without_tls_is_told(recorder):
    url = recorder.url.replace("http:", "https:")
    storage = ObstoreS3("s3://b", endpoint_url=url, anon=True, **AT_ONCE)
    with pytest.raises(StorageError, match="s3://b/k: the server does not speak TLS"):
        storage.read("k")


def test_an_invalid_header_names_its_option():
    with pytest.raises(ConfigError, match="'headers': the value of 'X-Key' must be str, not int"):
        ObstoreHttp("https://h", headers={"X-Key": 5})


def test_keys_that_are_renewed_are_used_by_the_same_storage(recorder, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    storage = ObstoreS3("s3://b/set", endpoint_url=recorder.url, **AT_ONCE)
    recorder.answers = [(403, error("InvalidAccessKeyId"))]
    with pytest.raises(AccessDenied):
        storage.read("k")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    recorder.answers, recorder.headers = [(200, b"data")], HEADERS
    assert storage.read("k") == b"data"
    assert "Credential=NEW/" in recorder.requests[-1].headers["Authorization"]


def test_streams_of_one_bucket_share_a_client():
    options = {"key": "k", "secret": "s", "region": "us-east-1"}
    first = ObstoreS3("s3://b/set", **options)
    assert ObstoreS3("s3://b/other", **options).client() is first.client()
    assert ObstoreS3("s3://c/other", **options).client() is not first.client()


@pytest.mark.parametrize("size", [10, 30 << 20])
def test_an_upload_that_fails_after_it_was_accepted_is_transient(tmp_path, size):
    """S3 may answer an upload in parts with status 200 and an error."""

    class Bucket(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = error("InternalError") if size == 10 or "uploadId" in self.path else UPLOAD
            if self.command == "PUT" and size > 10:
                body = b""
            self.send_response(200 if size > 10 else 500)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = answer

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    (tmp_path / "source").write_bytes(bytes(size))
    url = f"http://127.0.0.1:{server.server_port}"
    storage = ObstoreS3("s3://b/set", endpoint_url=url, key="k", secret="s", **AT_ONCE)
    try:
        with pytest.raises(Transient, match=r"s3://b/set/k: the server answered .*InternalError"):
            storage.upload(tmp_path / "source", "k")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


UPLOAD = (
    b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>set/k</Key><UploadId>u</UploadId>"
    b"</InitiateMultipartUploadResult>"
)
