"""Parsing and validation of sizes, counts and flags, and detection of the world."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import World

_UNITS = ("b", "kb", "mb", "gb", "tb", "pb", "eb", "zb", "yb")
_BYTES = {unit: 1024**power for power, unit in enumerate(_UNITS)}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)\s*", re.IGNORECASE)


def check_names(what: str, where: str, wanted: Iterable[str], names: Collection[str]) -> None:
    """Refuse names of columns that do not exist.

    Args:
        what: The parameter and its value, for errors.
        where: The data set that the columns are to be of.
        wanted: What the user named.
        names: All that there are.

    Raises:
        ConfigError: If one does not exist; the nearest that does is told.
    """
    if missing := sorted(set(wanted) - set(names)):
        near = difflib.get_close_matches(missing[0], names, 1, 0.5)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{what}: {where} has no {missing}, only {sorted(names)}{hint}")


def parse_bytes(value: float | str, what: str) -> int:
    """Return a number of bytes: whole, also as a float, or text such as ``"64mb"`` (units of 1,024).

    Args:
        value: What the user gave.
        what: Name of the parameter, for errors.

    Raises:
        ConfigError: If it is not a size.
    """
    return _parse(value, what, _BYTES, "bytes, such as 67108864 or '64mb'")


def parse_count(value: float | str, what: str) -> int:
    """Return a number of samples: whole, also as a float, or text such as ``"100k"`` (units of 1,000).

    Raises:
        ConfigError: If it is not a count.
    """
    return _parse(value, what, _COUNTS, "a count, such as 100000 or '100k'")


def _parse(value: float | str, what: str, units: dict[str, int], expected: str) -> int:
    # 1e9 is a float in Python.
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    is_whole |= isinstance(value, (float, np.floating)) and float(value).is_integer()
    if is_whole and value >= 0:  # type: ignore[operator]  # it is a number
        return int(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match and (match[2].lower() in units or not match[2]):
        return int(Fraction(match[1]) * units.get(match[2].lower(), 1))
    raise ConfigError(f"{what}={value!r}: expected {expected}")


def whole_number(name: str, value: Any, lowest: int) -> Any:
    """Return a value as an int, also where it is one of numpy's; None stays None.

    Args:
        name: Name of the parameter, for errors.
        value: What the user gave.
        lowest: The least that has a meaning.

    Raises:
        ConfigError: If it is no whole number, or lower.
    """
    if value is None:
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= lowest:
        return int(value)
    raise ConfigError(f"{name}={value!r:.60}: must be a whole number of at least {lowest}")


def check_seconds(name: str, value: Any) -> None:
    """Refuse what is no number of seconds above 0; None stands for a default.

    Raises:
        ConfigError: If it is none.
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (number and value > 0):
        raise ConfigError(f"{name}={value!r:.60}: must be a number of seconds above 0")


def check_flags(**flags: Any) -> None:
    """Refuse flags that are neither True nor False, such as the text ``"no"``, which would count as True.

    Args:
        flags: What the user gave, by the names of the parameters; None stands for a default.

    Raises:
        ConfigError: If one is something else.
    """
    for name, value in flags.items():
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ConfigError(f"{name}={value!r:.60}: must be True or False")


@dataclass(frozen=True, slots=True)
class _Launcher:
    """Names of the variables in which a launcher describes the world; "" where it says nothing."""

    rank: str
    ranks: str
    local: str = ""
    nodes: str = ""


# The first whose number of ranks is set describes the world: torchrun is itself started by others.
_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", local="LOCAL_WORLD_SIZE", nodes="GROUP_WORLD_SIZE"),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", local="OMPI_COMM_WORLD_LOCAL_SIZE"),
    # Those of a step are set by srun alone. SLURM_NTASKS is what the job asked for: a program that a
    # batch script runs without srun has it too, and is alone nevertheless.
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nodes="SLURM_STEP_NUM_NODES"),
)


def detect_world() -> World:
    """Return the world that torchrun, Open MPI or Slurm describes in the environment.

    Without them there is a single rank. All ranks come to the same world, also where nodes have
    different numbers of ranks: these count as equal nodes if their ranks can be divided so, else as
    one.

    Raises:
        ConfigError: If what is said is no whole number, incomplete, or contradicts itself.
    """
    launcher = next((each for each in _LAUNCHERS if each.ranks in os.environ), None)
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
    nodes = _nodes(launcher, ranks)
    return World(nodes=nodes, ranks_per_node=ranks // nodes, rank=_env_int(launcher.rank))


def _nodes(launcher: _Launcher, ranks: int) -> int:
    """Return on how many nodes of equal size the ranks are, or count as being."""
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
    most = ranks - (nodes - 1)  # the other nodes have one each
    if local is not None and not (most if nodes == 1 else 1) <= local <= most:
        raise ConfigError(
            f"{launcher.local}={local} contradicts {launcher.ranks}={ranks} and "
            f"{launcher.nodes}={nodes}; pass world= explicitly"
        )
    # The local number must not decide, for it differs between nodes of different sizes: of those with
    # 3, 2 and 1 ranks, the second would take all for equal, and the others would not.
    return nodes if ranks % nodes == 0 else 1


def _env_int(name: str) -> int:
    text = os.environ.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"environment variable {name}={text!r} is not a whole number") from None
