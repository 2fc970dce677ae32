"""One fetch under way: read what is there, or wait until there is enough.

A fetch ends as soon as one of these holds: it has ``min_bytes``, a partition has an error to
report, ``max_wait_ms`` has passed, or its connection is gone.  Until then it is a long poll that
costs nothing: partitions call it when their committed end moves.

1. The response is at most ``max_bytes``, except that the first batch always comes whole.
2. Partitions are read in the order given; the session rotates that order, so that a busy
   partition cannot starve the ones behind it.
3. A fetch of many partitions costs the same for one record as for a hundred.  One that follows
   a small answer to the same client closely waits a few milliseconds, to take more along; how
   many, its topics may say (``fetch.linger.ms``).  Who is behind never waits.
4. Who reads only what is stable gets nothing of a transaction that is open, nor of what lies
   behind it, and is told which of the transactions it gets were aborted.
5. Who names its rack may read from followers, up to the mark that they know of, and is sent to
   one by the leader; everybody else only from leaders.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from waystation.broker.replicas import Replicas
from waystation.model.errors import OffsetOutOfRangeError, WaystationError
from waystation.model.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, TopicId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.partition.meters import TopicMeter
from waystation.partition.partition import Partition
from waystation.replication.epochs import EpochEnd
from waystation.runtime.regions import FileRegion
from waystation.runtime.timers import Timer, Timers
from waystation.storage.txn_index import AbortedTxn

Nearer = Callable[[Partition, Offset], int]
"""Which replica that has an offset is nearer to a reader than its leader; -1 if none is."""
NOBODY: Final = -1

READ_COMMITTED: Final = 1
"""The isolation level of who wants stable records only."""

# From how many partitions on a fetch gathers, how small the answer before was, how long ago.
_MANY: Final = 16
_SMALL_BYTES: Final = 64 << 10
_CLOSELY_S: Final = 0.01
_GATHER_S: Final = 0.002
# What counts as small where topics say how long to wait: who gets more is on its way already.
_LITTLE_BYTES: Final = 512 << 10
_AUTO_MS: Final = -1


class Wanted:
    """One partition that a client reads, and what it was last told about it."""

    __slots__ = (
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        max_bytes: int,
        topic_id: TopicId = NO_TOPIC_ID,
        leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        """HOT: once per partition of every fetch without a session."""
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.told_high_watermark = self.told_log_start = NO_OFFSET

    @property
    def key(self) -> tuple[str | TopicId, int]:
        """What the client calls it: by topic id where it has one, else by name."""
        return (self.topic or self.topic_id, self.partition)


class Found(NamedTuple):
    """What a fetch found for one partition."""

    wanted: Wanted
    error: WaystationError | None = None
    region: FileRegion | memoryview | None = None
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    last_stable: Offset = NO_OFFSET
    diverging: EpochEnd | None = None
    meter: TopicMeter | None = None
    next_offset: Offset = NO_OFFSET
    aborted: Sequence[AbortedTxn] = ()
    """The aborted transactions that reach into what was read, for who asked for stable records."""
    nearer: int = NOBODY
    """A replica to read from instead."""

    @property
    def nbytes(self) -> int:
        """How much there is to send."""
        return 0 if self.region is None else self.region.nbytes

    def counted(self) -> None:
        """Note that this was sent."""
        if self.region is not None and self.meter is not None:
            self.meter.fetched_bytes.value += self.region.nbytes
            self.meter.fetched_records.value += self.next_offset - self.wanted.offset

    @property
    def is_news(self) -> bool:
        """Whether an incremental response must mention the partition."""
        return (
            self.region is not None
            or self.error is not None
            or self.diverging is not None
            or self.nearer != NOBODY
            or self.high_watermark != self.wanted.told_high_watermark
            or self.log_start != self.wanted.told_log_start
        )


class Limits(NamedTuple):
    """How much and how long; ``max_wait_ms`` of 0 never waits."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    stable_only: bool = False
    """Whether to stop before the first open transaction: Kafka's ``read_committed``."""
    nearer: Nearer | None = None
    """For who named its rack."""


class LongPoll(Protocol):
    """Whoever waits for something to read."""

    def end_now(self) -> None:
        """Answer with what there is."""
        ...

    def cancel(self) -> None:
        """End without an answer."""
        ...


class Polls:
    """The fetches of one client that wait, and when it was last given little.

    Before ``rest_until_s`` it is given nothing: its topics say so.
    """

    __slots__ = ("fetches", "little_at_s", "rest_until_s")

    def __init__(self) -> None:
        self.fetches: dict[LongPoll, None] = {}
        self.little_at_s = -_CLOSELY_S
        self.rest_until_s = 0.0


class Fetch:
    """Reads once at ``start`` and again whenever something moved, until it may end."""

    __slots__ = (
        "_done",
        "_ended",
        "_gathering",
        "_limits",
        "_pairs",
        "_polls",
        "_replicas",
        "_timer",
        "_timers",
    )

    def __init__(
        self,
        replicas: Replicas,
        wanted: Sequence[Wanted],
        limits: Limits,
        done: Callable[[list[Found]], None],
        *,
        timers: Timers,
        polls: Polls,
    ) -> None:
        """``done`` is told what was found; the fetch is listed in ``polls`` while it waits."""
        self._replicas = replicas
        find = replicas.find
        self._pairs = [(one, find(one.topic, one.partition, one.topic_id)) for one in wanted]
        self._limits = limits
        self._done = done
        self._ended = False
        self._timer: Timer | None = None
        self._gathering: Timer | None = None
        self._timers = timers
        self._polls = polls

    def start(self) -> None:
        """Answer at once if that is possible, otherwise wait."""
        limits = self._limits
        if limits.max_wait_ms > 0 and (gather_s := self._gather_s()) > 0:
            self._gathering = self._timers.call_later(gather_s, self._gathered)
        elif limits.max_wait_ms <= 0 or limits.min_bytes <= 0 or not self._nothing_new():
            found, enough = self._read()
            if enough or limits.max_wait_ms <= 0:
                self._end(found)
                return
        self._wait()

    def _wait(self) -> None:
        for _, partition in self._pairs:
            if partition is not None:
                partition.read_waiters.add(self._retry)
        self._polls.fetches[self] = None
        wait_s = max(self._limits.max_wait_ms, 0) / 1_000
        self._timer = self._timers.call_later(wait_s, self._run_out)

    def _gather_s(self) -> float:
        """For how long waiting spares more work than it costs time."""
        now_s, polls = self._timers.now_s(), self._polls
        if len(self._pairs) >= _MANY and now_s - polls.little_at_s < _CLOSELY_S:
            return _GATHER_S
        return polls.rest_until_s - now_s

    def _gathered(self) -> None:
        self._gathering = None
        self._retry()

    def _nothing_new(self) -> bool:
        """Whether every partition was read to its end; anything else needs a closer look.

        HOT: once per partition of every fetch; a reader that keeps up finds nothing most times.
        """
        stable_only, nearer = self._limits.stable_only, self._limits.nearer
        for one, partition in self._pairs:
            if (
                partition is None
                or (
                    partition.mark != one.offset
                    and not (stable_only and partition.stable == one.offset)
                )
                or one.last_fetched_epoch >= 0
                or nearer is not None
                or one.leader_epoch not in (NO_LEADER_EPOCH, partition.leadership.epoch)
            ):
                return False
        return bool(self._pairs)

    def _retry(self) -> None:
        if self._ended or self._gathering is not None:
            return
        found, enough = self._read()
        if enough:
            self._end(found)

    def _run_out(self) -> None:
        """The time is up."""
        self.end_now()

    def end_now(self) -> None:
        """Answer with what there is: the time is up, or the node shuts down."""
        if not self._ended:
            self._end(self._read()[0])

    def cancel(self) -> None:
        """End without an answer: nobody is there to read it."""
        if not self._ended:
            self._stop_waiting()

    def _end(self, found: list[Found]) -> None:
        self._stop_waiting()
        linger_ms = self._linger_ms()
        if linger_ms == _AUTO_MS:
            if len(found) >= _MANY and sum(one.nbytes for one in found) < _SMALL_BYTES:
                self._polls.little_at_s = self._timers.now_s()
        elif linger_ms > 0 and _is_little(found):
            self._polls.rest_until_s = self._timers.now_s() + linger_ms / 1_000
        self._done(found)

    def _linger_ms(self) -> int:
        """How long the least patient topic lets the next fetch wait."""
        lingers = {
            partition.settings.fetch_linger_ms
            for _, partition in self._pairs
            if partition is not None
        }
        return 0 if 0 in lingers else min(lingers, default=_AUTO_MS)

    def _stop_waiting(self) -> None:
        self._ended = True
        self._polls.fetches.pop(self, None)
        if self._gathering is not None:
            self._gathering.cancel()
        if self._timer is not None:
            self._timer.cancel()
            for _, partition in self._pairs:
                if partition is not None:
                    partition.read_waiters.remove(self._retry)

    def _read(self) -> tuple[list[Found], bool]:
        """What every wanted partition has now, and whether that is enough to answer."""
        left, total, urgent = self._limits.max_bytes, 0, not self._pairs
        stable_only = self._limits.stable_only
        found = []
        for one, partition in self._pairs:
            if (
                partition is not None
                and (
                    partition.mark == one.offset or (stable_only and partition.stable == one.offset)
                )
                and not _is_wary(one)
                and self._limits.nearer is None
            ):
                log_start = partition.log.log_start
                found.append(Found(one, None, None, partition.mark, log_start, partition.stable))
                continue
            if partition is None:
                unknown = self._replicas.unknown(one.topic, one.partition, one.topic_id)
                result = Found(one, unknown)
            else:
                result = read_one(one, partition, left, self._limits, at_least_one=total == 0)
            found.append(result)
            total += result.nbytes
            left -= result.nbytes
            urgent = urgent or is_urgent(result)
        return found, urgent or total >= self._limits.min_bytes


def _is_little(found: list[Found]) -> bool:
    """Whether an answer is small and yet all there was."""
    total = sum(one.nbytes for one in found)
    return 0 < total < _LITTLE_BYTES and not any(
        one.region is not None and one.next_offset < one.high_watermark for one in found
    )


def _is_wary(one: Wanted) -> bool:
    """Whether the reader wants its idea of the leader checked, even where there is no news."""
    return one.leader_epoch >= 0 or one.last_fetched_epoch >= 0


def is_urgent(found: Found) -> bool:
    """Whether the client must hear of it at once."""
    return found.error is not None or found.diverging is not None or found.nearer != NOBODY


def read_one(
    one: Wanted, partition: Partition, left: int, limits: Limits, *, at_least_one: bool
) -> Found:
    """What one partition has; without room for it, only whether it may be read and how far.

    HOT: once per partition of a fetch that has something to read.
    """
    stable_only, nearer = limits.stable_only, limits.nearer
    try:
        log = partition.log
        if nearer is None:
            mark = partition.check_epoch(one.leader_epoch).high_watermark
            last_stable = partition.last_stable if stable_only else partition.stable
        else:
            mark = partition.check_readable(one.leader_epoch)
            last_stable = partition.last_stable
            if partition.leading and (node := nearer(partition, one.offset)) != NOBODY:
                return Found(one, None, None, mark, log.log_start, last_stable, nearer=node)
        diverging = _divergence(partition, one)
        if (
            one.offset == (last_stable if stable_only else mark)
            or (left <= 0 and not at_least_one)
            or diverging
        ):
            log.check_online()
            return Found(one, None, None, mark, log.log_start, last_stable, diverging)
        limit = min(one.max_bytes, left)
        region, behind = partition.read(
            one.offset, limit, at_least_one=at_least_one, stable_only=stable_only
        )
        aborted = log.aborted(one.offset, behind) if stable_only and region is not None else ()
        return Found(
            one,
            None,
            region,
            mark,
            log.log_start,
            last_stable,
            None,
            partition.meter,
            behind,
            aborted,
        )
    except WaystationError as error:
        return Found(one, error)


def _divergence(partition: Partition, one: Wanted) -> EpochEnd | None:
    """Where the reader's log parted from ours, if the epoch it read last says so."""
    if one.last_fetched_epoch < 0:
        return None
    end = partition.epoch_end(LeaderEpoch(one.last_fetched_epoch))
    if end.epoch < 0:
        # Nothing to go back to: the reader has to begin anew.
        raise OffsetOutOfRangeError(one.offset, partition.log.log_start, partition.log.log_end)
    if end.epoch < one.last_fetched_epoch or end.end < one.offset:
        return EpochEnd(*end)
    return None
