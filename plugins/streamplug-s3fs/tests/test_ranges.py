"""Samples by range, from S3."""

from __future__ import annotations

import numpy as np
import pytest

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import CorruptShardError, NotFound


def sample(number):
    return {
        "id": number,
        "text": f"sample {number} " * (number % 400),
        "pixels": np.full(500, number % 256, np.uint8),
    }


@pytest.fixture
def url(endpoint, bucket, monkeypatch):
    monkeypatch.setenv("S3_ENDPOINT_URL", endpoint)
    url = f"s3://{bucket}/some/set"
    columns = {"id": "int", "text": "str", "pixels": "ndarray:uint8:500"}
    with MDSWriter(out=url, columns=columns, size_limit=400_000) as out:
        for number in range(600):
            out.write(sample(number))
    return url


def test_samples_by_range_are_those_of_whole_shards(url, tmp_path):
    parts = StreamingDataset(remote=url, access="range", batch_size=7, shuffle=True)
    whole = StreamingDataset(remote=url, local=str(tmp_path), batch_size=7, shuffle=True)
    assert len(parts.samples_per_shard) > 3
    for one, other in zip(parts, whole, strict=True):
        assert one["id"] == other["id"]
        assert one["text"] == other["text"] == sample(one["id"])["text"]
        assert np.array_equal(one["pixels"], other["pixels"])
    assert [row["id"] for row in parts[[599, 0, 301]]] == [599, 0, 301]


def test_what_is_wrong_with_a_shard_names_it(url, client, bucket):
    dataset = StreamingDataset(remote=url, access="range")
    key = "some/set/shard.00000.mds"
    data = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    client.put_object(Bucket=bucket, Key=key, Body=data[:-1])
    last = int(dataset.samples_per_shard[0]) - 1
    with pytest.raises(CorruptShardError, match=rf"{key}\): sample {last}: .* cut short"):
        dataset[last]
    assert dataset[0]["id"] == 0
    client.delete_object(Bucket=bucket, Key="some/set/shard.00001.mds")
    with pytest.raises(NotFound, match=r"some/set/shard.00001.mds does not exist"):
        dataset[last + 1]
