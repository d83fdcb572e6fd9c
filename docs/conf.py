"""How the documentation is built: sphinx-build -W -n docs docs/_build/html."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import streamplug

sys.path.insert(0, str(Path(__file__).parent))

from llms import llms_text

project = "streamplug"
author = "The streamplug authors"
copyright = author  # noqa: A001 - Sphinx's name
version = release = streamplug.__version__

extensions = [
    "myst_nb",  # with myst_parser
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "changes", "skills"]
html_theme = "furo"
html_title = "streamplug"
html_static_path = ["_static"]
html_extra_path = ["skills"]
html_css_files = ["pages.css"]
# Sphinx opens a relative path in the working directory.
html_search_scorer = str(Path(__file__).with_name("search.js"))
html_theme_options = {"top_of_page_buttons": []}
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output
copybutton_prompt_text = "$ "

nb_execution_mode = "off"  # the outputs are stored: docs/notebooks.py
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings name parameters and classes alike in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_type_aliases = {
    name: name
    for name in ("Buffer", "Bytes1D", "ColumnValues", "Decoder", "Int64", "NDArray", "Sample")
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Types of other libraries, and private helpers: no pages of ours to point to.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|typing|types|numpy|np|pathlib|pytest|torch|hypothesis|st)\..*"),
    ("py:.*", r"(Any|BinaryIO|Callable|ClassVar|Iterable|Iterator|Mapping|NDArray|Path|Sequence)"),
    ("py:.*", r"(Buffer|Bytes1D|ColumnValues|Decoder|Int64|Sample|TracebackType|dtype|optional)"),
    ("py:class", r"TypeAliasForwardRef|(os\.)?PathLike|Mapping\[str"),
    ("py:class", r"streamplug\.plugin\.registration\.\w+"),
    ("py:class", r"(streamplug\.config\.configurable\.)?C"),
    ("py:class", r"(Location|ProgressCallback|Report|Source|Sources)"),
    # Internal classes that public signatures name, and no program makes.
    ("py:class", r"streamplug\.(cache|index|plan|read|run|source|transfer)\.\w+\.\w+"),
    ("py:class", r"(Index|Mixture|Need|Observer|OpenShard|OpenStream|OrderOptions|RowSelection)"),
    ("py:class", r"(PrefetchLimits|ShardStore|Weight)"),
    ("py:class", r"streamplug_(files|mixing|ranges)\.\w+\.\w+"),
    ("py:class", r"streamplug_views\.(view_base|operations)\.\w+"),
    # The same class as streamplug.dataset.StreamingDataset, which is described.
    ("py:class", r"streamplug\.adapters\.torch\.StreamingDataset"),
]


def setup(app: Any) -> None:
    """Write llms.txt beside the pages."""

    def write(app: Any, exception: Exception | None) -> None:
        if exception is None and app.builder.name == "html":
            Path(app.outdir, "llms.txt").write_text(llms_text(), "utf-8")

    app.connect("build-finished", write)
