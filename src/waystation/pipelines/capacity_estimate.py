"""How much a log needs: from what came in so far to the disk that it will take.

The estimate of the design documents is one product: messages a day, times their size, times the
days they are kept, times the copies.  ``storage_bytes`` is that product; ``usage_bytes`` adds what
is on disk already, what retention deletes, and growth.  Nothing here reads a clock or a broker.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from waystation.model.ids import TopicPartition
from waystation.pipelines.topic_log import Extent

__all__ = [
    "DAY_MS",
    "Bucket",
    "Demand",
    "Trend",
    "boundaries",
    "days_until_full",
    "offsets_json",
    "sample_spans",
    "storage_bytes",
    "trend",
    "usage_bytes",
]

DAY_MS = 86_400_000
_WIDTHS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, DAY_MS, 7 * DAY_MS)
_MOST_BUCKETS = 60
_DAYS_THAT_SHOW_GROWTH = 2.0
_HORIZON_DAYS = 3_650
_STEPS_PER_DAY = 4


class Bucket(NamedTuple):
    """A stretch of time and how many messages came in it."""

    start_ms: int
    end_ms: int
    messages: int

    @property
    def days(self) -> float:
        """How long it is; the last one ends with the youngest record."""
        return (self.end_ms - self.start_ms) / DAY_MS


class Trend(NamedTuple):
    """How many messages come a day, and how that changes."""

    per_day: float
    """The mean over all of the log."""
    now_per_day: float
    """Where the fitted line stands at the end."""
    growth_per_day: float | None
    """Messages a day more with each day; none if the log is too short to tell."""

    @property
    def growth_percent(self) -> float | None:
        """The growth in percent of the mean."""
        if self.growth_per_day is None or not self.per_day:
            return None
        return 100.0 * self.growth_per_day / self.per_day


class Demand(NamedTuple):
    """What a disk has to take: bytes of all copies."""

    used_bytes: float
    used_over_days: float
    """How old the oldest of them is: that much is deleted as time goes on."""
    bytes_per_day: float
    growth_bytes_per_day: float
    retention_days: float


def boundaries(oldest_ms: int, newest_ms: int) -> list[int]:
    """Round times from the oldest record on, the youngest's own moment last.

    The steps are the smallest of a second, a minute, an hour, a day ... that are not too many.
    """
    span_ms = max(newest_ms - oldest_ms, 1)
    fitting = (width for width in _WIDTHS_MS if span_ms / width <= _MOST_BUCKETS)
    width_ms = next(fitting, _WIDTHS_MS[-1])
    first = oldest_ms - oldest_ms % width_ms + width_ms
    return [oldest_ms, *range(first, newest_ms, width_ms), newest_ms + 1]


def trend(buckets: Sequence[Bucket]) -> Trend:
    """A straight line through the rates, each bucket weighing as much as it is long."""
    days = sum(bucket.days for bucket in buckets)
    if not days:
        return Trend(0.0, 0.0, None)
    mean = sum(bucket.messages for bucket in buckets) / days
    if days < _DAYS_THAT_SHOW_GROWTH or len(buckets) < 3:
        return Trend(mean, mean, None)
    origin_ms = buckets[0].start_ms
    middles = [((bucket.start_ms + bucket.end_ms) / 2 - origin_ms) / DAY_MS for bucket in buckets]
    weights = [bucket.days / days for bucket in buckets]
    centre = sum(weight * middle for weight, middle in zip(weights, middles, strict=True))
    spread = sum(w * (m - centre) ** 2 for w, m in zip(weights, middles, strict=True))
    slope = (
        sum(
            (middle - centre) * bucket.messages / days
            for middle, bucket in zip(middles, buckets, strict=True)
        )
        / spread
    )
    at_end = mean + slope * ((buckets[-1].end_ms - origin_ms) / DAY_MS - centre)
    return Trend(mean, max(at_end, 0.0), slope)


def storage_bytes(
    messages_per_day: float, message_bytes: float, retention_days: float, replication_factor: int
) -> float:
    """The design documents' estimate: what the log takes once it is as old as it is kept."""
    return messages_per_day * message_bytes * retention_days * replication_factor


def usage_bytes(demand: Demand, after_days: float) -> float:
    """What is on disk ``after_days`` from now, with the oldest deleted when its time has come."""
    kept_days = demand.retention_days
    if demand.used_over_days > 0:
        left = (kept_days - after_days) / demand.used_over_days
    else:
        left = float(after_days <= kept_days)
    old = demand.used_bytes * min(max(left, 0.0), 1.0)
    return old + _arrived(demand, after_days) - _arrived(demand, max(after_days - kept_days, 0.0))


def _arrived(demand: Demand, days: float) -> float:
    """The bytes that come within so many days; a shrinking rate ends at nothing."""
    rate, growth = demand.bytes_per_day, demand.growth_bytes_per_day
    if growth < 0:
        days = min(days, rate / -growth)
    return rate * days + growth * days * days / 2


def days_until_full(demand: Demand, disk_bytes: float) -> float | None:
    """The days until ``disk_bytes`` are not enough; none if that is not within ten years."""
    steps = _HORIZON_DAYS * _STEPS_PER_DAY
    for step in range(steps + 1):
        days = step / _STEPS_PER_DAY
        if usage_bytes(demand, days) > disk_bytes:
            return days
    return None


# --- what to read ---------------------------------------------------------------------------


def sample_spans(extent: Extent, records: int, pieces: int = 3) -> list[Extent]:
    """Which offsets to look at: about ``records`` at the beginning, in the middle, at the end.

    Always ``pieces`` of them; those that would repeat another are empty.
    """
    start, end = extent
    each = max(records // pieces, 1)
    if end - start <= each * pieces:
        return [extent, *[Extent(end, end)] * (pieces - 1)]
    between = (end - start - each) / max(pieces - 1, 1)
    begins = [start + round(between * piece) for piece in range(pieces)]
    return [Extent(begin, begin + each) for begin in begins]


def offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """As the source's options want it: ``{"orders": {"0": 17}}``."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic)


def buckets_between(times_ms: Sequence[int], offsets: Sequence[int]) -> Iterator[Bucket]:
    """The stretches between boundaries, with the offsets that each begins at."""
    edges = zip(times_ms, offsets, strict=True)
    for (start_ms, first), (end_ms, after) in pairwise(edges):
        yield Bucket(start_ms, end_ms, max(after - first, 0))
