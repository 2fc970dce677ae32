"""What a message of the push benchmark holds: when it was due, and which of its stream it is.

Plain letters that no protocol escapes, so that a receiver finds them in the bytes of any of them
without taking its frames apart: what the receiver costs is the same for all.
"""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(rb"@(\d{19}):(\d{8})@")
_SIZE_BYTES: Final = 200


def message(due_ns: int, number: int, size_bytes: int = _SIZE_BYTES) -> bytes:
    """The ``number``th message of a stream."""
    return (b"@%019d:%08d@" % (due_ns, number)).ljust(size_bytes, b".")


def marks_in(received: bytes) -> list[tuple[bytes, bytes]]:
    """When each whole message in ``received`` was due, and its number."""
    return _MARK.findall(received)


def rest_of(received: bytes) -> bytes:
    """What may be the beginning of a mark that has not come whole."""
    at = received.rfind(b"@")
    return received[at:] if at >= 0 else b""
