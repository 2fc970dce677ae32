"""Which segments of a log are old enough to go, by age and by size.

The active segment goes only by age, when all of it has expired, after another was begun.
Nothing goes that is not committed.
"""

from waystation.model.offsets import Millis, Offset
from waystation.storage.log import Log

KEEP_FOREVER = -1


def retire(log: Log, now: Millis, high_watermark: Offset) -> int:
    """Move the log's start past what retention lets go; the bytes that will be freed.

    Files are dropped afterwards, by ``DataDirectory.drop_retired``, once the new start is
    written down.
    """
    if _expired(log, len(log.segments) - 1, now) and high_watermark >= log.log_end:
        log.roll()
    count = _count(log, now)
    while count and log.segments[count].base_offset > high_watermark:
        count -= 1
    if not count:
        return 0
    freed = sum(segment.size_bytes for segment in log.segments[:count])
    log.advance_log_start(max(log.segments[count].base_offset, log.log_start))
    return freed


def _count(log: Log, now: Millis) -> int:
    """How many of the oldest segments may go."""
    by_age = 0
    while by_age < len(log.segments) - 1 and _expired(log, by_age, now):
        by_age += 1
    return max(by_age, _beyond_size(log))


def _expired(log: Log, number: int, now: Millis) -> bool:
    keep_ms = log.settings.retention_ms
    segment = log.segments[number]
    if keep_ms == KEEP_FOREVER or not segment.size_bytes:
        return False
    return now - segment.newest()[0] > keep_ms


def _beyond_size(log: Log) -> int:
    keep_bytes = log.settings.retention_bytes
    if keep_bytes == KEEP_FOREVER:
        return 0
    count, left = 0, log.size_bytes
    while count < len(log.segments) - 1 and left - log.segments[count].size_bytes >= keep_bytes:
        left -= log.segments[count].size_bytes
        count += 1
    return count
