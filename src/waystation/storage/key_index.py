"""Finds the messages of one key in a log, without going through it.

Topics with ``index.keys`` have one for each log, on leaders and followers alike.  It follows the
log from behind, reading what was appended a moment ago, and is made of nothing but the log:

1. What ``find`` answers is what a reader of the whole log would keep: every message of the key in
   ``[offset, next_offset)`` that is committed and not aborted, in order, and no other.
2. Whatever became of the log or of the index files meanwhile, be it a cut, compaction, retention, a
   crash or a lost file, what does not fit the log any more is noticed and made anew
   (``key_blocks.py``).
3. Of a segment that is closed nothing is in memory but where its blocks lie; of an active one what
   does not fill a block yet.
4. All work is done in slices, by one thread for all logs, and by no other.  The loop's thread only
   shows what the log looks like now (``KeyView``).
"""

import errno
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Offset
from waystation.records.endings import Aborted
from waystation.records.header import BatchHeader, check, peek
from waystation.records.key_entries import KeyEntries, Places, Sorting, hash_of
from waystation.records.key_rows import rows_of_key
from waystation.records.keys import scan_entries
from waystation.records.record import Row
from waystation.runtime.regions import ReadableFile
from waystation.storage import names
from waystation.storage.key_blocks import (
    BLOCK_ENTRIES,
    Block,
    OvertakenError,
    encode_block,
    find_positions,
    read_block,
)
from waystation.storage.log import Log
from waystation.storage.open_files import FileHandle, OpenFiles
from waystation.storage.segment import Segment
from waystation.storage.txn_index import AbortedTxn

__all__ = [
    "Found",
    "KeyIndex",
    "KeyView",
    "OvertakenError",
    "Tools",
    "Wanted",
    "remove_key_index",
    "row_bytes",
    "taken_back",
    "view_of",
]

_WINDOW_BYTES: Final = 120 << 10
_BATCH_READ_BYTES: Final = 4 << 10
_POSITIONS: Final = 64
_SCAN_ENTRIES: Final = 16_384
_ROW_BYTES: Final = 50
_SEGMENTS: Final = 16


class Stretch(NamedTuple):
    """A segment as the loop's thread saw it; its file stays readable whatever becomes of it."""

    segment: Segment
    file: ReadableFile
    size_bytes: int
    next_offset: Offset
    start: int
    """Where in the file to begin with a search."""
    closed: bool


class KeyView(NamedTuple):
    """A log as the loop's thread saw it."""

    log: Log
    cuts: int
    live: frozenset[Segment]
    stretches: list[Stretch]
    complete: bool
    """Whether there is nothing behind them."""


class Wanted(NamedTuple):
    """A search: what is at or past ``end`` is not to be seen."""

    key: bytes
    offset: Offset
    end: Offset
    limit: int
    max_bytes: int
    """Of the log that is read, and of what is found: both end once they have reached it."""
    aborted: Aborted


class Found(NamedTuple):
    """All that is to be seen in ``[offset, next_offset)``."""

    rows: list[Row]
    next_offset: Offset
    hidden: bool
    """Whether the key may have a message that is there and not yet to be seen."""


class Tools:
    """What the thread shares among all logs."""

    __slots__ = ("block_entries", "open_files", "places", "secret", "sorting", "wrote")

    def __init__(
        self,
        secret: bytes,
        open_files: OpenFiles,
        wrote: Callable[[int], None] = lambda _: None,
        block_entries: int = BLOCK_ENTRIES,
    ) -> None:
        """``secret`` are 16 bytes nobody foresees; ``wrote`` hears how large each block is."""
        self.block_entries = block_entries
        self.secret = secret
        self.open_files = open_files
        self.places = Places()
        self.sorting = Sorting()
        self.wrote = wrote


def view_of(log: Log, segments: Sequence[Segment], offset: Offset) -> KeyView:
    """The first of ``segments`` with something from ``offset`` on; the loop's thread only."""
    stretches: list[Stretch] = []
    complete = True
    for segment in segments:
        if len(stretches) == _SEGMENTS:
            complete = False
            break
        if segment.next_offset <= offset or not segment.size_bytes:
            continue
        start = 0
        if offset > segment.base_offset:
            start = segment.offset_index.before(offset - segment.base_offset)
        stretches.append(
            Stretch(
                segment,
                segment.file(),
                segment.size_bytes,
                segment.next_offset,
                start,
                segment is not log.active,
            )
        )
    return KeyView(log, log.cuts, frozenset(log.segments), stretches, complete)


def taken_back(log: Log, offset: Offset, end: Offset, most: int) -> tuple[Aborted, Offset]:
    """The aborted transactions from ``offset`` on, and up to where they are all there.

    About ``most`` of them: a log may have a million, and the loop's thread looks.
    """
    spans: list[AbortedTxn] = []
    for segment in log.segments:
        if segment.next_offset <= offset or segment.txn_index is None:
            continue
        for one in segment.txn_index.since(offset):
            if one.first_offset < end:
                spans.append(one)
            if one.last_stable >= end:
                return Aborted(spans), end
            if len(spans) >= most and one.last_stable > offset:
                return Aborted(spans), one.last_stable
    return Aborted(spans), end


def remove_key_index(log: Log, cuts: int) -> int:
    """Remove all files of a log's key index; how many there were.  Any thread."""
    with log.cutting:
        if log.cuts != cuts or not log.directory.holds(log):
            return 0
        disk = log.directory.disk
        found = [one.name for one in disk.entries(log.path) if one.name.endswith(names.KEY_INDEX)]
        for name in found:
            disk.unlink(log.path / name)
        return len(found)


class KeyIndex:
    """The key index of one log."""

    __slots__ = ("_cuts", "_heard", "_known", "_tools", "listened_for")

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._heard: deque[set[int]] = deque()
        self.listened_for: Mapping[int, object] = {}
        """Hashes, under the tools' secret, that somebody waits for."""
        self._known: dict[Segment, _SegmentKeys] = {}
        self._cuts = -1

    def behind(self, log: Log) -> list[Segment]:
        """The segments for which there is something to do; the loop's thread."""
        if log.cuts != self._cuts:
            return [one for one in log.segments if one.size_bytes]
        known = self._known
        return [
            one
            for one in log.segments
            if one.size_bytes
            and (
                (keys := known.get(one)) is None
                or keys.covered < one.size_bytes
                or (keys.memory_bytes and one is not log.active)
            )
        ]

    def forget(self) -> None:
        """Look at all files anew: they are not what they were."""
        self._known = {}

    @property
    def memory_bytes(self) -> int:
        """What is held of segments that still grow."""
        return sum(one.memory_bytes for one in list(self._known.values()))

    def catch_up(self, view: KeyView, max_bytes: int) -> int:
        """Index what was not yet, reading about ``max_bytes`` at most; how many were read."""
        spent = 0
        for stretch in view.stretches:
            if spent < max_bytes:
                keys = self._segment(view, stretch)
                spent += self._take(keys, view, stretch, max_bytes - spent)
        return spent

    def find(self, view: KeyView, wanted: Wanted, catch_up_bytes: int) -> Found:
        """As much of what is wanted as may be found in one go, at least a batch."""
        search = _Search(wanted)
        for stretch in view.stretches:
            keys = self._segment(view, stretch)
            catch_up_bytes -= self._take(keys, view, stretch, max(catch_up_bytes, 0))
            for position in keys.positions(wanted.key, stretch.start):
                if not search.look_into(stretch.file, position):
                    return search.found()
            search.passed(keys.end_offset)
            if keys.covered < stretch.size_bytes:
                return search.found()
            # Also behind the end: whoever waits must know of what is there and not yet to be seen.
            search.passed(stretch.next_offset)
        if view.complete:
            search.passed(wanted.end)
        return search.found()

    def heard(self) -> set[int]:
        """Which hashes that are listened for were noted since this was last asked.  Any thread."""
        heard: set[int] = set()
        while self._heard:
            heard |= self._heard.popleft()
        return heard

    def _take(self, keys: "_SegmentKeys", view: KeyView, stretch: Stretch, max_bytes: int) -> int:
        before = keys.covered
        while keys.covered < stretch.size_bytes and keys.covered - before < max_bytes:
            hashes = keys.take(view, stretch)
            if self.listened_for:
                self._hear(hashes())
        keys.close_up(view, stretch)
        return keys.covered - before

    def _hear(self, hashes: set[int]) -> None:
        wanted = self.listened_for
        if known := {one for one in hashes if one in wanted}:
            self._heard.append(known)

    def _segment(self, view: KeyView, stretch: Stretch) -> "_SegmentKeys":
        if view.cuts != self._cuts:
            # Any of them may have lost its end, and have got another.
            self._known = {}
            self._cuts = view.cuts
        known = self._known.get(stretch.segment)
        if known is None:
            self._known = {one: keys for one, keys in self._known.items() if one in view.live}
            known = self._known[stretch.segment] = _SegmentKeys(self._tools, view.log, stretch)
        return known


class _Search:
    """A search on its way through a log."""

    __slots__ = ("_found_bytes", "_hidden", "_read_bytes", "_rows", "_wanted", "at")

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._rows: list[Row] = []
        self._read_bytes = self._found_bytes = 0
        self._hidden = False
        self.at = wanted.offset
        """Everything before this was looked at."""

    def passed(self, offset: Offset) -> None:
        """There is nothing more before ``offset``."""
        self.at = max(self.at, min(offset, self._wanted.end))

    def look_into(self, file: ReadableFile, position: int) -> bool:
        """Take what is wanted out of a batch; false if that was enough."""
        wanted = self._wanted
        batch, header = _batch_at(file, position)
        if header.next_offset <= self.at:
            return True
        if header.base_offset >= wanted.end:
            self._hidden = True
            self.at = max(self.at, wanted.end)
            return False
        if not header.is_control and not wanted.aborted.holds(header):
            for row in rows_of_key(batch, header, wanted.key):
                if wanted.offset <= row[0] < wanted.end and not self._took(row):
                    return False
        self.at = min(header.next_offset, wanted.end)
        self._read_bytes += header.size_bytes
        return self._read_bytes < wanted.max_bytes

    def _took(self, row: Row) -> bool:
        """Take a row; false if that was enough.

        What is packed may be a thousand times as large as what was read.
        """
        self._rows.append(row)
        self._found_bytes += row_bytes(row)
        self.at = Offset(row[0] + 1)
        return len(self._rows) < self._wanted.limit and self._found_bytes < self._wanted.max_bytes

    def found(self) -> Found:
        """What was found."""
        return Found(self._rows, self.at, self._hidden)


class _SegmentKeys:
    """The index of one segment: blocks in a file, and what does not fill one yet."""

    __slots__ = (
        "_base",
        "_blocks",
        "_handle",
        "_noted",
        "_size_bytes",
        "_tools",
        "covered",
        "end_offset",
    )

    def __init__(self, tools: Tools, log: Log, stretch: Stretch) -> None:
        self._tools = tools
        self._base = stretch.segment.base_offset
        self._handle = FileHandle(
            tools.open_files, log.path, names.file_name(self._base, names.KEY_INDEX)
        )
        self._blocks: list[Block] = []
        self._noted: KeyEntries | None = None
        self._size_bytes = 0
        self.covered = 0
        """The position behind the last batch that was noted."""
        self.end_offset = self._base
        """The offset behind it."""
        self._adopt(stretch)

    @property
    def memory_bytes(self) -> int:
        """What is held in memory."""
        noted = self._noted
        return 0 if noted is None else 8 * len(noted.entries)

    def _adopt(self, stretch: Stretch) -> None:
        """Believe what is in the file, as far as it fits the segment."""
        try:
            file = self._handle.file()
        except FileNotFoundError:
            self._handle.create = True
            return
        while block := read_block(
            file, self._size_bytes, self._base, self.covered, stretch.file, stretch.size_bytes
        ):
            self._blocks.append(block)
            self._size_bytes += block.size_bytes
            self.covered = block.end
            self.end_offset = peek(memoryview(block.last_header)).next_offset

    def take(self, view: KeyView, stretch: Stretch) -> Callable[[], set[int]]:
        """Note the next window; what is returned tells the hashes in it, if that is asked."""
        noted = self._noted = self._noted or KeyEntries(self._tools.secret, self._tools.places)
        if noted.count >= self._tools.block_entries:
            self._put(view, noted)
        before, taken, room = noted.count, 0, _WINDOW_BYTES
        while not taken:
            left = stretch.size_bytes - self.covered
            window = memoryview(stretch.file.pread(min(room, left), self.covered))
            if len(window) < min(room, left):
                raise OvertakenError
            taken = noted.take(window, self.covered, self._tools.block_entries)
            if not taken and room >= left:
                raise CorruptBatchError(f"{self._handle.path}: the segment ends within a batch")
            room *= 4
        self.covered += taken
        self.end_offset = Offset(noted.end_offset)
        return lambda: {entry >> 32 for entry in noted.entries[before : noted.count]}

    def close_up(self, view: KeyView, stretch: Stretch) -> None:
        """Keep nothing in memory of a segment that does not grow any more."""
        if stretch.closed and self._noted is not None and self.covered == stretch.size_bytes:
            self._put(view, self._noted)
            self._noted = None

    def _put(self, view: KeyView, noted: KeyEntries) -> None:
        """Make a block of what was noted."""
        if noted.last_at < 0:
            return
        log, start = view.log, self._blocks[-1].end if self._blocks else 0
        tools = self._tools
        block, pieces = encode_block(
            noted, tools.sorting, tools.secret, self._base, self._size_bytes, start, self.covered
        )
        with log.cutting:
            if log.cuts != view.cuts or not log.directory.holds(log):
                raise OvertakenError
            log.check_online()
            if log.directory.reserve.spent:
                raise OSError(errno.ENOSPC, f"{log.directory.path} is full")
            file = self._handle.file()
            if file.size() < self._size_bytes:
                raise OvertakenError
            file.truncate(self._size_bytes)
            at = self._size_bytes
            for piece in pieces:
                file.pwrite(piece, at)
                at += len(piece)
        tools.wrote(block.size_bytes)
        self._blocks.append(block)
        self._size_bytes += block.size_bytes
        noted.clear()

    def positions(self, key: bytes, since: int) -> Iterator[int]:
        """Where batches begin that may hold the key, from ``since`` on, in order."""
        hashes: dict[bytes, int] = {}
        for block in self._blocks:
            if block.end <= since:
                continue
            wanted = hashes.get(block.secret)
            if wanted is None:
                wanted = hashes[block.secret] = hash_of(block.secret, key)
            at, found = since, [0] * _POSITIONS
            while len(found) == _POSITIONS:
                found = find_positions(self._handle.file(), block, wanted, at, _POSITIONS)
                yield from found
                at = found[-1] + 1 if found else at
        if self._noted is not None and self._noted.count:
            yield from self._noted_positions(hash_of(self._tools.secret, key), since)

    def _noted_positions(self, wanted: int, since: int) -> Iterator[int]:
        """Of what no block holds yet; not all at once, for the first few may be enough."""
        noted, last = self._noted, -1
        assert noted is not None, "there is nothing noted"
        for first in range(0, noted.count, _SCAN_ENTRIES):
            # A copy: an array that somebody looks into could not grow.
            some = noted.entries[first : min(first + _SCAN_ENTRIES, noted.count)]
            for position in scan_entries(some, len(some), wanted, since):
                if position != last:
                    yield position
                last = position


def row_bytes(row: Row) -> int:
    """About how large a row is in an answer."""
    return len(row[3] or b"") + sum(len(value or b"") for _, value in row[4]) + _ROW_BYTES


def _batch_at(file: ReadableFile, position: int) -> tuple[bytes, BatchHeader]:
    batch = file.pread(_BATCH_READ_BYTES, position)
    size_bytes = peek(memoryview(batch)).size_bytes
    if size_bytes > len(batch):
        batch = file.pread(size_bytes, position)
    batch = batch[:size_bytes]
    return batch, check(memoryview(batch))
