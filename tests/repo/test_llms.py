"""llms.txt has the pages of the navigation, and the skill for coding agents runs."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
SKILL = DOCS / "skills" / "skills" / "streamplug" / "SKILL.md"


def test_each_entry_is_a_page_with_a_sentence():
    module = runpy.run_path(str(DOCS / "llms.py"))
    text = module["llms_text"]()
    assert text.startswith("# streamplug\n\n> ")
    entries = re.findall(r"^- \[(.+)\]\((.+)\.html\): (.*)$", text, re.MULTILINE)
    assert len(entries) > 60
    for title, name, sentence in entries:
        assert f"# {title}\n" in module["page_text"](module["page_path"](DOCS, name)), name
        assert len(sentence) > 20, name
    assert len(entries) == text.count("\n- [")


def test_the_skill_runs_as_pasted(tmp_path):
    text = SKILL.read_text("utf-8")
    assert re.match(r"---\nname: streamplug\ndescription: .{80,}\n---\n", text)
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"```console\n(.*?)```", text, re.DOTALL)[0].splitlines()
    # It needs no torch, which takes seconds to import.
    program = f"import sys; sys.modules['torch'] = None\n{program}"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", *command.split()], cwd=tmp_path, check=True, timeout=60
        )
