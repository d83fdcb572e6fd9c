from __future__ import annotations

import asyncio
import traceback
from importlib.metadata import version

import pytest
from streamplug_fsspec import event_loop as loops
from streamplug_s3fs.storage import S3Storage
from streamplug_testing.answers import check_limit
from streamplug_testing.http import serving
from streamplug_testing.storage import StorageTests

from streamplug.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigError,
    NotFound,
    ObjectReplaced,
    StorageError,
    Transient,
)
from streamplug.plugin import open_storage


class TestS3(StorageTests):
    many = 250
    secret = "s3cr3t-ACCESS-key"

    @pytest.fixture(autouse=True)
    def location(self, endpoint, client, bucket):
        self.endpoint, self.client, self.bucket = endpoint, client, bucket

    def make_storage(self):
        return S3Storage(
            f"s3://{self.bucket}/some/set", endpoint_url=self.endpoint, key="me", secret=self.secret
        )

    def put_raw(self, key, data):
        self.client.put_object(Bucket=self.bucket, Key=f"some/set/{key}", Body=data)

    def get_raw(self, key):
        return self.client.get_object(Bucket=self.bucket, Key=f"some/set/{key}")["Body"].read()


def test_is_found_by_its_scheme(endpoint, bucket, client):
    client.put_object(Bucket=bucket, Key="k", Body=b"data")
    for scheme in ("s3", "s3a"):
        storage = open_storage(f"{scheme}://{bucket}", {"endpoint_url": endpoint})
        assert type(storage) is S3Storage
        assert storage.read("k") == b"data"


def test_a_neighbour_with_the_same_start_is_not_listed(endpoint, bucket, client):
    for key in ("set/1", "set2/1", "set"):
        client.put_object(Bucket=bucket, Key=key, Body=b"")
    storage = S3Storage(f"s3://{bucket}/set", endpoint_url=endpoint)
    assert [o.key for o in storage.list()] == ["1"]


def test_markers_of_directories_are_no_objects(endpoint, bucket, client):
    for key in ("set/", "set/sub/", "set/sub/1"):
        client.put_object(Bucket=bucket, Key=key, Body=b"")
    storage = S3Storage(f"s3://{bucket}/set", endpoint_url=endpoint)
    assert [o.key for o in storage.list()] == ["sub/1"]


def test_a_key_with_what_looks_like_a_version_is_another_object(endpoint, bucket, client, tmp_path):
    client.put_object(Bucket=bucket, Key="set/k", Body=b"old")
    key, storage = "k?versionId=1", S3Storage(f"s3://{bucket}/set", endpoint_url=endpoint)
    assert not storage.exists(key)
    storage.write(key, b"new")
    storage.download(key, tmp_path / "k")
    assert (storage.read("k"), storage.read(key), storage.read_range(key, 1, 3)) == (
        b"old",
        b"new",
        b"ew",
    )
    assert (tmp_path / "k").read_bytes() == b"new"
    assert [o.key for o in storage.list()] == ["k", key]
    storage.delete(key)
    assert [o.key for o in storage.list()] == ["k"]


def test_uploads_in_parts(endpoint, bucket, client, tmp_path):
    data = bytes(range(256)) * (110 * 4096)
    (tmp_path / "source").write_bytes(data)
    storage = S3Storage(f"s3://{bucket}", endpoint_url=endpoint, default_block_size=2**23)
    storage.upload(tmp_path / "source", "k")
    assert client.head_object(Bucket=bucket, Key="k")["ContentLength"] == len(data)
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data


def test_a_shard_of_the_usual_size_comes_in_one_piece(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(loops, "preallocate", lambda _, size: sizes.append(size))
    (tmp_path / "bucket").mkdir()
    with (tmp_path / "bucket" / "k").open("wb") as file:
        file.truncate(1 << 26)
        file.write(b"begins like this")
    with serving(tmp_path) as server:
        storage = S3Storage("s3://bucket", endpoint_url=server.url)
        storage.download("k", tmp_path / "target")
        assert server.requests == [("GET", "bucket/k", None)]
    assert sizes == [1 << 26]
    assert (tmp_path / "target").read_bytes() == (tmp_path / "bucket" / "k").read_bytes()


def break_off_once():
    """Return what closes the connection in the middle of the first response."""
    breaks = iter([True])

    def holds(_):
        if next(breaks, False):
            raise ConnectionResetError
        return False

    return holds


def test_a_download_that_breaks_off_begins_anew(tmp_path):
    data = bytes(range(256)) * 4096
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "k").write_bytes(data)
    with serving(tmp_path) as server:
        server.holds = break_off_once()
        storage = S3Storage("s3://bucket", endpoint_url=server.url)
        storage.download("k", tmp_path / "target")
        assert len(server.requests) == 2
    assert (tmp_path / "target").read_bytes() == data


@pytest.fixture
def replaced(tmp_path):
    """A server of an object that is replaced by another one after the first response."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "k").write_bytes(b"o" * (1 << 20))
    with serving(tmp_path) as server:
        server.replace_after(1, tmp_path / "bucket" / "k", b"n" * (1 << 20))
        yield server


@pytest.mark.parametrize("understands", [True, False])
def test_a_download_that_breaks_off_does_not_go_on_with_another_version(
    replaced, tmp_path, understands
):
    replaced.holds, replaced.conditions = break_off_once(), understands
    storage = S3Storage("s3://bucket", endpoint_url=replaced.url)
    with pytest.raises(ObjectReplaced, match=r"^s3://bucket/k: it was replaced"):
        storage.download("k", tmp_path / "target")
    ranges = [byte_range for _, _, byte_range in replaced.requests]
    assert len(ranges) == 2
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"n" * (1 << 20)


@pytest.mark.parametrize("understands", [True, False])
def test_parts_of_two_versions_are_not_mixed(replaced, tmp_path, understands):
    replaced.conditions = understands
    storage = S3Storage("s3://bucket", endpoint_url=replaced.url, default_block_size=100_000)
    with pytest.raises(ObjectReplaced, match=r"^s3://bucket/k: it was replaced"):
        storage.download("k", tmp_path / "target")
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"n" * (1 << 20)


def test_a_part_that_fails_ends_the_requests_for_the_others(replaced, tmp_path):
    def lie(where, byte_range, data):
        return None if byte_range and byte_range[0] == 0 else data

    replaced.lie, replaced.holds = lie, lambda _: True
    options = {"default_block_size": 100_000, "read_timeout": 600}
    storage = S3Storage("s3://bucket", endpoint_url=replaced.url, **options)
    with pytest.raises(Transient, match=r"^s3://bucket/k: .* 416"):
        storage.download("k", tmp_path / "target")

    def is_of_a_part(task):
        return "read_version" in task.get_coro().__qualname__

    async def end():
        while any(map(is_of_a_part, asyncio.all_tasks())):
            await asyncio.sleep(0.01)

    asyncio.run_coroutine_threadsafe(end(), storage.filesystem().loop).result(60)


def test_a_part_that_is_shorter_than_asked_is_no_success(replaced, tmp_path):
    replaced.lie = lambda where, byte_range, data: data[:-1] if byte_range else data
    storage = S3Storage("s3://bucket", endpoint_url=replaced.url, default_block_size=100_000)
    with pytest.raises(
        Transient, match=r"^s3://bucket/k: the server sent 99999 bytes where 100000"
    ):
        storage.download("k", tmp_path / "target")


def test_a_range_that_begins_elsewhere_is_refused(recorder):
    recorder.answers, recorder.headers = [(206, b"5678")], {"Content-Range": "bytes 5-8/99"}
    storage = S3Storage("s3://b/set", endpoint_url=recorder.url)
    assert storage.read_range("k", 5, 9) == b"5678"
    sent = "^s3://b/set/k: the server sent bytes 5-8/99 where bytes from 0 on"
    for read in (storage.read_ranges, storage.read_version):
        with pytest.raises(StorageError, match=sent):
            read("k", [(0, 4)])


def test_a_missing_bucket_is_not_found(endpoint):
    storage = S3Storage("s3://no-such-bucket/set", endpoint_url=endpoint)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
    ):
        with pytest.raises(NotFound, match="s3://no-such-bucket/set"):
            operation()


@pytest.mark.parametrize("name", ["S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_may_come_from_the_environment(endpoint, bucket, client, monkeypatch, name):
    client.put_object(Bucket=bucket, Key="k", Body=b"data")
    monkeypatch.setenv(name, endpoint)
    assert S3Storage(f"s3://{bucket}").read("k") == b"data"


def test_the_option_wins_over_the_environment(endpoint, bucket, client, monkeypatch):
    client.put_object(Bucket=bucket, Key="k", Body=b"data")
    monkeypatch.setenv("S3_ENDPOINT_URL", "http://127.0.0.1:9")
    for options in ({"endpoint_url": endpoint}, {"client_kwargs": {"endpoint_url": endpoint}}):
        assert S3Storage(f"s3://{bucket}", **options).read("k") == b"data"


def test_a_profile_gives_the_credentials(recorder, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text(
        "[team]\naws_access_key_id = KEYOFTEAM\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    S3Storage("s3://b", endpoint_url=recorder.url, profile="team").read("k")
    assert "Credential=KEYOFTEAM/" in recorder.requests[0].headers["authorization"]


def test_a_profile_gives_endpoint_and_region_too(recorder, monkeypatch, tmp_path):
    (tmp_path / "config").write_text(
        f"[profile r2]\nendpoint_url = {recorder.url}\nregion = auto\n"
        "aws_access_key_id = KEYOFTEAM\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    S3Storage("s3://b", profile="r2").read("k")
    assert "/auto/s3/" in recorder.requests[0].headers["authorization"]


def test_an_unknown_profile_is_named(endpoint):
    with pytest.raises(AccessDenied, match="profile 'nobody' is unknown"):
        S3Storage("s3://b", endpoint_url=endpoint, profile="nobody").read("k")


def test_without_credentials_the_ways_to_give_them_are_told(endpoint, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AccessDenied, match=r"no credentials for s3://b/k; .*'anon': True"):
        S3Storage("s3://b", endpoint_url=endpoint).read("k")


def test_a_missing_file_of_credentials_is_no_missing_object(endpoint, monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "no-token"))
    storage = S3Storage("s3://b", endpoint_url=endpoint)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.exists("k"),
        lambda: list(storage.list()),
    ):
        with pytest.raises(AccessDenied, match="no-token does not exist on this machine"):
            operation()


@pytest.mark.parametrize("is_option", [False, True])
def test_a_missing_file_of_certificates_is_told(monkeypatch, tmp_path, is_option):
    options = {"endpoint_url": "https://127.0.0.1:9"}
    if is_option:
        options["client_kwargs"] = {"verify": str(tmp_path / "none")}
    else:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "none"))
    with pytest.raises(StorageError, match=r"certificates that AWS_CA_BUNDLE .* names") as caught:
        S3Storage("s3://b", **options).read("k")
    assert not isinstance(caught.value, Transient)


# -- what goes over the wire --------------------------------------------------


def error(code):
    return f"<Error><Code>{code}</Code><Message>{SIGNED}</Message></Error>".encode()


SIGNED = "https://host/k?X-Amz-Signature=feedbeef"


def test_a_whole_read_is_one_request(recorder):
    assert S3Storage("s3://b/set", endpoint_url=recorder.url).read("k") == b"data"
    assert [(r.command, r.path) for r in recorder.requests] == [("GET", "/b/set/k")]


@pytest.mark.parametrize(
    ("options", "variable", "wanted"),
    [
        ({}, "", None),
        ({"requester_pays": True}, "", "requester"),
        ({}, "other, b", "requester"),
        ({}, "other", None),
        ({"requester_pays": False}, "b", None),
    ],
)
def test_requester_pays(recorder, monkeypatch, options, variable, wanted):
    monkeypatch.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", variable)
    S3Storage("s3://b", endpoint_url=recorder.url, **options).read("k")
    assert recorder.requests[0].headers["x-amz-request-payer"] == wanted


def test_requester_pays_whatever_is_asked(recorder, tmp_path):
    recorder.answers = [(200, b"")]
    (tmp_path / "source").write_bytes(b"x")
    storage = S3Storage("s3://b", endpoint_url=recorder.url, requester_pays=True)
    storage.read_range("k", 0, 1)
    storage.stat("k")
    storage.write("k", b"x")
    storage.upload(tmp_path / "source", "k")
    storage.delete("k")
    assert {r.command for r in recorder.requests} >= {"GET", "HEAD", "PUT", "DELETE"}
    is_old = tuple(map(int, version("s3fs").split(".")[:2])) < (2026, 9)  # pays only for reads
    told = [r for r in recorder.requests if not is_old or r.command in ("GET", "HEAD")]
    assert {r.headers["x-amz-request-payer"] for r in told} == {"requester"}


@pytest.mark.parametrize("is_of_s3fs", [False, True])
def test_other_stores_get_no_checksums_that_they_do_not_know(recorder, is_of_s3fs):
    recorder.answers = [(200, b"")]
    endpoint = {"endpoint_url": recorder.url}
    storage = S3Storage("s3://b", **({"client_kwargs": endpoint} if is_of_s3fs else endpoint))
    storage.write("k", b"x")
    storage.read("k")
    names = {name.lower() for r in recorder.requests for name in r.headers}
    assert not {name for name in names if "checksum" in name or name == "x-amz-trailer"}
    assert "content-encoding" not in names


@pytest.mark.parametrize(
    ("endpoint", "variable", "wanted"),
    [
        ("https://ACCOUNT.r2.cloudflarestorage.com", "", "when_required"),
        ("https://s3.us-west-004.backblazeb2.com", "", "when_required"),
        ("https://cwobject.com", "", "when_required"),
        ("https://cwobject.com", "when_supported", None),
        ("https://bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com", "", None),
        (None, "", None),
    ],
)
def test_when_checksums_are_sent(monkeypatch, endpoint, variable, wanted):
    monkeypatch.delenv("AWS_RESPONSE_CHECKSUM_VALIDATION", raising=False)
    if variable:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", variable)
    config = S3Storage("s3://b", endpoint_url=endpoint).filesystem_options()["config_kwargs"]
    assert config.get("request_checksum_calculation") == wanted
    given = {"request_checksum_calculation": "when_supported"}
    storage = S3Storage("s3://b", endpoint_url=endpoint, config_kwargs=given)
    config = storage.filesystem_options()["config_kwargs"]
    assert config["request_checksum_calculation"] == "when_supported"


def test_region_and_key_are_signed(recorder):
    options = {"region": "eu-north-7", "key": "KEYID", "secret": "s", "token": "TOKEN"}
    S3Storage("s3://b", endpoint_url=recorder.url, **options).read("k")
    headers = recorder.requests[0].headers
    assert "Credential=KEYID/" in headers["authorization"]
    assert "/eu-north-7/s3/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "TOKEN"


def test_anonymous_requests_are_not_signed(recorder):
    S3Storage("s3://b", endpoint_url=recorder.url, anon=True).read("k")
    assert recorder.requests[0].headers["authorization"] is None


@pytest.mark.parametrize(("style", "path"), [("path", "/b/k"), ("virtual", "/k")])
def test_addressing_style(recorder, style, path):
    # Any name below localhost is this machine: aiohttp asks its resolver, so only path is read.
    url = recorder.url.replace("127.0.0.1", "localhost")
    storage = S3Storage("s3://b", endpoint_url=url, addressing_style=style)
    if style == "virtual":
        assert storage.filesystem_options()["config_kwargs"]["s3"] == {"addressing_style": style}
        return
    storage.read("k")
    assert recorder.requests[0].path == path


@pytest.mark.parametrize(
    ("status", "code", "wanted"),
    [
        (404, "NoSuchKey", NotFound),
        (404, "NoSuchBucket", NotFound),
        (403, "AccessDenied", AccessDenied),
        (403, "InvalidAccessKeyId", AccessDenied),
        (403, "SignatureDoesNotMatch", AccessDenied),
        (403, "RequestTimeTooSkewed", AccessDenied),
        (400, "ExpiredToken", AccessDenied),
        (400, "InvalidToken", AccessDenied),
        (401, "Whatever", AccessDenied),
        (400, "RequestTimeout", Transient),
        (429, "TooManyRequests", Transient),
        (500, "InternalError", Transient),
        (502, "BadGateway", Transient),
        (503, "SlowDown", Transient),
        (503, "ServiceUnavailable", Transient),
        (504, "GatewayTimeout", Transient),
    ],
)
def test_answers_become_our_errors(recorder, monkeypatch, status, code, wanted):
    fast_retries(monkeypatch)
    recorder.answers = [(status, error(code))]
    storage = S3Storage("s3://b/set", endpoint_url=recorder.url)
    for operation in (lambda: storage.read("k"), lambda: storage.read_range("k", 0, 5)):
        with pytest.raises(StorageError, match="s3://b/set/k") as caught:
            operation()
        assert type(caught.value) is wanted
        assert "feedbeef" not in "".join(traceback.format_exception(caught.value))


def test_requests_wait_where_the_server_refuses_some(recorder, monkeypatch):
    fast_retries(monkeypatch)
    check_limit(
        S3Storage("s3://b/set", endpoint_url=recorder.url), recorder, (503, error("SlowDown"))
    )


def test_a_conflict_of_requests_does_not_mean_that_the_object_exists(recorder):
    storage = S3Storage("s3://b/set", endpoint_url=recorder.url)
    recorder.answers = [(409, error("ConditionalRequestConflict"))]
    with pytest.raises(Transient, match="s3://b/set/k"):
        storage.create("k", b"x")
    recorder.answers = [(412, error("PreconditionFailed"))]
    with pytest.raises(AlreadyExists, match="s3://b/set/k"):
        storage.create("k", b"x")


def test_other_answers_are_storage_errors(recorder):
    recorder.answers = [(400, error("InvalidArgument"))]
    with pytest.raises(StorageError, match="s3://b/k: the server answered 400") as caught:
        S3Storage("s3://b", endpoint_url=recorder.url).read("k")
    assert type(caught.value) is StorageError


def test_a_connection_that_is_refused_is_transient(refusing, monkeypatch):
    fast_retries(monkeypatch)
    with pytest.raises(Transient, match="s3://b/k"):
        S3Storage("s3://b", endpoint_url=refusing).read("k")


def test_a_connection_that_breaks_is_transient(recorder, monkeypatch):
    fast_retries(monkeypatch)
    recorder.answers = [(0, b"")]
    with pytest.raises(Transient, match="s3://b/k"):
        S3Storage("s3://b", endpoint_url=recorder.url).read("k")


def test_a_server_that_stalls_is_transient(recorder, monkeypatch):
    fast_retries(monkeypatch)
    recorder.wait = 60.0
    storage = S3Storage("s3://b", endpoint_url=recorder.url, read_timeout=0.2)
    with pytest.raises(Transient, match="s3://b/k"):
        storage.read("k")


@pytest.mark.parametrize("operation", ["read", "read_range"])
def test_a_server_that_does_not_answer_is_asked_few_times(recorder, operation):
    recorder.answers = [(0, b"")]
    call = getattr(S3Storage("s3://b", endpoint_url=recorder.url), operation)
    with pytest.raises(Transient):
        call("k", *((0, 9) if operation == "read_range" else ()))
    assert len(recorder.requests) <= 20  # aiohttp, too, repeats some


def test_timeouts_are_set_by_default():
    config = S3Storage("s3://b").filesystem_options()["config_kwargs"]
    assert 0 < config["connect_timeout"] <= 10
    assert 0 < config["read_timeout"] <= 30


def fast_retries(monkeypatch):
    monkeypatch.setattr("streamplug_s3fs.filesystem.StreamingFileSystem.retries", 1)
    monkeypatch.setattr("streamplug_s3fs.options.ATTEMPTS", 1)


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"region_name": "x"}, r"no option 'region_name'. Did you mean 'region'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: addressing_style, anon, "),
        ({"anon": "yes"}, "'anon' must be bool, not str"),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"secret": 12345, "key": "k"}, "'secret' must be str, not int"),
        ({"client_kwargs": []}, "'client_kwargs' must be a dict, not list"),
        ({"key": "k"}, "'key' and 'secret' go together"),
        ({"secret": "s"}, "'key' and 'secret' go together"),
        ({"token": "t"}, "'token' goes with 'key' and 'secret'"),
        ({"anon": True, "key": "k", "secret": "s"}, "'anon' and 'key' exclude each other"),
        ({"addressing_style": "paht"}, "addressing_style='paht': use auto, path, virtual"),
        ({"endpoint_url": "minio:9000"}, "must start with http:// or https://"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        S3Storage("s3://b", **options)


def test_none_is_the_default():
    options = dict.fromkeys(("endpoint_url", "anon", "key", "secret", "region", "read_timeout"))
    assert (
        S3Storage("s3://b", **options).filesystem_options()
        == S3Storage("s3://b").filesystem_options()
    )


def test_passes_on_what_s3fs_takes():
    options = S3Storage(
        "s3://b",
        max_concurrency=3,
        client_kwargs={"verify": False},
        config_kwargs={"read_timeout": 7, "s3": {"payload_signing_enabled": True}},
        addressing_style="path",
    ).filesystem_options()
    assert options["max_concurrency"] == 3
    assert options["client_kwargs"] == {"verify": False}
    assert options["config_kwargs"]["read_timeout"] == 7
    assert options["config_kwargs"]["s3"] == {
        "payload_signing_enabled": True,
        "addressing_style": "path",
    }


def test_a_url_without_bucket_is_refused():
    with pytest.raises(ConfigError, match="'s3://' names no bucket"):
        S3Storage("s3://")


def test_keys_that_are_renewed_are_used_by_the_same_storage(recorder, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    storage = S3Storage("s3://b/set", endpoint_url=recorder.url)
    other = S3Storage("s3://c", endpoint_url=recorder.url)
    assert storage.read("k") == other.read("k") == b"data"
    recorder.answers = [(403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")]
    with pytest.raises(AccessDenied, match="InvalidAccessKeyId"):
        storage.read("k")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    recorder.answers = [(200, b"data")]
    assert storage.read("k") == b"data"
    assert "Credential=NEW/" in recorder.requests[-1].headers["Authorization"]


def test_storages_of_one_account_share_a_session(monkeypatch, tmp_path):
    first = S3Storage("s3://b/set")
    assert S3Storage("s3://c").filesystem() is first.filesystem()
    assert S3Storage("s3://c", read_timeout=5).filesystem() is not first.filesystem()
    monkeypatch.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "d")
    assert S3Storage("s3://d").filesystem() is not S3Storage("s3://b").filesystem()
    monkeypatch.delenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS")
    (tmp_path / "no-credentials").write_text("[default]\n")
    assert S3Storage("s3://b").filesystem() is not first.filesystem()


@pytest.mark.parametrize("name", ["S3_ENDPOINT_URL", "AWS_ENDPOINT_URL"])
def test_an_endpoint_of_the_environment_that_is_no_url_is_named(monkeypatch, name):
    monkeypatch.setenv(name, "minio:9000")
    with pytest.raises(ConfigError, match=f"{name} must start with http:// or https://"):
        S3Storage("s3://b").read("k")


def test_an_endpoint_of_a_profile_that_is_no_url_is_told(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("[default]\nendpoint_url = minio:9000\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(StorageError, match="s3://b/k: the AWS configuration has an endpoint_url"):
        S3Storage("s3://b").read("k")


def test_a_server_without_tls_is_told(recorder):
    storage = S3Storage("s3://b", endpoint_url=recorder.url.replace("http:", "https:"))
    with pytest.raises(StorageError, match="s3://b/k: the server does not speak TLS"):
        storage.read("k")


def test_the_region_of_a_bucket_elsewhere_is_told(recorder):
    recorder.headers = {"x-amz-bucket-region": "eu-west-3"}
    recorder.answers = [(301, b"<Error><Code>PermanentRedirect</Code></Error>")]
    with pytest.raises(StorageError, match=r"s3://b/k: .*region eu-west-3, .*region='eu-west-3'"):
        S3Storage("s3://b", endpoint_url=recorder.url).read("k")
