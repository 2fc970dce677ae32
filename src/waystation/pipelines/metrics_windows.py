"""What happened to a topic within one stretch of time, in figures that can be added up.

Figures of one window may come from many tasks and many batches, in any order and however late:
adding them gives what counting everything at once would have given.  Three kinds of figures:

1. counts, bytes and maxima are exact;
2. ages are counted in buckets that are 9 % wide, so a percentile is at most that much too high;
3. keys are counted exactly while a window has at most ``capacity`` of them.  Beyond that a key's
   count may be too low, by at most the window's messages divided by ``capacity``, and is never
   too high; whoever has more messages than that is among them (Misra and Gries).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Asked",
    "Figures",
    "Windows",
    "age_buckets",
    "percentile_ms",
    "shown_key",
    "summarised",
    "upper_ms",
]

_BUCKETS_PER_DOUBLING = 8
_MOST_WINDOWS = 20_000
_SHOWN_KEY_CHARS = 96

WindowKey = tuple[int, str]
"""When a window begins, in ms since 1970, and of which topic it is."""


class Asked(NamedTuple):
    """What a batch is measured by; goes to the tasks."""

    window_ms: int
    seen_ms: int
    """The moment at which the batch is processed: ages end there."""
    late_before_ms: Mapping[str, int]
    """Per topic: records older than this come late."""
    capacity: int


@dataclass
class Figures:
    """The figures of one window of one topic."""

    messages: int = 0
    payload_bytes: int = 0
    late: int = 0
    newest_ms: int = 0
    age_max_ms: int = 0
    ages: dict[int, int] = field(default_factory=dict)
    """Messages per bucket of age."""
    keys: dict[str, int] = field(default_factory=dict)
    """Messages per key, of the most frequent ones."""

    def add(self, more: "Figures", capacity: int) -> None:
        """Take in what else happened in the same window."""
        self.messages += more.messages
        self.payload_bytes += more.payload_bytes
        self.late += more.late
        self.newest_ms = max(self.newest_ms, more.newest_ms)
        self.age_max_ms = max(self.age_max_ms, more.age_max_ms)
        _add_counts(self.ages, more.ages.items())
        _add_counts(self.keys, more.keys.items())
        self.keys = pruned(self.keys, capacity)

    def age_ms(self, share: float) -> int:
        """The age that ``share`` of the messages did not exceed."""
        return min(percentile_ms(self.ages, share), self.age_max_ms)

    def top_keys(self) -> list[tuple[str, int]]:
        """The keys, the most frequent first."""
        return sorted(self.keys.items(), key=lambda one: (-one[1], one[0]))


class Windows(dict[WindowKey, Figures]):
    """Figures by window and topic."""

    def add(self, where: WindowKey, more: Figures, capacity: int) -> None:
        """Amend one window."""
        self.setdefault(where, Figures()).add(more, capacity)


def pruned(counts: dict[str, int], capacity: int) -> dict[str, int]:
    """At most ``capacity`` keys: all lose what the first that must go has."""
    if len(counts) <= capacity:
        return counts
    taken = sorted(counts.values(), reverse=True)[capacity]
    return {key: count - taken for key, count in counts.items() if count > taken}


def _add_counts(
    counts: dict[int, int] | dict[str, int], more: Iterable[tuple[object, int]]
) -> None:
    for one, count in more:
        counts[one] = counts.get(one, 0) + count  # type: ignore[index,call-overload]  # both alike


# --- ages -----------------------------------------------------------------------------------


def age_buckets(ages_ms: Any) -> Any:
    """The bucket of each age in an array of numpy: equal steps of its logarithm."""
    import numpy as np

    return np.floor(_BUCKETS_PER_DOUBLING * np.log2(1.0 + ages_ms)).astype(np.int32)


def upper_ms(bucket: int) -> int:
    """The greatest age of a bucket."""
    greatest: float = 2.0 ** ((bucket + 1) / _BUCKETS_PER_DOUBLING) - 1.0
    return ceil(greatest)


def percentile_ms(ages: Mapping[int, int], share: float) -> int:
    """An age that at least ``share`` of the counted did not exceed."""
    wanted = share * sum(ages.values())
    reached = 0
    for bucket in sorted(ages):
        reached += ages[bucket]
        if reached >= wanted:
            return upper_ms(bucket)
    return 0


# --- in the tasks ---------------------------------------------------------------------------


def summarised(
    batches: Iterable["pa.RecordBatch"], asked: Asked
) -> Iterator[tuple[WindowKey, Figures]]:
    """The windows of some records: ``topic``, ``timestamp``, ``bytes``, ``key``.

    Holds figures only, and not too many of them: what would be more is handed on and may come
    again, to be added up by whoever collects it.
    """
    windows = Windows()
    for batch in batches:
        for where, figures in _of_batch(batch, asked):
            windows.add(where, figures, asked.capacity)
        if len(windows) > _MOST_WINDOWS:
            yield from windows.items()
            windows = Windows()
    yield from windows.items()


def _of_batch(batch: "pa.RecordBatch", asked: Asked) -> Iterator[tuple[WindowKey, Figures]]:
    """HOT: once per Arrow batch; Python's loops run over groups, not over records."""
    table = _measured(batch, asked)
    of_window = ["window", "topic"]
    sums = table.group_by(of_window).aggregate(
        [("bytes", "count"), ("bytes", "sum"), ("late", "sum"), ("time", "max"), ("age", "max")]
    )
    found = {
        (window, topic): Figures(messages, size, late, newest, age)
        for window, topic, messages, size, late, newest, age in _rows(
            sums, *of_window, "bytes_count", "bytes_sum", "late_sum", "time_max", "age_max"
        )
    }
    ages = table.group_by([*of_window, "bucket"]).aggregate([("bytes", "count")])
    for window, topic, bucket, count in _rows(ages, *of_window, "bucket", "bytes_count"):
        found[window, topic].ages[bucket] = count
    keyed = table.group_by([*of_window, "key"]).aggregate([("bytes", "count")])
    for window, topic, key, count in _rows(keyed, *of_window, "key", "bytes_count"):
        if key is not None:
            _add_counts(found[window, topic].keys, [(shown_key(key), count)])
    return iter(found.items())


def _measured(batch: "pa.RecordBatch", asked: Asked) -> "pa.Table":
    """The records with their windows, ages and whether they come late."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.fill_null(pc.cast(batch["timestamp"], pa.int64()), -1)
    times = micros.to_numpy(zero_copy_only=False) // 1_000
    # A record without a time of its own has that of its arrival, as far as we know it.
    times = np.where(times < 0, asked.seen_ms, times)
    ages = np.maximum(asked.seen_ms - times, 0)
    topics = pc.unique(batch["topic"]).to_pylist()
    edges = pa.array([asked.late_before_ms.get(topic, 0) for topic in topics], pa.int64())
    edge = edges.take(pc.index_in(batch["topic"], value_set=pa.array(topics, pa.string())))
    return pa.table(
        {
            "window": pa.array(times - times % asked.window_ms),
            "topic": batch["topic"],
            "bytes": batch["bytes"],
            "late": pa.array((times < edge.to_numpy(zero_copy_only=False)).astype(np.int64)),
            "time": pa.array(times),
            "age": pa.array(ages),
            "bucket": pa.array(age_buckets(ages)),
            "key": batch["key"],
        }
    )


def _rows(table: "pa.Table", *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def shown_key(key: bytes) -> str:
    """A key as text: as it is, in hexadecimal if it is no text, cut if it is long.

    What is cut ends with a check sum, so that keys with the same beginning stay apart.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = f"0x{key.hex()}"
    if len(text) <= _SHOWN_KEY_CHARS:
        return text
    return f"{text[:_SHOWN_KEY_CHARS]}…{crc32(key):08x}"
