"""What ``capacity`` found, as a table for people, a dictionary for scripts and an HTML page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from waystation.pipelines.capacity_estimate import (
    DAY_MS,
    Bucket,
    Demand,
    Trend,
    days_until_full,
    storage_bytes,
    usage_bytes,
)
from waystation.pipelines.plots import bars, lines
from waystation.pipelines.report import (
    Section,
    Table,
    page,
    shown_bytes,
    shown_count,
    shown_duration,
)

__all__ = ["CapacityReport", "TopicCapacity"]

_DOCUMENTS_PER_DAY = 1e9
_SHOWN_DAYS_AT_LEAST = 30


@dataclass(frozen=True)
class TopicCapacity:
    """One topic: what it holds, and what comes."""

    topic: str
    partitions: int
    messages: int
    oldest_ms: int | None
    newest_ms: int | None
    record_bytes: float
    """Key and value of a record, before compression: the mean of a sample."""
    record_max_bytes: int
    sampled: int
    stored_bytes: int
    """One copy, on disk: compressed, with headers and indexes."""
    copies: int
    retention_ms: int | None
    """How long the topic keeps records now; none for ever."""
    trend: Trend
    buckets: tuple[Bucket, ...]

    @property
    def stored_bytes_per_message(self) -> float:
        """What a message takes on disk; the sample's size as long as nothing says otherwise."""
        return self.stored_bytes / self.messages if self.messages else self.record_bytes

    @property
    def bytes_per_day(self) -> float:
        """What comes on disk a day, in one copy."""
        return self.trend.per_day * self.stored_bytes_per_message

    @property
    def age_days(self) -> float:
        """How far back the log reaches."""
        if self.oldest_ms is None or self.newest_ms is None:
            return 0.0
        return (self.newest_ms - self.oldest_ms) / DAY_MS


@dataclass(frozen=True)
class CapacityReport:
    """All topics together, at a chosen retention and number of copies."""

    taken_at: datetime
    topics: tuple[TopicCapacity, ...]
    retention_days: float
    replication_factor: int
    disk_bytes: int | None
    """What these topics may take in all copies; none if neither asked nor told."""

    @property
    def messages_per_day(self) -> float:
        """Over all topics."""
        return sum(one.trend.per_day for one in self.topics)

    @property
    def bytes_per_day(self) -> float:
        """Over all topics, in one copy."""
        return sum(one.bytes_per_day for one in self.topics)

    @property
    def storage_bytes(self) -> float:
        """What all copies take once the log is as old as it is kept."""
        return sum(self.storage_of(one) for one in self.topics)

    def storage_of(self, topic: TopicCapacity) -> float:
        """What all copies of one topic will take."""
        return storage_bytes(
            topic.trend.per_day,
            topic.stored_bytes_per_message,
            self.retention_days,
            self.replication_factor,
        )

    @property
    def demand(self) -> Demand:
        """What the disks have to take from now on, at the chosen number of copies."""
        copies = self.replication_factor
        sizes = [one.stored_bytes_per_message for one in self.topics]
        rate = sum(
            one.trend.now_per_day * size for one, size in zip(self.topics, sizes, strict=True)
        )
        growth = sum(
            (one.trend.growth_per_day or 0.0) * size
            for one, size in zip(self.topics, sizes, strict=True)
        )
        return Demand(
            used_bytes=copies * sum(one.stored_bytes for one in self.topics),
            used_over_days=max((one.age_days for one in self.topics), default=0.0),
            bytes_per_day=copies * rate,
            growth_bytes_per_day=copies * growth,
            retention_days=self.retention_days,
        )

    @property
    def days_left(self) -> float | None:
        """The days until the disk is full; none if it never is, or its size is not known."""
        return None if self.disk_bytes is None else days_until_full(self.demand, self.disk_bytes)

    # --- shown --------------------------------------------------------------------------------

    def table(self) -> Table:
        """A row per topic, and their sum."""
        titles = (
            "TOPIC",
            "MESSAGES",
            "SPAN",
            "MESSAGES/DAY",
            "RECORD",
            "ON DISK",
            "BYTES/DAY",
            "GROWTH/DAY",
            f"STORAGE {self.retention_days:g} D x{self.replication_factor}",
        )
        rows = [self._row(one) for one in self.topics]
        if len(rows) > 1:
            rows.append(
                (
                    "all",
                    shown_count(sum(one.messages for one in self.topics)),
                    "-",
                    shown_count(self.messages_per_day),
                    "-",
                    shown_bytes(sum(one.stored_bytes for one in self.topics)),
                    shown_bytes(self.bytes_per_day),
                    "-",
                    shown_bytes(self.storage_bytes),
                )
            )
        return Table(titles, rows)

    def _row(self, one: TopicCapacity) -> tuple[str, ...]:
        growth = one.trend.growth_percent
        return (
            one.topic,
            shown_count(one.messages),
            shown_duration(one.age_days * DAY_MS),
            shown_count(one.trend.per_day),
            shown_bytes(one.record_bytes),
            shown_bytes(one.stored_bytes),
            shown_bytes(one.bytes_per_day),
            "-" if growth is None else f"{growth:+.1f} %",
            shown_bytes(self.storage_of(one)),
        )

    def disk_sentence(self) -> str:
        """How long the disk will do."""
        if self.disk_bytes is None:
            return "disk: size not known; give it with disk_bytes (--disk)"
        of = f"of the {shown_bytes(self.disk_bytes)} that these topics may take"
        days = self.days_left
        if days is None:
            lasting = usage_bytes(self.demand, self.retention_days)
            return f"disk: {100 * lasting / max(self.disk_bytes, 1):.1f} % {of}; it will do"
        return f"disk: full in {days:,.1f} days {of}"

    def span_sentence(self) -> str:
        """What the figures rest on."""
        longest = max((one.age_days for one in self.topics), default=0.0)
        said = f"the log reaches back {shown_duration(longest * DAY_MS)}"
        return said if longest >= 1 else f"{said}: figures per day assume that it goes on like that"

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "taken_at": self.taken_at.isoformat(),
            "retention_days": self.retention_days,
            "replication_factor": self.replication_factor,
            "messages_per_day": self.messages_per_day,
            "bytes_per_day": self.bytes_per_day,
            "storage_bytes": self.storage_bytes,
            "disk_bytes": self.disk_bytes,
            "days_left": self.days_left,
            "topics": [self._topic_dict(one) for one in self.topics],
        }

    def _topic_dict(self, one: TopicCapacity) -> dict[str, Any]:
        told = asdict(one)
        told["trend"] = one.trend._asdict()
        told["buckets"] = [bucket._asdict() for bucket in one.buckets]
        return {
            **told,
            "stored_bytes_per_message": one.stored_bytes_per_message,
            "bytes_per_day": one.bytes_per_day,
            "storage_bytes": self.storage_of(one),
        }

    def html(self) -> str:
        """The page: what comes, what is there, how long the disk will do."""
        share = self.messages_per_day / _DOCUMENTS_PER_DAY
        figures = (
            ("messages a day", shown_count(self.messages_per_day)),
            ("bytes a day, one copy", shown_bytes(self.bytes_per_day)),
            (
                f"storage: {self.retention_days:g} days, {self.replication_factor} copies",
                shown_bytes(self.storage_bytes),
            ),
            ("of a billion messages a day", f"{100 * share:,.3g} %"),
        )
        arrivals = Section(
            "What comes in", f"{self.span_sentence()}.".capitalize(), [self._arrivals_plot()]
        )
        topics = Section(
            "Topics",
            "RECORD is the mean size of key and value in a sample, ON DISK what one copy takes "
            "with all its records, GROWTH the slope of a line through the rates.",
            tables=[self.table()],
        )
        disk = Section("Disk", self.disk_sentence(), [self._disk_plot()])
        return page(
            "Capacity",
            f"As of {self.taken_at:%Y-%m-%d %H:%M} UTC.",
            figures,
            (arrivals, topics, disk),
        )

    def _arrivals_plot(self) -> str:
        timed = [one for one in self.topics if one.buckets]
        first: Sequence[Bucket] = timed[0].buckets if timed else ()
        labels = [_moment(bucket.start_ms, first) for bucket in first]
        groups = {one.topic: [float(bucket.messages) for bucket in one.buckets] for one in timed}
        width = shown_duration(first[1].end_ms - first[1].start_ms) if len(first) > 2 else "stretch"
        return bars(f"messages per {width}", groups, labels, shown=shown_count)

    def _disk_plot(self) -> str:
        horizon = max(2 * self.retention_days, _SHOWN_DAYS_AT_LEAST, 1.2 * (self.days_left or 0))
        days = [horizon * step / 100 for step in range(101)]
        start_ms = self.taken_at.timestamp() * 1_000
        times = [datetime.fromtimestamp((start_ms + day * DAY_MS) / 1_000, UTC) for day in days]
        used = [usage_bytes(self.demand, day) for day in days]
        # A limit far above the line would press it flat.
        limit = self.disk_bytes if self.disk_bytes and self.disk_bytes < 10 * max(used) else None
        title = (
            f"bytes on disk, {self.replication_factor} copies, kept {self.retention_days:g} days"
        )
        return lines(title, {"all topics": (times, used)}, shown=shown_bytes, limit=limit)


def _moment(ms: int, buckets: Sequence[Bucket]) -> str:
    """A time as short as the span of the buckets allows."""
    when = datetime.fromtimestamp(ms / 1_000, UTC)
    span_ms = buckets[-1].end_ms - buckets[0].start_ms
    if span_ms > 3 * DAY_MS:
        return f"{when:%m-%d}"
    return f"{when:%d. %H:%M}" if span_ms > DAY_MS / 2 else f"{when:%H:%M:%S}"
