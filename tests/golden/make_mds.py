"""Write the sets that mds.json describes, with mosaicml-streaming.

Run it as ``tox exec -c tests -e peers -- python tests/golden/make_mds.py``. Its gz files hold the time, so
they differ from run to run.
"""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Replace the sets in the directory mds."""
    runpy.run_path(str(HERE.parent / "peers" / "stubs.py"))["install"]()
    from streaming import MDSWriter

    value = runpy.run_path(str(HERE / "mds_values.py"))["value"]
    described = json.loads((HERE / "mds.json").read_text("utf-8"))
    shutil.rmtree(HERE / "mds", ignore_errors=True)
    for name, one in described["sets"].items():
        columns, rows = (described[key][one["values"]] for key in ("columns", "rows"))
        with MDSWriter(columns=columns, out=str(HERE / "mds" / name), **one["arguments"]) as writer:
            for row in rows:
                writer.write({column: value(item) for column, item in row.items()})


if __name__ == "__main__":
    main()
