"""A storage that takes answers as it should passes; each that does not fails the test that is for it."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from streamplug_testing.answers import AnswerTests, recording

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.interfaces import Storage
from streamplug.types import ObjectInfo

NAMED = {401: AccessDenied, 403: AccessDenied, 404: NotFound, 429: Transient, 400: StorageError}


class Plain(Storage):
    """Reads and writes by the standard library."""

    def __init__(self, server, read_timeout=30.0):
        super().__init__("plain://set")
        self.server, self.timeout = server, read_timeout

    def ask(self, key, **more):
        request = urllib.request.Request(f"{self.server}/set/{key}", **more)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            raise self.error(error, key) from None
        except (OSError, http.client.HTTPException) as error:
            raise Transient(f"{self.url_of(key)}: {type(error).__name__}") from None

    def error(self, error, key):
        with error:
            return NAMED.get(error.code, Transient)(f"{self.url_of(key)}: {error.code}")

    def read(self, key):
        return self.ask(key)

    def read_ranges(self, key, ranges):
        data = self.ask(key)
        return [data[start:stop] for start, stop in ranges]

    def read_range(self, key, start, stop):
        return self.read_ranges(key, [(start, stop)])[0]

    def download(self, key, path):
        path.write_bytes(self.ask(key))

    def stat(self, key):
        return ObjectInfo(key, len(self.ask(key, method="HEAD")))

    def write(self, key, data):
        self.ask(key, method="PUT", data=bytes(data))

    def upload(self, path, key):
        self.write(key, path.read_bytes())

    def list(self, prefix=""):
        self.ask(prefix)
        return iter(())

    def delete(self, key):
        self.ask(key, method="DELETE")


class PlainTests(AnswerTests):
    location = "plain://set"
    first_request = ("GET", "/set/k")
    kind = Plain

    def make_storage(self, url, **options):
        return self.kind(url, **options)


class TestPlain(PlainTests):
    pass


class AsksTwice(Plain):
    def read(self, key):
        super().read(key)
        return super().read(key)


class ShowsAnswers(Plain):
    def error(self, error, key):
        said = error.read().decode()
        return type(super().error(error, key))(f"{self.url_of(key)}: {said}")


class NamesNothing(Plain):
    def error(self, error, key):
        return type(super().error(error, key))("it failed")


class FailsForGood(Plain):
    def ask(self, key, **more):
        try:
            return super().ask(key, **more)
        except Transient as error:
            raise StorageError(str(error)) from None


class TakesHalf(Plain):
    def ask(self, key, **more):
        with urllib.request.urlopen(f"{self.server}/set/{key}", timeout=self.timeout) as response:
            return response.read1()


class DeletesInSilence(Plain):
    def delete(self, key):
        with suppress(StorageError):
            super().delete(key)


class ExistsUnlessAnErrorSaysOtherwise(Plain):
    def exists(self, key):
        try:
            return super().exists(key)
        except AccessDenied:
            return False


BROKEN = [
    (DeletesInSilence, "answers_become_our_errors", ("folder",)),
    (ExistsUnlessAnErrorSaysOtherwise, "answers_become_our_errors", ("folder",)),
    (AsksTwice, "a_whole_read_is_one_request", ()),
    (ShowsAnswers, "answers_become_our_errors", ("folder",)),
    (NamesNothing, "answers_become_our_errors", ("folder",)),
    (FailsForGood, "answers_become_our_errors", ("folder",)),
    (FailsForGood, "connections_that_break_are_transient", ()),
    (TakesHalf, "a_body_that_ends_early_is_transient", ("folder", "read")),
]


@pytest.mark.parametrize(("kind", "test", "arguments"), BROKEN)
def test_a_storage_that_is_wrong_is_found(tmp_path, kind, test, arguments):
    suite = type("Suite", (PlainTests,), {"kind": kind})()
    given = [tmp_path if each == "folder" else each for each in arguments]
    with (
        recording() as server,
        pytest.raises((AssertionError, StorageError, pytest.fail.Exception)),
    ):
        getattr(suite, f"test_{test}")(server, kind(server.url), *given)


@pytest.mark.parametrize("test", ["a_server_that_stalls", "a_connection_that_is_refused"])
def test_what_fails_for_good_is_found(test):
    suite = type("Suite", (PlainTests,), {"kind": FailsForGood})()
    with recording() as server:
        arguments = (server,) if test == "a_server_that_stalls" else ()
        with pytest.raises(StorageError):
            getattr(suite, f"test_{test}_is_transient")(*arguments)
