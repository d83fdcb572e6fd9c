"""What a loader says of itself."""

from __future__ import annotations

import pytest

from streamplug import MDSWriter

pytest.importorskip("torch")


def test_a_loader_is_told_with_its_data_set(tmp_path):
    from streamplug import StreamingDataLoader, StreamingDataset

    with MDSWriter(columns={"n": "int"}, out=tmp_path / "set") as out:
        for n in range(30):
            out.write({"n": n})
    data = StreamingDataset(local=str(tmp_path / "set"))
    loader = StreamingDataLoader(data, batch_size=5, num_workers=2, prefetch_factor=3)
    assert repr(loader) == f"<StreamingDataLoader of {data!r}>"
    assert "batch_size=5" in repr(loader)
    shown = loader._repr_html_()
    for text in ("num_workers", ">2<", "prefetch_factor", ">3<", "30", "5 a rank"):
        assert text in shown
