"""Which segments of a log are old enough to go, by age and by size.

The active segment goes only by age, when all of it has expired, after another was begun.
Nothing goes that is not committed, nor by age what carries no timestamp, nor what is kept for an
archive; and nothing at all of a log that is only compacted.

What everybody is done with goes at once (``drop``), a segment at a time.
"""

from waystation.model.offsets import Millis, Offset
from waystation.storage.log import Log
from waystation.storage.segment import Segment

KEEP_FOREVER = -1

ROLL_BYTES = 64 << 20
"""From which size on a segment is closed of which a part may go already."""
# The active segment of a log that everybody is done with is closed from this size or age on.
_LITTLE_BYTES = 1 << 20
_SOON_MS = 60_000


def retire(log: Log, now: Millis, high_watermark: Offset, kept_from: Offset | None = None) -> int:
    """Move the log's start past what retention lets go; the bytes that will be freed.

    What lies at or past ``kept_from`` is still to be archived and stays.  Files are dropped
    afterwards, by ``DataDirectory.drop_retired``, once the new start is written down.
    """
    log.check_online()
    log.producers.expire(now, log.directory.producer_expiration_ms)
    end = high_watermark if kept_from is None else min(kept_from, high_watermark)
    if _all_due(log, now, end):
        log.roll()
    count = _due_count(log, now, end)
    if not count:
        return 0
    freed = sum(segment.size_bytes for segment in log.segments[:count])
    log.advance_log_start(max(log.segments[count].base_offset, log.log_start))
    return freed


def drop(log: Log, now: Millis, before: Offset, roll_bytes: int = ROLL_BYTES) -> int:
    """Let go of the segments that lie before ``before``; the bytes that will be freed.

    The active one is closed when it is large enough, or when all of it may go and that is worth
    a file: else a log that is always written to would never shrink.
    """
    log.check_online()
    if not log.settings.expires:
        return 0
    active = log.active
    is_done = before >= log.log_end and _is_worth_a_file(log, now)
    if is_done or (active.size_bytes >= roll_bytes and before > active.base_offset):
        log.roll()
    count = 0
    while count < len(log.segments) - 1 and log.segments[count + 1].base_offset <= before:
        count += 1
    if not count:
        return 0
    freed = sum(segment.size_bytes for segment in log.segments[:count])
    log.advance_log_start(max(log.segments[count].base_offset, log.log_start))
    return freed


def fits_from(log: Log, keep_bytes: int) -> Offset | None:
    """Where the newest segments begin that take ``keep_bytes`` at most; ``None`` if all do.

    The active one stays, however large.
    """
    count, left = 0, log.size_bytes
    while count < len(log.segments) - 1 and left > keep_bytes:
        left -= log.segments[count].size_bytes
        count += 1
    return log.segments[count].base_offset if count else None


def _is_worth_a_file(log: Log, now: Millis) -> bool:
    active = log.active
    age_ms = now - active.created_at if active.created_at >= 0 else 0
    return active.size_bytes >= _LITTLE_BYTES or (active.size_bytes > 0 and age_ms >= _SOON_MS)


def due_bytes(log: Log, now: Millis, high_watermark: Offset) -> int:
    """What would go if nothing were kept for an archive.  Changes nothing."""
    if _all_due(log, now, high_watermark):
        return log.size_bytes
    count = _due_count(log, now, high_watermark)
    return sum(segment.size_bytes for segment in log.segments[:count])


def _all_due(log: Log, now: Millis, end: Offset) -> bool:
    """Whether the active segment has to go as well."""
    return (
        log.settings.expires
        and end >= log.log_end
        and all(_expired(log, one, now) for one in log.segments)
    )


def _due_count(log: Log, now: Millis, end: Offset) -> int:
    """How many of the oldest segments can go, all of which lie before ``end``."""
    if not log.settings.expires:
        return 0
    count = max(_expired_count(log, now), _oversize_count(log))
    while count and log.segments[count].base_offset > end:
        count -= 1
    return count


def _expired_count(log: Log, now: Millis) -> int:
    """How many of the oldest segments have expired; never the active one."""
    count = 0
    while count < len(log.segments) - 1 and _expired(log, log.segments[count], now):
        count += 1
    return count


def _expired(log: Log, segment: Segment, now: Millis) -> bool:
    keep_ms = log.settings.retention_ms
    if keep_ms == KEEP_FOREVER or not segment.size_bytes:
        return False
    newest = segment.max_timestamp
    return newest < now - keep_ms if newest >= 0 else not segment.has_records


def _oversize_count(log: Log) -> int:
    """How many of the oldest segments can go and leave ``retention.bytes`` behind."""
    keep_bytes = log.settings.retention_bytes
    if keep_bytes == KEEP_FOREVER:
        return 0
    count, left = 0, log.size_bytes
    while count < len(log.segments) - 1 and left - log.segments[count].size_bytes >= keep_bytes:
        left -= log.segments[count].size_bytes
        count += 1
    return count
