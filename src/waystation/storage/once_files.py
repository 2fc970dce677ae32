"""Idempotency keys on disk: what a snapshot is for producers, but written once and not anew.

A checkpoint adds what is new as one chunk to the newest ``.once`` file, before it writes its
snapshot.  A valid snapshot is therefore proof that all keys before it are in these files.

1. A chunk counts only if its checksum matches and it ends where the log still is.  From the first
   that does not, everything is found again in the log behind the last that does, and written anew.
2. A file goes when the last of its keys has been forgotten, not before.
3. Cutting the log cuts the files first: no key of a tail that is gone ever comes back.

A chunk is a checksum, how many entries it has, the offsets ``[since, end)`` that it speaks of, and
the entries, as ``once_window.py`` keeps them.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from waystation.model.offsets import Millis, Offset
from waystation.storage import names
from waystation.storage.disk import Disk
from waystation.storage.once_window import ENTRY_BYTES, OnceWindow, entries_before, newest_in
from waystation.telemetry.logs import get_logger

__all__ = ["OnceChunk", "OnceFiles"]

_HEAD = Struct(">IIqq")
_CRC_BYTES: Final = 4
_FILE_BYTES: Final = 4 << 20
_NEVER: Final = Offset((1 << 63) - 1)
_events = get_logger("storage")


class OnceChunk(NamedTuple):
    """What a checkpoint adds."""

    since: Offset
    end: Offset
    entries: bytes

    @property
    def size_bytes(self) -> int:
        """What it takes in a file."""
        return _HEAD.size + len(self.entries)

    def before(self, offset: Offset) -> "OnceChunk | None":
        """What it says of what lies before ``offset``; ``None`` if that is nothing."""
        if self.end <= offset:
            return self
        if self.since >= offset:
            return None
        return OnceChunk(self.since, offset, entries_before(self.entries, offset))

    def encode(self) -> bytes:
        """As it lies in a file."""
        count = len(self.entries) // ENTRY_BYTES
        body = _HEAD.pack(0, count, self.since, self.end)[_CRC_BYTES:] + self.entries
        return crc32c(body).to_bytes(_CRC_BYTES, "big") + body


class _File:
    """One of the files, as far as its chunks are whole."""

    __slots__ = ("chunks", "name", "newest")

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest = Millis(0)
        """When the last of its keys was stored."""
        self.chunks: list[tuple[int, Offset]] = []
        """Where each ends, in the file and in the log."""

    @property
    def size_bytes(self) -> int:
        return self.chunks[-1][0] if self.chunks else 0

    @property
    def log_end(self) -> Offset:
        """Up to which offset it speaks; one that could not be written goes with any cut."""
        return self.chunks[-1][1] if self.chunks else _NEVER

    def add(self, chunk: OnceChunk) -> None:
        self.newest = max(self.newest, newest_in(chunk.entries))
        self.chunks.append((self.size_bytes + chunk.size_bytes, chunk.end))


class OnceFiles:
    """The files of one log.  Changed only under the log's lock, or before it is open."""

    __slots__ = ("_damaged", "_disk", "_files", "_path", "forgotten", "written_to")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path
        self._files: list[_File] = []
        self._damaged: list[str] = []
        self.written_to = Offset(0)
        """All keys before it are on disk."""
        self.forgotten = Millis(0)
        """What was stored before that is remembered no more."""

    # --- opening --------------------------------------------------------------------------------

    def load(self, found: list[Offset], log_end: Offset, window: OnceWindow) -> bool:
        """Let ``window`` know what the files hold; false if some of it is damaged.

        Then ``window`` has to learn the rest from the log, from ``written_to`` on, and ``mend``
        be called: until then the files are left as they are, so that a crash hides nothing.
        """
        self._damaged = [names.file_name(offset, names.ONCE) for offset in sorted(found)]
        while self._damaged and self._load(self._damaged[0], log_end, window):
            del self._damaged[0]
        window.fresh_since = self.written_to
        return not self._damaged

    def _load(self, name: str, log_end: Offset, window: OnceWindow) -> bool:
        """Take over the chunks of one file that count; whether those are all."""
        content, file = self._disk.read(self._path / name), _File(name)
        for chunk in _chunks_in(content):
            if not self.written_to <= chunk.end <= log_end:
                break
            file.add(chunk)
            window.load(chunk.entries)
            self.written_to = chunk.end
        if file.chunks:
            self._files.append(file)
        return file.size_bytes == len(content) > 0

    def mend(self, log_end: Offset, window: OnceWindow) -> None:
        """Write what ``window`` has learnt where the files were damaged."""
        name, *others = self._damaged
        _events.warning("once.mended", path=str(self._path / name), since=self.written_to)
        file = _File(name)
        if self._files and self._files[-1].name == name:
            file = self._files.pop()
        good = self._disk.read(self._path / name)[: file.size_bytes]
        chunk = OnceChunk(self.written_to, log_end, window.take_fresh(self.written_to, log_end))
        self._disk.replace(self._path / name, good + chunk.encode())
        file.add(chunk)
        self._files.append(file)
        self.written_to = log_end
        for other in others:
            self._disk.unlink(self._path / other)
        self._disk.sync_directory(self._path)
        self._damaged = []

    # --- a checkpoint ---------------------------------------------------------------------------

    def write(self, chunk: OnceChunk) -> None:
        """Add a chunk, for good; any thread, under the log's lock."""
        if chunk.entries:
            if not self._files or self._files[-1].size_bytes >= _FILE_BYTES:
                self._files.append(_File(names.file_name(chunk.end, names.ONCE)))
            last = self._files[-1]
            file = self._disk.open(self._path / last.name, create=True)
            # What a failed attempt has left may be longer than this one.
            file.truncate(last.size_bytes)
            file.pwrite(chunk.encode(), last.size_bytes)
            file.datasync()
            if not last.chunks:  # its name is new, perhaps since an attempt that failed
                self._disk.sync_directory(self._path)
            last.add(chunk)
        self.written_to = chunk.end

    def drop_forgotten(self) -> None:
        """Remove files of which nothing is remembered; any thread, under the log's lock."""
        while self._files and self._files[0].newest < self.forgotten:
            self._disk.unlink(self._path / self._files.pop(0).name)

    def adopt(self, name: str, chunk: OnceChunk) -> None:
        """The log was emptied, and begins with a chunk that is in a file of its own; if any."""
        self._files = []
        if chunk.entries:
            self._files.append(_File(name))
            self._files[-1].add(chunk)
        self.written_to = chunk.end

    # --- cutting --------------------------------------------------------------------------------

    def cut(self, offset: Offset) -> bool:
        """Let nothing here speak of ``offset`` or what follows it; whether a file has changed.

        What is before it stays, so that snapshots may go on vouching for that.
        """
        changed = False
        while self._files and self._files[-1].log_end > offset:
            last, changed = self._files.pop(), True
            path = self._path / last.name
            kept = [
                before
                for one in _chunks_in(self._disk.read(path) if last.chunks else b"")
                if (before := one.before(offset))
            ]
            if kept:
                self._disk.replace(path, b"".join(one.encode() for one in kept))
                file = _File(last.name)
                for chunk in kept:
                    file.add(chunk)
                self._files.append(file)
            else:
                self._disk.unlink(path)
        self.written_to = min(self.written_to, max(offset, Offset(0)))
        return changed

    def clear(self) -> None:
        """Say nothing at all."""
        self.cut(Offset(-1))


def _chunks_in(content: bytes) -> Iterator[OnceChunk]:
    at = 0
    while (chunk := _chunk_at(content, at)) is not None:
        yield chunk
        at += chunk.size_bytes


def _chunk_at(content: bytes, at: int) -> OnceChunk | None:
    """The chunk there, if it is whole."""
    if len(content) - at < _HEAD.size:
        return None
    checksum, count, since, end = _HEAD.unpack_from(content, at)
    behind = at + _HEAD.size + count * ENTRY_BYTES
    if behind > len(content) or crc32c(memoryview(content)[at + _CRC_BYTES : behind]) != checksum:
        return None
    return OnceChunk(Offset(since), Offset(end), content[at + _HEAD.size : behind])
