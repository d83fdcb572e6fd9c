from __future__ import annotations

import json
import os
import re
from itertools import product

import numpy as np
import pytest

from streamplug.config import detect_world
from streamplug.errors import ConfigError
from streamplug.types import World

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
OF_LAUNCHERS = re.compile(r"(RANK|(LOCAL_|GROUP_)?WORLD_SIZE|(SLURM|OMPI)_\w+)")


@pytest.fixture
def launched(monkeypatch):
    def launch(**variables: str) -> World:
        for name in filter(OF_LAUNCHERS.fullmatch, list(os.environ)):
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return detect_world()

    return launch


def test_without_a_launcher_there_is_one_rank(launched):
    assert launched() == World()


def test_numbers_of_a_world_may_be_those_of_numpy():
    world = World(np.int64(2), ranks_per_node=np.int32(3), rank=np.uint8(4))
    assert world == World(2, 3, rank=4)
    assert json.dumps([world.nodes, world.ranks, world.rank]) == "[2, 6, 4]"


def test_a_launcher_tells_the_world(launched):
    world = launched(RANK="5", WORLD_SIZE="8", LOCAL_WORLD_SIZE="4")
    assert world == World(nodes=2, ranks_per_node=4, rank=5)
    assert (world.ranks, world.node, world.rank_of_node) == (8, 1, 1)


def test_without_a_word_on_nodes_all_ranks_are_on_one(launched):
    assert launched(RANK="2", WORLD_SIZE="3") == World(nodes=1, ranks_per_node=3, rank=2)


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("text", ["", "two", "1.5"])
def test_a_variable_that_is_no_number_is_refused(launched, name, text):
    with pytest.raises(ConfigError, match=rf"environment variable {name}='{text}' is not a whole"):
        launched(**{"RANK": "0", "WORLD_SIZE": "2", name: text})


@pytest.mark.parametrize("size", ["0", "-2"])
def test_a_world_has_ranks(launched, size):
    with pytest.raises(ConfigError, match=rf"^WORLD_SIZE={size}: must be at least 1$"):
        launched(RANK="0", WORLD_SIZE=size)


@pytest.mark.parametrize("local", ["0", "3", "-1", "16"])
def test_nodes_of_an_unknown_number_and_different_sizes_are_refused(launched, local):
    with pytest.raises(ConfigError, match=r"is not a multiple of LOCAL_WORLD_SIZE.*pass world="):
        launched(RANK="0", WORLD_SIZE="8", LOCAL_WORLD_SIZE=local)


def torchrun(sizes: list[int]) -> list[dict[str, str]]:
    """Return what torchrun tells each rank on nodes of these sizes."""
    common = {"WORLD_SIZE": str(sum(sizes)), "GROUP_WORLD_SIZE": str(len(sizes))}
    places = [(node, size) for node, size in enumerate(sizes) for _ in range(size)]
    return [
        common | {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": str(node)}
        for rank, (node, size) in enumerate(places)
    ]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_all_ranks_come_to_one_world_whatever_the_sizes_of_their_nodes(launched, nodes):
    for sizes in product(range(1, 5), repeat=nodes):
        worlds = [launched(**variables) for variables in torchrun(list(sizes))]
        assert [world.rank for world in worlds] == list(range(sum(sizes)))
        assert {world.ranks for world in worlds} == {sum(sizes)}
        assert len({world.nodes for world in worlds}) == 1
        if len(set(sizes)) == 1:
            assert worlds[0].nodes == nodes


def test_nodes_whose_ranks_cannot_be_divided_equally_count_as_one(launched):
    worlds = [launched(**variables) for variables in torchrun([4, 3])]
    assert worlds == [World(nodes=1, ranks_per_node=7, rank=rank) for rank in range(7)]


@pytest.mark.parametrize(
    ("nodes", "local"), [("1", "2"), ("2", "8"), ("3", "7"), ("2", "0"), ("8", "2")]
)
def test_nodes_and_ranks_that_cannot_be_are_refused(launched, nodes, local):
    with pytest.raises(ConfigError, match=rf"LOCAL_WORLD_SIZE={local} contradicts WORLD_SIZE=8"):
        launched(RANK="0", WORLD_SIZE="8", GROUP_WORLD_SIZE=nodes, LOCAL_WORLD_SIZE=local)


@pytest.mark.parametrize("nodes", ["0", "-1", "9"])
def test_nodes_without_ranks_are_refused(launched, nodes):
    with pytest.raises(ConfigError, match=rf"GROUP_WORLD_SIZE={nodes}: every node has a rank"):
        launched(RANK="0", WORLD_SIZE="8", GROUP_WORLD_SIZE=nodes)


def test_half_a_world_is_refused(launched):
    with pytest.raises(ConfigError, match=r"WORLD_SIZE=8 without RANK; set both"):
        launched(WORLD_SIZE="8")
    with pytest.raises(ConfigError, match=r"RANK=0 without WORLD_SIZE; set both"):
        launched(RANK="0")
    with pytest.raises(ConfigError, match=r"SLURM_STEP_NUM_TASKS=8 without SLURM_PROCID"):
        launched(SLURM_STEP_NUM_TASKS="8")
    assert launched(WORLD_SIZE="1") == World()


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NNODES": "2"}
SRUN = {**BATCH_SCRIPT, "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "6"}
SRUN["SLURM_STEP_NUM_NODES"] = "2"


def test_other_launchers_tell_the_world(launched):
    assert launched(**OPEN_MPI) == World(nodes=2, ranks_per_node=4, rank=5)
    assert launched(**SRUN) == World(nodes=2, ranks_per_node=3, rank=3)
    assert launched(**{**SRUN, "SLURM_STEP_NUM_TASKS": "5"}) == World(1, 5, rank=3)


def test_a_program_that_a_batch_script_runs_by_itself_is_alone(launched):
    assert launched(**BATCH_SCRIPT) == World()


def test_the_launcher_that_others_start_goes_first(launched):
    own = {"RANK": "1", "WORLD_SIZE": "2"}
    assert launched(**own, **OPEN_MPI, **SRUN) == World(ranks_per_node=2, rank=1)
    assert launched(**OPEN_MPI, **SRUN) == launched(**OPEN_MPI)


def test_what_other_launchers_say_wrongly_is_refused(launched):
    with pytest.raises(ConfigError, match=r"SIZE=8 is not a multiple of OMPI_COMM_WORLD_LOCAL_SI"):
        launched(**{**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "3"})
    with pytest.raises(ConfigError, match=r"environment variable SLURM_PROCID='x' is not a whole"):
        launched(**{**SRUN, "SLURM_PROCID": "x"})
    with pytest.raises(ConfigError, match=r"World\(rank=6\): must be in \[0, 6\)"):
        launched(**{**SRUN, "SLURM_PROCID": "6"})


@pytest.mark.parametrize("rank", ["8", "-1"])
def test_a_rank_outside_the_world_is_refused(launched, rank):
    with pytest.raises(ConfigError, match=rf"World\(rank={rank}\): must be in \[0, 8\)"):
        launched(RANK=rank, WORLD_SIZE="8")


@pytest.mark.parametrize("name", ["nodes", "ranks_per_node", "workers_per_rank"])
def test_counts_of_a_world_are_at_least_one(name):
    with pytest.raises(ConfigError, match=rf"World\({name}=0\): must be at least 1"):
        World(**{name: 0})


@pytest.mark.parametrize("worker", [-1, 2])
def test_a_worker_outside_its_rank_is_refused(worker):
    with pytest.raises(ConfigError, match=rf"World\(worker={worker}\): must be in \[0, 2\)"):
        World(workers_per_rank=2, worker=worker)
