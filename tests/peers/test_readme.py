"""The programs that mosaicml-streaming's README shows run by the alias, as they stand there.

Only what stands for something is replaced: buckets, ``...`` and directories outside.
"""

from __future__ import annotations

import re

import pytest

from streamplug import MDSWriter

pytest.importorskip("streamplug_image")
pytest.importorskip("streamplug_datasets")
SIDES = pytest.mark.parametrize("side", ["theirs", "ours"])
SEEDED = "import numpy as np\nnp.random.seed(7)\n"


@pytest.fixture(scope="module")
def blocks(readme):
    """Return the programs, by a word that stands in each."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    shown = fence.findall(readme("mosaicml-streaming"))
    found = [block for language, block in shown if language in ("", "python")]
    words = ["MDSWriter", "my-bucket", "WebVid", "mix C4", "dataset[", "num_workers", "cache_limit"]
    programs = [block for block in found if any(word in block for word in words)]
    # A README that shows more is to be looked at.
    assert len(programs) == len(words) == len(found) - 1, found  # the other one is a citation
    return dict(zip(words, programs))


@pytest.fixture
def placed(blocks, tmp_path):
    """Return a function that gives a program with places that there are."""
    for name, count in (("large", 20_000), ("odd", 501)):
        with MDSWriter(out=str(tmp_path / name), columns={"n": "int"}) as out:
            for n in range(count):
                out.write({"n": n})

    def bucket(match):
        place = tmp_path / match[1]
        if not place.exists():
            place.symlink_to(tmp_path / "large")
        return str(place)

    def fill(word, name="large"):
        place = f'local="cache", remote="{tmp_path / name}", batch_size=1'
        program = blocks[word].replace("/tmp/", "cache/").replace("s3://my-bucket/", "")
        program = re.sub(r"(?:s3|gcs)://datasets/(\w+)", bucket, program)
        program = program.replace("StreamingDataset(...)", f"StreamingDataset({place})")
        return program.replace("=...", "=2").replace("    ...\n", f"    {place}\n")

    return fill


def test_the_first_programs_read_what_they_write_in_the_same_order(placed, shown):
    program = SEEDED + placed("MDSWriter") + placed("my-bucket")
    program += (
        "print(img.size, cls, len(dataloader))\n"
        # To iterate over it, theirs wants to be told the size of batches.
        "again = StreamingDataset(local='again', remote=remote, shuffle=True, batch_size=1)\n"
        "print([int(sample['class']) for sample, _ in zip(again, range(300))])\n"
    )
    theirs, ours = shown(program, "theirs"), shown(program, "ours")
    assert ours == theirs
    assert ours.startswith("(32, 32) ")


@SIDES
def test_a_class_of_a_well_known_data_set_is_there(placed, shown, tmp_path, side):
    before = f"local, remote = 'cache', {str(tmp_path / 'large')!r}\n"
    assert shown(f"{before}{placed('WebVid')}print(dataset[5])", side) == "{'n': 5}\n"


def test_data_sets_are_mixed(placed, shown):
    # Theirs has no such parameter any more: it is called epoch_size.
    program = f"from streaming import Stream, StreamingDataset\n{placed('mix C4')}"
    assert shown(f"{program}print(len(dataset), dataset.num_streams)", "ours") == "100000000 3\n"


@SIDES
def test_samples_are_found_by_number(placed, shown, side):
    program = f"from streaming import StreamingDataset\n{placed('dataset[')}print(sample)"
    assert shown(program, side) == "{'n': 19543}\n"


@SIDES
def test_any_number_of_samples_is_divided(placed, shown, side):
    program = (
        "from streaming import StreamingDataset\nfrom torch.utils.data import DataLoader\n"
        f"{placed('num_workers', 'odd')}print(sorted(int(batch['n'][0]) for batch in dl))"
    )
    assert shown(program, side) == f"{list(range(501))}\n"


@SIDES
def test_the_disk_is_limited(placed, shown, side):
    program = f"from streaming import StreamingDataset\n{placed('cache_limit')}print(dataset[9])"
    assert shown(program, side) == "{'n': 9}\n"
