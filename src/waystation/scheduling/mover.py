"""Records go from one partition to others, each once, whoever leads and whatever gets lost.

The mover lives at the leader of the partition that the records are in.  A decision in that
partition's log names a batch: the records, their target, producer and sequence.  Once it is
committed the batch is sent until the target has it, by this leader or by the next.  What holds:

1. nothing is sent before its decision is committed, so nobody ever sends anything else under
   the same sequence;
2. there is one batch under way per target, so it is among those that the target remembers of
   the producer, and order is kept;
3. the target is believed to remember for ``trust_ms``.  After that, and whenever its answers say
   that it does not, a new epoch is made known to it, behind which nothing older can arrive; then
   one looks whether the batch is there (``Doubted``, then ``Settled`` or ``Withdrawn``);
4. an answer counts if it is to the last question of this leader in this epoch.

What is moved, and when, is the owner's business: a schedule's, a queue's dead letters', a
redrive's.  It appends what ``decide`` and ``work`` give it, applies what is committed, and asks.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from waystation.model.ids import NO_PRODUCER, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.scheduling.records import Decided, Doubted, Settled, Withdrawn
from waystation.scheduling.wheel import Due

__all__ = ["Append", "Ask", "Fence", "LaneState", "Look", "Mover", "Outcome", "Send", "Token"]

SEQUENCES: Final = 1 << 31
_LAST_EPOCH: Final = (1 << 15) - 1
_CLOCK_SKEW_MS: Final = 60_000
_BACKOFF_MS: Final = 50
_BACKOFF_MAX_MS: Final = 5_000


class Outcome(Enum):
    """What became of a question."""

    DONE = auto()
    """It is so: the batch is there, now or since an earlier attempt; the epoch is known; found."""
    UNCLEAR = auto()
    """No answer, or none that says whether it happened: ask again."""
    NOT_NOW = auto()
    """It did not happen and may later: no leader, too few replicas."""
    REFUSED = auto()
    """It did not happen and never will as it is: too large, for example."""
    FORGOTTEN = auto()
    """The target expects another sequence or epoch: it does not remember, or knows of a newer."""
    ABSENT = auto()
    """Somebody looked, and the batch is not there."""


class Token(NamedTuple):
    """Which question an answer is to."""

    target: TopicPartition
    leader_epoch: LeaderEpoch
    number: int


class Send(NamedTuple):
    """Produce the batch to its target, with ``acks=all``."""

    token: Token
    batch: Decided


class Fence(NamedTuple):
    """Make an epoch known to the target, by an abort marker of the producer."""

    token: Token
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Look(NamedTuple):
    """Search the target, from its records of ``batch.at`` less an hour, for the batch."""

    token: Token
    batch: Decided


class Append(NamedTuple):
    """Append a decision to the log; ``applied`` follows when it is committed."""

    decision: Settled | Doubted | Withdrawn


Ask = Send | Fence | Look | Append


class LaneState(NamedTuple):
    """What the log says of the way to one target."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    next_sequence: int
    last: Decided | None
    """The batch under way; ``None`` if the target is known to have all."""
    is_doubted: bool


class _Phase(Enum):
    IDLE = auto()
    APPENDING = auto()
    READY = auto()
    ASKED = auto()


@dataclass(slots=True)
class _Lane:
    """The way to one target: what the log says, and what this leader is at."""

    state: LaneState
    phase: _Phase = _Phase.IDLE
    asked: int = 0
    attempts: int = 0
    not_before: Millis = field(default=Millis(0))
    is_clear: bool = False
    """Whether every attempt at the batch so far has failed for sure, all of them ours."""
    is_refused: bool = False
    is_forgotten: bool = False
    is_fenced: bool = False
    was_found: bool | None = None
    has_arrived: bool = False
    """The target has the batch, and the log does not say so yet."""
    size_limit: int | None = None
    """After a refusal fewer are sent at once, and twice as many with each that arrives."""
    refused: Due | None = None


class Mover:
    """All lanes of one partition."""

    __slots__ = ("_epoch", "_fresh", "_lanes", "_trust_ms")

    def __init__(
        self, lanes: dict[TopicPartition, LaneState] | None = None, *, trust_ms: int = 21_600_000
    ) -> None:
        self._lanes = {target: _Lane(state) for target, state in (lanes or {}).items()}
        self._trust_ms = trust_ms
        self._epoch: LeaderEpoch | None = None
        self._fresh = NO_PRODUCER

    def lanes(self) -> dict[TopicPartition, LaneState]:
        """What the log says of all targets, for a checkpoint."""
        return {target: lane.state for target, lane in self._lanes.items()}

    def last(self, target: TopicPartition) -> tuple[tuple[Due, ...], bool]:
        """The last batch, if the log does not say that it arrived, and whether it is known to."""
        lane = self._lanes.get(target)
        if lane is None or lane.state.last is None:
            return (), True
        return lane.state.last.items, lane.has_arrived

    # --- leading ------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether it may decide."""
        return self._epoch is not None

    def lead(self, epoch: LeaderEpoch) -> None:
        """Take over; everything in the log up to here was applied."""
        self._epoch = epoch
        for target, lane in self._lanes.items():
            begun = _Lane(lane.state, asked=lane.asked)
            if lane.state.last is not None:
                begun.phase = _Phase.READY
            self._lanes[target] = begun

    def resign(self) -> None:
        """Another leads: whatever is answered from now on is nobody's business."""
        self._epoch = None

    def needs_producer(self, target: TopicPartition) -> bool:
        """Whether ``enrol`` must give a new producer id before anything is decided."""
        lane = self._lanes.get(target)
        if lane is None:
            return self._fresh == NO_PRODUCER
        worn = lane.state.producer_epoch >= _LAST_EPOCH
        return worn and self._fresh in (NO_PRODUCER, lane.state.producer_id)

    def enrol(self, producer_id: ProducerId) -> None:
        """Use an id that nobody else ever had."""
        self._fresh = producer_id

    # --- deciding -----------------------------------------------------------------------

    def room(self, target: TopicPartition, most: int) -> int:
        """How many records may be decided upon now: none while a batch is under way, or while
        nobody has asked for what was ``refused``.
        """
        if self._epoch is None or self.needs_producer(target):
            return 0
        lane = self._lanes.get(target)
        if lane is None:
            return most
        if lane.phase is not _Phase.IDLE or lane.refused is not None:
            return 0
        return most if lane.size_limit is None else min(most, lane.size_limit)

    def decide(self, target: TopicPartition, items: tuple[Due, ...], now: Millis) -> Decided:
        """The decision to append: these records, in this order."""
        assert self.room(target, len(items)) == len(items) > 0, f"no room for {len(items)}"
        lane = self._lanes.get(target)
        if lane is None:
            state = LaneState(self._fresh, ProducerEpoch(0), 0, None, False)
            lane = self._lanes[target] = _Lane(state)
        state = lane.state
        lane.phase = _Phase.APPENDING
        if state.producer_epoch >= _LAST_EPOCH:
            return Decided(target, self._fresh, ProducerEpoch(0), 0, now, items)
        return Decided(
            target, state.producer_id, state.producer_epoch, state.next_sequence, now, items
        )

    def refused(self, target: TopicPartition) -> Due | None:
        """A record that the target refused by itself and that is pending again, told once.

        Its owner must not decide upon it again at once: all others would wait behind it.
        """
        lane = self._lanes.get(target)
        if lane is None:
            return None
        refused, lane.refused = lane.refused, None
        return refused

    def work(self, now: Millis) -> list[Ask]:
        """What is to be done now; each is given once, and answered by ``answered``."""
        if self._epoch is None:
            return []
        return [
            self._next(target, lane, now, self._epoch)
            for target, lane in self._lanes.items()
            if lane.phase is _Phase.READY and lane.not_before <= now
        ]

    def next_deadline(self) -> Millis | None:
        """When ``work`` has something to do."""
        if self._epoch is None:
            return None
        ready = [one.not_before for one in self._lanes.values() if one.phase is _Phase.READY]
        return min(ready, default=None)

    def settle(self) -> list[Append]:
        """When nothing else is due: let the log say what has arrived, for whoever leads next."""
        settled = []
        for target, lane in self._lanes.items():
            if self._epoch is not None and lane.phase is _Phase.IDLE and lane.has_arrived:
                lane.phase = _Phase.APPENDING
                settled.append(Append(_settled(target, lane.state)))
        return settled

    # --- answers ------------------------------------------------------------------------

    def answered(self, token: Token, outcome: Outcome, now: Millis) -> None:
        """Hear what became of a question; one that was overtaken is not listened to."""
        lane = self._lanes.get(token.target)
        if (
            lane is None
            or token.leader_epoch != self._epoch
            or token.number != lane.asked
            or lane.phase is not _Phase.ASKED
        ):
            return
        lane.phase = _Phase.READY
        if not lane.state.is_doubted:
            known = _sent(lane, outcome)
        elif lane.is_fenced:
            lane.was_found = {Outcome.DONE: True, Outcome.ABSENT: False}.get(outcome)
            known = lane.was_found is not None
        else:
            # A target that knows of a newer epoch takes nothing of older ones either.
            known = lane.is_fenced = outcome in (Outcome.DONE, Outcome.FORGOTTEN)
        if known:
            lane.attempts, lane.not_before = 0, now
        else:
            lane.not_before = Millis(now + min(_BACKOFF_MS << lane.attempts, _BACKOFF_MAX_MS))
            lane.attempts = min(lane.attempts + 1, 16)

    def apply(self, decision: Decided | Settled | Doubted | Withdrawn) -> tuple[Due, ...]:
        """A decision is committed, ours or one that is found in the log.

        Answers what is pending again by it.
        """
        match decision:
            case Decided():
                self._begin(decision)
            case Doubted(target, producer_id, epoch):
                lane = self._lane(target)
                state = lane.state._replace(
                    producer_id=producer_id, producer_epoch=epoch, is_doubted=True
                )
                phase = _Phase.READY if state.last is not None else _Phase.IDLE
                self._lanes[target] = _Lane(
                    state, phase, lane.asked, is_refused=lane.is_refused, size_limit=lane.size_limit
                )
            case Settled(target, producer_id, epoch, sequence):
                lane = self._lane(target)
                state = LaneState(producer_id, epoch, sequence, None, False)
                self._lanes[target] = _Lane(state, asked=lane.asked, size_limit=lane.size_limit)
            case Withdrawn(target, producer_id, epoch, sequence):
                lane = self._lane(target)
                state = LaneState(producer_id, epoch, sequence, None, False)
                last, is_refused = lane.state.last, lane.is_refused
                lane = self._lanes[target] = _Lane(state, asked=lane.asked)
                if last is not None:
                    if is_refused:
                        lane.size_limit = max(len(last.items) // 2, 1)
                        lane.refused = last.items[0] if len(last.items) == 1 else None
                    return last.items
        return ()

    # --- inside -------------------------------------------------------------------------

    def _begin(self, decided: Decided) -> None:
        target = decided.target
        lane = self._lane(target)
        sequence = (decided.sequence + len(decided.items)) % SEQUENCES
        state = LaneState(
            decided.producer_id, decided.producer_epoch, sequence, decided, is_doubted=False
        )
        is_ours = self.leads and lane.phase is _Phase.APPENDING
        phase = _Phase.READY if self.leads else _Phase.IDLE
        self._lanes[target] = _Lane(
            state, phase, lane.asked, is_clear=is_ours, size_limit=lane.size_limit
        )

    def _lane(self, target: TopicPartition) -> _Lane:
        lane = self._lanes.get(target)
        return lane or _Lane(LaneState(NO_PRODUCER, ProducerEpoch(0), 0, None, False))

    def _next(self, target: TopicPartition, lane: _Lane, now: Millis, epoch: LeaderEpoch) -> Ask:
        state, last = lane.state, lane.state.last
        assert last is not None, f"nothing is under way to {target}, and something is to be done"
        if lane.was_found is not None or (lane.is_refused and lane.is_clear):
            lane.phase = _Phase.APPENDING
            return Append(_verdict(target, lane, last))
        if not state.is_doubted and self._must_doubt(lane, last, now):
            lane.phase = _Phase.APPENDING
            newer = ProducerEpoch(state.producer_epoch + 1)
            return Append(Doubted(target, state.producer_id, newer))
        lane.phase = _Phase.ASKED
        lane.asked += 1
        token = Token(target, epoch, lane.asked)
        if not state.is_doubted:
            return Send(token, last)
        if not lane.is_fenced:
            return Fence(token, state.producer_id, state.producer_epoch)
        return Look(token, last)

    def _must_doubt(self, lane: _Lane, last: Decided, now: Millis) -> bool:
        if lane.is_refused or lane.is_forgotten:
            return True
        is_recent = -_CLOCK_SKEW_MS <= now - last.at <= self._trust_ms
        return not lane.is_clear and not is_recent


def _sent(lane: _Lane, outcome: Outcome) -> bool:
    """What an answer to a batch means; whether it need not be sent again."""
    match outcome:
        case Outcome.DONE:
            lane.phase = _Phase.IDLE
            lane.has_arrived = True
            if lane.size_limit is not None:
                lane.size_limit *= 2
        case Outcome.REFUSED:
            lane.is_refused = True
        case Outcome.FORGOTTEN:
            lane.is_forgotten = True
        case Outcome.UNCLEAR:
            lane.is_clear = False
            return False
        case Outcome.NOT_NOW | Outcome.ABSENT:
            return False
    return True


def _verdict(target: TopicPartition, lane: _Lane, last: Decided) -> Settled | Withdrawn:
    """What the log is to say: sequences begin anew with an epoch, and go on within one."""
    state = lane.state
    if lane.was_found:
        return Settled(target, state.producer_id, state.producer_epoch, 0)
    sequence = 0 if state.is_doubted else last.sequence
    return Withdrawn(target, state.producer_id, state.producer_epoch, sequence)


def _settled(target: TopicPartition, state: LaneState) -> Settled:
    return Settled(target, state.producer_id, state.producer_epoch, state.next_sequence)
