"""Whether a call continues an earlier one: only if all that its samples are made of is the same."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from functools import cache, partial, wraps
from pathlib import Path
from types import MappingProxyType, ModuleType

import numpy as np
import pytest
from streamplug_tools import function_digest
from streamplug_tools.function_digest import digest_function

from streamplug import StreamingDataset, write_parts
from streamplug.errors import OutputExistsError, WriterError

COLUMNS = {"n": "int"}


def once(number):
    return lambda part: iter([{"n": number}])


def interrupt(out, make, parts, **options):
    """Write the first part, and fail at the second."""
    with pytest.raises(WriterError, match="stopped"):
        write_parts(make, parts, out=out, columns=COLUMNS, processes=0, **options)
    assert (Path(out) / "part-00000").exists() if "://" not in str(out) else True


def read(out, tmp_path):
    dataset = StreamingDataset(remote=str(out), local=str(tmp_path / "cache"), batch_size=1)
    return [sample["n"] for sample in dataset]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("processes", [0, 1])
def test_a_finished_data_set_is_refused(tmp_path, far, processes):
    out = f"memory://{tmp_path.name}" if far and not processes else tmp_path / "set"
    options = {"columns": COLUMNS, "out": out, "processes": processes}
    write_parts(once(1), [0], **options)
    for make in (once(1), once(2)):
        with pytest.raises(OutputExistsError, match=r"exist_ok=True \(--exist-ok\) to"):
            write_parts(make, [0], **options)
    assert read(out, tmp_path) == [1]
    write_parts(once(2), [0], exist_ok=True, **options)
    assert read(out, tmp_path / "2") == [2]
    write_parts(once(2), [0], exist_ok=True, **options)
    assert read(out, tmp_path / "3") == [2]


def stopped_make(tmp_path, number=1):
    def make(part):
        if str(part).endswith("1") and (tmp_path / "stop").exists():
            raise RuntimeError("stopped")
        yield {"n": number}

    return make


def test_the_same_call_continues_and_others_are_refused(tmp_path):
    (tmp_path / "stop").touch()
    out, make = tmp_path / "set", stopped_make(tmp_path)
    interrupt(out, make, range(3))
    (tmp_path / "stop").unlink()
    same = {"columns": COLUMNS, "out": out, "processes": 0}
    for said, changed, options in (
        ("make_samples= had other code, or used other values", stopped_make(tmp_path, 2), {}),
        ("make_samples= had other code", once(1), {}),
        ("size_limit was 67108864, not 1000", make, {"size_limit": 1000}),
        ("compression was None, not 'gz'", make, {"compression": "gz"}),
        (r"columns was {'n': 'int'}, not {'n': 'int8'}", make, {"columns": {"n": "int8"}}),
        ("hashes was ", make, {"hashes": ["sha1"]}),
    ):
        with pytest.raises(OutputExistsError, match=said):
            write_parts(changed, range(3), **{**same, **options})
    with pytest.raises(OutputExistsError, match="it is made of other samples"):
        write_parts(make, [0, 1, 3], **same)
    kept = (out / "part-00000" / "shard.00000.mds").stat().st_mtime_ns
    write_parts(stopped_make(tmp_path), range(3), **same)
    assert (out / "part-00000" / "shard.00000.mds").stat().st_mtime_ns == kept
    assert read(out, tmp_path) == [1, 1, 1]


def test_a_difference_replaces_parts_with_exist_ok(tmp_path):
    (tmp_path / "stop").touch()
    interrupt(tmp_path / "set", stopped_make(tmp_path), range(3))
    write_parts(
        once(2), range(3), columns=COLUMNS, out=tmp_path / "set", processes=0, exist_ok=True
    )
    assert read(tmp_path / "set", tmp_path) == [2, 2, 2]


KINDS = {
    "path": lambda path: path,
    "text": str,
    "relative": os.path.relpath,
    "URL": lambda path: f"file://{path}",
    "in a list": lambda path: [str(path), 3],
    "in a dict": lambda path: {"file": str(path), "rows": [0, 5]},
    "directory": lambda path: str(path.parent),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["size", "time", "removal"])
def test_files_that_parts_name_are_compared(tmp_path, kind, change):
    (tmp_path / "stop").touch()
    files = [tmp_path / f"in{n}" / "data" for n in range(2)]
    for file in files:
        file.parent.mkdir()
        file.write_text("content")
    parts = [KINDS[kind](file) for file in files]
    out, stop = tmp_path / "set", tmp_path / "stop"

    def make(part):
        if part == parts[1] and stop.exists():
            raise RuntimeError("stopped")
        yield {"n": 1}

    def call():
        write_parts(make, [*parts], columns=COLUMNS, out=out, processes=0)

    interrupt(out, make, parts)
    stop.unlink()
    before = files[0].stat()
    if change == "size":
        files[0].write_text("other content")
        os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "time":
        os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    else:
        files[0].unlink()
    said = r"the files of parts \[0\] had another size"
    with pytest.raises(OutputExistsError, match=said):
        call()
    files[0].write_text("content")
    os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    call()
    assert read(out, tmp_path) == [1, 1]


@pytest.mark.parametrize("keep_local", [False, True])
@pytest.mark.parametrize("change", ["content", "removal", "arrival"])
def test_files_of_parts_that_are_not_finished_may_change(tmp_path, change, keep_local):
    files = [tmp_path / "0.txt", tmp_path / "1.txt"]
    files[0].write_text("5")
    if change != "arrival":
        files[1].write_text("stopped")

    def make(part):
        text = part.read_text() if part.exists() else "stopped" if change == "arrival" else "7"
        if text == "stopped":
            raise RuntimeError(text)
        yield {"n": int(text)}

    far = tmp_path / "far"
    out = (tmp_path / "near", f"file://{far}") if keep_local else far
    same = {"columns": COLUMNS, "out": out, "processes": 0, "keep_local": keep_local}
    with pytest.raises(WriterError, match="stopped"):
        write_parts(make, files, **same)
    kept = (far / "part-00000" / "shard.00000.mds").stat().st_mtime_ns
    if change == "removal":
        files[1].unlink()
    else:
        files[1].write_text("7")
    write_parts(make, files, **same)
    assert (far / "part-00000" / "shard.00000.mds").stat().st_mtime_ns == kept
    assert read(far, tmp_path) == [5, 7]
    with pytest.raises(OutputExistsError, match="finished data set"):
        write_parts(make, files, **same)
    files[0].write_text("50")
    with pytest.raises(OutputExistsError, match=r"the files of parts \[0\] had another size"):
        write_parts(make, files, **same)
    assert read(far, tmp_path / "2") == [5, 7]


def test_finished_parts_are_kept_by_the_identity_that_the_error_names(tmp_path):
    files = [tmp_path / "0", tmp_path / "1"]
    for file in files:
        file.touch()
    out = tmp_path / "set"

    def broken(part):
        if part == files[1]:
            raise RuntimeError("stopped")
        yield {"n": 1}

    interrupt(out, broken, files)
    corrected = once(2)
    same = {"columns": COLUMNS, "out": out, "processes": 0}
    with pytest.raises(OutputExistsError, match=r"set make_samples.identity = '\w+' to") as caught:
        write_parts(corrected, files, **same)
    corrected.identity = str(caught.value).partition("identity = '")[2].partition("'")[0]
    write_parts(corrected, files, **same)
    assert read(out, tmp_path) == [1, 2]


def test_what_else_lies_in_a_directory_may_change(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data").touch()
    out, stop = tmp_path / "in" / "set", tmp_path / "stop"
    stop.touch()
    parts = [f"{tmp_path}/in", "no file", "x" * 100_000, "", "nul\0", 1]

    def make(part):
        if part == "no file" and stop.exists():
            raise RuntimeError("stopped")
        yield {"n": 1}

    interrupt(out, make, parts)  # a directory in that of a part
    stop.unlink()
    write_parts(make, parts, columns=COLUMNS, out=out, processes=0)
    assert read(out, tmp_path) == [1] * len(parts)


# -- functions ----------------------------------------------------------------------------------

SCRIPT = """
    import re, sys
    from functools import lru_cache, partial
    from streamplug_tools.function_digest import digest_function

    WORDS = {"a", "b", "c", "d"}
    PATTERN = re.compile("[a-z]+")

    class Tokenizer:
        size = 5

        def __init__(self, names):
            self.names, self.known = names, {name: n for n, name in enumerate(sorted(names))}

        @staticmethod
        def clean(text):
            return text in {"x", "y", "z"}

        def __call__(self, text):
            return helper(text), self.names

    @lru_cache
    def helper(text):
        return [word for word in PATTERN.findall(text) if word in WORDS]

    tokenizer = Tokenizer({"p", "q", "r"})

    def make(part, *, limit=LIMIT):
        recursive = make
        yield tokenizer(part), limit, (lambda: helper(part))()

    print(digest_function(make), digest_function(partial(make, limit=2)), digest_function(tokenizer))
"""


def run_script(tmp_path, script, seed):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_digests_do_not_depend_on_the_process_or_the_lines(tmp_path):
    script = SCRIPT.replace("LIMIT", "1")
    first = run_script(tmp_path, script, "1")
    assert run_script(tmp_path, script, "2") == first
    assert run_script(tmp_path, "\n\n    # moved\n" + script, "3") == first
    assert len(set(first)) == 3


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ("[a-z]+", "[a-z]", (0, 1, 2)),
        ('"a", "b"', '"a", "B"', (0, 1, 2)),
        ("size = 5", "size = 6", (0, 1, 2)),
        ('"x", "y"', '"x", "Y"', (0, 1, 2)),
        ('"p", "q"', '"p", "Q"', (0, 1, 2)),
        ("LIMIT", "2", (0, 1)),
        ("if word in WORDS", "if word not in WORDS", (0, 1, 2)),
        ("limit=2)", "limit=3)", (1,)),
    ],
)
def test_each_value_that_a_function_uses_counts(tmp_path, old, new, differs):
    first = run_script(tmp_path, SCRIPT.replace("LIMIT", "1"), "1")
    other = run_script(tmp_path, SCRIPT.replace(old, new).replace("LIMIT", "1"), "1")
    assert tuple(n for n in range(3) if first[n] != other[n]) == differs


def test_code_of_the_users_modules_counts_and_that_of_packages_does_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_helpers.py").write_text("def clean(text): return text.strip()\n")
    module = importlib.import_module("own_helpers")

    def make(part):
        return [{"n": np.int64(random.randint(1, 1))}, module.clean(part)]

    first = digest_function(make)
    monkeypatch.setattr(random, "seed", 5)
    assert digest_function(make) == first
    monkeypatch.setattr(module, "clean", str.lower)
    assert digest_function(make) != first


@pytest.mark.parametrize(
    "body",
    [
        "own_pkg.text.clean(part)",
        "(own_pkg or part).text.clean(part)",
        "[module.clean(part) for module in MODULES]",
        "getattr(own_pkg.text, 'clean')(part)",
        "default.clean(part)",
        "Holder.module.clean(part)",
    ],
)
def test_modules_of_the_user_count_however_they_are_used(tmp_path, body):
    program = f"""
        import own_pkg.text
        from streamplug_tools.function_digest import digest_function
        MODULES = [own_pkg.text]
        class Holder:
            module = own_pkg.text
        def make(part, default=own_pkg.text):
            return {body}
        print(digest_function(make))
    """
    (tmp_path / "own_pkg").mkdir()
    (tmp_path / "own_pkg" / "__init__.py").touch()
    module, digests = tmp_path / "own_pkg" / "text.py", []
    for number in (1, 1, 22):  # another size, else the compiled module would be used
        module.write_text(f"LIMIT = {number}\ndef clean(text): return text[:LIMIT]\n")
        digests.append(run_script(tmp_path, program, "0"))
    assert digests[0] == digests[1] != digests[2]


def test_unused_variables_of_modules_do_not_count(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_values.py").write_text("import time\nnow = time.time_ns()\nlimit = 1\n")
    own_values = importlib.import_module("own_values")

    def make(part):
        return part.now, own_values.limit

    first = digest_function(make)
    own_values.now = 5
    assert digest_function(make) == first
    own_values.limit = 5
    assert digest_function(make) != first


def test_what_packages_make_once_counts_by_its_name(tmp_path):
    script = """
        import os, sys
        from os import environ
        from random import choice, random
        from numpy.random import rand
        from streamplug_tools.function_digest import digest_function

        class Words(set):
            pass

        words, file = Words("abcdefgh"), open(__file__)

        def make(part):
            return choice(part), random(), rand(), environ["HOME"], words, file
        environ["MORE"] = str(os.getpid())
        print(digest_function(make))
    """
    assert run_script(tmp_path, script, "1") == run_script(tmp_path, script, "2")


def test_modules_are_of_packages_by_their_place(tmp_path, monkeypatch):
    for folder, number in (("site-packages", 1), ("dist-packages", 2), ("project", 3)):
        (tmp_path / folder).mkdir()
        monkeypatch.syspath_prepend(tmp_path / folder)
        (tmp_path / folder / f"placed{number}.py").write_text("def clean(text): return 1\n")
        clean = importlib.import_module(f"placed{number}").clean
        first = holding(clean)
        clean.__code__ = (lambda text: 2).__code__
        assert (holding(clean) == first) == (number < 3)
    made = ModuleType("made_by_a_program")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec("def clean(text): return 1", made.__dict__)
    first = holding(made.clean)
    made.clean.__code__ = (lambda text: 2).__code__
    assert holding(made.clean) != first


def test_a_function_that_wraps_one_of_a_package_counts_by_its_code():
    def wrapping(number):
        @wraps(os.path.join)
        def call(*parts):
            return number

        return call

    assert holding(wrapping(1)) == holding(wrapping(1)) != holding(wrapping(2))


def test_views_files_and_memory_are_compared(tmp_path):
    class Words(set):
        pass

    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 10)

    def kinds(name):
        words = Words({name})
        words.size = 1
        yield from ({name: 1}.keys(), {1: name}.values(), {name: 1}.items(), words)
        yield from (MappingProxyType({name: 1}), memoryview(name.encode()))
        yield np.memmap(tmp_path / name, np.uint8, "r")[2:5]
        yield np.asfortranarray([[1, 2], [3, ord(name)]])[:, 1:]
        with (tmp_path / name).open() as file:
            yield file

    for first, equal, other in zip(kinds("a"), kinds("a"), kinds("b")):
        assert holding(first) == holding(equal) != holding(other), type(first)
    words = Words({1})
    before = holding(words)
    words.size = 2
    assert holding(words) != before


def test_large_arrays_are_not_copied():
    array = np.zeros(1 << 26, np.uint8)
    tracemalloc.start()
    holding(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes // 8


def test_values_of_any_kind_are_compared():
    @cache
    def cached(x):
        return x

    values = [
        *(1, 1.0, True, "1", b"1", None, (1,), [1], {1: 1}, {1}, range(1), 1j, ...),
        *(np.arange(3), np.arange(4), np.float32(1), np.dtype("int8")),
        *(Path("a"), Path("b"), partial(int, 1), partial(int, 2), cached, os.path.join, [].append),
        *([[1]], [[2]], threading.Lock(), open, holding, type("Own", (), {"x": 1}), os),
    ]
    digests = [holding(value) for value in values]
    assert len(set(digests)) == len(values)
    assert [holding(value) for value in values] == digests
    loop = [1]
    loop.append(loop)
    assert holding(loop) == holding(loop)
    deep = []
    for _ in range(5_000):
        deep = [deep]
    assert holding(deep) != holding([deep])


def holding(value):
    return digest_function(lambda part: (part, value))


def test_equal_tensors_have_one_digest_and_others_another():
    torch = pytest.importorskip("torch")
    for kind in (torch.float32, torch.bfloat16, torch.int8, torch.bool):
        ones = [torch.ones(4, dtype=kind) for _ in range(2)]
        assert holding(ones[0]) == holding(ones[1])
        others = [torch.ones(5, dtype=kind), torch.zeros(4, dtype=kind), ones[0].reshape(2, 2)]
        assert len({holding(value) for value in (ones[0], *others)}) == 4
    models = [torch.nn.Linear(2, 3) for _ in range(3)]
    models[1].load_state_dict(models[0].state_dict())
    first, equal, other = map(holding, models)
    assert first == equal != other
    assert holding(torch.tensor(1.0)) == holding(torch.tensor(1.0)) != holding(torch.tensor(2.0))
    assert holding(torch.eye(2).to_sparse()) != holding(torch.eye(2))


def test_sets_of_objects_that_refer_to_them_have_an_end():
    class Node:
        def __init__(self, name, members):
            self.name, self.members = name, members
            members.add(self)

    def graph(names):
        members = set()
        return [Node(name, members) for name in names]

    assert holding(graph("abcdef")) == holding(graph("abcdef")) != holding(graph("abcdeg"))


def test_too_many_values_are_never_taken_for_the_same(monkeypatch, caplog):
    monkeypatch.setattr(function_digest, "_MAX_VALUES", 100)
    assert holding(list(range(1000))) == holding(list(range(1000)))
    assert not caplog.records
    assert holding([[n] for n in range(1000)]) != holding([[n] for n in range(1000)])
    assert "give it an attribute `identity`" in caplog.records[0].message


def test_attributes_of_functions_and_metaclasses_count():
    def make(part):
        return [{"n": make.number}]

    first = digest_function(make)
    make.number = 2
    assert digest_function(make) != first

    def classes(number):
        kind = type("Kind", (type,), {"number": number})
        return kind("Made", (), {})

    assert holding(classes(1)) == holding(classes(1)) != holding(classes(2))
