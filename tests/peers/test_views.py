"""The data sets behind views stay as they are: mosaicml-streaming reads them."""

from __future__ import annotations

import pytest

from streamplug import MDSWriter, StreamingDataset

pytest.importorskip("streamplug_views")


def test_mosaicml_streaming_reads_the_base_of_a_view(mosaic, tmp_path):
    from streamplug_views import View, compact, expire

    for name, columns in (
        ("set", {"id": "int", "text": "str"}),
        ("more", {"id": "int", "extra": "str"}),
    ):
        with MDSWriter(out=tmp_path / name, columns=columns, size_limit=2000) as out:
            for n in range(200):
                out.write({"id": n, [*columns][1]: f"{name} {n}"})
    before = {path: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    place = tmp_path / "view"
    View.of(tmp_path / "set").where("id % 3").add(tmp_path / "more", on="id").commit(place)
    View.of(place).exclude([0]).rename({"extra": "more"}).commit()
    View.of(place).sample(0.5).commit()
    expire(place, keep=1, dry_run=False)
    compact(place, tmp_path / "compact", processes=0)
    assert {path: path.read_bytes() for path in (tmp_path / "set").iterdir()} == before
    peer = mosaic.StreamingDataset(local=str(tmp_path / "set"), shuffle=False, batch_size=1)
    assert [peer[n] for n in range(200)] == [{"id": n, "text": f"set {n}"} for n in range(200)]
    compacted = mosaic.StreamingDataset(
        local=str(tmp_path / "compact"), shuffle=False, batch_size=1
    )
    expected = [dict(row) for row in StreamingDataset(remote=str(place))]
    assert [compacted[n] for n in range(len(expected))] == expected
