from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.plan import Position
from streamplug.run import shared_epoch
from streamplug.run.shared_epoch import (
    CELLS,
    MAX_EPOCHS,
    MAX_WORKERS,
    PROCESSES,
    TICKETS,
    SharedEpoch,
    WorkerLoop,
)


class Rank:
    """The processes of a rank: the main process, and workers by their numbers."""

    def __init__(self):
        self.cells = np.zeros(CELLS, np.int64)
        self.main = SharedEpoch(self.cells)
        self.workers = {}

    def begin(self, *loop, process=0):
        """Start an epoch in the main process, or in the worker of a loop; return where."""
        found = WorkerLoop(*loop, process=process)
        worker = self.main
        if found.ticket:
            number = process + found.worker
            worker = self.workers.setdefault(number, SharedEpoch(self.cells))
        position, begun = worker.begin(found)
        assert begun <= self.main.begun()
        return position.epoch, position.done

    def set(self, epoch, done=0):
        self.main.set(Position(epoch, done))
        self.workers = {}  # those that run refuse


def test_a_process_without_workers_counts_one_epoch_after_the_other():
    it = Rank()
    assert [it.begin() for _ in range(4)] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert it.main.begun() == 4
    assert it.main.current() == Position(3, 0)
    assert it.main.next() == Position(4, 0)


def test_more_epochs_than_a_cell_can_count_are_refused_until_a_state_is_loaded():
    it = Rank()
    it.begin()
    it.cells[-1 - MAX_WORKERS] *= MAX_EPOCHS - 1
    assert it.begin() == (MAX_EPOCHS - 1, 0)
    for _ in range(2):
        with pytest.raises(ConfigError, match="load_state_dict"):
            it.begin()
    it.main.set(it.main.next())
    assert [it.begin() for _ in range(2)] == [(MAX_EPOCHS, 0), (MAX_EPOCHS + 1, 0)]


def test_before_the_first_epoch_the_current_one_is_the_next():
    it = Rank()
    it.set(3, 9)
    assert it.main.begun() == 0
    assert it.main.current() == it.main.next() == Position(3, 9)


def test_only_the_first_epoch_after_a_load_begins_inside():
    it = Rank()
    it.set(5, 7)
    assert it.begin() == (5, 7)
    assert it.main.current() == Position(5, 7)
    assert it.main.next() == Position(6, 0)
    assert it.begin() == (6, 0)
    assert it.main.current() == Position(6, 0)


def test_setting_forgets_what_was_begun():
    it = Rank()
    for ticket in (4, 5):
        it.begin(ticket, 0)
        it.begin(ticket, 1)
    it.set(0, 3)
    assert it.main.begun() == 0
    assert it.begin(5, 1) == (0, 3)
    assert it.begin(5, 0) == (0, 3)


def test_all_workers_of_a_loop_are_in_one_epoch():
    it = Rank()
    for epoch, ticket in enumerate((11, 12, 13)):
        assert {it.begin(ticket, worker) for worker in range(5)} == {(epoch, 0)}
    assert it.main.begun() == 3


def test_the_workers_of_a_loop_share_the_first_step():
    it = Rank()
    it.set(2, 6)
    assert {it.begin(11, worker) for worker in range(3)} == {(2, 6)}
    assert {it.begin(12, worker) for worker in range(3)} == {(3, 0)}


def test_persistent_workers_with_one_ticket_count_epochs():
    it = Rank()
    for epoch in range(4):
        order = range(3) if epoch % 2 else range(2, -1, -1)
        assert {it.begin(11, worker) for worker in order} == {(epoch, 0)}


def test_a_worker_that_never_began_is_not_left_behind():
    it = Rank()
    assert it.begin(11, 0) == (0, 0)  # stopped early: worker 1 did not get to begin
    assert it.begin(12, 1) == (1, 0)
    assert it.begin(12, 0) == (1, 0)


def test_a_ticket_that_is_drawn_again_is_another_loop():
    it = Rank()
    for epoch in range(3):
        assert {it.begin(11, worker) for worker in range(2)} == {(epoch, 0)}


def test_numbers_of_workers_may_change_between_epochs():
    it = Rank()
    epochs = []
    for ticket, workers in enumerate((3, 1, 4, 2), start=11):
        epochs.append({it.begin(ticket, worker) for worker in range(workers)})
        epochs.append({it.begin()})
    assert epochs == [{(epoch, 0)} for epoch in range(8)]


def test_persistent_loops_may_alternate():
    it = Rank()
    assert {it.begin(11, worker) for worker in range(2)} == {(0, 0)}
    assert {it.begin(12, worker) for worker in range(3)} == {(1, 0)}
    assert {it.begin(11, worker) for worker in range(2)} == {(2, 0)}
    assert {it.begin(12, worker) for worker in range(3)} == {(3, 0)}


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3) | st.just(0),
            st.permutations(range(4)),
            st.integers(1, 4),
        ),
        max_size=8,
    ),
    st.integers(0, 1000),
    st.integers(0, 1000),
)
def test_loops_one_after_the_other_count_up_whatever_their_workers(loops, epoch, done):
    it, process = Rank(), 0
    it.set(epoch, done)
    for number, (ticket, order, workers) in enumerate(loops):
        # Tickets differ from one loop to the next, but may come again.
        unique = 0 if not ticket else ticket + 3 * (number % 2)
        chosen = [worker for worker in order if worker < workers] if unique else [0]
        expected = (epoch + number, 0 if number else done)
        begun = {it.begin(unique, worker, workers, process=process) for worker in chosen}
        assert begun == {expected}
        process += len(chosen) if unique else 0
    assert it.main.begun() == len(loops)


def test_the_last_worker_and_the_largest_ticket_fit():
    it = Rank()
    assert it.begin(TICKETS - 1, MAX_WORKERS - 1) == (0, 0)
    assert it.begin(TICKETS - 1, MAX_WORKERS - 1) == (1, 0)
    assert it.begin(TICKETS - 1, 0) == (1, 0)


def test_more_workers_than_cells_are_refused():
    with pytest.raises(ConfigError, match=r"at most 256 are supported"):
        Rank().begin(1, MAX_WORKERS)


def test_processes_with_the_same_cells_agree():
    cells = np.zeros(CELLS, np.int64)
    one, other = SharedEpoch(cells), SharedEpoch(cells)
    assert one.begin(WorkerLoop(7, 0)) == (Position(), 1)
    assert other.begin(WorkerLoop(7, 1)) == (Position(), 1)
    assert other.begin(WorkerLoop(8, 1)) == (Position(1), 2)
    assert one.current() == Position(1)


def test_a_ticket_that_comes_again_with_other_processes_is_another_loop():
    it = Rank()
    assert it.begin(7, 0, 1, process=1) == (0, 0)
    assert it.begin(7, 1, 2, process=2) == (
        1,
        0,
    )  # the first of the second loop to begin
    assert it.begin(7, 0, 2, process=2) == (1, 0)
    # Processes that others start meanwhile set a few numbers apart.
    assert it.begin(7, 0, 3, process=4) == (2, 0)
    assert it.begin(7, 1, 3, process=5) == (2, 0)
    assert it.begin(7, 2, 3, process=6) == (2, 0)


def test_the_number_of_a_process_may_start_again():
    it = Rank()
    assert it.begin(7, 0, 2, process=PROCESSES - 1) == (0, 0)
    assert it.begin(7, 1, 2, process=PROCESSES) == (0, 0)


def test_late_workers_read_the_epoch_of_their_loop():
    """Whatever loops began meanwhile, in workers of the same numbers or without any."""
    it = Rank()
    assert it.begin(11, 0, 3, process=0) == (0, 0)
    assert it.begin(12, 1, 2, process=3) == (1, 0)
    assert it.begin() == (2, 0)
    assert it.begin(11, 2, 3, process=0) == (0, 0)
    assert it.begin(12, 0, 2, process=3) == (1, 0)
    assert it.begin(11, 1, 3, process=0) == (0, 0)
    assert it.begin(13, 0, 1, process=5) == (3, 0)


@given(st.data())
def test_loops_side_by_side_have_an_epoch_each_in_whatever_order_their_workers_begin(data):
    it, found, process = Rank(), {}, 0
    waiting = []
    for number, workers in enumerate(data.draw(st.lists(st.integers(1, 4), max_size=4))):
        # With repeated seeds, all tickets are the same.
        waiting += [(number, (7, worker, workers), process) for worker in range(workers)]
        process += workers
    for number, loop, first in data.draw(st.permutations(waiting)):
        found.setdefault(number, set()).add(it.begin(*loop, process=first))
    assert all(len(epochs) == 1 for epochs in found.values())
    assert sorted(epoch for [(epoch, _)] in found.values()) == list(range(len(found)))


def test_workers_that_were_started_before_a_position_was_set_do_not_begin():
    cells = np.zeros(CELLS, np.int64)
    rank, late, started = (SharedEpoch(cells) for _ in range(3))
    started.begin(WorkerLoop(7, 0))
    rank.set(Position(3, 2))
    for worker in (
        late,
        started,
        SharedEpoch(cells, 0),
    ):  # late, persistent, with a copy made before
        for _ in range(2):
            with pytest.raises(ConfigError, match="create a new DataLoader, or use Streaming"):
                worker.begin(WorkerLoop(7, 1))
    assert rank.begun() == 0
    assert rank.begin() == (Position(3, 2), 1)  # the process that set it goes on
    assert SharedEpoch(cells).begin(WorkerLoop(8, 0)) == (Position(4), 2)


@pytest.mark.parametrize("when", ["_latest", "SharedEpoch._place"])
def test_a_worker_that_begins_while_a_position_is_set_reads_no_part_of_it(monkeypatch, when):
    """And what it writes late counts for nobody."""
    cells = np.zeros(CELLS, np.int64)
    rank, worker = SharedEpoch(cells), SharedEpoch(cells)
    for _ in range(3):
        rank.begin()
    real = SharedEpoch._place if "." in when else shared_epoch._latest

    def interrupted(*given):
        found = real(*given)
        monkeypatch.undo()
        rank.set(Position(5, 12))
        return found

    monkeypatch.setattr(f"streamplug.run.shared_epoch.{when}", interrupted)
    with pytest.raises(ConfigError, match="create a new DataLoader"):
        worker.begin(WorkerLoop(7, 0))
    assert (rank.begun(), rank.next()) == (0, Position(5, 12))
    assert SharedEpoch(cells).begin(WorkerLoop(8, 0)) == (Position(5, 12), 1)
