"""Xet, the store of the Hub for large files, as far as ``hf_xet`` 1.8 needs it.

It is written from the specification of Xet: what is stored are xorbs, files of chunks, and shards, which say
of which chunks files are. Requests of later versions of the interface are refused, so ``hf_xet`` uses the
first.
"""

from __future__ import annotations

import hashlib
import struct

import lz4.frame

HASH, CHUNK_BYTES = 32, 1 << 16
_HEADER = struct.Struct("<B3sB3s")

xorbs: dict[str, list[bytes]] = {}
files: dict[str, bytes] = {}


def spell(raw):
    """Return a hash as the client spells it: four numbers of 64 bits."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", raw))


def put_xorb(name, body):
    """Store a xorb: chunks, each after a header with its sizes and compression."""
    chunks, at = [], 0
    while at + 8 <= len(body) and body[at] == 0:
        _, packed, scheme, size = _HEADER.unpack_from(body, at)
        length = int.from_bytes(packed, "little")
        data = body[at + 8 : at + 8 + length]
        at += 8 + length
        if scheme:
            data = lz4.frame.decompress(data)
        chunk = ungroup(data) if scheme == 2 else data
        assert len(chunk) == int.from_bytes(size, "little")
        chunks.append(chunk)
    xorbs[name] = chunks


def ungroup(data):
    """Return bytes that are stored as those at 0, 4, 8, …, then those at 1, 5, 9, …, and so on."""
    out, start = bytearray(len(data)), 0
    for offset in range(4):
        count = len(range(offset, len(data), 4))
        out[offset::4] = data[start : start + count]
        start += count
    return bytes(out)


def put_shard(body):
    """Store the files of a shard, whose entries have 48 bytes each."""
    at = 48
    while (raw := body[at : at + HASH]) != b"\xff" * HASH:
        flags, count = struct.unpack_from("<II", body, at + HASH)
        content = []
        for entry in range(at + 48, at + 48 * (count + 1), 48):
            _, _, start, stop = struct.unpack_from("<4I", body, entry + HASH)
            content += xorbs[spell(body[entry : entry + HASH])][start:stop]
        files[spell(raw)] = b"".join(content)
        has_verification, has_metadata = bool(flags >> 31), bool(flags >> 30 & 1)
        at += 48 * (1 + count * (1 + has_verification) + has_metadata)


def add(data):
    """Store a file that was not uploaded by the client; return its hash."""
    name = hashlib.sha256(data).hexdigest()
    files[name] = data
    return name


def packed(data):
    """Return a file as a xorb of chunks that are not compressed."""
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    sizes = (len(part).to_bytes(3, "little") for part in parts)
    return b"".join(_HEADER.pack(0, size, 0, size) + part for size, part in zip(sizes, parts))


def reconstruction(name, url):
    """Return how to make a file of chunks."""
    count = -(-len(files[name]) // CHUNK_BYTES)
    chunks = {"start": 0, "end": count}
    part = {
        "range": chunks,
        "url": url,
        "url_range": {"start": 0, "end": len(packed(files[name])) - 1},
    }
    term = {"hash": name, "unpacked_length": len(files[name]), "range": chunks}
    return {"offset_into_first_range": 0, "terms": [term], "fetch_info": {name: [part]}}
