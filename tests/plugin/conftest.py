"""Installed distributions that exist for one test only, and a Python that sees them."""

from __future__ import annotations

import base64
import hashlib
import os
import textwrap

import pytest

from tests import warm_python

# They import no pluggy, which is for installed plugins.
MODULES = ("numpy", "streamplug.plugin")
HEAD = "from streamplug.plugin import Provider, hookimpl\n"


class Site:
    """A directory on the path of a fresh interpreter, to which distributions are installed."""

    def __init__(self, root):
        self.root = root
        self.names = []

    def install(self, name, hooks, /, *, version="1.0", entry="main", at="", **modules):
        """Install a distribution whose module of hooks has this code."""
        package = name.replace("-", "_")
        folder = self.root / at
        files = {f"{package}/__init__.py": "", f"{package}/hooks.py": HEAD + textwrap.dedent(hooks)}
        files |= {f"{package}/{stem}.py": textwrap.dedent(text) for stem, text in modules.items()}
        info = f"{package}-{version}.dist-info"
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files[f"{info}/entry_points.txt"] = f"[streamplug]\n{entry} = {package}.hooks\n"
        record = [f"{path},{digest(text)},{len(text)}" for path, text in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"])
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        self.names.append(name)

    def run(self, code, *, path=None, prelude=None, **environment):
        """Run code in a fresh interpreter; return what it prints."""
        folders = path or [self.root]
        ours = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONWARNINGS": "error"}
        # What else is installed here must not matter.
        ours["STREAMPLUG_PLUGINS"] = ",".join(self.names)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("STREAMPLUG_")}
        code = (PRELUDE if prelude is None else prelude) + textwrap.dedent(code)
        result = warm_python.run(["-c", code], MODULES, env=inherited | ours | environment)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def error(self, expression, **environment):
        """Return the class and text of the error that an expression raises."""
        return self.run(
            f"""
            try:
                {expression}
            except Exception as error:
                print(type(error).__name__, error, sep=": ")
            else:
                print("no error")
            """,
            **environment,
        )


PRELUDE = """\
import sys
from streamplug.plugin import inventory, make, open_storage, register, resolve

def rows(status=None):
    for f in inventory().entries:
        if f.status != "disabled" and status in (None, f.status):
            print(f.provider, f.kind or "-", f.name or "-", f.status, f.reason, sep=" | ")
"""


def digest(text):
    raw = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + raw.decode().rstrip("=")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)
