"""Idempotency keys that a log begins with, where it begins behind the first message of its topic.

A replica that is made anew, or was away for too long, copies what its leader still has.  The keys
of messages before that come from the leader as well, and are there as soon as the log is:

1. ``work``, in a thread, brings them to disk under a name that does not count;
2. ``begin`` gives them their name just before the log is emptied.  A crash in between leaves a log
   that begins anew once more, and its own keys.
"""

from collections.abc import Callable, Sequence

from waystation.model.offsets import Offset
from waystation.storage import names
from waystation.storage.log import Log
from waystation.storage.once_files import OnceChunk
from waystation.storage.once_window import OnceWindow, entries_before

__all__ = ["Inheritance"]


class Inheritance:
    """The keys among ``pages`` for ``log``, which is to begin at ``offset``."""

    def __init__(self, log: Log, offset: Offset, pages: Sequence[bytes]) -> None:
        self.offset = offset
        self._log, self._pages = log, pages
        self._window = OnceWindow()
        self._chunk = OnceChunk(Offset(0), offset, b"")
        # Where none of the log's own has the name, and the files before it, if any, count first.
        named = offset if offset > log.log_end else 0
        self._path = log.path / names.file_name(named, names.ONCE)
        self._temporary = self._path.with_name(self._path.name + names.TEMPORARY)

    def suits(self, log: Log, offset: Offset) -> bool:
        """Whether it was made for this log and place."""
        return log is self._log and offset == self.offset

    def work(self) -> None:
        """Any thread."""
        packed = entries_before(b"".join(self._pages), self.offset)
        self._window.load(packed)
        self._window.fresh_since = self.offset
        self._chunk = self._chunk._replace(entries=packed)
        if packed:
            file = self._log.directory.disk.open(self._temporary, create=True)
            file.truncate(0)
            file.pwrite(self._chunk.encode(), 0)
            file.datasync()

    def begin(self, start: Callable[[Offset], None]) -> None:
        """Let the log begin anew by ``start``, and know these keys."""
        log, disk = self._log, self._log.directory.disk
        if self._chunk.entries:
            disk.rename(self._temporary, self._path)
            disk.sync_directory(log.path)
        start(self.offset)
        log.once = self._window
        log.once_files.adopt(self._path.name, self._chunk)
