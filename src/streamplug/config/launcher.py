"""The world in the environment variables that launchers such as torchrun and Slurm set."""

from __future__ import annotations

import os
from dataclasses import dataclass

from streamplug.errors import ConfigError
from streamplug.types import World


@dataclass(frozen=True, slots=True)
class _Launcher:
    """Environment variables in which a launcher describes the world; "" if it has none."""

    rank: str
    ranks: str
    local: str = ""
    nodes: str = ""


# The first with a number of ranks counts: torchrun may itself be started by the others.
_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", local="LOCAL_WORLD_SIZE", nodes="GROUP_WORLD_SIZE"),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", local="OMPI_COMM_WORLD_LOCAL_SIZE"),
    # Only srun sets the variables of a step. SLURM_NTASKS, the request of the job, is also set for a
    # single process that a batch script runs without srun.
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nodes="SLURM_STEP_NUM_NODES"),
)


def detect_world() -> World:
    """Return the world from the environment variables of torchrun, Open MPI or Slurm.

    Without them there is one rank. All ranks return the same world, even if nodes have different numbers
    of ranks: these count as equal nodes if they divide the ranks evenly, else as one node.

    Raises:
        ConfigError: If a variable is not a whole number, missing, or contradicts another.
    """
    launcher = next((known for known in _LAUNCHERS if known.ranks in os.environ), None)
    if launcher is None:
        if "RANK" in os.environ:
            raise ConfigError(
                f"RANK={os.environ['RANK']} without WORLD_SIZE; set both, or pass world="
            )
        return World()
    ranks = _env_int(launcher.ranks)
    if launcher.rank not in os.environ and ranks != 1:
        raise ConfigError(
            f"{launcher.ranks}={ranks} without {launcher.rank}; set both, or pass world="
        )
    if ranks < 1:
        raise ConfigError(f"{launcher.ranks}={ranks}: must be at least 1")
    nodes = _nodes(launcher, ranks)
    return World(nodes=nodes, ranks_per_node=ranks // nodes, rank=_env_int(launcher.rank))


def _nodes(launcher: _Launcher, ranks: int) -> int:
    """Return the number of nodes of equal size."""
    local = _env_int(launcher.local) if launcher.local in os.environ else None
    if launcher.nodes not in os.environ:
        local = ranks if local is None else local
        if local < 1 or ranks % local:
            raise ConfigError(
                f"{launcher.ranks}={ranks} is not a multiple of {launcher.local}={local}; "
                f"set {launcher.nodes or 'WORLD_SIZE and GROUP_WORLD_SIZE'}, or pass world= explicitly"
            )
        return ranks // local
    nodes = _env_int(launcher.nodes)
    if not 1 <= nodes <= ranks:
        raise ConfigError(
            f"{launcher.ranks}={ranks} on {launcher.nodes}={nodes}: every node has a rank; "
            "pass world= explicitly"
        )
    max_local = ranks - (nodes - 1)  # the other nodes have one each
    if local is not None and not (max_local if nodes == 1 else 1) <= local <= max_local:
        raise ConfigError(
            f"{launcher.local}={local} contradicts {launcher.ranks}={ranks} and "
            f"{launcher.nodes}={nodes}; pass world= explicitly"
        )
    # Not by the local number of ranks, which can differ between nodes: with 3, 2 and 1 ranks, only the
    # second node would conclude that all are equal.
    return nodes if ranks % nodes == 0 else 1


def _env_int(name: str) -> int:
    text = os.environ.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"environment variable {name}={text!r} is not a whole number") from None
