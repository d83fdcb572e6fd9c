"""Workers that are asked for batches by tasks, and answer with several at a time."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import sys
from collections import Counter
from itertools import islice
from threading import Lock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamplug import MDSWriter, StreamingDataLoader, StreamingDataset, World  # noqa: E402
from streamplug.adapters.torch_workers import (  # noqa: E402
    MAX_BATCHES_PER_MESSAGE,
    Assignment,
    Message,
    TaskReader,
    Tasks,
    WorkerError,
    WorkerPool,
    round_robin,
)
from streamplug.plan import Position  # noqa: E402
from streamplug.run.feed import Feed  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    # What coverage says in a forked worker would otherwise end it.
    pytest.mark.filterwarnings("ignore:(Module streamplug was|No data was):Warning"),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr("streamplug.adapters.torch_workers._MAX_MESSAGE_SECONDS", 600.0)


class FakeReader:
    """Yields batches; `started` lists the parts that it was asked for, `closed` those that it closed."""

    dataset = None

    def __init__(self, batches, nbytes=0):
        self.session = self  # which closes what it leaves
        self._batches, self._nbytes = batches, nbytes
        self.started, self.closed, self.left = [], [], []

    def read(self, part):
        self.started.append((part.start, part.number))
        try:
            yield from self._batches(part)
        finally:
            self.closed.append(part.number)

    def nbytes(self, _):
        return self._nbytes

    def leave(self, batches):
        self.left.append(batches)
        batches.close()


def answers(reader, tasks):
    """Return what a worker answers until it says that it is at its end."""
    source, found = TaskReader(reader, tasks.newest), []
    for task in tasks:
        found.append(source[task])
        if found[-1].end:
            return found
    return found


def read(batches, nbytes=0, **settings):
    """Return the messages of a worker that reads these batches."""
    tasks = Tasks(1)
    vars(tasks).update(settings)
    tasks.begin(Assignment(None, Position(), 1))
    return answers(FakeReader(lambda _: batches, nbytes), tasks)


def sizes(messages):
    return [len(message.batches) for message in messages]


def take_turns(messages, workers):
    return list(round_robin(messages, workers, Tasks(workers)))


def failing(numbers, error):
    yield from numbers
    raise error


def dealt(count, workers):
    """Return the messages of some workers, in the order in which torch asks for them."""
    each = [
        [message._replace(worker=worker) for message in read(range(worker, count, workers))]
        for worker in range(workers)
    ]
    found = []
    for turn in range(max(map(len, each))):
        found += [own[turn] for own in each if turn < len(own)]
    return found


def message(worker, batches, end):
    return Message(1, worker, batches, end)


# -- answers ---------------------------------------------------------------------------


def test_messages_grow_and_hold_everything_in_order():
    found = read(range(20))
    assert sizes(found) == [1, 2, 4, 8, 5]
    assert [batch for message in found for batch in message.batches] == list(range(20))
    assert {message.worker for message in found} == {0}
    assert [message.end for message in found] == [False] * 4 + [True]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_is_asked_for_few_batches_at_first(workers):
    tasks = Tasks(workers)
    tasks.begin(Assignment(None, Position(), 1))
    most = [task.most for task in islice(tasks, 5 * workers)]
    assert most == [n for n in (1, 2, 4, 8, 8) for _ in range(workers)]
    tasks.max_batches = 1
    assert next(tasks).most == 1


@pytest.mark.parametrize("count", [0, 1, 3, 7, 15])
def test_the_last_message_says_so(count):
    found = read(range(count))
    assert [message.end for message in found] == [False] * (len(found) - 1) + [True]
    assert [batch for message in found for batch in message.batches] == list(range(count))


def test_large_batches_go_one_by_one():
    assert sizes(read(range(5), nbytes=1 << 20)) == [1] * 5 + [0]


def test_batches_go_together_as_long_as_they_are_small():
    assert sizes(read(range(20), nbytes=(1 << 16) // 3 + 1)) == [1, 2, 3, 3, 3, 3, 3, 2]


def test_batches_that_take_long_go_one_by_one(monkeypatch):
    monkeypatch.setattr("streamplug.adapters.torch_workers._MAX_MESSAGE_SECONDS", -1.0)
    assert sizes(read(range(5))) == [1] * 5 + [0]


def test_an_error_is_in_the_message_of_the_batches_before_it():
    found = read(failing(range(5), KeyError("sixth")))
    assert [message.batches for message in found] == [[0], [1, 2], [3, 4]]
    assert [message.end for message in found[:-1]] == [False, False]
    with pytest.raises(KeyError, match=r"^'sixth'$"):  # as it is, since this process is no worker
        found[-1].end.reraise()


def test_after_an_error_a_worker_has_nothing_more():
    tasks = Tasks(1)
    tasks.begin(Assignment(None, Position(), 1))
    reader = FakeReader(lambda _: failing([], KeyError("first")))
    source = TaskReader(reader, tasks.newest)
    with pytest.raises(KeyError, match="first"):
        source[next(tasks)].end.reraise()
    assert source[next(tasks)] == Message(1, 0, [], True)
    assert len(reader.started) == len(reader.closed) == 1


def test_an_interrupt_is_not_sent():
    with pytest.raises(KeyboardInterrupt):
        read(failing(range(5), KeyboardInterrupt()))


def test_a_worker_goes_on_from_task_to_task_in_one_generator():
    tasks = Tasks(1)
    reader = FakeReader(lambda part: range(100 * part.number, 100 * part.number + 20))
    tasks.begin(Assignment(None, Position(2, 40), 3))
    found = answers(reader, tasks)
    assert [batch for message in found for batch in message.batches] == list(range(300, 320))
    assert reader.started == [(Position(2, 40), 3)]
    assert reader.closed == [3]


def test_another_version_ends_what_was_read_before():
    tasks = Tasks(1)
    reader = FakeReader(lambda part: range(100 * part.number, 100 * part.number + 20))
    source = TaskReader(reader, tasks.newest)
    assert tasks.begin(Assignment(None, Position(), 1)) == 1
    assert source[next(tasks)] == Message(1, 0, [100], False)
    stale = next(tasks)
    assert tasks.begin(Assignment(None, Position(0, 12), 1)) == 2
    assert source[stale] == Message(1, 0, [], True)  # without being read
    assert reader.closed == []
    assert source[next(tasks)] == Message(2, 0, [100], False)
    assert reader.started == [(Position(), 1), (Position(0, 12), 1)]
    assert (reader.closed, len(reader.left)) == ([1], 1)  # the loop goes on elsewhere
    tasks.begin(Assignment(None, Position(1), 2))
    assert source[next(tasks)] == Message(3, 0, [200], False)
    assert (reader.closed, len(reader.left)) == ([1, 1], 1)  # another loop


def test_a_message_that_nobody_waits_for_is_cut_short():
    tasks = Tasks(1)

    def batches(_):
        yield 0
        tasks.begin(Assignment(None, Position(), 2))  # as the main process would, meanwhile
        yield from range(1, 20)

    tasks.begin(Assignment(None, Position(), 1))
    source = TaskReader(FakeReader(batches), tasks.newest)
    task = next(tasks)._replace(most=8)
    assert source[task] == Message(1, 0, [0, 1], False)


def test_the_end_asks_for_nothing_and_lets_workers_skip_what_was_asked():
    tasks = Tasks(2)
    assert next(tasks, None) is None  # nothing was assigned
    tasks.begin(Assignment(None, Position(), 1))
    asked = next(tasks)
    tasks.end()
    assert next(tasks, None) is None
    reader = FakeReader(lambda _: range(3))
    assert TaskReader(reader, tasks.newest)[asked] == Message(1, 0, [], True)
    assert reader.started == []
    tasks.begin(Assignment(None, Position(), 2))
    assert next(tasks).most == 1


# -- turns -----------------------------------------------------------------------------


class Wrapped:
    """What a worker sends of an error."""

    def __init__(self):
        self.error = sys.exc_info()[1]

    def reraise(self):
        raise type(self.error)(*self.error.args)


@pytest.mark.parametrize("are_alone", [True, False])
@pytest.mark.parametrize("count", [0, 1, 5, 20])
@pytest.mark.parametrize("failed", [0, 1, 2])
def test_an_error_is_raised_in_the_turn_of_its_batch(count, failed, are_alone):
    """Whatever was sent before it: here others send one batch at a time, or all at once."""

    def messages_of(worker):
        if worker == failed:
            return [message(worker, list(range(worker, 3 * count, 3)), Wrapped())]
        share = list(range(worker, 60, 3))
        whole = [message(worker, [n], False) for n in share]
        return [
            *(whole if are_alone else [message(worker, share, False)]),
            message(worker, [], True),
        ]

    each = [messages_of(worker) for worker in range(3)]
    sent = [own[turn] for turn in range(max(map(len, each))) for own in each if turn < len(own)]
    found = []
    with pytest.raises(WorkerError):
        found.extend(round_robin(sent, 3, Tasks(3)))
    assert found == list(range(min(3 * count + failed, 60)))


def test_the_error_of_a_worker_is_raised_where_its_messages_come_from():
    closed = []

    def source():
        try:
            yield message(0, ["a"], False)
            yield message(0, [], wrapped)
            raise AssertionError("not to be asked for")
        except KeyError as error:
            closed.append(error)
            raise

    try:
        raise KeyError("mine")
    except KeyError:
        wrapped = Wrapped()
    pool = WorkerPool(FakeReader(lambda _: []))
    found = []
    with pytest.raises(KeyError, match="mine") as caught:
        found.extend(pool._batches(source(), 1))
    assert (found, closed) == (["a"], [caught.value])
    assert caught.value.__context__ is None


def test_messages_of_another_version_are_left_out_with_their_errors():
    sent = [
        Message(1, 0, ["a"], False),
        Message(2, 1, ["b"], False),
        Message(1, 0, ["c"], Wrapped()),
        Message(2, 0, ["d"], True),
        Message(2, 1, [], True),
    ]
    pool = WorkerPool(FakeReader(lambda _: []), num_workers=2)
    assert list(pool._batches(iter(sent), 2)) == ["d", "b"]


@pytest.mark.parametrize("slow", [0, 1])
def test_batches_of_a_fast_worker_do_not_pile_up(slow):
    tasks, waiting, most = Tasks(2), [0, 0], 0
    tasks.begin(Assignment(None, Position(), 1))

    def messages():
        sources = [
            TaskReader(FakeReader(lambda _, worker=worker: range(worker, 4000, 2)), tasks.newest)
            for worker in range(2)
        ]
        for number, task in enumerate(tasks):  # as torch asks for them
            worker = number % 2
            limit = 1 if worker == slow else task.most
            answer = sources[worker][task._replace(most=limit)]._replace(worker=worker)
            waiting[worker] += len(answer.batches)
            yield answer

    found = []
    for batch in round_robin(messages(), 2, tasks):
        found.append(batch)
        waiting[batch % 2] -= 1
        most = max(most, *waiting)
        if len(found) == 3000:
            break
    assert found == list(range(3000))
    assert most <= 4 * MAX_BATCHES_PER_MESSAGE
    assert tasks.max_batches == 1
    assert list(round_robin([message(0, [], True)], 1, tasks)) == []
    assert tasks.max_batches == MAX_BATCHES_PER_MESSAGE


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 40, 41])
def test_batches_come_as_if_each_had_been_sent_alone(workers, count):
    assert take_turns(dealt(count, workers), workers) == list(range(count))


def test_workers_with_fewer_batches_are_passed_over():
    sent = [message(0, ["a"], True), message(1, ["b", "c", "d"], True)]
    assert take_turns(sent, 2) == ["a", "b", "c", "d"]


def test_no_more_is_asked_for_than_is_needed():
    asked = []

    def sent():
        for answer in dealt(40, 2):
            asked.append(answer)
            yield answer

    assert list(islice(round_robin(sent(), 2, Tasks(2)), 3)) == [0, 1, 2]
    assert len(asked) == 3


# -- worker processes ------------------------------------------------------------------

SIZE, BATCH = 1200, 4
FORKED = {"persistent_workers": True, "multiprocessing_context": "fork"}  # sees patches


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sets") / "one"
    columns = {"id": "int", "wide": "ndarray:float64:64"}
    with MDSWriter(columns=columns, out=out, size_limit=40_000) as writer:
        ids = np.arange(SIZE)
        writer.write_batch({"id": ids, "wide": np.repeat(ids[:, None], 64, 1).astype(float)})
    return str(out)


@pytest.fixture
def reads(monkeypatch, tmp_path):
    """A file with the sample ids of each block that any worker reads, a line each."""
    parts, path = Feed.parts, tmp_path / "reads"

    def noted(self, blocks, read, *given, **options):
        def reads_noted(block):
            with path.open("a") as out:
                out.write(" ".join(map(str, block.ids.tolist())) + "\n")
            return read(block)

        return parts(self, blocks, reads_noted, *given, **options)

    monkeypatch.setattr(Feed, "parts", noted)
    monkeypatch.setattr("streamplug.run.feed._COLUMN_BLOCK_ROWS", 40)
    return path


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"num_threads": 2}, {"transform": dict}], ids=str)
def test_no_block_is_read_twice_however_messages_grow(folder, reads, workers, options):
    """A worker keeps what it has read ahead from task to task."""
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(data, num_workers=workers, **FORKED, **options)
    for epoch in range(2):
        reads.unlink(missing_ok=True)
        found = [number for batch in loader for number in batch["id"].tolist()]
        assert found == [
            use.sample for step in range(SIZE // BATCH) for use in data.explain(step, epoch=epoch)
        ]
        read = Counter(number for line in reads.read_text().splitlines() for number in line.split())
        assert (len(read), set(read.values())) == (SIZE, {1})


def test_after_a_resize_a_worker_reads_only_what_is_ahead(folder, reads):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH, world=World())
    loader = StreamingDataLoader(data, num_workers=2, **FORKED)
    found = []
    for step, batch in enumerate(loader):
        if step == 100:
            reads.write_text("")
            loader.resize(World())
            used = list(found)
            used += batch["id"].tolist()
        found += batch["id"].tolist()
    assert len(found) == len(set(found)) == SIZE
    read = [int(number) for line in reads.read_text().splitlines() for number in line.split()]
    after = Counter(read) - Counter(used)
    assert set(found) - set(used) <= set(read)
    assert max(after.values()) <= 2  # what was read ahead, once more


def test_workers_that_are_busy_are_not_asked_for_another_loop(folder):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(data, num_workers=2, persistent_workers=True)
    pairs = [(a["id"].tolist(), b["id"].tolist()) for a, b in islice(zip(loader, loader), 30)]
    for number, loop in enumerate(zip(*pairs)):
        assert list(loop) == [
            [use.sample for use in data.explain(step, epoch=number)] for step in range(30)
        ]


def fail(sample):
    raise ValueError("broken")


class OwnTypeError(Exception):
    def __init__(self, column, place):
        super().__init__(f"{column} at {place}")


def fail_by_own_type(sample):
    raise OwnTypeError("id", 3)


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")
def test_an_error_of_a_loader_without_workers_stays_as_it_is(folder, pin_memory):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    loader = StreamingDataLoader(data, transform=fail_by_own_type, pin_memory=pin_memory)
    with pytest.raises(OwnTypeError, match=r"^id at 3"):
        list(loader)


def test_workers_of_a_loop_with_an_error_end_before_those_of_the_next_one_start(folder):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    options = {"num_workers": 2, "persistent_workers": True}
    loader = StreamingDataLoader(data, transform=fail, **options)
    before = set(multiprocessing.active_children())
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(ValueError, match="broken"):
                list(loader)
            assert len(set(multiprocessing.active_children()) - before) <= 2
    finally:
        gc.enable()


def with_lock(sample):
    return {**sample, "lock": Lock()}


def test_a_batch_that_cannot_be_pickled_is_an_error(folder):
    data = StreamingDataset(local=folder, batch_size=BATCH)
    loader = StreamingDataLoader(data, transform=with_lock, collate_fn=list, num_workers=1)
    with pytest.raises(TypeError, match=r"Caught TypeError in [^$]* cannot pickle '_thread.lock'"):
        next(iter(loader))


def fail_by_type_of_function(sample):
    class OwnError(Exception):
        pass

    if sample["id"] == 2 * BATCH + 1:
        raise OwnError("of a function")
    return sample


def test_an_error_whose_type_cannot_be_pickled_comes_in_its_turn(folder):
    data = StreamingDataset(local=folder, batch_size=BATCH)
    loader = StreamingDataLoader(data, transform=fail_by_type_of_function, num_workers=1)
    batches = iter(loader)
    assert [next(batches)["id"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(RuntimeError, match="OwnError: of a function") as caught:
        next(batches)
    if sys.version_info >= (3, 11):  # errors have notes from then on
        assert "OwnError: of a function\nraised for sample 9 " in str(caught.value)


def test_a_task_is_small(folder):
    data = StreamingDataset(local=folder, shuffle=True, batch_size=BATCH)
    tasks = Tasks(2)
    tasks.begin(Assignment(data.session.snapshot(), Position(3, 40), 2))
    assert len(pickle.dumps(next(tasks))) < 2000
