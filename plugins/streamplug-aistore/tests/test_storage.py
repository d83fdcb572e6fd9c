from __future__ import annotations

import pickle

import pytest
from streamplug_aistore.storage import AistoreStorage
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import OversizeError, Scope, inside


class TestAistore(StorageTests):
    many = 250
    secret = "letmein"

    @pytest.fixture(autouse=True)
    def location(self, service, bucket):
        self.service, self.bucket = service, bucket

    def make_storage(self):
        url = f"ais://{self.bucket}/some/set"
        return AistoreStorage(url, token=self.secret, **self.service.options)

    def put_raw(self, key, data):
        self.service.raw("PUT", self.bucket, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.service.raw("GET", self.bucket, f"some/set/{key}")


def test_is_found_by_its_scheme(service, bucket, monkeypatch):
    service.raw("PUT", bucket, "k", b"data")
    monkeypatch.setenv("AIS_ENDPOINT", service.url)
    storage = open_storage(f"ais://{bucket}")
    assert type(storage) is AistoreStorage
    assert storage.read("k") == b"data"
    assert [(o.key, o.size) for o in storage.list()] == [("k", 4)]


def test_a_neighbour_with_the_same_start_is_not_listed(service, bucket):
    for key in ("set/1", "set2/1", "set"):
        service.raw("PUT", bucket, key, b"")
    storage = AistoreStorage(f"ais://{bucket}/set", **service.options)
    assert [o.key for o in storage.list()] == ["1"]


def test_a_missing_bucket_is_not_found(service):
    storage = AistoreStorage("ais://no-such-bucket/set", **service.options)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
    ):
        with pytest.raises(NotFound, match="ais://no-such-bucket/set"):
            operation()


def test_caching_an_object_of_another_cloud_does_not_change_its_version(service, bucket):
    # The checksum of a listing is the cloud's before the cluster caches the object, and then its own.
    service.raw("PUT", bucket, "k", b"data")
    storage = AistoreStorage(f"ais://{bucket}", provider="aws", **service.options)
    assert [storage.stat("k").version, *(o.version for o in storage.list())] == ["", ""]


def test_a_wrong_token_is_denied(service, bucket):
    storage = AistoreStorage(f"ais://{bucket}", token="feedbeef", **service.options)
    for operation in (lambda: storage.read("k"), lambda: list(storage.list())):
        with pytest.raises(AccessDenied) as caught:
            operation()
        assert "feedbeef" not in str(caught.value)


def test_without_endpoint_the_ways_to_give_it_are_told():
    with pytest.raises(ConfigError, match="set AIS_ENDPOINT"):
        AistoreStorage("ais://b").read("k")


def test_a_prefix_with_an_empty_part_is_refused():
    for url in ("ais://b//set", "ais://b/a//set"):
        with pytest.raises(ConfigError, match=f"{url}: AIStore takes no names with empty parts"):
            AistoreStorage(url)


def test_a_url_without_bucket_is_refused():
    with pytest.raises(ConfigError, match="names no bucket"):
        AistoreStorage("ais:///x")


# -- what goes over the wire --------------------------------------------------


class TestAistoreAnswers(AnswerTests):
    location = "ais://b/set"
    first_request = ("GET", "/v1/objects/b/set/k?provider=ais")

    def test_a_download_of_more_than_was_asked_for_ends(self, storage, tmp_path):
        scope = Scope()
        scope.max_bytes = 2
        with inside(scope), pytest.raises(OversizeError):
            storage.download("k", tmp_path / "k")

    def make_storage(self, url, **options):
        return AistoreStorage(self.location, endpoint_url=url, **options)


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: ca_cert, connect_timeout, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"token": 5}, "'token' must be str, not int"),
        ({"endpoint_url": "ais"}, "must start with http:// or https://"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        AistoreStorage("ais://b/a", **options)


def test_an_open_storage_pickles(service, bucket):
    storage = AistoreStorage(f"ais://{bucket}", **service.options)
    storage.write("k", b"x")
    assert pickle.loads(pickle.dumps(storage)).read("k") == b"x"


def test_clusters_and_providers_are_told_apart(monkeypatch):
    given = {"endpoint_url": "http://me:letmein@ais:51080"}
    assert AistoreStorage("ais://b", **given).endpoint == "http://ais:51080"
    assert AistoreStorage("ais://b", **given, provider="aws").endpoint.endswith("?provider=aws")
    monkeypatch.setenv("AIS_ENDPOINT", "http://other:51080")
    assert AistoreStorage("ais://b").endpoint == "http://other:51080"
