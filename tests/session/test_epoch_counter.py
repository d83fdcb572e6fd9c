from __future__ import annotations

import multiprocessing
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import ConfigError
from streamplug.session import epoch_counter
from streamplug.session.epoch_counter import (
    CELLS,
    MAX_EPOCHS,
    MAX_WORKERS,
    TICKETS,
    EpochCounter,
    WorkerLoop,
    private_cells,
)


def clock() -> EpochCounter:
    return EpochCounter(private_cells())


def test_a_process_without_workers_counts_one_epoch_after_the_other():
    it = clock()
    assert [it.begin() for _ in range(4)] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert it.begun() == 4
    assert it.current() == (3, 0)
    assert it.next() == (4, 0)


def test_threads_that_begin_at_once_have_an_epoch_each():
    it, interval = clock(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            begun = list(threads.map(lambda _: [it.begin() for _ in range(500)], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert sorted(place for places in begun for place in places) == [(n, 0) for n in range(4000)]


def test_an_epoch_that_fails_to_start_takes_back_no_other():
    it = clock()

    def fail(others):
        with it.starting() as started:
            begun = [it.begin() for _ in range(others)]  # as other threads would
            raise ValueError(started, begun)

    with pytest.raises(ValueError) as caught:
        fail(others=0)
    assert caught.value.args == ((1, (0, 0)), [])
    assert it.begin() == (0, 0)
    with pytest.raises(ValueError) as caught:
        fail(others=1)
    assert caught.value.args == ((2, (1, 0)), [(2, 0)])
    assert it.begin() == (3, 0)


def test_a_child_begins_an_epoch_whatever_threads_did_at_the_fork():
    it = clock()
    with epoch_counter._beginning:
        child = multiprocessing.get_context("fork").Process(
            target=lambda: Thread(target=it.begin).start()
        )
        child.start()
        child.join(20)
        is_hanging = child.is_alive()
        child.kill()
    assert not is_hanging


def test_more_epochs_than_a_cell_can_count_are_refused_until_a_state_is_loaded():
    cells = private_cells()
    it = EpochCounter(cells)
    it.begin()
    cells[-1 - MAX_WORKERS] *= MAX_EPOCHS - 1
    assert it.begin() == (MAX_EPOCHS - 1, 0)
    for _ in range(2):
        with pytest.raises(ConfigError, match="load_state_dict"):
            it.begin()
    it.set(*it.next())
    assert [it.begin() for _ in range(2)] == [(MAX_EPOCHS, 0), (MAX_EPOCHS + 1, 0)]


def test_before_the_first_epoch_the_current_one_is_the_next():
    it = clock()
    it.set(3, 9)
    assert it.begun() == 0
    assert it.current() == it.next() == (3, 9)


def test_only_the_first_epoch_after_a_load_begins_inside():
    it = clock()
    it.set(5, 7)
    assert it.begin() == (5, 7)
    assert it.current() == (5, 7)
    assert it.next() == (6, 0)
    assert it.begin() == (6, 0)
    assert it.current() == (6, 0)


def test_setting_forgets_what_was_begun():
    it = clock()
    for ticket in (4, 5):
        it.begin(WorkerLoop(ticket, 0))
        it.begin(WorkerLoop(ticket, 1))
    it.set(0, 3)
    assert it.begun() == 0
    assert it.begin(WorkerLoop(5, 1)) == (0, 3)
    assert it.begin(WorkerLoop(5, 0)) == (0, 3)


def test_all_workers_of_a_loop_are_in_one_epoch():
    it = clock()
    for epoch, ticket in enumerate((11, 12, 13)):
        assert {it.begin(WorkerLoop(ticket, worker)) for worker in range(5)} == {(epoch, 0)}
    assert it.begun() == 3


def test_the_workers_of_a_loop_share_the_first_step():
    it = clock()
    it.set(2, 6)
    assert {it.begin(WorkerLoop(11, worker)) for worker in range(3)} == {(2, 6)}
    assert {it.begin(WorkerLoop(12, worker)) for worker in range(3)} == {(3, 0)}


def test_persistent_workers_with_one_ticket_count_epochs():
    it = clock()
    for epoch in range(4):
        order = range(3) if epoch % 2 else range(2, -1, -1)
        assert {it.begin(WorkerLoop(11, worker)) for worker in order} == {(epoch, 0)}


def test_a_worker_that_never_began_is_not_left_behind():
    it = clock()
    assert it.begin(WorkerLoop(11, 0)) == (0, 0)  # stopped early: worker 1 did not get to begin
    assert it.begin(WorkerLoop(12, 1)) == (1, 0)
    assert it.begin(WorkerLoop(12, 0)) == (1, 0)


def test_a_ticket_that_is_drawn_again_is_another_loop():
    it = clock()
    for epoch in range(3):
        assert {it.begin(WorkerLoop(11, worker)) for worker in range(2)} == {(epoch, 0)}


def test_numbers_of_workers_may_change_between_epochs():
    it = clock()
    epochs = []
    for ticket, workers in enumerate((3, 1, 4, 2), start=11):
        epochs.append({it.begin(WorkerLoop(ticket, worker)) for worker in range(workers)})
        epochs.append({it.begin()})
    assert epochs == [{(epoch, 0)} for epoch in range(8)]


def test_persistent_loops_may_alternate():
    it = clock()
    assert {it.begin(WorkerLoop(11, worker)) for worker in range(2)} == {(0, 0)}
    assert {it.begin(WorkerLoop(12, worker)) for worker in range(3)} == {(1, 0)}
    assert {it.begin(WorkerLoop(11, worker)) for worker in range(2)} == {(2, 0)}
    assert {it.begin(WorkerLoop(12, worker)) for worker in range(3)} == {(3, 0)}


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
def test_loops_one_after_the_other_count_up_whatever_their_workers(loops, epoch, step):
    it = clock()
    it.set(epoch, step)
    for number, (ticket, order, workers) in enumerate(loops):
        # Tickets differ from one loop to the next, but may come again.
        unique = 0 if not ticket else ticket + 3 * (number % 2)
        chosen = [worker for worker in order if worker < workers] if unique else [0]
        expected = (epoch + number, 0 if number else step)
        assert {it.begin(WorkerLoop(unique, worker)) for worker in chosen} == {expected}
    assert it.begun() == len(loops)


def test_the_last_worker_and_the_largest_ticket_fit():
    it = clock()
    assert it.begin(WorkerLoop(TICKETS - 1, MAX_WORKERS - 1)) == (0, 0)
    assert it.begin(WorkerLoop(TICKETS - 1, MAX_WORKERS - 1)) == (1, 0)
    assert it.begin(WorkerLoop(TICKETS - 1, 0)) == (1, 0)


def test_more_workers_than_cells_are_refused():
    with pytest.raises(ConfigError, match=r"at most 256 are supported"):
        clock().begin(WorkerLoop(1, MAX_WORKERS))


def test_clocks_on_the_same_cells_agree():
    cells = np.zeros(CELLS, np.int64)
    one, other = EpochCounter(cells), EpochCounter(cells)
    assert one.begin(WorkerLoop(7, 0)) == (0, 0)
    assert other.begin(WorkerLoop(7, 1)) == (0, 0)
    assert other.begin(WorkerLoop(8, 1)) == (1, 0)
    assert one.current() == (1, 0)


def test_a_copy_counts_for_itself_from_the_next_epoch_on():
    it = clock()
    it.set(4, 2)
    copy = pickle.loads(pickle.dumps(it))
    assert copy.begin() == (4, 2)
    it.begin()
    copy = pickle.loads(pickle.dumps(it))
    assert it.begin() == (5, 0)
    assert copy.begin() == (5, 0)


def test_a_ticket_that_comes_again_with_other_processes_is_another_loop():
    it = clock()
    assert it.begin(WorkerLoop(7, 0, 1, process=1)) == (0, 0)
    assert it.begin(WorkerLoop(7, 1, 2, process=2)) == (
        1,
        0,
    )  # the first of the second loop to begin
    assert it.begin(WorkerLoop(7, 0, 2, process=2)) == (1, 0)
    # Processes that others start meanwhile set a few numbers apart.
    assert it.begin(WorkerLoop(7, 0, 3, process=4)) == (2, 0)
    assert it.begin(WorkerLoop(7, 1, 3, process=5)) == (2, 0)
    assert it.begin(WorkerLoop(7, 2, 3, process=6)) == (2, 0)


def test_the_number_of_a_process_may_start_again():
    it = clock()
    assert it.begin(WorkerLoop(7, 0, 2, process=(1 << 18) - 1)) == (0, 0)
    assert it.begin(WorkerLoop(7, 1, 2, process=1 << 18)) == (0, 0)


def test_workers_that_start_while_a_state_is_loaded_do_not_begin():
    cells = np.zeros(CELLS, np.int64)
    rank, late = EpochCounter(cells), EpochCounter(cells)
    started = EpochCounter(cells, rank.sets)
    started.begin(WorkerLoop(7, 0))
    rank.set(3, 2)
    for worker in (late, EpochCounter(cells, 0)):
        with pytest.raises(ConfigError, match="while the workers of this loop were starting"):
            worker.begin(WorkerLoop(7, 1))
    assert rank.begun() == 0
    assert started.begin(WorkerLoop(7, 0)) == (3, 2)  # a persistent worker, asked to begin again
    assert EpochCounter(cells).begin(WorkerLoop(8, 0)) == (4, 0)
