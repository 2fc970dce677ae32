"""The way out of one connection: bytes and stretches of files, in order.

1. What is handed in leaves in that order, byte for byte, or the connection ends.
2. A stretch of a file enters memory only when the socket has room for it, and large ones never
   do: ``sendfile`` moves them.  A reader that does not read costs what it has already been
   handed in bytes, and nothing for files.
3. No connection sends more than ``_TURN_BYTES`` before others get their turn.

Writes go to the socket directly, through a descriptor of our own: uvloop has no ``sendfile``,
and the order between its write buffer and ours would be a guess.  Owning the descriptor also
means that it cannot be closed, and its number given to another file, while we write to it.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections import deque
from typing import Final, Protocol

from waystation.runtime.regions import FileRegion, Part, Parts
from waystation.telemetry.metrics import Counter

SENDFILE_FROM_BYTES: Final = 64 << 10
_JOIN_UPTO_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 256 << 10
_TURN_BYTES: Final = 1 << 20
_PARTS_PER_WRITE: Final = 64
_MORE_FOLLOWS: Final = getattr(socket, "MSG_MORE", 0)
_NO_SENDFILE_HERE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

Chunk = bytes | bytearray | memoryview


class ShortRegionError(Exception):
    """A file ends before the region that was promised out of it."""

    def __init__(self, region: FileRegion) -> None:
        self.region = region
        super().__init__(f"the file ends {region.nbytes} bytes short of the reply at {region!r}")


class Sender(Protocol):
    """Who owns an outbox."""

    def sent_all(self) -> None:
        """Everything left after it had to wait."""
        ...

    def cannot_send(self, error: OSError | ShortRegionError) -> None:
        """The stream is broken; nothing more will leave."""
        ...


class Outbox:
    """The sending side of one connection."""

    __slots__ = (
        "_loop",
        "_queue",
        "_sender",
        "_sent",
        "_sent_by_sendfile",
        "_socket",
        "_waiting",
        "sendfile",
        "sent_bytes",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        sender: Sender,
        sent: Counter,
        sent_by_sendfile: Counter,
    ) -> None:
        self._socket = sock
        self._loop = loop
        self._sender = sender
        self._sent = sent
        self._sent_by_sendfile = sent_by_sendfile
        self._queue: deque[Part] = deque()
        self._waiting = False
        self.sendfile = True
        self.sent_bytes = 0

    @property
    def is_empty(self) -> bool:
        """True if all that was handed in has left."""
        return not self._queue

    def send_bytes(self, chunks: list[Chunk], nbytes: int) -> None:
        """Send what lies in memory.  HOT: once per read of small requests."""
        if self._queue or nbytes > _JOIN_UPTO_BYTES:
            self.send(chunks)  # type: ignore[arg-type]  # a list of chunks is a list of parts
            return
        joined = b"".join(chunks)
        try:
            sent = self._socket.send(joined)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._sender.cannot_send(error)
            return
        self._sent.value += sent
        self.sent_bytes += sent
        if sent < nbytes:
            self._queue.append(memoryview(joined)[sent:])
            self._wait()

    def send(self, parts: Parts) -> None:
        """Send parts of any kind, none of them empty."""
        was_empty = not self._queue
        self._queue.extend(parts)
        if was_empty:
            self._pump()

    def send_end(self) -> None:
        """Tell the other side that nothing more comes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Send nothing more; what waits is dropped."""
        self._stop_waiting()
        self._socket.close()
        self._queue.clear()

    def _pump(self) -> None:
        """Send until the queue is empty, the socket is full or the turn is over."""
        left = _TURN_BYTES
        try:
            while self._queue:
                if left <= 0:
                    self._loop.call_soon(self._pump_again)
                    return
                sent = self._push()
                if not sent:
                    self._wait()
                    return
                self._sent.value += sent
                self.sent_bytes += sent
                left -= sent
        except (OSError, ShortRegionError) as error:
            self._sender.cannot_send(error)

    def _pump_again(self) -> None:
        if not self._queue:
            return
        self._pump()
        if not self._queue and self._socket.fileno() >= 0:
            self._stop_waiting()
            self._sender.sent_all()

    def _push(self) -> int:
        """Write the front of the queue once; how many bytes left, 0 if the socket is full."""
        head = self._queue[0]
        if isinstance(head, FileRegion) and (file := self._file_to_send(head)) is not None:
            return self._push_file(head, file)
        return self._push_chunks()

    def _push_file(self, region: FileRegion, file: int) -> int:
        try:
            sent = os.sendfile(
                self._socket.fileno(), file, region.position, min(region.nbytes, _TURN_BYTES)
            )
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _NO_SENDFILE_HERE:
                raise
            self.sendfile = False
            return self._push_chunks()
        if not sent:
            raise ShortRegionError(region)
        self._sent_by_sendfile.value += sent
        self._queue.popleft()
        if sent < region.nbytes:
            self._queue.appendleft(_after(region, sent))
        return sent

    def _push_chunks(self) -> int:
        chunks, nbytes = self._gather()
        more = _MORE_FOLLOWS if self._queue else 0
        try:
            sent = self._socket.sendmsg(chunks, (), more)
        except BlockingIOError:
            sent = 0
        if sent < nbytes:
            self._queue.extendleft(reversed(_unsent(chunks, sent)))
        return sent

    def _gather(self) -> tuple[list[Chunk], int]:
        """Take from the queue what goes into one write, reading files that are not sent."""
        queue = self._queue
        chunks: list[Chunk] = []
        nbytes = 0
        while queue and nbytes < _CHUNK_BYTES and len(chunks) < _PARTS_PER_WRITE:
            part = queue[0]
            if isinstance(part, FileRegion):
                if self._file_to_send(part) is not None:
                    break
                chunk: Chunk = self._read(part)
            else:
                chunk = part
                queue.popleft()
            chunks.append(chunk)
            nbytes += len(chunk)
        return chunks, nbytes

    def _read(self, region: FileRegion) -> bytes:
        chunk = region.file.pread(min(region.nbytes, _CHUNK_BYTES), region.position)
        if not chunk:
            raise ShortRegionError(region)
        self._queue.popleft()
        if len(chunk) < region.nbytes:
            self._queue.appendleft(_after(region, len(chunk)))
        return chunk

    def _file_to_send(self, region: FileRegion) -> int | None:
        """The descriptor to send ``region`` from, or ``None`` if it is better read."""
        if not self.sendfile or region.nbytes < SENDFILE_FROM_BYTES:
            return None
        return region.file.fileno()

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._socket.fileno(), self._pump_again)

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._socket.fileno())


def _after(region: FileRegion, sent: int) -> FileRegion:
    return FileRegion(region.file, region.position + sent, region.nbytes - sent)


def _unsent(chunks: list[Chunk], sent: int) -> list[Chunk]:
    """What is left of ``chunks`` after their first ``sent`` bytes."""
    for number, chunk in enumerate(chunks):
        if sent < len(chunk):
            return [memoryview(chunk)[sent:], *chunks[number + 1 :]]
        sent -= len(chunk)
    return []
