"""One pass of compaction over one log: of each key the last record stays.

1. First the keys of what is dirty are noted, each with its last offset, in bounded memory; a map
   that is full ends the pass there, and the next one goes on behind it.
2. Then all segments up to that end are written anew, several small ones into one, without the
   records that a later one of the same key makes needless (``records/sieve.py``).
3. Each new segment takes the place of the old ones before the next is begun, from the oldest to
   the newest, and for good (``swapping.py``).  A record is therefore gone only while the later one
   is there, and a tombstone only after everything that it deletes.
4. Nothing that does not match its checksum is written anew: a damaged log is left as it is.

What is worth a pass is decided elsewhere: ``cleanable.py`` says what may be compacted.
"""

import errno
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial

from waystation.model.errors import StorageError
from waystation.model.offsets import Millis, Offset
from waystation.records.header import peek
from waystation.records.keys import SLOT_BYTES, KeyMap
from waystation.records.sieve import UNKNOWN, Places, Sieve, Terms
from waystation.storage import names
from waystation.storage.cleanable import Dirt, next_group
from waystation.storage.disk import DiskFile
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.storage.producer_state import Producer
from waystation.storage.segment import Segment
from waystation.storage.swapping import OvertakenError, Swap
from waystation.storage.walk import contents

Work = Callable[[], None]
Spent = Callable[[int], None]

_WRITE_BYTES = 1 << 20
# How much is done between two looks at how much may be done.
_TURN_BYTES = 256 << 10
_OPEN_FILES = 8
_INT32_MAX = (1 << 31) - 1


class Source:
    """One segment to be read; its file stays readable whatever becomes of the segment."""

    __slots__ = ("file", "size_bytes")

    def __init__(self, segment: Segment) -> None:
        self.file: DiskFile = segment.file()
        self.size_bytes = segment.size_bytes


class Compaction:
    """A pass, in steps."""

    def __init__(
        self,
        log: Log,
        dirt: Dirt,
        *,
        now: Millis,
        map_bytes: int,
        secret: bytes,
        spent: Spent = lambda _: None,
    ) -> None:
        """``spent`` hears of every byte read or written, and may hold the thread back."""
        self._log = log
        self._first_dirty = dirt.first_dirty
        self._now = now
        self._spent = spent
        self._unspent_bytes = 0
        self._cuts = log.cuts
        dirty_offsets = max(dirt.end - dirt.first_dirty, 0)
        slots = min(map_bytes // SLOT_BYTES, dirty_offsets * 4 // 3 + 8)
        self._keys = KeyMap(slots, secret)
        self._places = Places()
        self._full = self._overtaken = False
        self._swap: Swap | None = None
        self.end = dirt.end
        """Up to where this pass compacts the log: less than was asked for if the map is full."""
        self.cleaned_bytes = self.freed_bytes = 0
        """Of the segments that were gone through so far, and of what they lost."""
        self.horizon: Millis | None = None
        """The earliest moment at which a tombstone that stayed may go."""
        self.finished = False
        """Whether the pass went through."""

    def steps(self) -> Iterator[Work]:
        """What a thread has to do, one after the other; the loop's thread asks for the next.

        Between them segments are chosen and exchanged.  The log may be appended to, read, cut
        and deleted meanwhile; a pass that is overtaken by that just ends.
        """
        with suppress(OvertakenError):
            for work in self._works():
                yield partial(self._do, work)

    def abandon(self) -> None:
        """Remove what a step that failed has left behind.  Any thread."""
        if self._swap is not None and self._log.swap is None:
            self._swap.discard()

    def _works(self) -> Iterator[Work]:
        yield from self._note_keys()
        since = Offset(-1)
        while since < self.end:
            begins = self._log.segments[0].base_offset
            if begins > since:
                since = begins
                yield from self._secure_start()
                continue
            group = next_group(self._log, since, self.end)
            if (yield from self._compact(group)):
                since = group[-1].next_offset
        self._check()
        self._log.clean_end = max(self._log.clean_end, self.end)
        yield self._log.directory.write_clean_ends
        self.finished = True

    def _do(self, work: Work) -> None:
        try:
            work()
        except OvertakenError:
            self._overtaken = True

    def _check(self) -> None:
        log = self._log
        gone = log.cuts != self._cuts or not log.directory.holds(log)
        if self._overtaken or gone or log.directory.offline is not None:
            raise OvertakenError

    # --- keys ---------------------------------------------------------------------------

    def _note_keys(self) -> Iterator[Work]:
        since = Offset(0)
        while not self._full and (group := next_group(self._log, since, self.end)):
            since = group[-1].next_offset
            dirty = [one for one in group if one.next_offset > self._first_dirty]
            if dirty:
                yield partial(self._note_all, [Source(one) for one in dirty])
                self._check()

    def _note_all(self, sources: Sequence[Source]) -> None:
        for source in sources:
            if not self._full:
                self._note(source)

    def _note(self, source: Source) -> None:
        """Note the keys of one segment; a full map ends the pass at the record it was met at."""
        places, since = self._places, self._first_dirty
        for (_, header), batch in contents(source.file, 0, source.size_bytes):
            self._spend(header.size_bytes)
            if header.next_offset <= since or header.is_control:
                continue
            base, count = header.base_offset, places.find(batch, header)
            noted = self._keys.note(places.payload, places.numbers, count, base, since)
            if noted < count:
                self.end = Offset(base + places.offset_delta(noted))
                self._full = True
                return

    # --- segments -----------------------------------------------------------------------

    def _secure_start(self) -> Iterator[Work]:
        """Let segments that retention took be gone for good.

        Coming back after a crash they would count as compacted, and hold what tombstones that
        may go by then were to delete.
        """
        home, start = self._log.directory, self._log.log_start
        yield home.plan_log_starts()
        self._check()
        try:
            home.check_start_written(self._log, start)
        except StorageError as error:
            raise OSError(errno.ENOSPC, str(error)) from error

    def _compact(self, group: list[Segment]) -> Generator[Work, None, bool]:
        """Write one new segment and let it take the place of ``group``.

        False if retention took some of the group meanwhile; what is left of it is tried again.
        """
        swap = self._swap = Swap(self._log, group, self._now, self._cuts)
        sieve = Sieve(self._keys, self._terms())
        yield partial(self._write, swap, sieve, group[0], [Source(one) for one in group])
        self._check()
        group_bytes = sum(one.size_bytes for one in group)
        if self._log.swap is swap:
            if not swap.replace():
                yield swap.discard
                self._check()
                return False
            yield swap.sync
            self._check()
            swap.settle()
            yield swap.sync
            self._check()
            self.freed_bytes += group_bytes - swap.size_bytes
        self._swap = None
        self.cleaned_bytes += group_bytes
        if sieve.horizon is not None:
            self.horizon = min(self.horizon or sieve.horizon, sieve.horizon)
        return True

    def _terms(self) -> Terms:
        last_of = {one.producer_id: self._last_of(one) for one in self._log.producers.active()}
        return Terms(self.end, self._now, self._log.settings.delete_retention_ms, last_of)

    def _last_of(self, producer: Producer) -> Offset:
        """Where the newest batch ends that a crash cannot take."""
        ends = [one.last_offset for one in producer.batches]
        return max((end for end in ends if end < self._log.flushed_end), default=UNKNOWN)

    def _write(self, swap: Swap, sieve: Sieve, first: Segment, sources: Sequence[Source]) -> None:
        """Make the new segment and commit to it, unless it would be what the old one is."""
        self._check_space(sum(one.size_bytes for one in sources))
        fresh = self._create(swap, first)
        changed = self._fill(fresh, sources, sieve)
        if not changed and len(sources) == 1:
            swap.discard()
            return
        self._sync(fresh)
        swap.size_bytes = fresh.size_bytes
        swap.commit()

    def _check_space(self, nbytes: int) -> None:
        """The new segment is never larger; appends must not be refused because of it."""
        home = self._log.directory
        free_bytes = home.disk.free_bytes(home.path)
        if home.reserve.spent or free_bytes < nbytes + home.reserve.nbytes:
            raise OSError(errno.ENOSPC, f"{nbytes} bytes are needed, {free_bytes} are free")

    def _create(self, swap: Swap, first: Segment) -> Segment:
        """Under the lock: a directory of this name may be another log's a moment later."""
        files = OpenFiles(self._log.directory.disk, _OPEN_FILES)
        with self._log.cutting:
            swap.check()
            fresh = Segment.create(files, self._log.path, first.base_offset, names.CLEANED)
            fresh.offset_index.handle.open()
            fresh.time_index.handle.open()
        return fresh

    def _sync(self, fresh: Segment) -> None:
        """Nothing is decided on that a crash could tear."""
        fresh.finish()
        fresh.file().datasync()
        for sync in fresh.begin_index_syncs():
            sync.file.datasync()

    def _fill(self, fresh: Segment, sources: Sequence[Source], sieve: Sieve) -> bool:
        """Write what stays of ``sources``; whether anything changed.

        HOT: once per batch that is compacted (benchmarks/storage/compaction.py).
        """
        interval_bytes = self._log.settings.index_interval_bytes
        left_bytes = sum(one.size_bytes for one in sources)
        changed, out = False, bytearray()
        for source in sources:
            end = source.size_bytes if source is sources[-1] else -1
            for (position, header), batch in contents(source.file, 0, source.size_bytes):
                self._spend(header.size_bytes)
                left_bytes -= header.size_bytes
                is_last = position + header.size_bytes == end
                kept = sieve.sift(batch, header, must_stay=is_last)
                changed = changed or kept is not batch
                if kept is None:
                    continue
                if fresh.size_bytes + len(kept) + left_bytes > _INT32_MAX:
                    # A batch that learns when its tombstones may go grows; not past all bounds.
                    kept = batch
                newest = (header if kept is batch else peek(kept)).newest_timestamp
                fresh.note(len(kept), header.last_offset, newest, interval_bytes)
                out += kept
                if len(out) >= _WRITE_BYTES:
                    self._put(fresh, out)
        self._put(fresh, out)
        return changed

    def _put(self, fresh: Segment, out: bytearray) -> None:
        """Write the end of what was noted, and let the disk begin with it."""
        file, position = fresh.file(), fresh.size_bytes - len(out)
        file.pwrite(out, position)
        file.start_writeback(position, len(out))
        self._spend(len(out))
        out.clear()

    def _spend(self, nbytes: int) -> None:
        self._unspent_bytes += nbytes
        if self._unspent_bytes >= _TURN_BYTES:
            self._spent(self._unspent_bytes)
            self._unspent_bytes = 0
