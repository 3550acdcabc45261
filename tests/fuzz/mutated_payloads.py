"""Payloads and cards that are damaged, or forged: with other contents, but correct checksums."""

from __future__ import annotations

import functools
import json
import random
import re
import struct
import zlib

import pyarrow as pa
import xxhash
from tests.fuzz.mutations import NUMBERS

_CARD = struct.Struct("<4sBIQ")  # parquet/card/array_container.py
_TEXT = struct.Struct("<4sIQI")  # indexes/text/payload.py
_ZSTD = pa.Codec("zstd")


def damaged_payload(kind: str, data: bytes, chance: random.Random) -> tuple[bytes, str]:
    """A damaged payload; if its format has a checksum, the checksum is correct."""
    if kind == "text":
        return _text(data, chance)
    if data[:4] == b"NPFC":
        return damaged_card(data, chance, forged=True)
    return _flipped(data, chance)


def damaged_card(data: bytes, chance: random.Random, forged: bool) -> tuple[bytes, str]:
    if not forged or data[:4] != b"NPFC":
        return _flipped(data, chance)
    magic, version, _, size = _CARD.unpack_from(data)
    payload = bytes(_ZSTD.decompress(data[_CARD.size :], decompressed_size=size, asbytes=True))
    (length,) = struct.unpack_from("<I", payload)
    way = chance.randrange(4)
    if way == 0:
        size, what = chance.choice((0, 1, size - 1, size + 1, 1 << 31, 1 << 36, (1 << 63) - 1)), "another size"
    elif way == 1:
        text, what = _other_number(payload[4 : 4 + length], chance)
        payload = struct.pack("<I", len(text)) + text + payload[4 + length :]
        size = len(payload)
    elif way == 2:
        content, what = _flipped(payload[4 + length :], chance)
        payload = payload[: 4 + length] + content
    else:
        body, size, what = _zeros(1 << 31), 1 << 31, "a bomb of 2 GiB"
        return _CARD.pack(magic, version, zlib.crc32(body), size) + body, f"forged: {what}"
    body = bytes(_ZSTD.compress(payload, asbytes=True))
    return _CARD.pack(magic, version, zlib.crc32(body), size) + body, f"forged: {what}"


def _text(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    told = description(data)
    frames = data[_TEXT.size + len(told) :]
    way = chance.randrange(5)
    if way == 0:
        told, what = _other_number(told, chance)
    elif way == 1:
        told, frames, what = _bomb(told, chance)
    elif way == 2:
        told, frames, what = _in_parts(told, frames, chance)
    else:
        told, frames, what = _other_content(told, frames, chance)
    return text_payload(told, frames), f"forged: {what}"


def description(payload: bytes) -> bytes:
    """The description in the payload of a text index, as JSON."""
    length = _TEXT.unpack_from(payload)[-1]
    return payload[_TEXT.size : _TEXT.size + length]


def text_payload(told: bytes, frames: bytes) -> bytes:
    """A payload of a text index, with the correct checksum."""
    body = struct.pack("<I", len(told)) + told + frames
    return _TEXT.pack(b"NPTX", 3, xxhash.xxh3_64_intdigest(body), len(told)) + body[4:]


def _other_content(told: bytes, frames: bytes, chance: random.Random) -> tuple[bytes, bytes, str]:
    """Change the content of one of the files, and compress it correctly."""
    description = json.loads(told)
    chosen = chance.randrange(len(description["files"]))
    out, at = [], 0
    for number, (name, packed, size) in enumerate(description["files"]):
        frame = frames[at : at + packed]
        at += packed
        if number == chosen:
            content = bytes(_ZSTD.decompress(frame, size, asbytes=True)) if size else b""
            content, what = _flipped(content, chance) if content else (b"\0" * 8, "something")
            frame = bytes(_ZSTD.compress(content, asbytes=True))
            description["files"][number] = [name, len(frame), len(content)]
            told_what = f"{name}: {what}"
        out.append(frame)
    return json.dumps(description).encode(), b"".join(out), told_what


def _in_parts(told: bytes, frames: bytes, chance: random.Random) -> tuple[bytes, bytes, str]:
    """Postings in parts (indexes/text/split_postings.py), with blocks that tantivy did not write."""
    description, kept, at = json.loads(told), [], 0
    for name, packed, size in description["files"]:
        content = bytes(_ZSTD.decompress(frames[at : at + packed], size, asbytes=True)) if size else b""
        kept.append((name, content))
        at += packed
    name, rest = next((name, content) for name, content in kept if name.endswith(".idx"))
    blocks, width, bits = chance.randrange(1, 5), chance.randrange(32), chance.choice((None, 0, 1, 2, 33))
    parts = {
        "rest": rest,
        "runs": struct.pack("<II", chance.randrange(len(rest)), blocks),
        "skips": bytes([0x40 | width]) * blocks + (b"" if bits is None else bytes([bits]) * blocks + bytes(6 * blocks)),
        "gaps": chance.choice((b"\0", b"\1")) * (128 * blocks * -(-width // 8)),
        "times": b"\0" * (16 * blocks * (bits or 0)),
    }
    part = chance.choice([*parts])
    if chance.random() < 0.5:
        parts[part], what = _flipped(parts[part], chance)
    else:
        what = "as it may be"
    contents = dict(kept) | {name.replace("idx", part): content for part, content in parts.items()}
    del contents[name]
    packed_contents = {name: bytes(_ZSTD.compress(content, asbytes=True)) for name, content in sorted(contents.items())}
    description["files"] = [[name, len(frame), len(contents[name])] for name, frame in packed_contents.items()]
    return json.dumps(description).encode(), b"".join(packed_contents.values()), f"{part} of {blocks} blocks: {what}"


def _bomb(told: bytes, chance: random.Random) -> tuple[bytes, bytes, str]:
    """Files of zeros, which are small when compressed."""
    description = json.loads(told)
    size = chance.choice((1 << 26, 1 << 31))
    frame = _zeros(size)
    names = [name for name, _, _ in description["files"]]
    description["files"] = [[name, len(frame), size] for name in names]
    return json.dumps(description).encode(), frame * len(names), f"{len(names)} files of {size:,} zeros"


@functools.cache
def _zeros(size: int) -> bytes:
    """Compressed zeros: a zstd frame that does not state its size, of 128 KiB blocks that each repeat one byte."""
    full = 1 << 17
    head = bytes.fromhex("28b52ffd") + bytes([0b0000_0000, 0x38])  # a window of 128 KiB
    blocks = [(full, number == size // full - 1) for number in range(size // full)]
    return head + b"".join((length << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0" for length, last in blocks)


def _other_number(text: bytes, chance: random.Random) -> tuple[bytes, str]:
    found = chance.choice(list(re.finditer(rb"-?\d+", text)))
    number = str(chance.choice((*NUMBERS, 1.5, "null", '"x"', "[]"))).encode()
    return text[: found.start()] + number + text[found.end() :], f"{found[0]!r} at {found.start()} is {number!r}"


def _flipped(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    if not data:
        return b"\0", "a byte"
    changed = bytearray(data)
    way = chance.randrange(4)
    at = chance.randrange(len(data))
    if way == 0:
        return bytes(changed[:at]), f"cut at {at}"
    if way == 1:
        changed[at : at + 8] = chance.choice(NUMBERS).to_bytes(8, "little", signed=True)
        return bytes(changed), f"another number at {at}"
    changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed), f"a bit at {at}"
