"""What users install: the wheels and sdists in dist/, which `tox -e release` has built."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
VERSION = re.search(r'(?m)^version = "(.+)"', (ROOT / "pyproject.toml").read_text()).group(1)
MODULES = [
    "streamplug",
    *sorted(p.name.replace("-", "_") for p in ROOT.glob("plugins/streamplug-*")),
]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")]
EACH = pytest.mark.parametrize("module", MODULES)


def installed_by(page: Path) -> set[str]:
    """Return what a page has pip install along with ours; not what lies in a checkout."""
    lines = re.findall(r"(?<!/)pip install ([^`\n&#]+)", page.read_text(encoding="utf-8"))
    words = [shlex.split(line.rstrip(" .;:)")) for line in lines]
    ours = [line for line in words if any(word.startswith("streamplug") for word in line)]
    wheels = [line for line in ours if not any(re.match(r"[.-](?!-)|.*/", word) for word in line)]
    return {
        word for line in wheels for word in line if not word.startswith("-") and "NAME" not in word
    }


NAMED = sorted(set().union(*map(installed_by, PAGES)))


def run(*command: str | Path, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert not done.returncode, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="session")
def make_python(tmp_path_factory):
    """Return what makes an environment where nothing is installed, and where pip also looks into dist/."""
    links = f"{DIST.as_uri()} {os.environ.get('PIP_FIND_LINKS', '')}"

    def make(name: str):
        folder = tmp_path_factory.mktemp(name)
        venv.create(folder / "env", with_pip=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment["PIP_FIND_LINKS"] = links.strip()

        def python(*arguments: str) -> str:
            return run(folder / "env" / "bin" / "python", *arguments, cwd=folder, env=environment)

        return python

    return make


def test_each_is_built():
    names = [f"{m}-{VERSION}{end}" for m in MODULES for end in ("-py3-none-any.whl", ".tar.gz")]
    assert sorted(path.name for path in DIST.iterdir()) == sorted(names)


@EACH
def test_a_wheel_has_its_licence_and_types_and_the_version(module):
    with zipfile.ZipFile(DIST / f"{module}-{VERSION}-py3-none-any.whl") as wheel:
        names = wheel.namelist()
        info = f"{module}-{VERSION}.dist-info"
        metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
        licence = wheel.read(f"{info}/licenses/LICENSE")
    assert f"{module}/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {module, info}
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert (metadata["Version"], metadata["License-Expression"]) == (VERSION, "Apache-2.0")


@EACH
def test_an_sdist_has_its_licence_types_and_readme(module):
    top = f"{module}-{VERSION}"
    with tarfile.open(DIST / f"{top}.tar.gz") as sdist:
        names = sdist.getnames()
    wanted = {"LICENSE", "README.md", "pyproject.toml", f"src/{module}/py.typed"}
    assert {f"{top}/{name}" for name in wanted} <= set(names)
    assert any(name.startswith(f"{top}/tests/test_") for name in names) == (module != "streamplug")


def test_other_directories_give_the_same_bytes(tmp_path):
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if re.match(r"(src|plugins|\.ci)/|[^/]+$", name) and (ROOT / name).is_file():
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / "tree" / name)  # neither times nor modes
    command = [sys.executable, tmp_path / "tree" / ".ci" / "build", tmp_path / "again"]
    run(*command, umask=0o077, env={**os.environ, "TZ": "Asia/Tokyo"})

    def digests(folder: Path) -> dict[str, str]:
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}

    assert digests(tmp_path / "again") == digests(DIST)


def test_an_empty_environment_gets_what_it_asks_for(make_python):
    python = make_python("extras")
    python("-m", "pip", "install", "--quiet", "streamplug[s3,zstd,image]")
    python("-m", "pip", "check")
    program = """
import streamplug
from PIL import Image
columns = {"image": "png", "label": "int"}
with streamplug.MDSWriter(out="set", columns=columns, compression="zstd") as out:
    for label in range(100):
        out.write({"image": Image.new("L", (8, 8), label), "label": label})
data = streamplug.StreamingDataset(local="set", shuffle=True, batch_size=4)
assert sorted(sample["label"] for sample in data) == list(range(100))
assert data[7]["image"].getextrema() == (7, 7)
print(streamplug.__version__, streamplug.__file__)
"""
    version, place = python("-c", program).split()
    assert version == VERSION
    assert "site-packages" in place
    with pytest.raises(AssertionError, match="pip install streamplug-gcsfs"):
        python("-c", "import streamplug; streamplug.StreamingDataset(remote='gs://bucket/set')")


def test_pip_finds_what_pages_name(make_python):
    assert {"streamplug-folder", "streamplug[yaml]", "torch"} <= set(NAMED)
    # What can be installed together can be installed page by page.
    printed = make_python("pages")("-m", "pip", "install", "--dry-run", "streamplug[all]", *NAMED)
    assert [line for line in printed.splitlines() if "does not provide the extra" in line] == []
