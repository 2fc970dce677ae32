"""One message as an application sees it, and the types that it is made of."""

from typing import NamedTuple

from waystation.model.offsets import Millis, Offset

__all__ = ["Buffer", "Headers", "Record", "Row"]

Buffer = bytes | bytearray | memoryview
"""Bytes, borrowed or owned; a view has items of one byte."""

Headers = tuple[tuple[str, bytes | None], ...]

Row = tuple[int, int, bytes | None, bytes | None, Headers]
"""The fields of a ``Record`` in their order, without its name."""


class Record(NamedTuple):
    """A message with its place in the log.  A null value is a tombstone, not an empty one."""

    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
