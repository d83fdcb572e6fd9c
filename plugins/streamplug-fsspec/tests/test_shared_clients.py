from __future__ import annotations

import gc
import os
import weakref

from streamplug_fsspec import file_times, share_client
from streamplug_fsspec.shared_clients import forget_client


class Client:
    pass


def test_a_client_is_shared_while_it_is_used(monkeypatch):
    client = share_client(("kind", 1), Client)
    assert share_client(("kind", 1), Client) is client
    assert share_client(("kind", 2), Client) is not client
    monkeypatch.setenv("AWS_PROFILE", "another")
    assert share_client(("kind", 1), Client) is not client
    monkeypatch.delenv("AWS_PROFILE")
    reference = weakref.ref(client)
    del client
    gc.collect()
    assert reference() is None


def test_a_client_of_an_object_that_cannot_be_pickled_is_not_shared():
    key = (lambda: None, 1)
    client = share_client(key, Client)
    assert share_client(key, Client) is not client


def test_a_client_that_was_forgotten_is_not_shared():
    client, other = share_client("a", Client), share_client("b", Client)
    forget_client(client)
    assert share_client("a", Client) is not client
    assert share_client("b", Client) is other


def test_a_forked_process_shares_none_of_its_parent():
    client = share_client("a", Client)
    pid = os.fork()
    if not pid:
        os._exit(share_client("a", Client) is client)
    assert os.waitpid(pid, 0)[1] == 0


def test_times_of_files(tmp_path):
    path = tmp_path / "credentials"
    assert file_times(str(path), "", "~no-such-user/x") == [0, 0, 0]
    path.write_text("a")
    os.utime(path, ns=(5, 5))
    assert file_times(str(path)) == [5]
