"""What the clients of a process share, and what they do not."""

from __future__ import annotations

from botocore.loaders import JSONFileLoader
from streamplug_s3fs.session import new_session
from streamplug_s3fs.storage import S3Storage


def test_the_files_of_botocore_are_read_once_in_a_process(endpoint, bucket, client, monkeypatch):
    client.put_object(Bucket=bucket, Key="k", Body=b"data")
    assert S3Storage(f"s3://{bucket}", endpoint_url=endpoint).read("k") == b"data"
    read = []
    load = JSONFileLoader._load_file

    def noted(self, path, open_method):
        read.append(path)
        return load(self, path, open_method)

    monkeypatch.setattr(JSONFileLoader, "_load_file", noted)
    assert S3Storage(f"s3://{bucket}", endpoint_url=endpoint).read("k") == b"data"
    assert read == []


def test_sessions_have_settings_of_their_own(monkeypatch, tmp_path):
    config = tmp_path / "config"
    config.write_text("[profile one]\nregion = north\n[profile two]\nregion = south\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    one, two = new_session("one"), new_session("two")
    assert [each.get_config_variable("region") for each in (one, two)] == ["north", "south"]


def test_files_of_botocore_may_lie_elsewhere(monkeypatch, tmp_path):
    usual = new_session(None).get_component("data_loader")
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    changed = new_session(None).get_component("data_loader")
    assert changed is not usual
    assert str(tmp_path) in changed.search_paths
