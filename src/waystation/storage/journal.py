"""One write-ahead file per data directory, for the many small batches of many partitions.

A hundred partitions that each get a few records a millisecond would need a hundred syncs for
them; written here as well, they need one.  Partition files follow at leisure.

1. Everything added before a round began is safe when that round ends, however long it was let
   wait for it.
2. Rounds are written one after the other: if an entry survived a crash, so did all before it.
3. A file is used again only when every log in it was synced past its entries.

Files are used again rather than made anew, because overwriting costs the file system no new
blocks to account for.  An entry carries its file's generation, so that what is left of the
one before is never taken for the present one.  Reading them back is in ``journal_replay.py``,
what happens to entries of a log that is cut in ``journal_voids.py``;
why there is a journal beside the pool of sync threads is in docs/decisions/0002-durability.md.
"""

import contextlib
import errno
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from waystation.model.errors import StorageError
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.storage.disk import Disk, DiskFile
from waystation.storage.journal_voids import Place, Void, with_void, write_voids

FOLDER: Final = "journal"
SUFFIX: Final = ".wal"

HEADER = struct.Struct(">II")
TAIL = struct.Struct(">Q16sI")

_ENTRY_BYTES_MAX: Final = 32 << 10
_ROUND_BYTES_MAX: Final = 2 << 20
FILE_BYTES: Final = 16 << 20
_ZEROS: Final = bytes(512 << 10)
# Files that are prepared under load, and how few free ones are too few.
_FILES: Final = 6
_SHORT: Final = 2
_PLENTY_BYTES: Final = 1 << 30
# With more full files than this, freeing them comes before sparing the disk.
_FULL_MAX: Final = 4
# Rounds that follow each other closely wait a little, to take more along; longer where many
# partitions are written to, since each of them then costs its readers a fetch per round.
_PAUSE_S: Final = 0.001
_LONG_PAUSE_S: Final = 0.003
_ROUND_BYTES_ENOUGH: Final = 96 << 10
_MANY: Final = 16
# However long topics let their batches wait, no longer than until there is so much.
_LINGER_BYTES_MAX: Final = 1 << 20
_NEVER_S: Final = float("inf")

Defer = Callable[[float, Callable[[], None]], object]
Post = Callable[[Callable[[], None]], object]
Submit = Callable[[Callable[[], None]], object]


def number_of(name: str) -> int | None:
    """The number of a journal file; ``None`` for a file that is none of ours."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and stem.isdecimal() else None


class Stopwatch(Protocol):
    """Takes note of how long a sync took."""

    def observe(self, seconds: float, /) -> None: ...


class Journaled(Protocol):
    """A partition that writes through the journal."""

    @property
    def log_end(self) -> Offset:
        """The end of what was added so far."""
        ...

    @property
    def flushed_end(self) -> Offset:
        """The end of what needs the journal no more."""
        ...

    def journaled(self, outcome: Offset | StorageError) -> None:
        """Everything before the offset is safe; or nothing is known any more."""
        ...

    def not_journaled(self) -> None:
        """There was no room: what was added must be synced in the partition's own files."""
        ...

    def flush(self) -> None:
        """Sync the partition's own files, in the background."""
        ...


class _Round(NamedTuple):
    """What one sync makes safe."""

    file: "_File"
    position: int
    data: bytearray
    ends: dict[Journaled, Offset]


class _File:
    """One journal file, and how far the logs in it must be synced before it is used again."""

    __slots__ = ("disk_file", "ends", "generation", "is_new", "position")

    def __init__(self, disk_file: DiskFile) -> None:
        self.disk_file = disk_file
        self.generation = 0
        self.position = 0
        self.is_new = True
        self.ends: dict[Journaled, Offset] = {}

    @property
    def is_done_with(self) -> bool:
        return all(log.flushed_end >= end for log, end in self.ends.items())


class Journal:
    """Every method but ``_write`` belongs to the loop's thread."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        submit: Submit,
        background: Submit,
        post: Post,
        defer: Defer,
        fail: Callable[[str], None],
        generation: int = 0,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """``folder`` holds prepared files at most: the rest was read back and removed.

        ``generation`` is greater than any that an earlier life may have used.
        ``submit`` runs work off the loop, in order, and ``background`` beside it; ``post``
        brings outcomes back.
        """
        self._disk = disk
        self._folder = folder
        self._submit, self._background, self._post = submit, background, post
        self._defer, self._fail = defer, fail
        self._stopwatch = stopwatch
        self._pending = bytearray()
        self._ends: dict[Journaled, Offset] = {}
        self._busy = False
        self._ended_at = 0.0
        # How long what is pending may wait: as the load suggests, if some of it leaves that to us,
        # or for the shortest time that a topic names.
        self._adaptive, self._linger_s = False, _NEVER_S
        # The timer that begins the next round: its number, and when it goes off, if there is one.
        self._turn = 0
        self._begins_at: float | None = None
        self._broken: StorageError | None = None
        self._generation = generation
        self._count = 0
        self._file: _File | None = None
        self._full: list[_File] = []
        self._free: list[_File] = []
        self._flying: list[_Round] = []
        self._to_flush: list[Journaled] = []
        self._voids: list[Void] = []
        self._preparing = False
        self._adopt()

    def _adopt(self) -> None:
        """Use the files again that an earlier life prepared."""
        for entry in self._disk.entries(self._folder):
            number = number_of(entry.name)
            if number is not None:
                file = _File(self._disk.open(self._folder / entry.name))
                file.is_new = False
                self._free.append(file)
                self._count = max(self._count, number + 1)

    def prepare(self) -> None:
        """Have files ready for when they are needed: one at first, more once one was filled."""
        wanted = _FILES if self._full or len(self._free) > 1 else 1
        if len(self._free) >= wanted or self._count >= _FILES or self._preparing:
            return
        # Where space is short it belongs to the logs; files then grow as they are written.
        with contextlib.suppress(OSError):
            if self._disk.free_bytes(self._folder) > _PLENTY_BYTES:
                self._background(partial(self._fill, self._new_file()))
                self._preparing = True

    def takes(self, nbytes: int) -> bool:
        """Whether a batch is better written here than synced in its own file."""
        return nbytes <= _ENTRY_BYTES_MAX and len(self._pending) < _ROUND_BYTES_MAX

    def add(
        self,
        log: Journaled,
        topic_id: TopicId,
        partition: int,
        batch: memoryview,
        linger_s: float | None = None,
    ) -> None:
        """Make a batch safe that was just appended to ``log``; it is told when that is done.

        The round that does it begins no sooner than ``linger_s`` after the last one, unless
        others are less patient; ``None`` leaves that to the load.

        HOT: once per small batch with ``durability=disk``.
        """
        if self._broken is not None:
            log.journaled(self._broken)
            return
        # The generation is known when the round begins; until then a file has room for all.
        if self._file is None or self._file.position + len(self._pending) > FILE_BYTES:
            try:
                self._next_file()
            except OSError:
                log.not_journaled()
                return
        assert self._file is not None, "no file to write to"
        tail = TAIL.pack(self._file.generation, topic_id.bytes, partition)
        self._pending += HEADER.pack(len(batch), crc32c(batch, crc32c(tail)))
        self._pending += tail
        self._pending += batch
        self._ends[log] = log.log_end
        if linger_s is None:
            hurry_s = _NEVER_S if self._adaptive else _PAUSE_S
            self._adaptive = True
        else:
            hurry_s = linger_s
            self._linger_s = min(linger_s, self._linger_s)
        if not self._busy:
            self._busy = True
            self._begin_in(self._first_pause_s())
        elif self._begins_at is not None:
            hurry_s = 0.0 if len(self._pending) >= _LINGER_BYTES_MAX else hurry_s
            if time.monotonic() + hurry_s < self._begins_at:
                self._begin_in(hurry_s)

    def void(self, topic_id: TopicId, partition: int, offset: Offset, flushed_end: Offset) -> None:
        """Let nothing come back that a log is about to lose from ``offset`` on.

        Durable when this returns; raises ``OSError``.  ``flushed_end`` is that of the log.
        """
        if self._file is None and all(not file.generation for file in (*self._full, *self._free)):
            return
        place = Place(self._generation + 1, 0)
        if self._file is not None:
            place = Place(self._file.generation, self._file.position + len(self._pending))
        voids = with_void(self._voids, Void(topic_id, partition, offset, place), flushed_end)
        write_voids(self._disk, self._folder, voids)
        self._voids = voids

    def forget(self, log: Journaled) -> None:
        """Tell ``log``, which was cut and synced, nothing of what was added before."""
        files = [*self._full, *self._free, *([self._file] if self._file is not None else [])]
        for ends in (self._ends, *(job.ends for job in self._flying), *(one.ends for one in files)):
            ends.pop(log, None)
        self._to_flush = [one for one in self._to_flush if one is not log]

    def tidy(self) -> None:
        """Let logs of full files be synced, a few at a time, and free files; call now and then.

        Syncing them stands in the way of the rounds that somebody waits for: not before files
        run short, and not all at once.
        """
        done = [file for file in self._full if file.is_done_with]
        for file in done:
            self._full.remove(file)
            file.ends.clear()
            self._free.append(file)
        if not self._to_flush and self._full and len(self._free) <= _SHORT:
            oldest = self._full[0]
            self._to_flush = [log for log, end in oldest.ends.items() if log.flushed_end < end]
        share = len(self._to_flush) if len(self._full) > _FULL_MAX else len(self._to_flush) // 4 + 1
        for log in self._to_flush[:share]:
            log.flush()
        del self._to_flush[:share]

    def _next_file(self) -> None:
        if self._pending:
            # What is pending was given the present file's generation.
            self._begin_round()
        if self._file is not None:
            self._full.append(self._file)
            self._file = None
            self.tidy()
        file = self._free.pop(0) if self._free else self._new_file()
        self._generation += 1
        file.generation, file.position = self._generation, 0
        self._file = file
        self.prepare()

    def _new_file(self) -> _File:
        path = self._folder / f"{self._count}{SUFFIX}"
        self._count += 1
        return _File(self._disk.open(path, create=True))

    def _fill(self, file: _File) -> None:
        """Fill the next file with zeros, off the loop, so that its rounds only overwrite.

        A sync of bytes that are new to a file makes ext4 write other files' data first.
        """
        fit = True
        try:
            for at in range(0, FILE_BYTES + _ROUND_BYTES_MAX, len(_ZEROS)):
                file.disk_file.pwrite(_ZEROS, at)
                file.disk_file.start_writeback(at, len(_ZEROS))
            file.disk_file.datasync()
            self._disk.sync_directory(self._folder)
            file.is_new = False
        except OSError:
            fit = False
            with contextlib.suppress(OSError):
                file.disk_file.truncate(0)
        self._post(partial(self._prepared, file, fit))

    def _prepared(self, file: _File, fit: bool) -> None:
        self._preparing = False
        if fit:
            self._free.append(file)
            self.prepare()

    def _begin_in(self, pause_s: float) -> None:
        self._turn += 1
        self._begins_at = time.monotonic() + pause_s
        self._defer(pause_s, partial(self._begin, self._turn))

    def _begin(self, turn: int) -> None:
        if turn != self._turn:
            return  # somebody was in a greater hurry
        self._begins_at = None
        if self._pending:
            self._begin_round()
        else:
            self._busy = False

    def _begin_round(self) -> None:
        file = self._file
        assert file is not None, "a round without a file"
        data, self._pending = self._pending, bytearray()
        ends, self._ends = self._ends, {}
        self._adaptive, self._linger_s = False, _NEVER_S
        file.ends.update(ends)
        job = _Round(file, file.position, data, ends)
        file.position += len(data)
        self._flying.append(job)
        self._submit(partial(self._write, job))

    def _write(self, job: _Round) -> None:
        """Runs off the loop."""
        started = time.perf_counter()
        outcome: OSError | None = None
        try:
            job.file.disk_file.pwrite(job.data, job.position)
            job.file.disk_file.datasync()
            if job.file.is_new:
                job.file.is_new = False
                self._disk.sync_directory(self._folder)
        except OSError as error:
            outcome = error
        if self._stopwatch is not None:
            self._stopwatch.observe(time.perf_counter() - started)
        self._post(partial(self._ended, job, outcome))

    def _ended(self, job: _Round, error: OSError | None) -> None:
        self._flying.remove(job)
        self._busy = False
        self._ended_at = time.monotonic()
        if error is None:
            if self._pending:
                self._busy = True
                self._begin_in(self._pause_s(len(job.ends)))
            for log, end in job.ends.items():
                log.journaled(end)
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            self._do_without(job)
        else:
            self._break(job, error)

    def _first_pause_s(self) -> float:
        """How long the first of a round waits, while no other round is under way."""
        since_s = time.monotonic() - self._ended_at
        if self._adaptive:
            return _PAUSE_S if since_s < _PAUSE_S else 0.0
        return max(0.0, self._linger_s - since_s)

    def _pause_s(self, partitions: int) -> float:
        """How long a round waits that could follow the one which just ended."""
        waiting = len(self._pending)
        named_s = 0.0 if waiting >= _LINGER_BYTES_MAX else self._linger_s
        if not self._adaptive:
            return named_s
        if waiting >= _ROUND_BYTES_ENOUGH:
            return 0.0
        return min(named_s, _LONG_PAUSE_S if partitions >= _MANY else _PAUSE_S)

    def _do_without(self, job: _Round) -> None:
        """No room: what is after a torn entry would not be read back, so leave the file."""
        if job.file is self._file:
            self._full.append(job.file)
            self._file = None
        waiting = [*job.ends, *self._ends]
        self._pending.clear()
        self._ends.clear()
        for log in dict.fromkeys(waiting):
            log.not_journaled()

    def _break(self, job: _Round, error: OSError) -> None:
        self._broken = StorageError(f"cannot write the journal in {self._folder}: {error}")
        self._fail(str(self._broken))
        for log in dict.fromkeys([*job.ends, *self._ends]):
            log.journaled(self._broken)
