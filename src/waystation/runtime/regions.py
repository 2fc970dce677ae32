"""A stretch of a file on its way to a socket.

Storage answers a read with a region instead of bytes, and the server moves it with
``sendfile``, so that the bytes of a large fetch never enter this process.

1. Holding a region keeps its file readable, although the file may be unlinked meanwhile.
2. A region promises its length.  A file that was cut shorter than that breaks the promise; the
   server then closes the connection, because the reply's length is already on the wire.
"""

from typing import Protocol


class ReadableFile(Protocol):
    """What a region needs of the file it lies in."""

    def fileno(self) -> int | None:
        """The descriptor to ``sendfile`` from; ``None`` where there is none to give."""
        ...

    def pread(self, nbytes: int, position: int) -> bytes:
        """Up to ``nbytes`` from ``position``; fewer only at the end of the file."""
        ...


class FileRegion:
    """The bytes ``[position, position + nbytes)`` of ``file``; immutable by agreement."""

    __slots__ = ("file", "nbytes", "position")

    def __init__(self, file: ReadableFile, position: int, nbytes: int) -> None:
        assert position >= 0, f"a region at {position}"
        assert nbytes >= 0, f"a region of {nbytes} bytes"
        self.file = file
        self.position = position
        self.nbytes = nbytes

    def read(self) -> bytes:
        """The whole region in memory: for small ones, and for those who must look inside."""
        return self.file.pread(self.nbytes, self.position)

    def __repr__(self) -> str:
        return f"FileRegion({self.file!r}, {self.position}, {self.nbytes})"


Part = bytes | bytearray | memoryview | FileRegion
Parts = list[Part]


def size_of(part: Part) -> int:
    """How many bytes ``part`` puts on the wire."""
    return part.nbytes if isinstance(part, memoryview | FileRegion) else len(part)
