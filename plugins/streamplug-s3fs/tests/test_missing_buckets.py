"""Whoever misspells the name of a bucket is told that there is no such bucket, by every client."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import NotFound
from streamplug.plugin.location import open_storage

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRETS = {"key": "test", "secret": "test"}


@pytest.fixture(params=["s3", "obstore:s3", "gs", "az"])
def missing(request):
    """Return a URL in a bucket that does not exist, what a storage needs, and what is said of it."""
    if request.param.endswith("s3"):
        package = "s3fs" if request.param == "s3" else "obstore"
        pytest.importorskip(f"streamplug_{package}")
        options = {"endpoint_url": request.getfixturevalue("s3_server"), **SECRETS}
    elif request.param == "gs":
        pytest.importorskip("streamplug_gcsfs")
        options = {"endpoint_url": request.getfixturevalue("gcs_server"), "anon": True}
    else:
        pytest.importorskip("streamplug_adlfs")
        server = request.getfixturevalue("azure_server")
        account = f"AccountName=devstoreaccount1;AccountKey={KEY}"
        options = {
            "connection_string": f"DefaultEndpointsProtocol=http;{account};"
            f"BlobEndpoint={server}/devstoreaccount1;"
        }
    word = "container" if request.param == "az" else "bucket"
    return f"{request.param}://no-such-place/set", options, f"there is no {word} 'no-such-place'"


def test_opening_says_that_the_bucket_is_missing(missing):
    url, options, said = missing
    if url.startswith("gs") and tuple(map(int, version("gcsfs").split(".")[:2])) < (2026, 8):
        pytest.skip("older versions of gcsfs do not say that the bucket is missing")
    with pytest.raises(NotFound) as caught:
        StreamingDataset(remote=url, batch_size=1, storage_options=options)
    assert said in str(caught.value)
    assert "check its name" in str(caught.value)


def test_writing_and_listing_say_so_too(missing):
    url, options, said = missing
    storage = open_storage(url, options)
    with pytest.raises(NotFound, match=said):
        storage.write("x", b"x")
    with pytest.raises(NotFound, match=said):
        list(storage.list(""))
    with (
        pytest.raises(NotFound, match=said),
        MDSWriter(out=url, columns={"n": "int"}, storage_options=options) as out,
    ):
        out.write({"n": 1})


def test_a_missing_object_is_no_missing_bucket(s3_place):
    url, options = s3_place
    with pytest.raises(NotFound) as caught:
        StreamingDataset(remote=f"{url}/NoSuchBucket", batch_size=1, storage_options=options)
    assert "there is no bucket" not in str(caught.value)
    assert "there is no data set, or its writer has not finished" in str(caught.value)
