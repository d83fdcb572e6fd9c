"""What `storage_options` have, against what the environment has."""

from __future__ import annotations

import json

import pytest
from streamplug_obstore.clouds import ObstoreAzure, ObstoreGCS, ObstoreS3

from streamplug.errors import ConfigError, StorageError

HEADERS = {"Last-Modified": "Sat, 01 Jan 2022 00:00:00 GMT", "ETag": '"1"'}
KEY = {"key": "MINE", "secret": "s"}
ENV_KEY = {
    "AWS_ACCESS_KEY_ID": "ENV",
    "AWS_SECRET_ACCESS_KEY": "e",
    "AWS_SESSION_TOKEN": "ENVTOKEN",
}
PRINCIPAL = {"tenant_id": "T", "client_id": "MINE", "client_secret": "s"}
ENV_PRINCIPAL = {"AZURE_TENANT_ID": "E", "AZURE_CLIENT_ID": "ENV", "AZURE_CLIENT_SECRET": "e"}
AZURE_KEY = "bXkga2V5"


@pytest.fixture
def set_environment(monkeypatch):
    def set_all(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.fixture(autouse=True)
def answer(recorder):
    recorder.headers = HEADERS


# -- S3 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "variables", "key", "token"),
    [
        (KEY, ENV_KEY, "MINE", None),
        (KEY, {**ENV_KEY, "AWS_SKIP_SIGNATURE": "true"}, "MINE", None),
        ({**KEY, "token": "MYTOKEN"}, ENV_KEY, "MINE", "MYTOKEN"),
        (KEY, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/no", "AWS_ROLE_ARN": "r"}, "MINE", None),
        (
            {"config": {"AWS_ACCESS_KEY_ID": "MINE", "aws_secret_access_key": "s"}},
            ENV_KEY,
            "MINE",
            None,
        ),
        ({"anon": True}, ENV_KEY, None, None),
        ({}, ENV_KEY, "ENV", "ENVTOKEN"),
        ({"anon": False}, {**ENV_KEY, "AWS_SKIP_SIGNATURE": "true"}, "ENV", "ENVTOKEN"),
    ],
)
def test_a_given_key_is_not_sent_with_the_token_of_the_environment(
    recorder, set_environment, options, variables, key, token
):
    set_environment(variables)
    storage = ObstoreS3("s3://b", endpoint_url=recorder.url, **options)
    for read in (lambda: storage.read("k"), lambda: storage.stat("k")):
        read()
        headers = recorder.requests[-1].headers
        assert headers["x-amz-security-token"] == token
        assert (headers["authorization"] or "None").partition("Credential=")[2][:4] == (
            "" if key is None else f"{key}/"[:4]
        )


def test_a_part_of_the_credentials_is_refused(set_environment):
    set_environment(ENV_KEY)
    for config in ({"access_key_id": "MINE"}, {"session_token": "MINE"}):
        with pytest.raises(ConfigError, match="go together"):
            ObstoreS3("s3://b", config=config).read("k")
    config = {"role_arn": "mine", "web_identity_token_file": "/x"}
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID of the environment in place of"):
        ObstoreS3("s3://b", config=config).read("k")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"])
@pytest.mark.parametrize("way", ["endpoint_url", "config"])
def test_a_given_endpoint_wins(recorder, monkeypatch, name, way):
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    given = {"endpoint": recorder.url} if way == "config" else recorder.url
    assert ObstoreS3("s3://b", **{way: given}, **KEY).read("k") == b"data"


@pytest.mark.parametrize("way", ["option", "config", "environment"])
@pytest.mark.parametrize("place", ["option", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_bucket_is_in_front_of_a_virtual_host(recorder, monkeypatch, way, place):
    options = {"client_options": {"proxy_url": recorder.url}, **KEY}
    if way == "option":
        options["addressing_style"] = "virtual"
    elif way == "config":
        options["config"] = {"virtual_hosted_style_request": True}
    else:
        monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    if place == "option":
        options["endpoint_url"] = "http://cloud.test:8000/"
    else:
        monkeypatch.setenv(place, "http://cloud.test:8000")
    storage = ObstoreS3("s3://bucket/set", **options)
    assert storage.read("k") == b"data"
    storage.write("new", b"x")
    assert [request.path for request in recorder.requests] == [
        "http://bucket.cloud.test:8000/set/k",
        "http://bucket.cloud.test:8000/set/new",
    ]


def test_an_endpoint_in_config_is_complete(recorder):
    config = {"endpoint": "http://bucket.cloud.test", "virtual_hosted_style_request": "true"}
    proxy = {"proxy_url": recorder.url}
    ObstoreS3("s3://bucket", config=config, client_options=proxy, **KEY).read("k")
    assert recorder.requests[0].path == "http://bucket.cloud.test/k"


def test_an_address_has_no_virtual_hosts(recorder):
    storage = ObstoreS3("s3://b", endpoint_url=recorder.url, addressing_style="virtual", **KEY)
    with pytest.raises(ConfigError, match=r"host is the address 127\.0\.0\.1, .*; use path"):
        storage.read("k")
    assert recorder.requests == []


def test_auto_is_the_style_that_works(recorder):
    ObstoreS3("s3://b", endpoint_url=recorder.url, addressing_style="auto", **KEY).read("k")
    assert recorder.requests[0].path == "/b/k"
    for bucket, virtual in {"bucket": True, "my.bucket": False, "My_Bucket": False}.items():
        store = ObstoreS3(f"s3://{bucket}", addressing_style="auto", **KEY).client().repeating
        assert store.config["virtual_hosted_style_request"] == str(virtual).lower()


# -- Azure --------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {"AZURE_STORAGE_ACCOUNT_KEY": "ZW52"},
        {"AZURE_ACCOUNT_ACCESS_KEY": "ZW52"},
        {"AZURE_STORAGE_TOKEN": "ENV"},
        ENV_PRINCIPAL,
        {"AZURE_STORAGE_SAS_TOKEN": "sig=ENV"},
        {"AZURE_SKIP_SIGNATURE": "true"},
        {"AZURE_STORAGE_USE_EMULATOR": "true"},
    ],
    ids=lambda variables: next(iter(variables)),
)
@pytest.mark.parametrize(
    ("options", "path", "start"),
    [
        ({"sas_token": "sig=MINE"}, "/c/k?sig=MINE", "None"),
        ({"config": {"AZURE_STORAGE_SAS_TOKEN": "sig=MINE"}}, "/c/k?sig=MINE", "None"),
        ({"account_key": AZURE_KEY}, "/c/k", "SharedKey a:"),
        ({"config": {"token": "MINE"}}, "/c/k", "Bearer MINE"),
        ({"anon": True}, "/c/k", "None"),
    ],
    ids=["sas", "sas in config", "key", "token", "anon"],
)
def test_a_given_credential_of_azure_wins(
    recorder, set_environment, variables, options, path, start
):
    set_environment(variables)
    storage = ObstoreAzure("az://c", endpoint_url=recorder.url, account_name="a", **options)
    storage.read("k")
    request = recorder.requests[0]
    assert request.path == path
    assert str(request.headers["authorization"]).startswith(start)


@pytest.mark.parametrize(
    "variables",
    [{"AZURE_STORAGE_ACCOUNT_KEY": "ZW52"}, {"AZURE_STORAGE_TOKEN": "ENV"}, ENV_PRINCIPAL],
    ids=lambda variables: next(iter(variables)),
)
def test_a_given_principal_of_azure_wins(recorder, set_environment, variables):
    set_environment({**variables, "AZURE_AUTHORITY_HOST": recorder.url})
    recorder.answers = [(400, b"{}")]
    storage = ObstoreAzure("az://c", endpoint_url=recorder.url, account_name="a", **PRINCIPAL)
    with pytest.raises(StorageError):
        storage.read("k")
    assert {request.path for request in recorder.requests} == {"/T/oauth2/v2.0/token"}


# -- Google -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["GOOGLE_BEARER_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SKIP_SIGNATURE"],
)
def test_a_given_token_of_google_wins(recorder, monkeypatch, name):
    monkeypatch.setenv(name, "true")
    ObstoreGCS("gs://b", endpoint_url=recorder.url, token="MINE").read("k")
    assert recorder.requests[0].headers["authorization"] == "Bearer MINE"


@pytest.mark.parametrize(
    "name", ["GOOGLE_BEARER_TOKEN", "GOOGLE_SERVICE_ACCOUNT", "SERVICE_ACCOUNT"]
)
@pytest.mark.parametrize("form", ["dict", "path"])
def test_a_key_file_that_google_would_not_use_is_refused(tmp_path, monkeypatch, name, form):
    monkeypatch.setenv(name, "env")
    (tmp_path / "key.json").write_text(json.dumps({"type": "service_account"}))
    token = {"type": "service_account"} if form == "dict" else str(tmp_path / "key.json")
    with pytest.raises(ConfigError, match=f"would use {name} of the environment .* unset it"):
        ObstoreGCS("gs://b", token=token).read("k")
