"""What one fetch collects of one partition of a view, while it waits.

1. What is handed over covers the log from the offset asked for: matches in order, and where the
   last stretch holds none, a batch without records that takes the reader across.
2. It is at most what the fetch allows, except that the first batch comes whole.
3. A reading rests once there are matches and enough was looked at to make an answer worth it, when
   it is full, and at the end of what may be read.
4. If another epoch begins meanwhile, it begins anew.
"""

from collections.abc import Callable
from typing import Final

from waystation.broker.fetching import NOBODY, Found, Limits, Wanted, read_one
from waystation.broker.scanning import Scan
from waystation.broker.views import ViewPartition
from waystation.filters.narrowing import Narrowed, empty_batch
from waystation.model.errors import OffsetOutOfRangeError
from waystation.model.ids import NO_LEADER_EPOCH
from waystation.model.offsets import Offset
from waystation.records.header import HEADER_BYTES, peek

# What a fetch may make this broker hold, whatever it asks for.
_HELD_BYTES_MOST: Final = 4 << 20
# How far to look for more once something was found.
_LOOK_BYTES: Final = 4 << 20


class Reading(Scan):
    """Collects matches from an offset on."""

    __slots__ = (
        "_epoch",
        "_full",
        "_limit_bytes",
        "_limits",
        "_parts",
        "_skipped_from",
        "_told",
        "is_hurried",
        "nbytes",
        "wanted",
    )

    def __init__(
        self, part: ViewPartition, wanted: Wanted, limits: Limits, told: Callable[[], None]
    ) -> None:
        """``told`` is called when the reading rests."""
        super().__init__(part, wanted.offset, stable_only=limits.stable_only)
        self.wanted = wanted
        self._limits = limits
        self._limit_bytes = min(wanted.max_bytes, limits.max_bytes, _HELD_BYTES_MOST)
        self._told = told
        self.is_hurried = limits.max_wait_ms <= 0 or limits.min_bytes <= 0
        """Whether the time is up, or nobody waits: the first slice is enough."""
        self._begin()

    def _begin(self) -> None:
        self.at = self.wanted.offset
        self.nbytes = self.scanned_bytes = 0
        self._parts: list[tuple[bytes, Offset]] = []
        self._skipped_from: Offset | None = None
        self._full = False
        self._epoch = self.part.base.leadership.epoch

    @property
    def is_full(self) -> bool:
        """Whether what comes next has no room."""
        return self._full

    @property
    def has_moved(self) -> bool:
        """Whether the reader gets anywhere by what there is."""
        return self.at > self.wanted.offset

    @property
    def goes_on(self) -> bool:
        """Whether to look further before anybody is told."""
        if self._full or not self.is_behind or (self.is_hurried and self.has_moved):
            return False
        return not self._parts or self.scanned_bytes < _LOOK_BYTES

    def look_further(self) -> None:
        """What was found is not enough."""
        self.scanned_bytes = 0

    def skip(self) -> None:
        """Go on behind what is known to hold no match."""
        before = self.at
        super().skip()
        if self.at > before and self._skipped_from is None:
            self._skipped_from = before

    def took(self, narrowed: Narrowed, behind: Offset) -> None:
        """Keep what matches, as far as there is room."""
        parts, last = narrowed.parts, narrowed.stretches[-1] if narrowed.stretches else None
        if last is not None and last.end == narrowed.end:
            parts = parts[:-1]  # the batch without records, which is made when all is known
        for part in parts:
            header = peek(part)
            if self.nbytes and self.nbytes + len(part) > self._limit_bytes:
                self._full = True
                self._move(header.base_offset)
                return
            self._parts.append((bytes(part), header.next_offset))
            self.nbytes += len(part)
            self.at, self._skipped_from = header.next_offset, None
        self._move(behind)

    def rested(self) -> None:
        """Let the fetch know."""
        self._told()

    def found(self, left: int, *, at_least_one: bool) -> Found:
        """What there is for the reader now, in at most ``left`` bytes."""
        if self.part.base.leadership.epoch != self._epoch:
            self._begin()
        one, limits, log = self.wanted, self._limits, self.part.base.log
        # Without room nothing is read, but everything checked.
        checked = read_one(one, self.part.base, 0, limits, at_least_one=False)
        if checked.error is not None or checked.diverging is not None or checked.nearer != NOBODY:
            return checked
        if not log.log_start <= one.offset <= log.log_end:
            return Found(one, OffsetOutOfRangeError(one.offset, log.log_start, log.log_end))
        if self.error is not None:
            return Found(one, self.error)
        if not self.running:
            self.skip()
        data, behind = self._data(left, at_least_one=at_least_one)
        if not data:
            return checked
        aborted = log.aborted(one.offset, behind) if limits.stable_only else ()
        return checked._replace(region=memoryview(data), next_offset=behind, aborted=aborted)

    def _data(self, left: int, *, at_least_one: bool) -> tuple[bytes, Offset]:
        """The batches that fit, and where they end."""
        told: list[bytes] = []
        nbytes, end = 0, self.wanted.offset
        for part, behind in self._parts:
            if nbytes + len(part) > left and not (at_least_one and not told):
                return b"".join(told), end
            told.append(part)
            nbytes, end = nbytes + len(part), behind
        if self._skipped_from is not None and nbytes + HEADER_BYTES <= max(left, HEADER_BYTES):
            epoch = self.part.base.log.epochs.epoch_at(Offset(self.at - 1))
            epoch = self._epoch if epoch == NO_LEADER_EPOCH else epoch
            told.append(empty_batch(self._skipped_from, self.at, epoch))
            end = self.at
        return b"".join(told), end

    def _move(self, behind: Offset) -> None:
        """Nothing matches before ``behind``."""
        if behind > self.at:
            if self._skipped_from is None:
                self._skipped_from = self.at
            self.at = behind
