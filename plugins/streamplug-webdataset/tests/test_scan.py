from __future__ import annotations

import gzip
import io
import re
import tarfile
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamplug_files import ScanSource
from streamplug_files import scanner as scanning
from streamplug_testing.equality import same
from streamplug_webdataset.members import BLOCK, Members, next_header
from streamplug_webdataset.names import split_name

from streamplug import StreamingDataset
from streamplug.errors import ConfigError, CorruptShardError, DecompressError, StorageError
from streamplug.interfaces import ShardFile, ShardInfo
from streamplug.plugin import make
from streamplug.types import FileInfo

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def archive(members, *, kind=tarfile.PAX_FORMAT, **info):
    """Return the bytes of an archive of (name, content) pairs, written by tarfile."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in info.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


class Memory(ScanSource):
    def __init__(self, data):
        self.name, self.size, self.data = "memory", len(data), data

    def read(self, start, stop):
        return self.data[start:stop]


def scan(data, spec="webdataset"):
    return make("format", spec).scan(Memory(data))


def read(data, spec="webdataset:raw"):
    """Return the samples of an archive."""
    format_, scanned = make("format", spec), scan(data, spec)
    files = {"data": data, **scanned.files}
    infos = {role: ShardFile(FileInfo(role, len(each), {}), None) for role, each in files.items()}
    columns = format_.columns(
        {**scanned.entry, "compression": None}, lambda _, spec: make("encoding", spec)
    )
    arrays = {role: np.frombuffer(each, np.uint8) for role, each in files.items()}
    reader = format_.open(ShardInfo(0, scanned.samples, infos), arrays, columns)
    rows = [reader.row(i, columns) for i in range(len(reader))]
    taken = reader.take(np.arange(len(reader)), columns)
    assert same(rows, [dict(zip((c.name for c in columns), row)) for row in zip(*taken)])
    return rows


def files_of(data):
    """Return the names and contents of an archive's files as tarfile finds them."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(m.name, tar.extractfile(m).read()) for m in tar if m.isreg()]


def members_of(data):
    found = Members(lambda start, stop: data[start:stop], len(data))
    return [(name, data[begin : begin + size]) for name, begin, size in found]


LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/\\")
PARTS = st.text(LETTERS, min_size=1, max_size=60).filter(lambda part: part not in (".", ".."))
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
MEMBERS = st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=6)


@pytest.mark.parametrize("kind", FORMATS[1:], ids=["gnu", "pax"])
def test_finds_what_tarfile_finds(kind):
    @thorough
    @given(MEMBERS, st.sampled_from([0, 1.5, 8**12]))
    def check(members, mtime):
        data = archive(members, kind=kind, mtime=mtime)
        assert members_of(data) == files_of(data)

    check()


@thorough
@given(st.lists(st.tuples(st.text("ab/", max_size=200), st.binary(max_size=600)), max_size=5))
def test_finds_what_tarfile_finds_in_ustar(members):
    fitting = []
    for name, content in members:
        try:
            archive([(name, content)], kind=tarfile.USTAR_FORMAT)
        except ValueError:  # a name that this format cannot hold
            continue
        fitting.append((name, content))
    data = archive(fitting, kind=tarfile.USTAR_FORMAT)
    assert members_of(data) == files_of(data)


def test_long_names_and_large_numbers_are_read():
    name = "folder/" * 40 + "é" * 30 + ".txt"
    for kind in FORMATS[1:]:
        assert members_of(archive([(name, b"x"), ("b.txt", b"y")], kind=kind)) == [
            (name, b"x"),
            ("b.txt", b"y"),
        ]
    data = bytearray(archive([("a.txt", b"x" * 600)], kind=tarfile.GNU_FORMAT))
    data[124:136] = b"\x80" + (600).to_bytes(11, "big")  # as GNU tar writes large sizes
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert members_of(bytes(data)) == [("a.txt", b"x" * 600)]


def test_extensions_of_solaris_are_read():
    name = "folder/" * 30 + "a.txt"
    data = bytearray(archive([(name, b"x"), ("b.txt", b"y")], kind=tarfile.PAX_FORMAT))
    assert data[156] == ord("x")
    data[156] = ord("X")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert members_of(bytes(data)) == files_of(data) == [(name, b"x"), ("b.txt", b"y")]


def test_sizes_of_twelve_digits_are_read():
    data = bytearray(archive([("a.bin", bytes(513)), ("b.txt", b"y")], kind=tarfile.USTAR_FORMAT))
    data[124:136] = b"%012o" % 513  # as libarchive writes members of 8 to 64 GiB
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert members_of(bytes(data)) == files_of(data) == [("a.bin", bytes(513)), ("b.txt", b"y")]
    assert next_header(bytes(data[:512]), 0) == 3 * BLOCK


def test_what_is_no_file_is_left_out_and_told():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/l.txt", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "elsewhere"
            tar.addfile(member)
        member = tarfile.TarInfo("d/a.txt")
        tar.addfile(member)
    assert read(out.getvalue()) == [{"__key__": "d/a", "txt": b""}]
    assert scan(out.getvalue()).notes == {
        "links and other members that are no files are left out": "'d/l.txt'"
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b/c.d", ("a.b/c", "d")),
        ("x/y.z/w.seg.PNG", ("x/y.z/w", "seg.png")),
        ("./a.txt", ("./a", "txt")),
        ("a..b", ("a", ".b")),
        ("dir/a.", ("dir/a", "")),
        ("dir/.x", ("dir/", "x")),
        ("a", None),
        (".x", None),
        ("a.b/c", None),
        ("a.b/.x", None),
    ],
)
def test_names_have_a_key_and_an_extension(name, expected):
    assert split_name(name) == expected


def test_files_in_a_row_with_one_key_are_a_sample():
    members = [
        ("__meta__/info.json", b"{}"),
        ("a.txt", b"1"),
        ("a.JPG", b"2"),
        ("README", b"?"),
        ("b.txt", b"3"),
        ("c.jpg", b"4"),
        ("a.jpg", b"5"),
    ]
    assert read(archive(members)) == [
        {"__key__": "a", "jpg": b"2", "txt": b"1"},
        {"__key__": "b", "jpg": None, "txt": b"3"},
        {"__key__": "c", "jpg": b"4", "txt": None},
        {"__key__": "a", "jpg": b"5", "txt": None},
    ]
    notes = scan(archive(members)).notes
    assert notes["files without an extension, or of macOS (._*), belong to no sample"] == "'README'"
    assert (
        notes["keys are repeated later in the archive, where their files become another sample"]
        == "'a'"
    )


@pytest.mark.parametrize("option", ["raw", "raw,last_dot"])
@pytest.mark.parametrize("folder", ["", "./", "train/", "a.b/"])
def test_files_that_macos_adds_belong_to_no_sample(folder, option):
    names = [f"{n}.{kind}" for n in range(3) for kind in ("jpg", "txt")]
    members = [(f"{folder}{front}{n}", n.encode()) for n in names for front in ("._", "")]
    data = archive(members)
    assert read(data, f"webdataset:{option}") == [
        {"__key__": f"{folder}{n}", "jpg": b"%d.jpg" % n, "txt": b"%d.txt" % n} for n in range(3)
    ]
    [(note, example)] = scan(data).notes.items()
    assert "of macOS" in note
    assert f"'{folder}._0.jpg'" in example


def test_values_are_decoded_by_their_extension():
    out = io.BytesIO()
    np.save(out, np.arange(3))
    pairs = {
        "txt": "é".encode(), "cls": b"7\n", "json": b'{"a": 1}', "seg.npy": out.getvalue(), "bin": b"\xff",
        "jpg": b"\xff\xd8", "gz": gzip.compress(b"a"), "txt.gz": gzip.compress(b"b"),
    }  # fmt: skip
    (sample,) = read(archive((f"k.{name}", value) for name, value in pairs.items()), "webdataset")
    array = sample.pop("seg.npy")
    assert array.tolist() == [0, 1, 2]
    assert sample == {
        "__key__": "k", "txt": "é", "cls": 7, "json": {"a": 1}, "bin": b"\xff", "jpg": b"\xff\xd8",
        "gz": b"a", "txt.gz": "b",
    }  # fmt: skip


DOTTED = {
    "numbers": ["img_0.1.txt", "img_0.2.txt"],
    "titles": ["Mr. A.jpg", "Mr. B.jpg"],
    "one title": ["0001.jpg", "St. John.jpg"],
    "units": ["frame_12.5ms.jpg", "frame_12.6ms.jpg"],
    "dates": ["2024.01.05.png", "2024.01.06.png"],
    "versions": ["v1.0_a.wav", "v1.0_b.wav", "v1.1_a.wav"],
    "hosts": ["www.example.com.html", "www.example.org.html"],
    "addresses": ["192.168.0.1.bin", "192.168.0.2.bin", "10.0.0.1.bin"],
    "names": ["john.doe.wav", "john.doe.json", "john.smith.wav", "mary.major.wav"],
    "data sets": [f"ILSVRC2012.val.{n:08d}.jpg" for n in range(5)],
    "compressed": ["a.one.txt.gz", "a.two.txt.gz"],
    "few samples": [f"{n}.x{n % 20}.jpg" for n in range(400)],
}


@pytest.mark.parametrize("names", DOTTED.values(), ids=DOTTED)
def test_dots_that_seem_to_belong_to_keys_are_told(names):
    data = archive([(name, name.encode()) for name in names])
    [(note, example)] = scan(data).notes.items()
    assert "with format='webdataset:last_dot', at the last" in note
    first, *others = re.findall("'([^']*)'", example)
    assert {first, *others} <= set(names)
    assert len(others) == (names[0] != "0001.jpg")
    assert not any("last_dot" in note for note in scan(data, "webdataset:last_dot").notes)
    rows = read(data, "webdataset:raw,last_dot")
    found = {f"{row['__key__']}.{name}" for row in rows for name in row if row[name] is not None}
    assert found == {*names, *(f"{row['__key__']}.__key__" for row in rows)}


@pytest.mark.parametrize(
    "kinds",
    [
        ["jpg", "json"],
        ["seg.png", "depth.png", "jpg"],
        ["left.jpg", "right.jpg"],
        ["txt", "seg.npy", "txt.gz", "json.gz"],
        ["1.txt"],
    ],
)
def test_kinds_of_values_with_dots_are_not_told(kinds):
    files = [(f"folder.v1/{n}.{kind}", b"") for n in range(20) for kind in kinds]
    assert not scan(archive(files)).notes


def test_dotted_names_are_told_once_for_all_archives(tmp_path, caplog):
    for shard in range(3):
        data = archive([(f"Dr. {n}.txt", b"%d" % n) for n in range(4)])
        (tmp_path / f"{shard}.tar").write_bytes(data)
    dataset = StreamingDataset(remote=str(tmp_path), format="webdataset")
    assert dataset.size == 3  # as the first dot splits names
    [message] = caplog.messages
    assert message.endswith("keys, such as 'Dr. 0.txt' and 'Dr. 1.txt'")
    assert "0.tar and 2 others: samples may be merged" in message
    dataset = StreamingDataset(remote=str(tmp_path), format="webdataset:last_dot")
    assert [sample["__key__"] for sample in dataset] == [f"Dr. {n}" for n in range(4)] * 3
    assert len(caplog.messages) == 1
    with pytest.raises(ConfigError, match="the whole name of a file is its key"):
        StreamingDataset(remote=str(tmp_path), format="webdataset:files,last_dot")


def test_two_values_of_one_kind_are_refused():
    with pytest.raises(
        CorruptShardError, match=r"sample 1: member 'b.TXT' at byte 1536 is its second"
    ):
        scan(archive([("a.txt", b""), ("b.txt", b"1"), ("b.TXT", b"2")], kind=tarfile.GNU_FORMAT))


@pytest.mark.parametrize("extension", ["__key__", "__url__", "__URL__"])
@pytest.mark.parametrize("spec", ["webdataset", "webdataset:case"])
def test_extensions_with_the_names_of_other_columns_are_refused(extension, spec):
    with pytest.raises(CorruptShardError, match=f"member 'b.{extension}' has the extension '__"):
        scan(archive([("a.txt", b""), (f"b.{extension}", b"1")]), spec)


def test_too_many_extensions_are_refused():
    with pytest.raises(CorruptShardError, match="more than 1000 extensions"):
        scan(archive((f"a.{i}.txt", b"") for i in range(1001)))


# -- damage ---------------------------------------------------------------------------

SOME = archive(
    (
        (f"dir/{i:06d}.{extension}", content)
        for i in range(5)
        for extension, content in (("txt", b"text %d" % i), ("cls", b"%d" % i), ("bin", bytes(700)))
    ),
    kind=tarfile.GNU_FORMAT,
)


@pytest.mark.parametrize("size", [*range(0, 10_240, 512), *range(100, 10_240, 777)])
def test_an_archive_that_was_cut_short_is_refused(size):
    with pytest.raises(CorruptShardError, match="cut short"):
        scan(SOME[:size])


def test_a_cut_names_the_member_and_the_place():
    with pytest.raises(
        CorruptShardError, match=r"'dir/000000.bin', whose header is at byte 2048, .*2800"
    ):
        scan(SOME[:2800])


# The last byte of the checksum's own field says nothing, to nobody who reads archives.
@thorough
@given(
    st.integers(0, 511).filter(lambda at: at != 155),
    st.sampled_from([1, 8, 128]),
    st.integers(0, 4),
)
def test_a_damaged_header_is_named(at, bit, sample):
    header = sample * (2 * 1024 + 512 + 1024)
    damaged = bytearray(SOME)
    damaged[header + at] ^= bit
    with pytest.raises(CorruptShardError, match=f"byte {header}\\b"):
        scan(bytes(damaged))


def test_any_damage_is_an_error_or_does_no_harm():
    @thorough
    @given(st.data())
    def check(data):
        damaged = bytearray(archive([("a" * 120 + ".txt", b"x"), ("b.txt", b"y")]))
        for at in data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=6)):
            damaged[at] = data.draw(st.integers(0, 255))
        with suppress(CorruptShardError):
            for sample in read(bytes(damaged)):
                assert sample.keys() >= {"__key__"}

    check()


@pytest.mark.parametrize(
    "type_", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_left_out(type_):
    data = archive([("a.txt", b"")], type=type_, linkname="/etc/passwd")[:BLOCK]
    data += archive([("../../b.txt", b"x")])
    members = Members(lambda a, b: data[a:b], len(data))
    assert [(member.name, member.size) for member in members] == [("../../b.txt", 1)]
    assert members.skipped == "a.txt"


def test_sparse_members_are_refused():
    data = bytearray(archive([("a.txt", b"x")], kind=tarfile.GNU_FORMAT))
    data[156] = ord("S")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    with pytest.raises(CorruptShardError, match=r"'a.txt' at byte 512 is sparse"):
        scan(bytes(data))


def padded(data, blocks):
    """Return an archive as ``tar -b`` writes it."""
    return data + bytes(-len(data) % (blocks * BLOCK))


def test_regular_ends_of_archives_are_accepted():
    last = 5 * (2 * 1024 + 512 + 1024)
    for data in (
        SOME,
        SOME[:last] + bytes(BLOCK),
        SOME[:last] + bytes(2 * BLOCK),
        *(padded(SOME, blocks) for blocks in (1, 64, 128, 512, 2048)),
        padded(SOME[:last] + bytes(2 * BLOCK), 20),
    ):
        assert scan(data).samples == 5
        assert not scan(data).notes


def test_empty_archives_are_accepted():
    for data in (archive([]), bytes(2 * BLOCK), bytes(20 * BLOCK)):
        assert scan(data).samples == 0


@pytest.mark.parametrize("size", [10_752, 20_480, 1 << 17, 1 << 20, 3 << 20])
def test_archives_of_zeros_are_damaged(size, tmp_path):
    with pytest.raises(CorruptShardError, match=rf"ends with {size} zeros from byte 0 on"):
        scan(bytes(size))
    (tmp_path / "0.tar").write_bytes(SOME)
    (tmp_path / "1.tar").write_bytes(bytes(size))
    with pytest.raises(CorruptShardError, match=r"1\.tar: the archive ends with"):
        StreamingDataset(remote=str(tmp_path), format="webdataset")


@pytest.mark.parametrize("sample", [0, 1, 3])
@pytest.mark.parametrize("size", [BLOCK, 4 * BLOCK, 8 * BLOCK])
def test_zeros_within_an_archive_are_damage(sample, size):
    at = sample * (2 * 1024 + 512 + 1024)
    data = SOME[:at] + bytes(size) + SOME[at + size :]
    with pytest.raises(
        CorruptShardError, match=rf"ends at byte {at}, but data follow at byte \d+: "
    ):
        scan(data)


def test_zeros_instead_of_the_last_members_are_damage():
    many = archive((f"{i:06d}.bin", bytes([i % 255 + 1]) * 3000) for i in range(1000))
    at = len(many) // 2 // 3584 * 3584
    data = many[:at] + bytes(len(many) - at)
    with pytest.raises(
        CorruptShardError, match=rf"ends with {len(data) - at} zeros from byte {at}"
    ):
        scan(data)


def test_joined_archives_are_refused():
    for first in (SOME, padded(SOME, 512)):
        message = rf"but data follow at byte {len(first)}: .* or several archives were joined"
        with pytest.raises(CorruptShardError, match=message):
            scan(first + SOME)
    with pytest.raises(CorruptShardError, match="but data follow at byte 10240"):
        scan(archive([]) + SOME)


def inflating(path):
    """Write a compressed archive whose one file is 4 MiB of zeros."""
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("0.bin")
        member.size = 1 << 22
        tar.addfile(member, io.BytesIO(bytes(member.size)))


def test_an_archive_that_inflates_beyond_measure_is_refused(tmp_path, monkeypatch):
    inflating(tmp_path / "x.tar.gz")
    assert len(StreamingDataset(remote=str(tmp_path), format="webdataset")) == 1
    monkeypatch.setattr(scanning, "MAX_EXPANSION", 100)
    monkeypatch.setattr(scanning, "MIN_EXPANSION_BYTES", 1 << 20)
    inflating(tmp_path / "y.tar.gz")
    with pytest.raises(DecompressError, match=r"y\.tar\.gz: 'gz' data expands beyond the 1048576"):
        StreamingDataset(remote=str(tmp_path), format="webdataset")


def test_what_is_decompressed_leaves_room_on_the_disk(tmp_path, monkeypatch):
    inflating(tmp_path / "x.tar.gz")
    full = SimpleNamespace(free=5 << 20, total=1 << 40)
    monkeypatch.setattr(scanning, "DISK_CHECK_BYTES", 1 << 20)
    monkeypatch.setattr(scanning.shutil, "disk_usage", lambda path: full)
    with pytest.raises(StorageError, match="has only 5242880 bytes left"):
        StreamingDataset(remote=str(tmp_path), format="webdataset")
    full.free = 2 << 30
    assert len(StreamingDataset(remote=str(tmp_path), format="webdataset")) == 1


def test_an_extension_of_very_many_records_is_read_in_one_pass():
    records = b"5 a=\n" * 200_000
    extension = tarfile.TarInfo("records")
    extension.type, extension.size = tarfile.XHDTYPE, len(records)
    parts = [extension.tobuf(tarfile.USTAR_FORMAT), records, bytes(-len(records) % 512)]
    data = b"".join(parts) + archive([("a.txt", b"x")], kind=tarfile.USTAR_FORMAT)
    start = time.process_time()
    assert [member.name for member in Members(lambda a, b: data[a:b], len(data))] == ["a.txt"]
    assert time.process_time() - start < 4
