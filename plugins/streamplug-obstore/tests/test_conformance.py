"""What every storage must do, against servers that can be written to."""

from __future__ import annotations

import pytest
from streamplug_obstore.clouds import ObstoreAzure, ObstoreS3
from streamplug_testing.storage import StorageTests


class TestS3(StorageTests):
    many = 250
    secret = "s3cr3t-ACCESS-key"

    @pytest.fixture(autouse=True)
    def location(self, s3):
        self.bucket = s3

    def make_storage(self):
        return ObstoreS3(f"obstore+{self.bucket.url}/some/set", **self.bucket.options)

    def put_raw(self, key, data):
        self.bucket.put(f"some/set/{key}", data)

    def get_raw(self, key):
        return self.bucket.get(f"some/set/{key}")


class TestAzure(StorageTests):
    many = 250  # Azurite lists thousands in one answer
    secret = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"

    @pytest.fixture(autouse=True)
    def location(self, azure):
        self.container = azure

    def make_storage(self):
        return ObstoreAzure(f"obstore+{self.container.url}/some/set", **self.container.options)

    def put_raw(self, key, data):
        self.container.put(f"some/set/{key}", data)

    def get_raw(self, key):
        return self.container.get(f"some/set/{key}")
