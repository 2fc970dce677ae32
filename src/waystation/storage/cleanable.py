"""What of a log may be compacted, and how much there is to gain.

1. Never the active segment, nothing at or past the end that is given, nothing that a crash would
   make recovery look at again, and nothing younger than ``min.compaction.lag.ms``: it ends at the
   first segment of which any of this is true.
2. What was compacted before is clean, up to ``Log.clean_end``; the rest is dirty.
"""

from collections.abc import Iterator
from typing import NamedTuple

from waystation.model.offsets import Millis, Offset
from waystation.storage.log import Log
from waystation.storage.segment import Segment

_FOREVER_MS = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1
# Replacing a segment takes the loop three renames.
_SEGMENTS_PER_GROUP = 16


class Dirt(NamedTuple):
    """How a log stands: clean up to ``first_dirty``, to be compacted up to ``end``."""

    first_dirty: Offset
    end: Offset
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether something is older than ``max.compaction.lag.ms``."""

    @property
    def ratio(self) -> float:
        """The share of what may be compacted that was not."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def dirt_of(log: Log, before: Offset, now: Millis) -> Dirt:
    """Look at the segments that end at ``before`` at the latest: the high watermark, or less.

    Files are opened only where a lag is set.
    """
    # Not the log's start, which a crash may move back as far as its segment.
    first_dirty = max(log.clean_end, log.segments[0].base_offset)
    end, clean_bytes, dirty_bytes, overdue = log.segments[0].base_offset, 0, 0, False
    overdue_before = now - log.settings.max_compaction_lag_ms
    for segment in _cleanable(log, before, first_dirty, now):
        end = segment.next_offset
        if end <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        dirty_bytes += segment.size_bytes
        if log.settings.max_compaction_lag_ms < _FOREVER_MS:
            overdue = overdue or 0 <= segment.first_timestamp < overdue_before
    return Dirt(first_dirty, end, clean_bytes, dirty_bytes, overdue)


def _cleanable(log: Log, before: Offset, first_dirty: Offset, now: Millis) -> Iterator[Segment]:
    limit = min(log.active.base_offset, before, log.recovery_point)
    lag_ms = log.settings.min_compaction_lag_ms
    for segment in log.segments[:-1]:
        is_dirty = segment.next_offset > first_dirty
        if segment.next_offset > limit:
            return
        if lag_ms and is_dirty and segment.max_timestamp > now - lag_ms:
            return
        yield segment


def next_group(log: Log, since: Offset, end: Offset) -> list[Segment]:
    """The first segments in ``[since, end)`` that fit into one together; none if there is none.

    Sizes are those of before, so that what comes out is never too large.
    """
    group: list[Segment] = []
    size_bytes = 0
    for segment in log.segments[:-1]:
        if segment.base_offset < since:
            continue
        size_bytes += segment.size_bytes
        fits = not group or (
            size_bytes <= log.settings.segment_bytes
            and segment.next_offset - group[0].base_offset <= _INT32_MAX
            and len(group) < _SEGMENTS_PER_GROUP
        )
        if segment.base_offset >= end or not fits:
            break
        group.append(segment)
    return group
