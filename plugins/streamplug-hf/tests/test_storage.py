from __future__ import annotations

from typing import ClassVar

import pytest
from streamplug_hf.options import RepositoryPath, parse
from streamplug_hf.storage import HfStorage
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug import StreamingDataset
from streamplug.errors import AccessDenied, ConfigError, NotFound, StorageError, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import OversizeError, Scope, inside
from streamplug.write import Writer

READ_ONLY = "a repository is a history: this storage only reads"


class TestHub(StorageTests):
    many = 250
    secret = "hf_letmein"
    deviations: ClassVar = {
        "test_writes_and_uploads": READ_ONLY,
        "test_replaces_by_something_shorter": READ_ONLY,
        "test_writes_any_buffer": READ_ONLY,
        "test_writes_from_many_threads": READ_ONLY,
        "test_readers_see_the_old_or_the_new": READ_ONLY,
        "test_writes_keys_as_they_are": READ_ONLY,
        "test_deletes": READ_ONLY,
    }

    @pytest.fixture(autouse=True)
    def location(self, hub, repository):
        self.hub, self.repository = hub, repository

    def make_storage(self):
        url = f"hf://datasets/{self.repository}/some/set"
        return HfStorage(url, endpoint_url=self.hub.url, token=self.secret)

    def put_raw(self, key, data):
        self.hub.raw("PUT", self.repository, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.hub.raw("GET", self.repository, f"some/set/{key}")


def test_is_found_by_its_scheme(hub, repository):
    hub.raw("PUT", repository, "k", b"data")
    storage = open_storage(f"hf://datasets/{repository}")
    assert type(storage) is HfStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]


@pytest.mark.parametrize(
    "operation",
    [
        lambda storage, path: storage.write("k", b"x"),
        lambda storage, path: storage.upload(path, "k"),
        lambda storage, path: storage.delete("k"),
    ],
)
def test_writing_is_refused_and_the_way_is_told(repository, tmp_path, operation):
    (tmp_path / "source").write_bytes(b"x")
    storage = HfStorage(f"hf://datasets/{repository}/sub")
    message = f"k cannot be written: .* hf upload --repo-type dataset {repository} FOLDER sub"
    with pytest.raises(StorageError, match=message):
        operation(storage, tmp_path / "source")


def test_large_files_come_from_elsewhere_without_the_token(hub, repository, tmp_path):
    data = bytes(range(256)) * 8000
    hub.raw("PUT", repository, "k", data)
    storage = HfStorage(f"hf://datasets/{repository}", token="hf_letmein")
    assert storage.read("k") == data
    assert storage.read_range("k", 1_500_000, 1_500_010) == data[1_500_000:1_500_010]
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data
    assert storage.stat("k").size == len(data)


# -- revisions ----------------------------------------------------------------


def test_a_revision_is_read(hub, repository):
    hub.raw("PUT", repository, "k", b"new")
    hub.raw("POST", f"{repository}@v1%2E0")
    hub.raw("PUT", f"{repository}@v1%2E0", "k", b"old")
    assert HfStorage(f"hf://datasets/{repository}@v1.0").read("k") == b"old"
    assert HfStorage(f"hf://datasets/{repository}", revision="v1.0").read("k") == b"old"
    assert HfStorage(f"hf://datasets/{repository}").read("k") == b"new"
    assert [o.size for o in HfStorage(f"hf://datasets/{repository}@v1.0").list()] == [3]


def test_a_revision_with_slashes_is_read(hub, repository):
    hub.raw("POST", f"{repository}@refs%2Fconvert%2Fparquet")
    hub.raw("PUT", f"{repository}@refs%2Fconvert%2Fparquet", "sub/k", b"x")
    for revision in ("refs%2Fconvert%2Fparquet", "refs/convert/parquet"):
        storage = HfStorage(f"hf://datasets/{repository}@{revision}/sub")
        assert storage.read("k") == b"x"
        assert [o.key for o in storage.list()] == ["k"]


def test_an_unknown_revision_is_named(repository):
    storage = HfStorage(f"hf://datasets/{repository}@nope")
    for operation in (lambda: storage.read("k"), storage.list, lambda: storage.stat("k")):
        with pytest.raises(NotFound, match="no revision 'nope'"):
            operation()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("hf://datasets/o/n", RepositoryPath("datasets", "o/n", None, "")),
        ("hf://datasets/o/n/a/b/", RepositoryPath("datasets", "o/n", None, "a/b")),
        ("hf://datasets/o/n@main/a", RepositoryPath("datasets", "o/n", "main", "a")),
        ("hf://datasets/o/n@refs%2Fpr%2F7/a", RepositoryPath("datasets", "o/n", "refs/pr/7", "a")),
        ("hf://datasets/o/n@refs/pr/7/a", RepositoryPath("datasets", "o/n", "refs/pr/7", "a")),
        ("hf://datasets/o/n@refs/pr/7", RepositoryPath("datasets", "o/n", "refs/pr/7", "")),
        ("hf://spaces/o/n/a", RepositoryPath("spaces", "o/n", None, "a")),
        ("hf://models/o/n/a", RepositoryPath("models", "o/n", None, "a")),
        ("hf://o/n/a", RepositoryPath("models", "o/n", None, "a")),
    ],
)
def test_locations_are_written_as_on_the_hub(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    "url", ["hf://", "hf://datasets", "hf://datasets/o", "hf://datasets/o/n@", "hf://datasets//n"]
)
def test_a_url_without_repository_is_refused(url):
    with pytest.raises(ConfigError, match="names no repository; write hf://datasets/OWNER/NAME"):
        HfStorage(url)


# -- credentials --------------------------------------------------------------


def test_the_token_may_come_from_the_environment(hub, monkeypatch):
    hub.raw("POST", "team/private-1")
    hub.raw("PUT", "team/private-1", "k", b"x")
    storage = HfStorage("hf://datasets/team/private-1")
    with pytest.raises(AccessDenied, match="set HF_TOKEN"):
        storage.read("k")
    monkeypatch.setenv("HF_TOKEN", "hf_letmein")
    assert storage.read("k") == b"x"
    with pytest.raises(AccessDenied):
        HfStorage("hf://datasets/team/private-1", token=False).read("k")


def test_a_repository_that_does_not_exist(repository):
    with pytest.raises(AccessDenied, match="private, gated or does not exist"):
        HfStorage("hf://datasets/team/nope").read("k")
    storage = HfStorage("hf://datasets/team/nope", token="hf_letmein")
    for operation in (lambda: storage.read("k"), storage.list):
        with pytest.raises(NotFound):
            operation()


def test_a_token_that_must_be_there_is_asked_for(repository):
    with pytest.raises(AccessDenied, match=r"no token for hf://.*HF_TOKEN"):
        HfStorage(f"hf://datasets/{repository}", token=True).read("k")


# -- what goes over the wire --------------------------------------------------


def test_a_busy_hub_says_how_long_to_wait(recorder):
    recorder.answers, recorder.headers = [(429, b"")], {"Retry-After": "30"}
    storage = HfStorage("hf://datasets/team/set", endpoint_url=recorder.url, rate_limit=False)
    for operation in (storage.read, storage.stat, lambda key: list(storage.list(key))):
        with pytest.raises(Transient, match="429") as caught:
            operation("k")
        assert caught.value.retry_after == 30.0


class TestHubAnswers(AnswerTests):
    location = "hf://datasets/o/n/set"
    first_request = ("GET", "/datasets/o/n/resolve/main/set/k")
    operations = ("read", "read_range", "read_ranges", "download", "stat", "exists", "list")

    def test_a_download_of_more_than_was_asked_for_ends(self, storage, tmp_path):
        scope = Scope()
        scope.max_bytes = 2
        with inside(scope), pytest.raises(OversizeError):
            storage.download("k", tmp_path / "k")

    def make_storage(self, url, **options):
        return HfStorage(self.location, endpoint_url=url, **options)


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: connect_timeout, endpoint_url, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"token": 5}, "'token' must be str or bool, not int"),
        ({"endpoint_url": "hub"}, "must start with http:// or https://"),
        ({"revision": "v1"}, "names another revision than the option 'v1'"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        HfStorage("hf://datasets/o/n@main", **options)


def test_hubs_and_revisions_are_told_apart(monkeypatch):
    url = "hf://datasets/o/n/set"
    assert HfStorage(url).endpoint == ""
    assert HfStorage(url, endpoint_url="https://hub.example/").endpoint == "https://hub.example"
    monkeypatch.setenv("HF_ENDPOINT", "https://other.example")
    assert HfStorage(url).endpoint == "https://other.example"
    of_option = HfStorage(url, revision="refs/pr/1").url
    assert of_option == "hf://datasets/o/n@refs%2Fpr%2F1/set"
    assert HfStorage(of_option, revision="refs/pr/1").url == of_option


def test_a_cache_of_a_revision_is_not_read_for_another(hub, repository, tmp_path):
    for revision in ("v1", "v2"):
        source = tmp_path / revision
        with Writer(out=source, columns={"x": "int64"}, hashes=[]) as writer:
            writer.write({"x": int(revision[1])})
        hub.raw("POST", f"{repository}@{revision}")
        for path in source.iterdir():
            hub.raw("PUT", f"{repository}@{revision}", path.name, path.read_bytes())
    for revision in ("v1", "v2"):
        options = {"revision": revision, "endpoint_url": hub.url, "token": "hf_letmein"}
        dataset = StreamingDataset(
            remote=f"hf://datasets/{repository}", storage_options=options, batch_size=1
        )
        assert [int(sample["x"]) for sample in dataset] == [int(revision[1])]
