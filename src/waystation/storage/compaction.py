"""One pass of compaction over one log: of each key the last record stays.

1. First the keys of what is dirty are noted, each with its last offset, in bounded memory; a map
   that is full ends the pass there, and the next one goes on behind it.
2. Then all segments up to that end are written anew, several small ones into one, without the
   records that a later one of the same key makes needless (``records/sieve.py``).
3. Each new segment takes the place of the old ones before the next is begun, from the oldest to
   the newest, and for good (``swapping.py``).  A record is therefore gone only while the later one
   is there, a tombstone only after everything that it deletes, and a marker only after all of its
   transaction.
4. Of transactions all are ended that a pass comes by: what was aborted goes, what was committed
   is compacted like everything else.
5. Nothing that does not match its checksum is written anew: a damaged log is left as it is.

What is worth a pass is decided elsewhere: ``cleanable.py`` says what may be compacted.
"""

import errno
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial

from waystation.model.errors import StorageError
from waystation.model.offsets import Millis, Offset
from waystation.records.endings import Aborted, Endings
from waystation.records.keys import SLOT_BYTES, KeyMap
from waystation.records.sieve import UNKNOWN, KeyNotes, Sieve, Terms
from waystation.storage.cleanable import Dirt, next_group
from waystation.storage.log import Log
from waystation.storage.producer_state import Producer
from waystation.storage.rewriting import Source, Writing
from waystation.storage.segment import Segment
from waystation.storage.swapping import OvertakenError, Swap
from waystation.storage.walk import go_through

Work = Callable[[], None]
Spent = Callable[[int], None]


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
        self._cuts = log.cuts
        dirty_offsets = max(dirt.end - dirt.first_dirty, 0)
        slots = min(map_bytes // SLOT_BYTES, dirty_offsets * 4 // 3 + 8)
        self._keys = KeyMap(slots, secret)
        self._endings = Endings()
        self._notes = KeyNotes(self._keys, dirt.first_dirty)
        self._overtaken = False
        self._swap: Swap | None = None
        self.end = dirt.end
        """Up to where this pass compacts the log: less than was asked for if the map is full."""
        self.cleaned_bytes = self.freed_bytes = 0
        """Of the segments that were gone through so far, and of what they lost."""
        self.horizon: Millis | None = None
        """The earliest moment at which a tombstone or marker that stayed may go."""
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
        aborted = Aborted(self._log.aborted(self._log.segments[0].base_offset, self.end))
        self._endings = Endings(aborted)
        self._notes = KeyNotes(self._keys, self._first_dirty, aborted)
        since = Offset(0)
        while self._notes.full_at is None and (group := next_group(self._log, since, self.end)):
            since = group[-1].next_offset
            dirty = [one for one in group if one.next_offset > self._first_dirty]
            if dirty:
                yield partial(self._note_all, [Source(one) for one in dirty])
                self._check()

    def _note_all(self, sources: Sequence[Source]) -> None:
        """Note the keys of segments; a full map ends the pass at the record it was met at."""
        for source in sources:
            go_through(source.file, source.size_bytes, self._note)
        if self._notes.full_at is not None:
            self.end = self._notes.full_at

    def _note(self, window: memoryview, _: int) -> int:
        if self._notes.full_at is not None:
            return -1
        taken = self._notes.take(window)
        self._spent(taken)
        return taken

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
        writing = Writing(self._log, swap, group, self._spent)
        # The group may have to be gone through again.
        endings = self._endings.copy()
        yield partial(self._write, writing, self._log.producers.active(), endings)
        self._check()
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
            self.freed_bytes += writing.source_bytes - swap.size_bytes
        self._swap = None
        self._endings = endings
        self.cleaned_bytes += writing.source_bytes
        return True

    def _write(self, writing: Writing, producers: list[Producer], endings: Endings) -> None:
        sieve = Sieve(self._keys, self._terms(producers), writing.keep, endings)
        writing.run(sieve)
        if sieve.horizon is not None:
            self.horizon = min(self.horizon or sieve.horizon, sieve.horizon)

    def _terms(self, producers: list[Producer]) -> Terms:
        last_of = {
            one.producer_id: self._last_of(ends)
            for one in producers
            # The loop may add to them meanwhile, or begin others: they are copied at once.
            if (ends := [batch.last_offset for batch in list(one.batches)])
        }
        return Terms(self.end, self._now, self._log.settings.delete_retention_ms, last_of)

    def _last_of(self, ends: list[Offset]) -> Offset:
        """Where the newest batch of a producer ends that a crash cannot take."""
        return max((end for end in ends if end < self._log.flushed_end), default=UNKNOWN)
