"""What each follower asks this broker for, remembered from fetch to fetch.

A follower names a partition when it has a question about it, and the question stands until an
answer names the partition; a fetch costs what has changed, however many partitions there are.

1. A question is answered once: with data, with an error, with where the logs part, or with a mark
   or a log start that the follower was not told yet.  Whatever it asks next, it says itself.
2. A fetch waits until there is something to say.  The next one on the session ends it first, with
   what there is, so that a follower need not wait for its own fetch before it asks something new.
3. An end counts for the high watermark only after leader epoch, broker epoch, divergence and range
   were checked, in this order; and only of a copy that the follower will not give up, because of
   a change which it has yet to hear of.  What is forgotten of a follower is asked for again.
4. News that are marks alone may wait a little: data usually comes first and takes them along.
   Where a log starts may wait until the fetch has waited for as long as it may.

A partition that is named with room for no bytes is a report, not a question: what was flushed
meanwhile, for a question that still stands.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from waystation.broker.replicas import Replicas
from waystation.broker.throttle import LeaderThrottle
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import (
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    WaystationError,
)
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.partition.partition import Partition
from waystation.replication.epochs import EpochEnd
from waystation.runtime.clock import Clock
from waystation.runtime.regions import FileRegion
from waystation.runtime.timers import Timer, Timers
from waystation.telemetry.metrics import Counter

MARKS_WAIT_S: Final = 0.01
UNTOLD: Final = -1
"""The revision that a follower has acted on, if it does not say."""

Key = tuple[TopicId, int]


class Asked(NamedTuple):
    """One partition as a follower names it; with ``max_bytes`` of 0 it only reports."""

    key: Key
    leader_epoch: int
    offset: Offset
    last_epoch: LeaderEpoch
    flushed_end: Offset
    max_bytes: int


class Told(NamedTuple):
    """The answer to one question."""

    key: Key
    error: WaystationError | None = None
    region: FileRegion | None = None
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    diverging: EpochEnd | None = None


Done = Callable[[list[Told]], None]


class _Question:
    """A question that stands; ``ready`` of its session holds it once it may be answered."""

    __slots__ = ("epoch", "forgotten_at", "key", "max_bytes", "offset", "partition")

    def __init__(self, asked: Asked, partition: Partition, node: NodeId) -> None:
        self.key = asked.key
        self.epoch = asked.leader_epoch
        self.offset = asked.offset
        self.max_bytes = asked.max_bytes
        self.partition = partition
        # When what its follower had said before this was last forgotten.
        self.forgotten_at = partition.given_up.get(node)


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
        self._standing: dict[Key, _Question] = {}
        self._wakers: dict[Key, tuple[Partition, Callable[[], None]]] = {}
        # Marks outlive the question: they are told only if they are news.
        self._told: dict[Key, tuple[Offset, Offset]] = {}
        self._ready: dict[Key, None] = {}
        self._answers: list[Told] = []
        self._done: Done | None = None
        self._max_bytes = 0
        self._timers_set: list[Timer] = []
        self._looking = self._hurried = False

    def __len__(self) -> int:
        return len(self._wakers)

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
        now = self.heard_at_ms = Millis(int(self._clock.monotonic() * 1_000))
        for one in asked:
            self._take(one, now)
        self._done, self._max_bytes = done, max_bytes
        self._look()
        if self._done is not None:
            timer = self._timers.call_later(max_wait_ms / 1_000, self._time_is_up)
            self._timers_set.append(timer)

    def end_now(self) -> None:
        """Answer what waits with what there is."""
        self._end()

    def close(self) -> None:
        """The follower is gone, or begins anew."""
        self._done = None
        self._stop_timers()
        for partition, waker in self._wakers.values():
            partition.replica_waiters.remove(waker)
        self._wakers.clear()
        self._standing.clear()
        self._ready.clear()

    def _take(self, asked: Asked, now: Millis) -> None:
        """HOT: once per partition that a follower asks or reports about."""
        report = asked.max_bytes <= 0
        try:
            partition = self._replicas.get("", asked.key[1], asked.key[0])
            diverging = count(partition, self.node, self.life, asked, now, self.acted_on)
        except WaystationError as error:
            if not report:
                self._withdraw(asked.key)
                self._answers.append(_refusal(asked.key, error))
            return
        if report:
            return
        if diverging is not None:
            self._withdraw(asked.key)
            told = Told(
                asked.key,
                high_watermark=partition.high_watermark,
                log_start=partition.log_start,
                diverging=diverging,
            )
            self._answers.append(told)
            return
        self._standing[asked.key] = _Question(asked, partition, self.node)
        self._listen(asked.key, partition)
        self._ready[asked.key] = None

    def _listen(self, key: Key, partition: Partition) -> None:
        known = self._wakers.get(key)
        if known is not None:
            if known[0] is partition:
                return
            known[0].replica_waiters.remove(known[1])
        waker = partial(self._changed, key)
        self._wakers[key] = partition, waker
        partition.replica_waiters.add(waker)

    def _withdraw(self, key: Key) -> None:
        self._standing.pop(key, None)
        self._ready.pop(key, None)

    def _forget(self, key: Key) -> None:
        self._withdraw(key)
        self._told.pop(key, None)
        known = self._wakers.pop(key, None)
        if known is not None:
            known[0].replica_waiters.remove(known[1])

    # --- what partitions tell -------------------------------------------------------------------

    def _changed(self, key: Key) -> None:
        """HOT: once per follower, partition and turn of the loop with appends."""
        if key in self._standing:
            self._ready[key] = None
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
        for key in list(self._ready):
            question = self._standing[key]
            partition = question.partition
            if partition.log_end > question.offset or not partition.leading:
                wait_s = self._throttle.delay_s(partition, self.node)
                urgent = urgent or wait_s <= 0
                if wait_s > 0:
                    self._look_in(wait_s)
            elif partition.given_up and self._is_forgotten(question):
                urgent = True
            elif partition.high_watermark < question.offset or self._is_news(question):
                # What the follower has is not committed yet, or not known to be.
                news = True
            else:
                del self._ready[key]
        if urgent:
            self._end()
        elif news and not self._hurried:
            self._hurried = True
            self._timers_set.append(self._timers.call_later(MARKS_WAIT_S, self._tell_marks))

    def _is_forgotten(self, question: _Question) -> bool:
        """Whether what this question told of its follower does not count any more."""
        return question.partition.given_up.get(self.node) != question.forgotten_at

    def _is_news(self, question: _Question) -> bool:
        partition = question.partition
        return self._told.get(question.key) != (partition.high_watermark, partition.log_start)

    def _tell_marks(self) -> None:
        """Answer if some mark has moved; otherwise look again as long as one is expected to."""
        self._hurried = False
        if any(self._is_news(self._standing[key]) for key in self._ready):
            self._end()
        else:
            self._look()

    def _time_is_up(self) -> None:
        """Answer with whatever there is, however small."""
        for key, question in self._standing.items():
            if self._is_news(question):
                self._ready[key] = None
        self._end()

    def _end(self) -> None:
        """Answer the fetch that waits, if there is one, with what there is."""
        done, self._done = self._done, None
        if done is None:
            return
        self._stop_timers()
        answers, self._answers = self._answers, []
        left = self._max_bytes
        for key in list(self._ready):
            told = self._read(self._standing[key], left, first=left == self._max_bytes)
            if told is None:
                continue
            if told.region is not None:
                left -= told.region.nbytes
            self._told[key] = told.high_watermark, told.log_start
            del self._standing[key], self._ready[key]
            answers.append(told)
        done(answers)

    def _read(self, question: _Question, left: int, *, first: bool) -> Told | None:
        """What there is to say about one partition; ``None``: nothing, or nothing yet."""
        partition, key = question.partition, question.key
        try:
            partition.check_epoch(question.epoch)
            if partition.given_up and self._is_forgotten(question):
                raise ReplicaNotAvailableError(f"say again what there is of {partition.name}")
            mark, start = partition.high_watermark, partition.log_start
            if partition.log_end == question.offset:
                news = self._is_news(question)
                return Told(key, None, None, mark, start) if news else None
            throttled = self._throttle.delay_s(partition, self.node) > 0
            if throttled or (left <= 0 and not first):
                return None
            limit = min(question.max_bytes, left)
            region, _ = partition.read_to_end(question.offset, limit, at_least_one=first)
        except WaystationError as error:
            return _refusal(key, error)
        if region is None:
            return None
        self._sent.value += region.nbytes
        self._throttle.sent(partition, self.node, region.nbytes)
        return Told(key, None, region, mark, start)

    # --- time -----------------------------------------------------------------------------------

    def _look_in(self, wait_s: float) -> None:
        """Look again once the throttle lets something through."""
        self._timers_set.append(self._timers.call_later(wait_s, self._look))

    def _stop_timers(self) -> None:
        self._hurried = False
        for timer in self._timers_set:
            timer.cancel()
        self._timers_set.clear()


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


class ReplicaSessions:
    """The sessions of all followers: one for each, the newest."""

    def __init__(
        self,
        replicas: Replicas,
        throttle: LeaderThrottle,
        clock: Clock,
        timers: Timers,
        next_id: Callable[[], int],
        sent: Counter,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self._replicas = replicas
        self._throttle = throttle
        self._clock = clock
        self._timers = timers
        self._next_id = next_id
        self._sent = sent
        self._defer = defer
        self._of: dict[NodeId, ReplicaSession] = {}
        self._began_ms = Millis(int(clock.monotonic() * 1_000))
        # When those were last heard of whose connection has ended.
        self._ended_ms: dict[NodeId, Millis] = {}

    def __len__(self) -> int:
        return len(self._of)

    def open(self, node: NodeId, life: BrokerEpoch) -> ReplicaSession:
        """Begin anew with a follower; what it asked before counts no more."""
        known = self._of.get(node)
        if known is not None:
            known.end_now()
            known.close()
        session = self._of[node] = ReplicaSession(
            self._next_id(),
            node,
            life,
            self._replicas,
            self._throttle,
            self._clock,
            self._timers,
            self._sent,
            self._defer,
        )
        return session

    def next(
        self, node: NodeId, life: BrokerEpoch, session_id: int, epoch: int
    ) -> ReplicaSession | ErrorCode:
        """The session that a fetch goes on with, or why there is none."""
        session = self._of.get(node)
        if session is None or session.id != session_id or session.life != life:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch += 1
        return session

    def close(self, session: ReplicaSession) -> None:
        """Its connection ended."""
        session.close()
        if self._of.get(session.node) is session:
            del self._of[session.node]
            self._ended_ms[session.node] = session.heard_at_ms

    def silent_s(self, node: NodeId) -> float:
        """For how long a follower has not asked anything."""
        session = self._of.get(node)
        if session is not None:
            heard_ms = session.heard_at_ms
        else:
            heard_ms = self._ended_ms.get(node, self._began_ms)
        return self._clock.monotonic() - heard_ms / 1_000

    def answer_all(self) -> None:
        """End every fetch that waits, with what there is."""
        for session in list(self._of.values()):
            session.end_now()
