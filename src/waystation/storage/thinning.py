"""One pass over the log of a companion topic: what waits stays, and so do the decisions it needs.

As compaction (``compaction.py``), but for what is left: which records are needed is known before
(``scheduling/keeping.py``), and not by their keys.

1. What is left is what it was, at its offset; a batch keeps its first and last offset.
2. There are no gaps: where batches went, one without records stands for all of them in a row, as
   far as they are of one leader epoch.  So the log is whole for whoever recovers or copies it.
3. The last batch of a producer stays, if only as a header: a repeated one is recognised by it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from waystation.model.ids import NO_PRODUCER, NO_PRODUCER_EPOCH
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.records.batch import assemble
from waystation.records.codec import PLACE_FIELDS
from waystation.records.endings import Endings
from waystation.records.header import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    FRAME_BYTES,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check,
    peek,
)
from waystation.records.sieve import Keep, Sieve, Terms
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.records import read_decision
from waystation.storage.cleanable import Dirt
from waystation.storage.compaction import Compaction
from waystation.storage.log import Log
from waystation.storage.producer_state import Producer
from waystation.storage.rewriting import Writing

if TYPE_CHECKING:
    from array import array

    from waystation.records.keys import KeyMap

__all__ = ["Thinning", "thinnable_end"]

_OFFSET, _TIMESTAMP = 4, 5
_INT32_MAX = (1 << 31) - 1
_NO_SEQUENCE = -1


def thinnable_end(log: Log, before: Offset) -> Offset:
    """Up to where a pass may go: whole segments that are closed, applied and safe."""
    limit = min(log.active.base_offset, before, log.recovery_point)
    end = log.segments[0].base_offset
    for segment in log.segments[:-1]:
        if segment.next_offset > limit:
            break
        end = segment.next_offset
    return end


class Thinning(Compaction):
    """A pass, in steps, as ``Compaction.steps`` says."""

    def __init__(
        self,
        log: Log,
        keeping: Keeping,
        end: Offset,
        *,
        now: Millis,
        spent: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``keeping`` says what of ``[0, end)`` must stay."""
        nothing_dirty = Dirt(end, end, 0, 0, overdue=False)
        super().__init__(
            log, nothing_dirty, now=now, map_bytes=1 << 10, secret=bytes(16), spent=spent
        )
        self._keeping = keeping

    def _write(self, writing: Writing, producers: list[Producer], endings: Endings) -> None:
        writing.run(_Thinner(self._keeping, self._terms(producers), writing.keep, endings))


class _Needed:
    """Stands where a sieve has its map of keys."""

    __slots__ = ("_keeping",)

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    def sift(
        self, _payload: Buffer, places: "array[int]", count: int, _upto: int, _drop: bool
    ) -> tuple[int, int, int]:
        """Move the places of the records that stay to the front; as ``KeyMap.sift`` says."""
        keeps, kept, newest = self._keeping.keeps, 0, 0
        for number in range(count):
            at = number * PLACE_FIELDS
            if keeps(Offset(places[at + _OFFSET]), is_decision=False):
                newest = max(newest, places[at + _TIMESTAMP]) if kept else places[at + _TIMESTAMP]
                to = kept * PLACE_FIELDS
                places[to : to + PLACE_FIELDS] = places[at : at + PLACE_FIELDS]
                kept += 1
        return kept, 0, newest


class _Thinner(Sieve):
    """Leaves what is needed, and one empty batch for each row of batches that are not."""

    __slots__ = ("_gone", "_last_gone", "_needed", "_rows_gone")

    def __init__(self, keeping: Keeping, terms: Terms, keep: Keep, endings: Endings) -> None:
        super().__init__(cast("KeyMap", _Needed(keeping)), terms, keep, endings)
        self._needed = keeping
        self._gone: BatchHeader | None = None
        self._last_gone: Buffer = b""
        self._rows_gone = 0

    def take(self, window: memoryview, end: int) -> int:
        """As ``Sieve.take``."""
        at = 0
        while (header := _whole_batch(window, at)) is not None:
            behind = at + header.size_bytes
            self._thin(window[at:behind], header)
            if behind == end:
                self._fill()
            at = behind
        return at

    def _thin(self, batch: memoryview, header: BatchHeader) -> None:
        left = self._left(batch, header)
        if left is None:
            self._drop(batch, header)
            return
        self._fill()
        self.changed = self.changed or left is not batch
        newest = header if left is batch else peek(left)
        self._keep(left, batch, header.last_offset, newest.newest_timestamp)

    def _left(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if header.is_control and header.records_count and read_decision(batch) is not None:
            keeps = self._needed.keeps(header.base_offset, is_decision=True)
            return batch if keeps else None
        return self.sift(batch, header, must_stay=False)

    # --- what went ----------------------------------------------------------------------

    def _drop(self, batch: memoryview, header: BatchHeader) -> None:
        """Let the batch be part of the row of those that are gone."""
        first = self._gone
        if first is not None and (
            first.partition_leader_epoch != header.partition_leader_epoch
            or header.last_offset - first.base_offset > _INT32_MAX
        ):
            self._fill()
            first = None
        if first is None:
            self._gone, self._rows_gone = header, 1
        else:
            delta = header.last_offset - first.base_offset
            self._gone = first._replace(last_offset_delta=delta)
            self._rows_gone += 1
        self._last_gone = bytes(batch) if not header.records_count else b""

    def _fill(self) -> None:
        """Let one batch without records stand for what went in a row."""
        gone, self._gone = self._gone, None
        if gone is None:
            return
        if self._rows_gone == 1 and self._last_gone:
            self._keep(self._last_gone, self._last_gone, gone.last_offset, NO_TIMESTAMP)
            return
        self.changed = True
        attributes = gone.attributes & ~(CODEC_MASK | DELETE_HORIZON | TRANSACTIONAL | CONTROL)
        filler = assemble(
            gone._replace(
                attributes=attributes,
                base_timestamp=NO_TIMESTAMP,
                producer_id=NO_PRODUCER,
                producer_epoch=NO_PRODUCER_EPOCH,
                base_sequence=_NO_SEQUENCE,
                records_count=0,
            ),
            b"",
        )
        self._keep(filler, filler, gone.last_offset, NO_TIMESTAMP)


def _whole_batch(window: memoryview, at: int) -> BatchHeader | None:
    """The header of the batch at ``at``, proven; ``None`` if the window ends before it does."""
    if len(window) - at < HEADER_BYTES:
        return None
    header = peek(window, at)
    if header.batch_length >= HEADER_BYTES - FRAME_BYTES and at + header.size_bytes > len(window):
        return None
    return check(window, at)
