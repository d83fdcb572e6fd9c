"""What was found by fuzzing stays mended, and every parser stands some random damage."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.fuzz.json_values import replace_value
from tests.fuzz.targets import Target, find_targets, is_ours

CORPUS = Path(__file__).with_name("corpus")
MUTATIONS = 8


@pytest.fixture(scope="module")
def targets(tmp_path_factory) -> dict[str, Target]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.setenv("STREAMPLUG_CACHE_DIR", str(folder / "user"))
        yield find_targets(folder)


def mutated(data: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5 and (replaced := replace_value(data, draw)) is not None:
        return replaced
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randint(0, len(changed))
        changed[place : place + draw.choice([0, 1, 1, 4, 64])] = draw.choice(
            [b"", b"\0", b"\xff\xff\xff\xff", b"[", b"-1", b'"', draw.randbytes(2)]
        )
    return bytes(changed)


def attempt(target: Target, data: bytes) -> None:
    start = time.monotonic()
    try:
        target.run(data)
    except Exception as error:
        if not is_ours(error):
            raise
    assert time.monotonic() - start < 5


def test_every_input_that_was_found_is_refused_or_read(targets):
    found = sorted(path for path in CORPUS.rglob("*") if path.is_file())
    assert found
    for path in found:
        if path.parent.name in targets:  # else of a library that this environment has not
            attempt(targets[path.parent.name], path.read_bytes())


def test_damaged_inputs_are_refused_or_read(targets):
    for name, target in targets.items():
        draw = random.Random(name)
        for seed in target.seeds:
            target.run(seed)
            for _ in range(MUTATIONS):
                data = mutated(seed, draw)
                try:
                    attempt(target, data)
                except BaseException as error:
                    error.add_note(f"{name}: {data!r}") if hasattr(error, "add_note") else None
                    raise
