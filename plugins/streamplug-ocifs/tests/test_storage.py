from __future__ import annotations

import errno
import logging
import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from streamplug_ocifs.storage import OciStorage
from streamplug_testing.answers import AnswerTests
from streamplug_testing.storage import StorageTests

from streamplug.errors import AccessDenied, ConfigError, NotFound, Transient
from streamplug.plugin import open_storage
from streamplug.plugin_kit.cancellation import Cancelled, OversizeError, Scope, inside


class TestOci(StorageTests):
    many = 250
    secret = "s3cr3t-PASS-phrase"

    @pytest.fixture(autouse=True)
    def location(self, service, bucket):
        self.service, self.bucket = service, bucket

    def make_storage(self):
        config = read_config(self.service) | {"pass_phrase": self.secret}
        return OciStorage(
            f"oci://{self.bucket}@tests/some/set", endpoint_url=self.service.url, config=config
        )

    def put_raw(self, key, data):
        self.service.raw("PUT", self.bucket, f"some/set/{key}", data)

    def get_raw(self, key):
        return self.service.raw("GET", self.bucket, f"some/set/{key}")


def read_config(service):
    lines = (service.folder / "config").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_is_found_by_its_scheme(service, bucket):
    service.raw("PUT", bucket, "k", b"data")
    storage = open_storage(f"oci://{bucket}@tests", service.options)
    assert type(storage) is OciStorage
    assert storage.read("k") == b"data"
    assert storage.url == f"oci://{bucket}@tests"


def test_the_namespace_may_be_left_to_the_service(service, bucket):
    service.raw("PUT", bucket, "set/k", b"data")
    assert OciStorage(f"oci://{bucket}/set", **service.options).read("k") == b"data"


def test_the_namespace_may_be_an_option(service, bucket):
    service.raw("PUT", bucket, "set/k", b"data")
    storage = OciStorage(f"oci://{bucket}/set", namespace="elsewhere", **service.options)
    with pytest.raises(NotFound):
        storage.read("k")
    storage = OciStorage(f"oci://{bucket}/set", namespace="tests", **service.options)
    assert storage.read("k") == b"data"


def test_double_colons_are_a_part_of_the_prefix(service, bucket):
    OciStorage(f"oci://{bucket}@tests/a::b", **service.options).write("k", b"data")
    assert service.raw("GET", bucket, "a::b/k") == b"data"


def test_a_whole_bucket_is_a_location(service, bucket):
    storage = OciStorage(f"oci://{bucket}@tests", **service.options)
    storage.write("a/b", b"x")
    assert [(o.key, o.size) for o in storage.list()] == [("a/b", 1)]
    assert [o.key for o in storage.list("a/")] == ["a/b"]


def test_no_range_is_read_for_a_consumer_that_stopped(service, bucket):
    service.raw("PUT", bucket, "set/k", b"data")
    storage, scope = OciStorage(f"oci://{bucket}@tests/set", **service.options), Scope()
    assert storage.read_ranges("k", [(0, 1), (2, 9)]) == [b"d", b"ta"]
    scope.stop()
    with inside(scope), pytest.raises(Cancelled):
        storage.read_ranges("k", [(0, 1), (2, 9)])


def test_a_neighbour_with_the_same_start_is_not_listed(service, bucket):
    for key in ("set/1", "set2/1", "set"):
        service.raw("PUT", bucket, key, b"")
    storage = OciStorage(f"oci://{bucket}@tests/set", **service.options)
    assert [o.key for o in storage.list()] == ["1"]


def test_markers_of_directories_are_no_objects(service, bucket):
    for key in ("set/", "set/sub/", "set/sub/1"):
        service.raw("PUT", bucket, key, b"")
    storage = OciStorage(f"oci://{bucket}@tests/set", **service.options)
    assert [o.key for o in storage.list()] == ["sub/1"]


def test_uploads_in_parts(service, bucket, tmp_path):
    data = bytes(range(256)) * (10 * 4096)
    (tmp_path / "source").write_bytes(data)
    storage = OciStorage(f"oci://{bucket}@tests", part_size=2**22, **service.options)
    storage.upload(tmp_path / "source", "k")
    assert service.raw("GET", bucket, "k") == data
    storage.download("k", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data


@pytest.mark.parametrize("failures", [1, 9])
def test_an_upload_in_parts_that_fails_is_aborted(service, bucket, tmp_path, failures):
    data = bytes(range(256)) * 4096
    (tmp_path / "source").write_bytes(data)
    storage = OciStorage(f"oci://{bucket}@tests", part_size=2**18, **service.options)
    service.raw("GET", "uploads", str(failures))
    try:
        if failures == 1:  # the SDK tries twice
            storage.upload(tmp_path / "source", "k")
            assert service.raw("GET", bucket, "k") == data
        else:
            with pytest.raises(Transient, match="503"):
                storage.upload(tmp_path / "source", "k")
    finally:
        left = service.raw("GET", "uploads", "0")
    assert left == b"0"


def test_a_missing_bucket_is_not_found(service):
    storage = OciStorage("oci://no-such-bucket@tests/set", **service.options)
    for operation in (
        lambda: storage.read("k"),
        lambda: storage.stat("k"),
        lambda: list(storage.list()),
        lambda: storage.write("k", b"x"),
    ):
        with pytest.raises(NotFound, match="oci://no-such-bucket@tests/set"):
            operation()


# -- credentials --------------------------------------------------------------


@pytest.mark.parametrize("name", ["OCI_CONFIG_FILE", "OCIFS_CONFIG_LOCATION", "HOME"])
def test_the_configuration_is_found(service, bucket, monkeypatch, tmp_path, name):
    service.raw("PUT", bucket, "k", b"data")
    if name == "HOME":
        (tmp_path / ".oci").mkdir()
        (tmp_path / ".oci/config").write_bytes((service.folder / "config").read_bytes())
    else:
        monkeypatch.setenv(name, str(service.folder / "config"))
    storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url)
    assert storage.read("k") == b"data"


def test_a_profile_is_taken(service, bucket, tmp_path):
    service.raw("PUT", bucket, "k", b"data")
    text = (service.folder / "config").read_text()
    own = "[DEFAULT]\nregion=us-phoenix-1\n" + text.replace("DEFAULT", "team")
    (tmp_path / "config").write_text(own)
    options = {"endpoint_url": service.url, "config": str(tmp_path / "config")}
    storage = OciStorage(f"oci://{bucket}@tests", profile="team", **options)
    assert storage.read("k") == b"data"
    with pytest.raises(AccessDenied, match="ProfileNotFound"):
        OciStorage(f"oci://{bucket}@tests", profile="nobody", **options).read("k")


def test_a_given_configuration_wins_over_the_environment(service, bucket, monkeypatch, tmp_path):
    service.raw("PUT", bucket, "k", b"data")
    monkeypatch.setenv("OCIFS_IAM_TYPE", "instance_principal")
    monkeypatch.setenv("OCIFS_CONFIG_PROFILE", "theirs")
    text = (service.folder / "config").read_text()
    (tmp_path / "config").write_text(f"{text}\n[theirs]\nregion=us-phoenix-1\nuser=nobody\n")
    for config in (str(tmp_path / "config"), read_config(service)):
        storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url, config=config)
        assert storage.read("k") == b"data"
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "config"))
    storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url, profile="DEFAULT")
    assert storage.read("k") == b"data"


def test_a_configuration_that_is_not_used_is_refused():
    for given in ({"config": "~/.oci/config"}, {"profile": "mine"}):
        with pytest.raises(ConfigError, match="and iam_type='instance_principal' exclude"):
            OciStorage("oci://b@tests", iam_type="instance_principal", **given)


def test_another_user_is_denied(service, bucket):
    config = read_config(service) | {"user": "ocid1.user.oc1..somebodyelse"}
    storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url, config=config)
    for operation in (lambda: storage.read("k"), lambda: list(storage.list())):
        with pytest.raises(AccessDenied, match=f"oci://{bucket}@tests"):
            operation()


def test_another_key_is_denied(service, bucket, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    pem = rsa.generate_private_key(public_exponent=65537, key_size=1024).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "other.pem").write_bytes(pem)
    config = read_config(service) | {"key_file": str(tmp_path / "other.pem")}
    storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url, config=config)
    with pytest.raises(AccessDenied):
        storage.read("k")


@pytest.mark.parametrize(
    ("failure", "kind", "what"),
    [
        (requests.ConnectionError("s3cret"), Transient, "service that gives this machine its cred"),
        (OSError("no environment"), AccessDenied, "no usable credentials for oci://b@tests/k"),
    ],
)
def test_a_failing_service_of_resource_principals(monkeypatch, service, failure, kind, what):
    def fail():
        raise failure

    monkeypatch.setattr("ocifs.core.get_resource_principals_signer", fail)
    monkeypatch.setattr("streamplug_ocifs.options._location", lambda: None)
    monkeypatch.delenv("OCIFS_IAM_TYPE", raising=False)
    with pytest.raises(kind, match=what) as caught:
        OciStorage("oci://b@tests", endpoint_url=service.url).read("k")
    assert "s3cret" not in str(caught.value)


def test_a_missing_configuration_is_told(service):
    options = {"endpoint_url": service.url, "config": "/no/such/config"}
    with pytest.raises(AccessDenied, match=r"no usable credentials for oci://b@tests/k .*\.oci/"):
        OciStorage("oci://b@tests", **options).read("k")


def test_without_configuration_the_ways_to_give_it_are_told(service, monkeypatch):
    monkeypatch.delenv("OCI_RESOURCE_PRINCIPAL_VERSION", raising=False)
    with pytest.raises(AccessDenied, match="'iam_type'"):
        OciStorage("oci://b@tests", endpoint_url=service.url).read("k")


def test_a_home_directory_of_another_user_has_no_configuration(service, monkeypatch):
    def stat(path, *arguments, **options):
        if str(path).endswith(".oci/config"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return original(path, *arguments, **options)

    original = os.stat
    monkeypatch.setattr("os.stat", stat)
    monkeypatch.delenv("OCI_RESOURCE_PRINCIPAL_VERSION", raising=False)
    with pytest.raises(AccessDenied, match="'iam_type'"):
        OciStorage("oci://b@tests", endpoint_url=service.url).read("k")


def test_a_session_signs_with_its_token(service, tmp_path, recorder):
    (tmp_path / "token").write_text("SESSION-TOKEN\n")
    (tmp_path / "config").write_text(
        (service.folder / "config").read_text() + f"security_token_file={tmp_path / 'token'}\n"
    )
    options = {"endpoint_url": recorder.url, "config": str(tmp_path / "config")}
    OciStorage("oci://b@tests", **options).read("k")
    assert 'keyId="ST$SESSION-TOKEN"' in recorder.requests[0].headers["authorization"]


@pytest.mark.parametrize("missing", ["key", "token"])
def test_a_missing_file_of_credentials_is_no_missing_object(service, tmp_path, missing):
    config = read_config(service) | {"key_file": str(tmp_path / "no-key")}
    if missing == "token":
        text = (service.folder / "config").read_text()
        (tmp_path / "config").write_text(f"{text}security_token_file={tmp_path}/no-token\n")
        config = str(tmp_path / "config")
    storage = OciStorage("oci://b@tests", endpoint_url=service.url, config=config)
    with pytest.raises(AccessDenied, match=f"no-{missing} does not exist on this machine"):
        storage.exists("k")


def test_logs_hold_no_key(service, bucket, caplog):
    caplog.set_level(logging.DEBUG)
    service.raw("PUT", bucket, "k", b"data")
    config = read_config(service) | {"pass_phrase": "s3cr3t"}
    pem = Path(config.pop("key_file")).read_text()
    config["key_content"] = pem
    storage = OciStorage(f"oci://{bucket}@tests", endpoint_url=service.url, config=config)
    assert storage.read("k") == b"data"
    assert caplog.records
    assert "s3cr3t" not in caplog.text
    assert pem.splitlines()[1] not in caplog.text


# -- what goes over the wire --------------------------------------------------


class TestOciAnswers(AnswerTests):
    location = "oci://b@tests/set"
    first_request = ("GET", "/n/tests/b/b/o/set%2Fk")

    @pytest.fixture(autouse=True)
    def at_once(self, service, monkeypatch):
        monkeypatch.setattr("streamplug_ocifs.options.ATTEMPTS", 1)
        self.service = service

    def test_a_download_of_more_than_was_asked_for_ends(self, storage, tmp_path):
        scope = Scope()
        scope.max_bytes = 2
        with inside(scope), pytest.raises(OversizeError):
            storage.download("k", tmp_path / "k")

    def make_storage(self, url, **options):
        options = {**self.service.options, **options, "endpoint_url": url}
        return OciStorage(self.location, **options)

    def body(self, status):
        return b'{"code": "Code%d", "message": "signature feedbeef"}' % status


def test_a_busy_server_is_asked_however_often_it_was_busy(recorder, service, monkeypatch):
    monkeypatch.setattr("streamplug_ocifs.options.ATTEMPTS", 1)
    recorder.answers = [(503, b"{}")] * 20 + [(200, b"data")]
    storage = OciStorage("oci://b@tests", **{**service.options, "endpoint_url": recorder.url})
    for _ in range(20):
        with pytest.raises(Transient, match="the server answered 503"):
            storage.read("k")
    assert storage.read("k") == b"data"


def test_a_circuit_that_is_open_is_transient(recorder, service, monkeypatch):
    from oci.circuit_breaker import CircuitBreakerStrategy

    monkeypatch.setattr("streamplug_ocifs.options.ATTEMPTS", 1)
    recorder.answers = [(503, b"{}")]
    strategy = CircuitBreakerStrategy(failure_threshold=1, name="of this test")
    options = {**service.options, "config_kwargs": {"circuit_breaker_strategy": strategy}}
    storage = OciStorage("oci://b@tests", **{**options, "endpoint_url": recorder.url})
    for said in ("the server answered 503", "CircuitBreakerError"):
        with pytest.raises(Transient, match=said):
            storage.read("k")
    assert len(recorder.requests) == 1


def test_passing_failures_are_tried_again_for_a_short_while(recorder, service, monkeypatch):
    waits = []
    clock = SimpleNamespace(time=time.time, sleep=waits.append)
    monkeypatch.setattr("oci.retry.retry.time", clock)
    recorder.answers = [(503, b'{"code": "ServiceUnavailable", "message": ""}')]
    storage = OciStorage("oci://b@tests", **{**service.options, "endpoint_url": recorder.url})
    with pytest.raises(Transient):
        storage.read("k")
    assert len(recorder.requests) == 2
    assert len(waits) == 1
    assert waits[0] <= 3


# -- options ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpont_url": "x"}, r"no option 'endpont_url'. Did you mean 'endpoint_url'\?"),
        ({"zzz": 1}, "no option 'zzz'. Known: compartment_id, config, "),
        ({"read_timeout": True}, "'read_timeout' must be int or float, not bool"),
        ({"read_timeout": 0}, "read_timeout=0: must be positive"),
        ({"config": 5}, "'config' must be str or dict, not int"),
        ({"iam_type": "key"}, "iam_type='key': use api_key, "),
        ({"endpoint_url": "oracle"}, "must start with http:// or https://"),
    ],
)
def test_refuses_options_without_meaning(options, message):
    with pytest.raises(ConfigError, match=message):
        OciStorage("oci://b@tests", **options)


def test_a_url_without_bucket_is_refused():
    with pytest.raises(ConfigError, match="names no bucket"):
        OciStorage("oci://@tests/x")


def test_timeouts_are_set_and_passed_on(service):
    storage = OciStorage("oci://b@tests", read_timeout=7, **service.options)
    assert storage.filesystem().oci_client.base_client.timeout == (10.0, 7)
    assert pickle.loads(pickle.dumps(storage)).url == storage.url


def test_regions_and_namespaces_are_told_apart():
    assert OciStorage("oci://b@n/set").endpoint == ""
    assert OciStorage("oci://b@n", region="uk-london-1").endpoint.endswith(
        ".uk-london-1.oraclecloud.com"
    )
    assert (
        OciStorage("oci://b@n", endpoint_url="https://oci.example").endpoint
        == "https://oci.example"
    )
    assert OciStorage("oci://b/set", namespace="n").url == "oci://b@n/set"
    assert OciStorage("oci://b@n/set", namespace="other").url == "oci://b@n/set"
