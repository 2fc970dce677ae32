"""Variable-length integers and the few values that fixed-width structs cannot hold.

Two promises:

1. nothing is read past the end of the view, and nothing allocated for what is not there;
2. what reads ends: a varint has at most 32 bits, or 64 if signed.

Varints are seven bits a byte, least significant first.  In a message they are lengths
plus one, zero meaning null; zigzag ones, which fold the sign into the lowest bit, occur
only inside record batches.
"""

from functools import lru_cache
from uuid import UUID

from waystation.model.errors import MalformedFrameError

__all__ = [
    "UVARINTS",
    "ZERO_UUID",
    "decode_string",
    "decode_uvarint",
    "decode_varint",
    "encode_uvarint",
    "encode_varint",
    "finish_uvarint",
    "skip_tagged_fields",
    "uuid_of",
]

ZERO_UUID = UUID(int=0)
"""How the protocol spells "no id"."""

UVARINTS = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte: nearly all that are ever written."""

_UVARINT_BITS = 32
_VARINT_BITS = 64


@lru_cache(maxsize=4096)
def uuid_of(octets: bytes) -> UUID:
    """The id in 16 bytes; remembered, because making one costs ten times a lookup."""
    return UUID(bytes=octets)


def encode_uvarint(value: int) -> bytes:
    """Encode a non-negative integer, seven bits a byte."""
    if value < 128:
        return UVARINTS[value]
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def decode_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    """Read the varint at ``at``: its value and where it ends."""
    if at >= len(view):
        raise MalformedFrameError("the bytes end where a varint should be")
    first = view[at]
    return (first, at + 1) if first < 128 else finish_uvarint(view, at + 1, first)


def finish_uvarint(view: memoryview, at: int, first: int) -> tuple[int, int]:
    """Go on with the varint whose ``first`` byte, just before ``at``, said there is more.

    HOT: for every field of 127 bytes and more, so the usual two and three bytes come first.
    """
    if at + 1 < len(view):
        second = view[at]
        if second < 128:
            return first & 127 | second << 7, at + 1
        third = view[at + 1]
        if third < 128:
            return first & 127 | (second & 127) << 7 | third << 14, at + 2
    return _finish(view, at, first, _UVARINT_BITS)


def encode_varint(value: int) -> bytes:
    """Encode a signed integer by zigzag: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return encode_uvarint(value << 1 if value >= 0 else ~(value << 1))


def decode_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Read the zigzag varint, of up to 64 bits, at ``at``: its value and where it ends."""
    if at >= len(view):
        raise MalformedFrameError("the bytes end where a varint should be")
    folded, at = _finish(view, at + 1, view[at], _VARINT_BITS)
    return (folded >> 1) ^ -(folded & 1), at


def decode_string(view: memoryview, at: int, length: int) -> str:
    """Decode ``length`` bytes of UTF-8 at ``at``, all of which must be there and well formed."""
    if length < 0 or at + length > len(view):
        raise MalformedFrameError(f"a length of {length} where {len(view) - at} bytes are left")
    try:
        return str(view[at : at + length], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFrameError(f"text that is not UTF-8: {error.reason}") from None


def skip_tagged_fields(view: memoryview, at: int, count: int) -> int:
    """Pass over ``count`` tagged fields that begin at ``at``; where they end.

    An unknown tag is a newer peer's optional news: only its length is believed, and
    that only as far as there are bytes.
    """
    if count * 2 > len(view) - at:
        raise MalformedFrameError(f"{count} tagged fields in {len(view) - at} bytes")
    for _ in range(count):
        _, at = decode_uvarint(view, at)
        size, at = decode_uvarint(view, at)
        if size > len(view) - at:
            raise MalformedFrameError(f"a tagged field of {size} bytes in {len(view) - at}")
        at += size
    return at


def _finish(view: memoryview, at: int, first: int, bits: int) -> tuple[int, int]:
    value, shift, octet = first & 127, 7, first
    while octet > 127:
        if shift >= bits:
            raise MalformedFrameError(f"a varint of more than {bits} bits")
        if at >= len(view):
            raise MalformedFrameError("the bytes end within a varint")
        octet = view[at]
        at += 1
        value |= (octet & 127) << shift
        shift += 7
    if value >> bits:
        raise MalformedFrameError(f"a varint of more than {bits} bits")
    return value, at
