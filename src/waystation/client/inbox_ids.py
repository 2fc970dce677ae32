"""What a message of the inbox is called: 40 letters, made of where it is kept.

The topic's id, the partition and the offset: unique, and the same for as long as the message is
there, whoever leads the partition.  Two checksums follow.  One is of the id itself, so that a
mistyped one is told from one of another inbox; the other is of the user it was sent to, so that
nobody goes on behind a message of someone else without being told.  Neither is a secret.
"""

import base64
import binascii
import struct
from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

__all__ = ["NotAnIdError", "Place", "decode", "encode"]

_PLACE: Final = struct.Struct(">16sHq")
_SUMS: Final = struct.Struct(">HH")
_LETTERS: Final = (_PLACE.size + _SUMS.size) * 4 // 3
_LOW: Final = 0xFFFF


class NotAnIdError(ValueError):
    """A text that no message of any inbox was ever called."""


class Place(NamedTuple):
    """Where a message is kept."""

    topic_id: UUID
    partition: int
    offset: int


def encode(place: Place, user: bytes) -> str:
    """The id of the message to ``user`` that is kept at ``place``."""
    packed = _PLACE.pack(place.topic_id.bytes, place.partition, place.offset)
    sums = _SUMS.pack(crc32(packed) & _LOW, crc32(user, crc32(packed)) & _LOW)
    return base64.urlsafe_b64encode(packed + sums).decode()


def decode(text: str, user: bytes) -> tuple[Place, bool]:
    """Where the message called ``text`` is kept, and whether it was sent to ``user``."""
    if len(text) != _LETTERS:
        raise NotAnIdError(f"it has {len(text)} letters, an id has {_LETTERS}")
    try:
        whole = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
    except (UnicodeError, binascii.Error):
        raise NotAnIdError("it has letters that no id has") from None
    if len(whole) != _PLACE.size + _SUMS.size:
        raise NotAnIdError("it has letters that no id has")
    packed = whole[: _PLACE.size]
    own, of_user = _SUMS.unpack_from(whole, _PLACE.size)
    if own != crc32(packed) & _LOW:
        raise NotAnIdError("its checksum is wrong")
    topic_id, partition, offset = _PLACE.unpack(packed)
    if not 0 <= offset < (1 << 63) - 1:
        raise NotAnIdError("its offset is none")
    place = Place(UUID(bytes=topic_id), partition, offset)
    return place, of_user == crc32(user, crc32(packed)) & _LOW
