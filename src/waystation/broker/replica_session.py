"""What one follower asks this broker for, remembered from fetch to fetch.

A follower names a partition when it has a question about it, and the question stands until an
answer names the partition; a fetch costs what has changed, however many partitions there are.

1. A question is answered once: with data, with an error, with where the logs part, or with a mark
   or a log start that the follower was not told yet.  Whatever it asks next, it says itself.
2. A fetch waits until there is something to say.  The next one on the session ends it first, with
   what there is, so that a follower need not wait for its own fetch before it asks something new.
3. An end counts for the high watermark only after leader epoch, broker epoch, divergence and range
   were checked, in this order; and only of a copy that the follower will not give up, because of
   a change which it has yet to hear of.  What is forgotten of a follower is asked for again.
4. News that are marks alone may wait a little: the partition's next data takes them along.
   Where a log starts may wait until the fetch has waited for as long as it may.

A partition that is named with room for no bytes is a report, not a question: what was flushed
meanwhile, for a question that still stands.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from waystation.broker.replica_wire import UNTOLD, Asked, Key, Told
from waystation.broker.replicas import Replicas
from waystation.broker.throttle import LeaderThrottle
from waystation.model.errors import (
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    WaystationError,
)
from waystation.model.ids import BrokerEpoch, NodeId
from waystation.model.offsets import NO_OFFSET, Millis
from waystation.partition.partition import Partition
from waystation.replication.epochs import EpochEnd
from waystation.runtime.clock import Clock
from waystation.runtime.timers import Timer, Timers
from waystation.telemetry.metrics import Counter

__all__ = ["MARKS_WAIT_S", "Asked", "ReplicaSession", "Told", "count"]

MARKS_WAIT_S: Final = 0.01
Done = Callable[[list[Told]], None]


class _Followed:
    """One partition that a follower copies, and what it asked about it last.

    It outlives the question, which stands or was answered: marks are told only if they are news.
    """

    __slots__ = (
        "epoch",
        "forgotten_at",
        "key",
        "max_bytes",
        "offset",
        "partition",
        "stands",
        "told_mark",
        "told_start",
        "waker",
    )

    def __init__(self, key: Key, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.stands = False
        self.epoch = self.max_bytes = 0
        self.offset = self.told_mark = self.told_start = NO_OFFSET
        self.waker: Callable[[], None] = _nothing
        # When what its follower had said before the question was last forgotten.
        self.forgotten_at: int | None = None

    @property
    def has_news(self) -> bool:
        """Whether there is a mark, or a start, that the follower was not told yet."""
        partition = self.partition
        return (
            partition.high_watermark != self.told_mark or partition.log.log_start != self.told_start
        )


def _nothing() -> None:
    """What a partition calls that nobody listens to yet."""


class ReplicaSession:
    """One follower in one of its lives, on one connection."""

    def __init__(
        self,
        session_id: int,
        node: NodeId,
        life: BrokerEpoch,
        replicas: Replicas,
        throttle: LeaderThrottle,
        clock: Clock,
        timers: Timers,
        sent: Counter,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self.id, self.node, self.life = session_id, node, life
        self.epoch = 1
        self.heard_at_ms = Millis(int(clock.monotonic() * 1_000))
        self.acted_on = UNTOLD
        """The revision of the store that the follower has acted on, by its last fetch."""
        self._replicas = replicas
        self._throttle = throttle
        self._clock = clock
        self._timers = timers
        self._sent = sent
        self._defer = defer
        self._known: dict[Key, _Followed] = {}
        # Those whose question may be answered; looked at when the turn of the loop is over.
        self._ready: dict[_Followed, None] = {}
        self._answers: list[Told] = []
        self._done: Done | None = None
        self._max_bytes = 0
        self._looking = False
        # Fetches come and go much faster than their time passes: the timer outlives them.
        self._wait_until_s = 0.0
        self._wait_timer: Timer | None = None
        self._marks_told_s = -MARKS_WAIT_S
        self._marks_timer: Timer | None = None
        self._throttled: list[Timer] = []

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_waiting(self) -> bool:
        """Whether a fetch waits for news."""
        return self._done is not None

    # --- what the follower sends ----------------------------------------------------------------

    def fetch(
        self,
        asked: Iterable[Asked],
        forgotten: Iterable[Key],
        max_wait_ms: int,
        max_bytes: int,
        done: Done,
    ) -> None:
        """Take in what is new, and call ``done`` as soon as there is something to say."""
        self._end()
        for key in forgotten:
            self._forget(key)
        now_s = self._clock.monotonic()
        now = self.heard_at_ms = Millis(int(now_s * 1_000))
        for one in asked:
            self._take(one, now)
        self._done, self._max_bytes = done, max_bytes
        self._look()
        if self._done is not None:
            self._wait(now_s, max_wait_ms / 1_000)

    def end_now(self) -> None:
        """Answer what waits with what there is."""
        self._end(marks=True)

    def close(self) -> None:
        """The follower is gone, or begins anew."""
        self._done = None
        self._stop_timers()
        for followed in self._known.values():
            followed.partition.replica_waiters.remove(followed.waker)
        self._known.clear()
        self._ready.clear()

    def _take(self, asked: Asked, now: Millis) -> None:
        """HOT: once per partition that a follower asks or reports about."""
        key, report = asked.key, asked.max_bytes <= 0
        followed = self._known.get(key)
        try:
            if followed is not None and followed.partition.leading:
                # One that was given up, and perhaps is held anew, leads nothing any more.
                partition = followed.partition
            else:
                partition = self._replicas.get("", key[1], key[0])
            diverging = count(partition, self.node, self.life, asked, now, self.acted_on)
        except WaystationError as error:
            if not report:
                self._withdraw(followed)
                self._answers.append(_refusal(key, error))
            return
        if report:
            return
        if diverging is not None:
            self._withdraw(followed)
            told = Told(
                key,
                high_watermark=partition.high_watermark,
                log_start=partition.log_start,
                diverging=diverging,
            )
            self._answers.append(told)
            return
        if followed is None or followed.partition is not partition:
            followed = self._listen(key, partition)
        followed.epoch, followed.offset = asked.leader_epoch, asked.offset
        followed.max_bytes, followed.stands = asked.max_bytes, True
        followed.forgotten_at = partition.given_up.get(self.node)
        self._ready[followed] = None

    def _listen(self, key: Key, partition: Partition) -> _Followed:
        self._forget(key)
        followed = self._known[key] = _Followed(key, partition)
        followed.waker = partial(self._changed, followed)
        partition.replica_waiters.add(followed.waker)
        return followed

    def _withdraw(self, followed: _Followed | None) -> None:
        if followed is not None:
            followed.stands = False
            self._ready.pop(followed, None)

    def _forget(self, key: Key) -> None:
        followed = self._known.pop(key, None)
        if followed is not None:
            self._withdraw(followed)
            followed.partition.replica_waiters.remove(followed.waker)

    # --- what partitions tell -------------------------------------------------------------------

    def _changed(self, followed: _Followed) -> None:
        """HOT: once per follower and append."""
        if followed.stands:
            self._ready[followed] = None
            if self._done is not None and not self._looking:
                # Other partitions may have news in the same turn: one answer for all of them.
                self._looking = True
                self._defer(self._look)

    # --- answering ------------------------------------------------------------------------------

    def _look(self) -> None:
        """Answer if there is more to say than marks; those may wait for a little."""
        self._looking = False
        if self._done is None:
            return
        urgent, news = bool(self._answers), False
        for followed in list(self._ready):
            partition = followed.partition
            if partition.log.log_end > followed.offset or not partition.leading:
                wait_s = self._throttle.delay_s(partition, self.node)
                urgent = urgent or wait_s <= 0
                if wait_s > 0:
                    self._look_in(wait_s)
            elif partition.given_up and self._is_forgotten(followed):
                urgent = True
            elif partition.high_watermark < followed.offset or followed.has_news:
                # What the follower has is not committed yet, or not known to be.
                news = True
            else:
                del self._ready[followed]
        if urgent:
            self._end()
        elif news and self._marks_timer is None:
            self._marks_timer = self._timers.call_later(MARKS_WAIT_S, self._tell_marks)

    def _is_forgotten(self, followed: _Followed) -> bool:
        """Whether what the question told of its follower does not count any more."""
        return followed.partition.given_up.get(self.node) != followed.forgotten_at

    def _tell_marks(self) -> None:
        """Answer if some mark has moved; otherwise look again as long as one is expected to."""
        self._marks_timer = None
        if self._done is None:
            return
        left_s = self._marks_told_s + MARKS_WAIT_S - self._clock.monotonic()
        if left_s > 0:
            self._marks_timer = self._timers.call_later(left_s, self._tell_marks)
        elif any(followed.has_news for followed in self._ready):
            self._end(marks=True)
        else:
            self._look()

    def _end(self, *, marks: bool = False) -> None:
        """Answer the fetch that waits, if there is one, with what there is.

        Marks are left for later, unless they are asked for or some have waited for long enough:
        the partition's next batch takes its own along.
        """
        done, self._done = self._done, None
        if done is None:
            return
        self._stop_looking()
        now_s = self._clock.monotonic()
        if marks or now_s - self._marks_told_s >= MARKS_WAIT_S:
            marks, self._marks_told_s = True, now_s
        answers, self._answers = self._answers, []
        left = self._max_bytes
        for followed in list(self._ready):
            told = self._read(followed, left, marks, first=left == self._max_bytes)
            if told is None:
                continue
            if told.region is not None:
                left -= told.region.nbytes
            followed.told_mark, followed.told_start = told.high_watermark, told.log_start
            followed.stands = False
            del self._ready[followed]
            answers.append(told)
        done(answers)

    def _read(self, followed: _Followed, left: int, marks: bool, *, first: bool) -> Told | None:
        """What there is to say about one partition; ``None``: nothing, or nothing yet."""
        partition, key = followed.partition, followed.key
        try:
            partition.check_epoch(followed.epoch)
            if partition.given_up and self._is_forgotten(followed):
                raise ReplicaNotAvailableError(f"say again what there is of {partition.name}")
            log = partition.log
            if log.log_end == followed.offset:
                if not marks or not followed.has_news:
                    return None
                return Told(key, None, None, partition.high_watermark, log.log_start)
            throttled = self._throttle.delay_s(partition, self.node) > 0
            if throttled or (left <= 0 and not first):
                return None
            limit = self._throttle.most(partition, self.node, min(followed.max_bytes, left))
            region, _ = partition.read_to_end(followed.offset, limit, at_least_one=first)
        except WaystationError as error:
            return _refusal(key, error)
        if region is None:
            return None
        self._sent.value += region.nbytes
        self._throttle.sent(partition, self.node, region.nbytes)
        return Told(key, None, region, partition.high_watermark, log.log_start)

    # --- time -----------------------------------------------------------------------------------

    def _wait(self, now_s: float, wait_s: float) -> None:
        """Have the fetch answered once it has waited for ``wait_s``."""
        sooner = now_s + wait_s < self._wait_until_s
        self._wait_until_s = now_s + wait_s
        if self._wait_timer is not None and sooner:
            self._wait_timer.cancel()
            self._wait_timer = None
        if self._wait_timer is None:
            self._wait_timer = self._timers.call_later(wait_s, self._time_is_up)

    def _time_is_up(self) -> None:
        """Answer with whatever there is, however small; unless the fetch is a later one."""
        self._wait_timer = None
        if self._done is None:
            return
        left_s = self._wait_until_s - self._clock.monotonic()
        if left_s > 0:
            self._wait_timer = self._timers.call_later(left_s, self._time_is_up)
            return
        for followed in self._known.values():
            if followed.stands and followed.has_news:
                self._ready[followed] = None
        self._end(marks=True)

    def _look_in(self, wait_s: float) -> None:
        """Look again once the throttle lets something through."""
        self._throttled.append(self._timers.call_later(wait_s, self._look))

    def _stop_looking(self) -> None:
        for timer in self._throttled:
            timer.cancel()
        self._throttled.clear()

    def _stop_timers(self) -> None:
        self._stop_looking()
        for timer in (self._wait_timer, self._marks_timer):
            if timer is not None:
                timer.cancel()
        self._wait_timer = self._marks_timer = None


def count(
    partition: Partition,
    node: NodeId,
    life: BrokerEpoch,
    asked: Asked,
    now: Millis,
    acted_on: int = UNTOLD,
) -> EpochEnd | None:
    """Check what a follower says of itself, and count it; where the logs part, if they do."""
    partition.check_epoch(asked.leader_epoch)
    if node not in partition.leadership.replicas:
        raise ReplicaNotAvailableError(f"{partition.name} is not to be copied to node {node}")
    if UNTOLD < acted_on < partition.given_up.get(node, 0):
        raise ReplicaNotAvailableError(
            f"node {node} has yet to hear that its copy of {partition.name} was given up"
        )
    return partition.followed_by(node, life, asked.offset, asked.last_epoch, asked.flushed_end, now)


def _refusal(key: Key, error: WaystationError) -> Told:
    start = error.start if isinstance(error, OffsetOutOfRangeError) else NO_OFFSET
    return Told(key, error, log_start=start)
