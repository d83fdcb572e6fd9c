"""Names are made of the field's words: this checks some rules of `docs/contributing.md`.

``names_to_change.txt`` lists what does not comply yet, with the number of occurrences. Remove entries; do
not add any.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOUNS = ROOT / "docs" / "nouns.txt"
EXCEPTIONS = Path(__file__).with_name("names_to_change.txt")
FILES = sorted(
    [*ROOT.glob("src/streamplug/**/*.py"), *ROOT.glob("plugins/streamplug-*/src/**/*.py")]
)
SUBJECTLESS = re.compile(
    r"_?(ALL|AT_ONCE|BEST|BYTES|EACH|FAR|FEW|FIRST|HERE|HUGE|LANE|LAST|LEAST|LONG|LONGEST|MANY|MOST|"
    r"NEAR|ONE|PASSING|ROWS|SHORT|SOME|WAIT)"
)
"""Constants that name neither a subject nor a unit."""
REPLACED = {
    "Dealt", "Early", "EpochBegun", "Fetched", "Hands", "Haste", "Haul", "Healed",
    "Keep", "Layout", "Lessons", "Needs", "Once", "Passes", "Ranged", "Room", "Setting",
    "ShardHead", "Vectors", "Waited", "Wishes", "across", "apportion", "decode_in", "heals",
    "joins", "lanes", "likely_ranges", "promised", "read_parts", "renewed", "samples_limit",
    "shown", "tidy", "told", "united",
}  # fmt: skip
"""Names of definitions and parameters that standard words replaced."""
SHARED_CLASSES = {
    "StreamingDataset": "the class with and without torch, and that of mosaicml-streaming",
    "StreamingDataLoader": "also that of mosaicml-streaming",
    "Stream": "also that of mosaicml-streaming",
    "MDSWriter": "also that of mosaicml-streaming",
    "JSONLWriter": "also that of mosaicml-streaming",
    "World": "also that of mosaicml-streaming",
    "TokenDataset": "with and without torch",
    "ShardWriter": "also that of webdataset",
    "TarWriter": "also that of webdataset",
    "WebDataset": "also that of webdataset",
}
"""Classes of one name in several packages, and why."""
SHARED_MODULES = {
    "streamplug_webdataset/autodecode.py": "also a module of webdataset",
    "streamplug_webdataset/utils.py": "also a module of webdataset",
}
"""Modules whose names break the rules, and why."""


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def package(path):
    parts = path.relative_to(ROOT).parts
    return parts[2] if parts[0] == "src" else parts[1]


def module_words():
    for path in FILES:
        shared = "/".join(path.parts[-2:]) in SHARED_MODULES
        if not path.stem.startswith("__") and not shared:
            yield from path.stem.split("_")


def titled_docstrings():
    """Yield the first lines of module docstrings of the form "Name: what ..."."""
    for path in FILES:
        first, *_ = (ast.get_docstring(tree(path)) or "").splitlines() or [""]
        if re.match(r"[A-Z]\w*: ", first):
            yield first


def subjectless_constants():
    for path in FILES:
        for node in tree(path).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name) and SUBJECTLESS.fullmatch(target.id):
                    yield target.id


def repeated_classes():
    packages = defaultdict(set)
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                packages[node.name].add(package(path))
    for name, where in packages.items():
        if len(where) > 1 and name not in SHARED_CLASSES:
            yield name


def replaced_names():
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in REPLACED:
                yield node.name
            elif isinstance(node, ast.arg) and node.arg in REPLACED:
                yield node.arg


def private_accesses():
    """Yield the exemptions from the rule against access to private names of other modules."""
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in settings.splitlines():
        if "SLF001" in line and not line.startswith('"**/tests/**"'):
            yield line.partition("=")[0].strip().strip('"')
    for path in FILES:
        for _ in re.findall(r"noqa:[^#\n]*SLF001", path.read_text(encoding="utf-8")):
            yield f"noqa in {package(path)}"


def unknown_words():
    nouns = set(NOUNS.read_text(encoding="utf-8").split())
    yield from (word for word in module_words() if word not in nouns)


RULES = {
    "word of a module's name that is not in docs/nouns.txt": unknown_words,
    "module docstring that defines its own title": titled_docstrings,
    "constant without a subject": subjectless_constants,
    "class name in several packages": repeated_classes,
    "name that a standard word replaced": replaced_names,
    "exemption from SLF001": private_accesses,
}


def exceptions():
    """Return the permitted number of occurrences by rule and text."""
    permitted = defaultdict(Counter)
    rule = ""
    for line in EXCEPTIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            rule = line[2:]
        elif line:
            count, _, text = line.partition(" ")
            permitted[rule][text] = int(count)
    return permitted


@pytest.mark.parametrize("rule", RULES)
def test_names_follow_the_rules(rule):
    new = Counter(RULES[rule]()) - exceptions()[rule]
    assert not new, f"{rule}: {dict(new)}"


def test_exceptions_belong_to_rules():
    assert set(exceptions()) <= set(RULES)


def test_nouns_are_sorted():
    nouns = NOUNS.read_text(encoding="utf-8").split()
    assert nouns == sorted(set(nouns))


if __name__ == "__main__":  # writes the list of exceptions anew
    parts = []
    for title, offenders in RULES.items():
        counts = Counter(offenders())
        parts += [f"# {title}", *(f"{count} {text}" for text, count in sorted(counts.items())), ""]
    EXCEPTIONS.write_text("\n".join(parts), encoding="utf-8")
