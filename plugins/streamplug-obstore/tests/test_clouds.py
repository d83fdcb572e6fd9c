"""Each cloud, beyond what the conformance tests ask of those that can be written to."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import threading

import pytest
from streamplug_obstore.clouds import ObstoreAzure, ObstoreGCS, ObstoreHttp, ObstoreS3
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    CorruptShardError,
    NotFound,
    ObjectReplaced,
    StorageError,
)
from streamplug.plugin import open_storage
from streamplug.transfer.download import download_file
from streamplug.types import FileInfo

HEADERS = {"Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT", "ETag": '"1"'}
DATA = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("obstore+s3://b/set", ObstoreS3),
        ("obstore:s3://b/set", ObstoreS3),
        ("obstore+s3a://b/set", ObstoreS3),
        ("obstore+gs://b/set", ObstoreGCS),
        ("obstore:gcs://b/set", ObstoreGCS),
        ("obstore+az://c/set", ObstoreAzure),
        ("obstore:abfs://c@account.dfs.core.windows.net/set", ObstoreAzure),
        ("obstore:azure-dl://c/set", ObstoreAzure),
        ("obstore+https://host/set", ObstoreHttp),
        ("obstore:http://host/set", ObstoreHttp),
    ],
)
def test_is_chosen_by_location(location, kind):
    storage = open_storage(location)
    assert type(storage) is kind
    assert storage.url == location[len("obstore+") :]


def test_a_stream_is_read_through_it_also_by_forked_workers(s3, tmp_path):
    with MDSWriter(
        out=f"obstore+{s3.url}/set", columns={"n": "int"}, storage_options=s3.options
    ) as out:
        for n in range(100):
            out.write({"n": n})
    dataset = StreamingDataset(
        remote=f"obstore:{s3.url}/set", local=str(tmp_path), storage_options=s3.options
    )
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send([dataset[n]["n"] for n in range(100)]))
    child.start()
    assert ours.poll(60), "the child hangs"
    assert ours.recv() == list(range(100))
    child.join()


def test_samples_are_read_by_range(s3):
    url, options = f"obstore+{s3.url}/set", s3.options
    columns = {"id": "int", "text": "str"}
    with MDSWriter(out=url, columns=columns, size_limit=400_000, storage_options=options) as out:
        for n in range(600):
            out.write({"id": n, "text": f"{n} " * n})
    dataset = StreamingDataset(
        remote=url, access="range", batch_size=8, shuffle=True, storage_options=options
    )
    assert len(dataset.samples_per_shard) > 1
    rows = list(dataset)
    assert sorted(row["id"] for row in rows) == list(range(600))
    assert all(row["text"] == f"{row['id']} " * row["id"] for row in rows)
    key = "set/shard.00000.mds"
    s3.put(key, s3.get(key)[:-1])
    last = int(dataset.samples_per_shard[0]) - 1
    with pytest.raises(CorruptShardError, match=rf"{key}\): sample {last}: .* cut short"):
        dataset[last]


# -- S3 -----------------------------------------------------------------------


def test_markers_of_directories_are_no_objects(s3):
    for key in ("set/", "set/sub/", "set/sub/1"):
        s3.put(key, b"")
    storage = ObstoreS3(f"{s3.url}/set", **s3.options)
    assert [o.key for o in storage.list()] == ["sub/1"]


def test_a_neighbour_with_the_same_start_is_not_listed(s3):
    for key in ("set/1", "set2/1", "set"):
        s3.put(key, b"")
    assert [o.key for o in ObstoreS3(f"{s3.url}/set/", **s3.options).list()] == ["1"]


def test_names_that_obstore_does_not_take_are_errors(s3):
    s3.put("set/a//b", b"")
    storage = ObstoreS3(f"{s3.url}/set", **s3.options)
    for operation in (lambda: storage.read("a//b"), lambda: list(storage.list())):
        with pytest.raises(StorageError, match="obstore takes no names with empty"):
            operation()
    with pytest.raises(StorageError, match="an empty key"):
        storage.delete("")


def test_uploads_in_parts(s3, tmp_path):
    data = DATA * 2000
    (tmp_path / "source").write_bytes(data)
    storage = ObstoreS3(s3.url, **s3.options)
    storage.upload(tmp_path / "source", "k")
    assert "-" in s3.client.head_object(Bucket=s3.name, Key="k")["ETag"]
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data


@pytest.mark.parametrize("understands", [True, False])
def test_parts_are_read_at_once_and_of_one_version(tmp_path, understands):
    (tmp_path / "k").write_bytes(DATA)
    ranges = [(at, at + 1000) for at in range(0, 4000, 1000)]
    with serving(tmp_path) as server:
        together = threading.Barrier(4)

        def wait(where, byte_range, data):
            together.wait(60)  # until all four were requested
            return data

        server.lie, server.conditions = wait, understands
        storage = ObstoreHttp(server.url)
        parts, version = storage.read_version("k", ranges)
        assert parts == [DATA[start:stop] for start, stop in ranges]
        assert sorted(r for _, _, r in server.requests) == ranges
        server.lie = lambda where, byte_range, data: data
        past = (len(DATA) + 1, len(DATA) + 9)
        assert storage.read_version("k", [past, (5, 9)], version)[0] == [b"", DATA[5:9]]
        server.replace_after(1, tmp_path / "k", DATA[::-1])
        assert storage.read("k") == DATA
        with pytest.raises(ObjectReplaced, match="/k: it was replaced"):
            storage.read_version("k", [(4000, 4001)], version)


def test_a_server_that_sends_neither_etag_nor_time_tells_no_versions(tmp_path):
    (tmp_path / "k").write_bytes(DATA)
    with serving(tmp_path) as server:
        server.tags = False
        storage = ObstoreHttp(server.url)
        assert storage.read_version("k", [(0, 10), (10, 20)]) == ([], "")
        assert storage.stat("k").version == ""
        assert storage.serves_ranges("k")
        server.requests.clear()
        assert storage.read_version("k", [(0, 10), (10, 20)]) == ([], "")
        assert server.requests == []  # they would be in vain for each further file


def test_parts_of_a_server_without_ranges_are_not_read(files):
    folder, url = files
    (folder / "k").write_bytes(DATA)
    assert ObstoreHttp(url).read_version("k", [(0, 10), (10, 20)]) == ([], "")


def test_ranges_far_apart_are_read_apart(s3):
    data = bytes(range(256)) * 40_000
    s3.put("k", data)
    storage = ObstoreS3(s3.url, **s3.options)
    ranges = [
        (9_000_000, 9_000_010),
        (0, 10),
        (5_000_000, 7_000_000),
        (4, 20),
        (6_999_999, 7_000_001),
    ]
    ranges += [(len(data) - 5, len(data) + 5), (3 * len(data), 3 * len(data) + 1)]
    assert storage.read_ranges("k", ranges) == [data[a:b] for a, b in ranges]
    assert storage.read_ranges("k", ranges[:5]) == [data[a:b] for a, b in ranges[:5]]
    with pytest.raises(NotFound, match="/gone"):
        storage.read_ranges("gone", ranges)


def test_a_missing_bucket_is_not_found(s3):
    storage = ObstoreS3("s3://no-such-bucket/set", **s3.options)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
    ):
        with pytest.raises(NotFound, match="s3://no-such-bucket/set"):
            operation()


@pytest.mark.parametrize("name", ["S3_ENDPOINT_URL", "AWS_ENDPOINT_URL"])
def test_the_endpoint_may_come_from_the_environment(s3, monkeypatch, name):
    s3.put("k", b"data")
    monkeypatch.setenv(name, s3.options["endpoint_url"])
    assert ObstoreS3(s3.url, key="k", secret="s").read("k") == b"data"


def test_region_and_key_are_signed(recorder):
    options = {"region": "eu-north-7", "key": "KEYID", "secret": "s", "token": "TOKEN"}
    recorder.headers = HEADERS
    ObstoreS3("s3://b/set", endpoint_url=recorder.url, **options).read("k")
    [request] = recorder.requests
    assert (request.command, request.path) == ("GET", "/b/set/k")
    assert "Credential=KEYID/" in request.headers["authorization"]
    assert "/eu-north-7/s3/" in request.headers["authorization"]
    assert request.headers["x-amz-security-token"] == "TOKEN"


@pytest.mark.parametrize(
    ("options", "variable", "wanted"),
    [
        ({}, "", None),
        ({"requester_pays": True}, "", "requester"),
        ({}, "other, b", "requester"),
        ({"requester_pays": False}, "b", None),
    ],
)
def test_requester_pays(recorder, monkeypatch, options, variable, wanted):
    monkeypatch.setenv("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", variable)
    recorder.headers = HEADERS
    ObstoreS3("s3://b", endpoint_url=recorder.url, key="k", secret="s", **options).read("k")
    assert recorder.requests[0].headers["x-amz-request-payer"] == wanted


# -- Google Cloud: the server does not speak all that obstore needs to write and list ----


@pytest.fixture
def google(gcs):
    gcs.put("some/set/k", DATA)
    gcs.put("some/set/empty", b"")
    return ObstoreGCS(f"obstore+{gcs.url}/some/set", **gcs.options)


def test_google_reads(google, tmp_path):
    assert google.read("k") == DATA
    assert google.read("empty") == b""
    assert google.read_range("k", 5, 20) == DATA[5:20]
    assert google.read_range("k", len(DATA), len(DATA) + 1) == b""
    assert google.read_range("empty", 0, 10) == b""
    assert google.read_ranges("k", [(9, 11), (0, 2), (10239, 20000)]) == [
        DATA[9:11],
        DATA[:2],
        DATA[10239:],
    ]
    assert google.stat("k").size == len(DATA)
    google.download("k", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == DATA


def test_google_misses(google, tmp_path):
    for operation in (
        lambda: google.read("gone"),
        lambda: google.stat("gone"),
        lambda: google.read_range("gone", 0, 1),
        lambda: google.download("gone", tmp_path / "x"),
    ):
        with pytest.raises(NotFound, match="some/set/gone"):
            operation()
    assert google.exists("k")
    assert not google.exists("gone")


@pytest.mark.parametrize("token", ["ya29.TOKEN", "ya29.TOKEN" + 400 * "x"])
def test_google_sends_a_token(recorder, token):
    recorder.headers = HEADERS
    storage = ObstoreGCS("gs://b/set", endpoint_url=recorder.url, token=token)
    assert storage.read("k") == b"data"
    assert recorder.requests[0].headers["authorization"] == f"Bearer {token}"
    assert "ya29" not in repr(storage)


@pytest.mark.parametrize("form", ["dict", "path", "home"])
def test_google_takes_a_key_file(recorder, tmp_path, monkeypatch, form):
    monkeypatch.setenv("HOME", str(tmp_path))
    content = {
        "type": "service_account",
        "client_email": "me@p.iam.gserviceaccount.com",
        "private_key_id": "1",
        "private_key": "SECRET",
        "token_uri": f"{recorder.url}/token",
    }
    (tmp_path / "key.json").write_text(json.dumps(content))
    token = {"dict": content, "path": str(tmp_path / "key.json"), "home": "~/key.json"}[form]
    storage = ObstoreGCS("gs://b", endpoint_url=recorder.url, token=token)
    with pytest.raises(AccessDenied, match="the credentials for gs://b/k cannot be read") as caught:
        storage.read("k")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("cloud", ["gs", "s3"])
def test_a_missing_file_of_credentials_is_told(recorder, monkeypatch, tmp_path, cloud):
    kind = ObstoreGCS if cloud == "gs" else ObstoreS3
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "no-key"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "no-token"))
    with pytest.raises(AccessDenied, match=f"the credentials for {cloud}://b/k cannot be read"):
        kind(f"{cloud}://b", endpoint_url=recorder.url).exists("k")


# -- Azure --------------------------------------------------------------------


def test_azure_takes_the_account_of_the_url(azure):
    azure.put("set/k", b"data")
    options = {"endpoint_url": azure.endpoint, "account_key": azure.options["account_key"]}
    location = f"abfs://{azure.name}@devstoreaccount1.dfs.core.windows.net/set"
    assert ObstoreAzure(location, **options).read("k") == b"data"


def test_the_endpoint_may_end_in_a_slash(azure):
    options = {**azure.options, "endpoint_url": f"{azure.endpoint}/"}
    ObstoreAzure(azure.url, **options).write("k", b"data")
    assert azure.get("k") == b"data"


def test_azure_takes_the_cloud_of_the_url():
    storage = ObstoreAzure("abfs://c@mine.dfs.core.chinacloudapi.cn/set", anon=True)
    assert (
        storage.client().repeating.config["endpoint"] == "https://mine.blob.core.chinacloudapi.cn"
    )


def test_azure_takes_the_account_of_the_environment(azure, monkeypatch):
    azure.put("k", b"data")
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", azure.options["account_name"])
    monkeypatch.setenv("AZURE_ACCOUNT_ACCESS_KEY", azure.options["account_key"])
    for more in ({}, {"anon": False}):
        assert ObstoreAzure(azure.url, endpoint_url=azure.endpoint, **more).read("k") == b"data"


def test_azure_prefers_its_own_names_in_the_environment(azure, monkeypatch):
    azure.put("k", b"data")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", azure.options["account_name"])
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure.options["account_key"])
    monkeypatch.setenv("AZURE_ACCOUNT_NAME", "other")
    monkeypatch.setenv("AZURE_ACCOUNT_ACCESS_KEY", "bm90IGEga2V5")
    assert ObstoreAzure(azure.url, endpoint_url=azure.endpoint).read("k") == b"data"


def test_azure_refuses_a_wrong_key(azure):
    options = {**azure.options, "account_key": "bm90IGEga2V5"}
    with pytest.raises(AccessDenied, match=azure.url):
        ObstoreAzure(azure.url, **options).read("k")


def test_azure_without_an_account_is_told():
    with pytest.raises(StorageError, match="az://c/k: name the storage account"):
        ObstoreAzure("az://c", anon=True).read("k")


def test_azure_sends_a_shared_access_signature(recorder):
    recorder.headers = HEADERS
    options = {"account_name": "a", "sas_token": "?sv=1&sig=SECRET"}
    storage = ObstoreAzure("az://c", endpoint_url=recorder.url, **options)
    assert storage.read("k") == b"data"
    assert recorder.requests[0].path == "/c/k?sv=1&sig=SECRET"
    recorder.answers = [(403, b"")]
    with pytest.raises(AccessDenied) as caught:
        storage.read("k")
    assert "SECRET" not in f"{caught.value} {storage!r}"


# -- HTTP ---------------------------------------------------------------------


def test_http_reads(files, tmp_path):
    folder, url = files
    (folder / "set").mkdir()
    (folder / "set" / "k 1%#").write_bytes(DATA)
    storage = ObstoreHttp(f"obstore+{url}/set/")
    assert storage.read("k 1%#") == DATA
    assert storage.stat("k 1%#").size == len(DATA)
    storage.download("k 1%#", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == DATA
    with pytest.raises(NotFound, match="/set/gone"):
        storage.read("gone")


@pytest.mark.parametrize("folder", ["", "/", "/set", "/set/a/"])
def test_http_asks_for_a_key_below_the_url(recorder, folder):
    recorder.headers = HEADERS
    assert ObstoreHttp(recorder.url + folder).read("b/k") == b"data"
    assert recorder.requests[0].path == f"{folder.rstrip('/')}/b/k"


def test_http_reads_ranges_of_a_server_that_has_none(files):
    folder, url = files
    (folder / "k").write_bytes(DATA)
    storage = ObstoreHttp(url)
    assert storage.read_range("k", 10, 20) == DATA[10:20]
    assert storage.read_ranges("k", [(0, 3), (10230, 99999)]) == [DATA[:3], DATA[10230:]]


@pytest.mark.parametrize("size", [0, 1000])
def test_http_tells_whether_its_server_has_ranges(tmp_path, size):
    (tmp_path / "k").write_bytes(bytes(size))
    with serving(tmp_path) as server:
        assert ObstoreHttp(server.url).serves_ranges("k")
        with pytest.raises(NotFound):
            ObstoreHttp(server.url).serves_ranges("missing")
        server.ranges = False
        assert not ObstoreHttp(server.url).serves_ranges("k")


def test_http_transfers_a_large_file_once_from_a_server_without_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.ranges.PARALLEL_DOWNLOAD_BYTES", 1 << 20)
    monkeypatch.setattr("streamplug.transfer.ranges.PART_BYTES", 1 << 18)
    (tmp_path / "k").write_bytes(bytes(4 << 20))
    with serving(tmp_path) as server:
        server.ranges = False
        storage, file = ObstoreHttp(server.url), FileInfo("k", 4 << 20, {})
        download_file(storage, file, tmp_path / "copy", retries=0, timeout=20)
        assert (tmp_path / "copy").read_bytes() == bytes(4 << 20)
        assert len(server.requests) == 2


def test_http_sends_headers(recorder):
    recorder.headers = HEADERS
    storage = ObstoreHttp(recorder.url, headers={"Authorization": "Bearer SECRET"})
    assert storage.read("k") == b"data"
    assert recorder.requests[0].headers["authorization"] == "Bearer SECRET"
    assert "SECRET" not in repr(storage)


def test_http_is_only_for_reading(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    storage = ObstoreHttp("https://host/set")
    for operation in (
        lambda: storage.write("k", b""),
        lambda: storage.upload(tmp_path / "x", "k"),
        lambda: storage.delete("k"),
    ):
        with pytest.raises(StorageError, match=r"https://host/set/k: .* only for reading"):
            operation()
    with pytest.raises(StorageError, match="cannot list"):
        storage.list()


@pytest.mark.parametrize("user", ["me:SECRET", "SECRET"])
def test_http_with_a_user_in_the_url_is_refused(user):
    with pytest.raises(ConfigError, match=r"https://host/set: .*'headers'") as caught:
        ObstoreHttp(f"https://{user}@host/set")
    assert "SECRET" not in str(caught.value)


def test_http_with_a_query_is_refused():
    with pytest.raises(ConfigError, match="https://host/set with a query") as caught:
        ObstoreHttp("https://host/set?sig=SECRET")
    assert "SECRET" not in str(caught.value)


# -- encodings ----------------------------------------------------------------


def check_is_read_as_stored(storage, data, tmp_path):
    assert storage.read("k") == data
    assert [bytes(b) for b in storage.read_ranges("k", [(0, 4), (10, 12)])] == [
        data[:4],
        data[10:12],
    ]
    parts, _ = storage.read_version("k", [(2, 5)])
    assert bytes(parts[0]) == data[2:5]
    assert bytes(storage.read_many([("k", 1, 3)])[0]) == data[1:3]
    assert storage.stat("k").size == len(data)
    storage.download("k", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_objects_of_google_with_a_content_encoding_are_read_as_they_are_stored(gcs, tmp_path):
    data = gzip.compress(b"hello" * 100)
    gcs.put_encoded("k", data)
    storage = ObstoreGCS(gcs.url, **gcs.options)
    check_is_read_as_stored(storage, data, tmp_path)
    assert [info.size for info in storage.list()] == [len(data)]
    headers = {"client_options": {"default_headers": {"Accept-Encoding": "identity"}}}
    assert ObstoreGCS(gcs.url, **gcs.options, **headers).read("k") == b"hello" * 100


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_files_with_a_content_encoding_are_read_as_they_are_stored(tmp_path, scheme):
    data = gzip.compress(b"hello" * 100)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "k").write_bytes(data)
    with serving(tmp_path) as server:
        server.headers = {
            "Content-Encoding": "gzip",
            "Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT",
        }
        storage = (
            ObstoreHttp(f"{server.url}/b")
            if scheme == "http"
            else ObstoreS3("s3://b", endpoint_url=server.url, anon=True)
        )
        check_is_read_as_stored(storage, data, tmp_path)


def test_endpoints_in_config_are_told_apart():
    config = {"AWS_ENDPOINT": "http://a"}
    assert (
        ObstoreS3("obstore+s3://b", config=config, endpoint_url="http://b").endpoint == "http://a"
    )
    assert ObstoreS3("obstore+s3://b", config={1: 2}).endpoint == ""  # obstore refuses it
    config = {"google_base_url": "http://a"}
    assert ObstoreGCS("obstore+gs://b", config=config).endpoint == "http://a"
    config = {"azure_storage_account_name": "mine"}
    assert (
        ObstoreAzure("obstore+az://b", config=config).endpoint
        == "https://mine.blob.core.windows.net"
    )
