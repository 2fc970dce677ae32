"""Looking through logs for messages that match, beside everything else a broker does.

1. However many scans there are, one slice of one of them runs per turn of the loop, and a slice is
   sized to take about a millisecond: who produces or fetches waits no longer than that.
2. What cannot be cut small, a large batch or one that takes long to unpack, goes to a thread.
3. Stretches without a match are noted where all scans of the partition find them (``views.py``),
   so that nobody looks there again.
4. A scan reads what its reader may read: below the high watermark, or the last stable offset.

What a scan is for is its subclass's business: ``view_reading.py`` collects, ``view_lag.py`` counts.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from waystation.broker.views import ViewPartition
from waystation.filters.narrowing import Narrowed, Narrowing, Stretch
from waystation.model.errors import CorruptBatchError, StorageError, WaystationError
from waystation.model.offsets import Offset
from waystation.records.header import peek
from waystation.runtime.clock import Clock
from waystation.runtime.regions import FileRegion
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

# Larger than this, a region that is one batch is looked through in a thread.
_LARGE_BYTES: Final = 256 << 10


class Scan(ABC):
    """A way through one partition of a view."""

    __slots__ = (
        "_stable_only",
        "at",
        "error",
        "given_up",
        "nothing_upto",
        "part",
        "running",
        "scanned_bytes",
    )

    def __init__(self, part: ViewPartition, at: Offset, *, stable_only: bool) -> None:
        self.part = part
        self.at = at
        """Everything before this was looked at."""
        self.error: WaystationError | None = None
        self.scanned_bytes = 0
        self.nothing_upto = Offset(-1)
        """The end at which there was nothing to read: another look is of no use before it moves."""
        self.running = self.given_up = False
        self._stable_only = stable_only

    @property
    def end(self) -> Offset:
        """The end of what may be looked at."""
        base = self.part.base
        return base.last_stable if self._stable_only else base.high_watermark

    @property
    def is_behind(self) -> bool:
        """Whether something was not looked at that may be."""
        end = self.end
        return self.error is None and self.at < end and end != self.nothing_upto

    @property
    @abstractmethod
    def goes_on(self) -> bool:
        """Whether there is more to do for now."""

    @abstractmethod
    def took(self, narrowed: Narrowed, behind: Offset) -> None:
        """A slice from ``at`` on was looked through, which ends ``behind``: move ``at`` on."""

    @abstractmethod
    def rested(self) -> None:
        """There is nothing more to do for now."""

    def skip(self) -> None:
        """Go on behind what is known to hold no match."""
        self.at = max(self.at, min(self.part.gaps.behind(self.at), self.end))

    def read(self) -> tuple[FileRegion | None, Offset]:
        """The next slice, and where it ends: before what is known to hold no match."""
        base, window_bytes = self.part.base, self.part.window_bytes
        known = self.part.gaps.ahead(self.at)
        if known is not None and base.log.log_start <= self.at < known <= self.end:
            found = base.log.read(self.at, window_bytes, known, True)
            if found.region is not None:
                return found
        return base.read(self.at, window_bytes, at_least_one=True, stable_only=self._stable_only)

    def note(self, narrowed: Narrowed, first: Offset) -> None:
        """Let all who scan the partition know where nothing matches.

        What lies between two slices was taken out by compaction, and holds no match either.
        """
        stretches = narrowed.stretches
        if stretches and stretches[0].start == first > self.at:
            stretches[0] = Stretch(self.at, stretches[0].end)
        for stretch in stretches:
            self.part.gaps.note(stretch)


class Scanner:
    """Gives scans their turns."""

    __slots__ = ("_clock", "_defer", "_scheduled", "_waiting")

    def __init__(self, defer: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        """``defer`` has something called in the loop's next turn."""
        self._defer = defer
        self._clock = clock
        self._waiting: deque[Scan] = deque()
        self._scheduled = False

    def start(self, scan: Scan) -> None:
        """Let ``scan`` go on until it rests; harmless if it does already."""
        if not scan.running:
            scan.running = True
            self._queue(scan)

    def _queue(self, scan: Scan) -> None:
        self._waiting.append(scan)
        if not self._scheduled:
            self._scheduled = True
            self._defer(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        scan = self._waiting.popleft()
        if self._waiting:
            self._scheduled = True
            self._defer(self._turn)
        self._step(scan)

    def _step(self, scan: Scan) -> None:
        """HOT: once per slice (benchmarks/views.py)."""
        try:
            scan.skip()
            if scan.given_up or not scan.goes_on:
                self._rest(scan)
                return
            region, behind = scan.read()
            if region is None:
                scan.nothing_upto = scan.end
            elif region.nbytes > _LARGE_BYTES or scan.part.is_slow:
                self._step_aside(scan, region, behind)
                return
            else:
                began_s = self._clock.monotonic()
                self._took(scan, _look(scan.part.narrowing, region), behind)
                scan.part.adjust(self._clock.monotonic() - began_s, region.nbytes)
        except Exception as error:  # the outermost frame of a scan: its reader must be told
            self._failed(scan, error)
        self._next(scan)

    def _step_aside(self, scan: Scan, region: FileRegion, behind: Offset) -> None:
        narrowing, gaps = scan.part.another_narrowing(), scan.part.gaps
        began_s = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(None, _look, narrowing, region)

        def back(done: "asyncio.Future[_Looked]") -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                self._failed(scan, error)
            elif scan.part.gaps is gaps:  # else another leads meanwhile: look again
                self._took(scan, done.result(), behind)
                scan.part.adjust(self._clock.monotonic() - began_s, region.nbytes)
            self._next(scan)

        future.add_done_callback(back)

    def _took(self, scan: Scan, looked: "_Looked", behind: Offset) -> None:
        part, (narrowed, first) = scan.part, looked
        part.meter.scanned_bytes.value += narrowed.taken_bytes
        part.meter.scanned_records.value += narrowed.records
        part.meter.matched_records.value += narrowed.matches
        scan.scanned_bytes += narrowed.taken_bytes
        scan.note(narrowed, first)
        scan.took(narrowed, behind)

    def _failed(self, scan: Scan, error: BaseException) -> None:
        if isinstance(error, WaystationError):
            scan.error = error
        elif isinstance(error, OSError):
            scan.error = StorageError(f"{scan.part.base.name} cannot be read: {error}")
        else:
            _events.error("scan.failed", partition=str(scan.part.base.name), exc_info=error)
            scan.error = WaystationError(f"looking through {scan.part.base.name} failed: {error}")

    def _next(self, scan: Scan) -> None:
        if scan.given_up or scan.error is not None or not scan.goes_on:
            self._rest(scan)
        else:
            self._queue(scan)

    def _rest(self, scan: Scan) -> None:
        scan.running = False
        if not scan.given_up:
            scan.rested()


class _Looked(NamedTuple):
    """What is left of a region, and where its first batch begins."""

    narrowed: Narrowed
    first: Offset


def _look(narrowing: Narrowing, region: FileRegion) -> _Looked:
    data = region.read()
    narrowed = narrowing.take(data)
    if narrowed.taken_bytes < region.nbytes:
        raise CorruptBatchError(f"{region} ends within a batch")
    return _Looked(narrowed, peek(data).base_offset)
