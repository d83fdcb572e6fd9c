"""Requests that are late are sent again, within two percent of the bytes."""

from __future__ import annotations

import asyncio
import pickle
import time

import pytest
from streamplug_fsspec import FsspecStorage, hedging, make_hedges
from streamplug_fsspec.hedging import MAX_PART_BYTES, Hedges
from streamplug_fsspec.http import HttpStorage

from streamplug.errors import ConfigError

SIZE = 100


class Server:
    """Answers requests, of which some stall until `answer` is set."""

    def __init__(self):
        self.requests, self.cancelled, self.answer = [], [], asyncio.Event()

    def maker(self, name, *behaviours):
        """Return what sends a request; the n-th attempt stalls, fails or returns as the n-th one says."""
        attempts = iter(behaviours)

        async def request():
            number, behaviour = len(self.requests), next(attempts, "return")
            self.requests.append(name)
            try:
                if behaviour == "stall":
                    await self.answer.wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            if behaviour == "fail":
                raise OSError(name)
            return name, number

        return request


def run(main, hedges):
    """Run a coroutine of a server, after some requests that were answered at once."""

    async def start():
        server = Server()
        for _ in range(2):
            makers = [server.maker("warm") for _ in range(50)]
            await hedges.gather(makers, [SIZE] * 50)
        server.requests.clear()
        return await asyncio.wait_for(main(server), 60)

    return asyncio.run(start())


def test_the_first_answer_wins_and_the_other_request_is_cancelled():
    hedges = Hedges()

    async def main(server):
        results = await hedges.gather(
            [server.maker("a"), server.maker("b", "stall"), server.maker("c")], [SIZE] * 3
        )
        await asyncio.sleep(0)
        return server, results

    server, results = run(main, hedges)
    assert [name for name, _ in results] == ["a", "b", "c"]
    assert server.requests == ["a", "b", "c", "b"]
    assert server.cancelled == ["b"]
    assert hedges.num_sent == 1


def test_a_second_request_that_stalls_as_well_is_followed_by_a_third():
    hedges = Hedges()

    async def main(server):
        return await hedges.gather([server.maker("a", "stall", "stall")], [SIZE])

    assert run(main, hedges) == [("a", 2)]
    assert hedges.num_sent == 2


def test_no_fourth_request_is_sent():
    hedges = Hedges()

    async def main(server):
        task = asyncio.ensure_future(hedges.gather([server.maker("a", *["stall"] * 9)], [SIZE]))
        while len(server.requests) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(4 * hedges.late_seconds())
        server.answer.set()
        await task
        return server.requests

    assert run(main, hedges) == ["a"] * 3


def test_what_is_sent_again_takes_two_percent_of_the_bytes(monkeypatch):
    monkeypatch.setattr(hedging, "_FIRST_BYTES", 0)
    hedges = Hedges()

    async def main(server):
        makers = [server.maker(n, "stall") for n in range(5)]
        task = asyncio.ensure_future(hedges.gather(makers, [SIZE] * 5))
        while hedges.num_sent < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(4 * hedges.late_seconds())
        assert hedges.num_sent == 2  # of 105 requests
        server.answer.set()
        return await task

    assert [name for name, _ in run(main, hedges)] == list(range(5))


def test_large_parts_are_requested_once():
    hedges = Hedges()

    async def main(server):
        await hedges.gather([server.maker("much")] * 200, [MAX_PART_BYTES] * 200)
        makers = [server.maker("large", "stall"), server.maker("small", "stall")]
        task = asyncio.ensure_future(hedges.gather(makers, [MAX_PART_BYTES + 1, MAX_PART_BYTES]))
        while not hedges.num_sent:
            await asyncio.sleep(0.01)
        server.answer.set()
        await task
        return server.requests[200:]

    assert run(main, hedges) == ["large", "small", "small"]


def test_an_error_counts_if_no_other_attempt_is_left():
    hedges = Hedges()

    async def main(server):
        results = await hedges.gather(
            [server.maker("now", "fail"), server.maker("late", "stall", "fail", "return")],
            [SIZE] * 2,
        )
        assert server.requests.count("now") == 1
        return results

    failed, late = run(main, hedges)
    assert isinstance(failed, OSError)
    assert late == ("late", 3)


def test_nothing_is_sent_again_before_it_is_known_what_late_is():
    hedges = Hedges()

    async def main():
        server = Server()
        assert hedges.late_seconds() is None
        task = asyncio.ensure_future(hedges.gather([server.maker("a", "stall")], [1 << 20]))
        await asyncio.sleep(0.2)
        server.answer.set()
        await task
        return server.requests

    assert asyncio.run(main()) == ["a"]


@pytest.mark.parametrize("hedge", [None, False])
def test_it_can_be_turned_off(hedge):
    hedges = make_hedges("ftp://host", hedge, can_cancel=hedge is False)

    async def main(server):
        task = asyncio.ensure_future(hedges.gather([server.maker("a", "stall")], [SIZE]))
        await asyncio.sleep(0.2)
        server.answer.set()
        await task
        return server.requests

    assert run(main, hedges) == ["a"]


def test_requests_are_cancelled_with_the_group():
    hedges = Hedges()

    async def main(server):
        makers = [server.maker(n, "stall", "stall") for n in range(2)]
        task = asyncio.ensure_future(hedges.gather(makers, [SIZE] * 2))
        while hedges.num_sent < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return sorted(server.cancelled)

    assert run(main, hedges) == [0, 0, 1, 1]


def test_they_pickle():
    hedges = Hedges()
    run(lambda server: server.maker("a")(), hedges)
    assert pickle.loads(pickle.dumps(hedges)).late_seconds() == hedges.late_seconds()


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="'hedge' must be true or false, not str"):
        HttpStorage("http://127.0.0.1:1/set", hedge="yes")
    with pytest.raises(ConfigError, match="cannot cancel a request"):
        FsspecStorage("ftp://127.0.0.1/set", hedge=True)
    FsspecStorage("ftp://127.0.0.1/set", hedge=False)


def test_an_answer_that_comes_as_the_first_is_late_is_taken():
    hedges = Hedges()

    async def main(server):
        # The loop stands still past both moments: what awaits the answers is told that it waited long enough
        # in the turn of the loop in which the answer comes.
        async def answer():
            await asyncio.sleep(hedging._MIN_LATE_SECONDS - 0.01)
            return "a"

        async def stand_still():
            await asyncio.sleep(0)
            time.sleep(2 * hedging._MIN_LATE_SECONDS)
            return "b"

        return await hedges.gather([answer, stand_still], [SIZE] * 2)

    assert run(main, hedges) == ["a", "b"]
