"""Going from batch to batch through a file, with few reads.

``walk`` reads headers only; ``verify`` reads everything and checks every checksum; ``go_through``
hands out what it reads and leaves the checking to others.  All stop where a batch is not what it
must be, and say where and why: what that means is the caller's business.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.records.control import Marker, read_marker
from waystation.records.header import FRAME_BYTES, HEADER_BYTES, ONCE, BatchHeader, check, peek
from waystation.records.once import OnceEntry, entries_of
from waystation.runtime.regions import ReadableFile

_WINDOW_BYTES = 8 << 10
_WINDOW_BYTES_MAX = 1 << 20
# Of work that others wait beside.
_TURN_BYTES = 256 << 10


class Step(NamedTuple):
    """A batch and where it begins."""

    position: int
    header: BatchHeader


class BrokenBatchError(CorruptBatchError):
    """Bytes in a segment that are no batch, or no longer the batch that was written."""

    def __init__(self, position: int, reason: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(f"at position {position}: {reason}")


def walk(file: ReadableFile, position: int, end: int) -> Iterator[Step]:
    """The headers of the batches in ``[position, end)``; records are not looked at.

    The window grows while batches are small, so that a long walk makes few calls, and shrinks
    to a page when they are larger than it.
    """
    window_bytes, window, window_at = _WINDOW_BYTES, b"", position
    while position < end:
        at = position - window_at
        if at + HEADER_BYTES > len(window):
            if at <= len(window):
                window_bytes = min(2 * window_bytes, _WINDOW_BYTES_MAX)
            else:
                window_bytes = _WINDOW_BYTES
            window = file.pread(min(window_bytes, end - position), position)
            window_at, at = position, 0
        header = _header(window, at, position, end)
        yield Step(position, header)
        position += FRAME_BYTES + header.batch_length


def verify(file: ReadableFile, position: int, end: int) -> Iterator[Step]:
    """The batches in ``[position, end)``, each proven by its checksum.

    HOT: once per batch behind the recovery point after a crash.
    """
    window, window_at = b"", position
    while position < end:
        at = position - window_at
        if at + HEADER_BYTES > len(window):
            window, window_at, at = _load(file, position, end, 0), position, 0
        size_bytes = FRAME_BYTES + int.from_bytes(window[at + 8 : at + FRAME_BYTES], "big")
        if at + size_bytes > len(window):
            _header(window, at, position, end)
            window, window_at, at = _load(file, position, end, size_bytes), position, 0
        try:
            header = check(window, at)
        except CorruptBatchError as error:
            raise BrokenBatchError(position, str(error)) from None
        yield Step(position, header)
        position += size_bytes


def marker_at(file: ReadableFile, step: Step) -> Marker | None:
    """The marker in a control batch; ``None`` for all other batches, and where it is damaged."""
    if not step.header.is_control:
        return None
    try:
        return read_marker(file.pread(step.header.size_bytes, step.position))
    except CorruptBatchError:
        return None


def once_at(file: ReadableFile, step: Step) -> list[OnceEntry]:
    """The idempotency keys in a batch; none in most batches, nor where it is damaged."""
    if not step.header.attributes & ONCE:
        return []
    try:
        return entries_of(file.pread(step.header.size_bytes, step.position))
    except CorruptBatchError:
        return []


def go_through(file: ReadableFile, end: int, take: Callable[[memoryview, int], int]) -> None:
    """Hand windows of ``[0, end)`` to ``take``, with where in the file each begins.

    A window begins with a batch and usually ends within one.  ``take`` says how many bytes of
    it were whole batches that it has dealt with, or -1 if that was enough.
    """
    position, least_bytes = 0, 0
    while position < end:
        window_bytes = max(least_bytes, _TURN_BYTES)
        window = memoryview(file.pread(min(window_bytes, end - position), position))
        try:
            taken = take(window, position)
        except CorruptBatchError as error:
            raise BrokenBatchError(position, f"or behind it: {error}") from error
        if taken < 0:
            return
        least_bytes = 0 if taken else _header(window, 0, position, end).size_bytes
        position += taken


def _load(file: ReadableFile, position: int, end: int, least_bytes: int) -> bytes:
    return file.pread(min(max(least_bytes, _WINDOW_BYTES_MAX), end - position), position)


def _header(window: bytes | memoryview, at: int, position: int, end: int) -> BatchHeader:
    try:
        header = peek(window, at)
    except CorruptBatchError as error:
        raise BrokenBatchError(position, str(error)) from None
    if header.batch_length < HEADER_BYTES - FRAME_BYTES:
        raise BrokenBatchError(position, f"a batch of {header.size_bytes} bytes")
    if position + FRAME_BYTES + header.batch_length > end:
        raise BrokenBatchError(
            position, f"a batch of {header.size_bytes} bytes where {end - position} are left"
        )
    return header
