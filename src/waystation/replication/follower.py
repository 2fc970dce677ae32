"""What a follower asks its leader for, and what it does with each answer.

One question is under way at a time.  It says where the follower's log ends and which epoch wrote
its last batch, so that the leader can tell whether it has the same batch there.  Promises:

1. nothing is appended but what follows the log's end at the leader that the follower obeys, in
   the epoch that it obeys it in; whatever was asked before another epoch came counts no more;
2. a tail is cut only where the leader names the end of an epoch that both have, and no further
   back than that; the whole log goes only if the leader's begins behind its end;
3. the high watermark never moves back, unless committed records are cut, which takes an unclean
   election, and is told;
4. a leader that does not answer, or refuses, is asked again later, each time a little later.

Pure: questions are sent, and steps carried out, by others, who then say so with ``carried_out``.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from waystation.model.error_codes import ErrorCode
from waystation.model.ids import LeaderEpoch, NodeId
from waystation.model.offsets import Millis, Offset
from waystation.replication.epochs import EpochEnd, LeaderEpochs

_START = Offset(0)
_AT_ONCE = Millis(0)
BACK_OFF_MS = 50
BACK_OFF_MAX_MS = 1_000
# Who was just elected may hear of it later than those who follow it, but hardly by more.
BACK_OFF_ELECTED_MAX_MS = 200
_ELECTED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class ReplicaLog(Protocol):
    """The follower's log, as far as it is looked at here."""

    @property
    def log_start(self) -> Offset:
        """Where it begins."""
        ...

    @property
    def log_end(self) -> Offset:
        """Where the next batch goes."""
        ...

    @property
    def safe_end(self) -> Offset:
        """The end of what survives a crash."""
        ...

    @property
    def epochs(self) -> LeaderEpochs:
        """Which epoch wrote what."""
        ...


class Question(NamedTuple):
    """Please send what follows ``offset``, whose predecessor ``last_epoch`` wrote."""

    leader: NodeId
    epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch
    safe_end: Offset
    log_start: Offset
    number: int
    """Tells repeated questions, and their answers, apart."""


class Answer(NamedTuple):
    """The leader's words; ``data`` are whole batches, the first at the offset asked for."""

    error: ErrorCode = ErrorCode.NONE
    mark: Offset = _START
    log_start: Offset = _START
    diverging: EpochEnd | None = None
    """Where the epoch asked about, or the last before it, ends at the leader: not there."""
    data: memoryview = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Append:
    """Append ``data``, which may be nothing; then let the log begin at ``log_start``."""

    data: memoryview
    mark: Offset
    log_start: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut everything from ``offset`` on."""

    offset: Offset
    loses_committed: bool


@dataclass(frozen=True, slots=True)
class StartAnew:
    """Drop everything and begin at ``offset``."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class BackOff:
    """Nothing to do before ``until``."""

    until: Millis
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Stale:
    """The answer to a question that counts no more: nothing to do."""


Step = Append | Truncate | StartAnew | BackOff | Stale
STALE = Stale()


class FollowerState:
    """One partition that this node follows; owns neither the log nor a connection."""

    __slots__ = ("_asked", "_failures", "_number", "_retry_at", "epoch", "leader", "mark")

    def __init__(self, leader: NodeId | None, epoch: LeaderEpoch, mark: Offset = _START) -> None:
        """``mark`` is the high watermark that this node knew of before."""
        self.leader, self.epoch, self.mark = leader, epoch, mark
        self._asked: Question | None = None
        self._number = self._failures = 0
        self._retry_at = _AT_ONCE

    @property
    def waiting(self) -> bool:
        """Whether an answer is awaited."""
        return self._asked is not None

    def obey(self, leader: NodeId | None, epoch: LeaderEpoch) -> bool:
        """Follow ``leader`` from now on; false if ``epoch`` is no news."""
        if epoch <= self.epoch:
            return False
        self.leader, self.epoch = leader, epoch
        self._asked, self._failures, self._retry_at = None, 0, _AT_ONCE
        return True

    def ask(self, log: ReplicaLog, now: Millis) -> Question | None:
        """What to ask; ``None`` while nobody leads, an answer is awaited, or it is too early."""
        if self.leader is None or self._asked is not None or now < self._retry_at:
            return None
        self._number += 1
        self._asked = Question(
            self.leader,
            self.epoch,
            log.log_end,
            log.epochs.latest,
            log.safe_end,
            log.log_start,
            self._number,
        )
        return self._asked

    def decide(self, question: Question, answer: Answer, log: ReplicaLog, now: Millis) -> Step:
        """What an answer means; whoever carries it out says so with ``carried_out``."""
        if question != self._asked or question.offset != log.log_end:
            return STALE
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # One that is ahead of its leader hears of a divergence instead.
            if log.log_end < answer.log_start or log.log_start == log.log_end:
                return StartAnew(answer.log_start)
            return self._back_off(answer.error, now)
        if answer.error != ErrorCode.NONE:
            return self._back_off(answer.error, now)
        if answer.diverging is not None:
            return self._cut(answer.diverging, log, now)
        return Append(answer.data, answer.mark, answer.log_start)

    def carried_out(self, step: Step, log: ReplicaLog) -> None:
        """``log`` is as the step wants it, or as far as it came: go on from there."""
        self._asked = None
        match step:
            case Append():
                self._failures = 0
                self.mark = max(self.mark, min(step.mark, log.log_end))
            case Truncate():
                self.mark = min(self.mark, log.log_end)
            case StartAnew():
                self.mark = log.log_start
            case BackOff() | Stale():
                pass

    def failed(self, question: Question, now: Millis) -> BackOff | None:
        """No answer came, or none that could be carried out: ask again, a little later."""
        if question != self._asked:
            return None
        return self._back_off(ErrorCode.NETWORK_EXCEPTION, now)

    def _back_off(self, error: ErrorCode, now: Millis) -> BackOff:
        self._asked = None
        longest_ms = BACK_OFF_ELECTED_MAX_MS if error in _ELECTED else BACK_OFF_MAX_MS
        wait_ms = min(BACK_OFF_MS << min(self._failures, 10), longest_ms)
        self._failures += 1
        self._retry_at = Millis(now + wait_ms)
        return BackOff(self._retry_at, error)

    def _cut(self, leaders: EpochEnd, log: ReplicaLog, now: Millis) -> Step:
        """Where both logs end the newest epoch that both may have; then the question is repeated.

        An epoch of which this log keeps no record anymore cannot be cut: it is forgotten.
        """
        ours = log.epochs.end_of(leaders.epoch, log.log_end)
        if ours.end < 0:
            # Nobody was asked about an epoch that this log has not reached.
            return self._back_off(ErrorCode.UNKNOWN_LEADER_EPOCH, now)
        offset = max(min(leaders.end, ours.end), log.log_start)
        if offset >= log.log_end:
            return StartAnew(log.log_end)
        return Truncate(offset, loses_committed=offset < self.mark)
