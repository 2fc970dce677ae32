"""Where one message ends and the next begins in a stream of bytes.

A frame is a four-byte length and as many bytes.  The length comes from the network: it
is checked against the limit before anybody makes room for it.
"""

import struct
from collections.abc import Sequence

from waystation.model.errors import MalformedFrameError
from waystation.wire.schema import Part, size_bytes_of

__all__ = ["LENGTH_BYTES", "framed", "payload_bytes"]

LENGTH_BYTES = 4

_LENGTH = struct.Struct(">i")


def payload_bytes(buffer: bytes | bytearray | memoryview, at: int, limit_bytes: int) -> int:
    """How many bytes follow the length at ``at``; the length itself must be there in full."""
    (length,) = _LENGTH.unpack_from(buffer, at)
    if not 0 <= length <= limit_bytes:
        raise MalformedFrameError(f"a frame of {length} bytes, the limit is {limit_bytes}")
    return int(length)


def framed(parts: Sequence[Part]) -> list[Part]:
    """The parts of one message with their common length in front; none of them is copied."""
    return [_LENGTH.pack(sum(map(size_bytes_of, parts))), *parts]
