"""Instances and hostile frames from a seed: fast, repeatable, and full of what breaks readers."""

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import Array, Bytes, Fixed, Kind, Nested, Records, String, Uuid

WIDTHS = {"b": 8, "h": 16, "i": 32, "q": 64}

LENGTHS = [
    (2**31 - 1).to_bytes(4, "big"),
    (2**31).to_bytes(4, "big"),
    (2**30).to_bytes(4, "big"),
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\x7f",
    b"\x80\x80\x80\x80\x80\x00",
    b"\x00",
]
"""Two gigabytes and its neighbours, as int32, int16 and varint; null; and endless varints."""


def instance(declared: type[Struct], version: int, random: Random) -> Any:
    """An instance with every field of ``version`` filled."""
    filled = declared()
    for name, field in declared.__fields__.items():
        if field.versions.include(version):
            null = field.nullable.include(version) and random.random() < 0.2
            setattr(filled, name, None if null else _value(field.kind, version, random))
    return filled


def _value(kind: Kind[Any], version: int, random: Random) -> Any:
    match kind:
        case Fixed("?"):
            return random.random() < 0.5
        case Fixed("d"):
            return random.random() * 1e6
        case Fixed(letter):
            return random.getrandbits(WIDTHS[letter] - 1) >> random.randrange(WIDTHS[letter])
        case Uuid():
            return UUID(int=random.getrandbits(128))
        case String():
            return "é".join("topic"[: random.randrange(6)] for _ in range(random.randrange(4)))
        case Bytes() | Records():
            return random.randbytes(random.randrange(150))
        case Array(element):
            return [_value(element, version, random) for _ in range(random.randrange(1, 4))]
        case Nested(declared):
            return instance(declared, version, random)
    raise AssertionError(f"no values for {kind}")


def frames(
    declared: type[Message], count: int, random: Random
) -> Iterator[tuple[int, bytes, bytes]]:
    """Versions, frames, and another frame of the same version to splice with."""
    versions = range(declared.spoken.versions.low, declared.spoken.versions.high + 1)
    seeds = {
        version: [instance(declared, version, random).encode(version) for _ in range(8)]
        for version in versions
    }
    for number in range(count):
        version = versions[number % len(versions)]
        yield version, random.choice(seeds[version]), random.choice(seeds[version])


def mutated(frame: bytes, other: bytes, random: Random) -> bytes:
    """The frame after one to three accidents."""
    for _ in range(random.choice((1, 1, 2, 3))):
        frame = random.choice(ACCIDENTS)(frame, other, random)
    return frame


def _flip(frame: bytes, _: bytes, random: Random) -> bytes:
    if not frame:
        return b"\xff"
    at = random.randrange(len(frame))
    return frame[:at] + bytes([frame[at] ^ 1 << random.randrange(8)]) + frame[at + 1 :]


def _truncate(frame: bytes, _: bytes, random: Random) -> bytes:
    return frame[: random.randrange(len(frame) + 1)]


def _length(frame: bytes, _: bytes, random: Random) -> bytes:
    at, length = random.randrange(len(frame) + 1), random.choice(LENGTHS)
    return frame[:at] + length + frame[at + len(length) :]


def _insert(frame: bytes, _: bytes, random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + random.choice(LENGTHS) + frame[at:]


def _remove(frame: bytes, _: bytes, random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + frame[at + random.randrange(1, 9) :]


def _splice(frame: bytes, other: bytes, random: Random) -> bytes:
    return frame[: random.randrange(len(frame) + 1)] + other[random.randrange(len(other) + 1) :]


def _noise(frame: bytes, _: bytes, random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + random.randbytes(random.randrange(1, 40)) + frame[at + 8 :]


def _repeat(frame: bytes, _: bytes, random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + frame[at:] * random.randrange(2, 5)


ACCIDENTS = (_flip, _truncate, _length, _length, _insert, _remove, _splice, _noise, _repeat)
