"""Carries out what movers ask: the waiting around ``scheduling/mover.py``, for every owner.

An owner is whoever has a mover and a partition: a schedule, a queue's dead letters, a redrive.  It
appends decisions to that partition and applies what is committed; everything else is done here.

1. A batch goes to whoever leads its target, with ``acks=all``, and counts as arrived once it is
   committed there.  What failed after it may have been appended is unclear, never refused.
2. Each question is carried out once and answered once; whether the answer still counts, the mover
   knows.
3. Nobody waits behind a target that does not answer but those who wait for the same target.

    moves = Moves(mover, courier, contents, append, wake, clock)
    moves.work()  # whenever something was applied or answered, and at ``mover.next_deadline``
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from waystation.broker.far_markers import FarMarkers
from waystation.broker.markers import Markers
from waystation.broker.peers import Peers
from waystation.broker.producer_ids import ProducerIds
from waystation.broker.replicas import Replicas
from waystation.broker.searching import look_far, look_here
from waystation.cluster.image import ClusterImage
from waystation.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from waystation.model.errors import ErrorCode, PeerUnreachableError, WaystationError
from waystation.model.ids import NodeId, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.control import Marker
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.scheduling.delivery import outcome_of
from waystation.scheduling.mover import Append, Fence, Look, Mover, Outcome, Send
from waystation.scheduling.records import Decided, Decision, decision_batch
from waystation.telemetry.logs import get_logger

__all__ = ["Contents", "Courier", "Moves", "append_decision"]

Contents = Callable[[Decided], Awaitable[bytes | None]]
"""The batch that a decision stands for, the same whoever asks; ``None`` if its records are gone."""

_TIMEOUT_MS: Final = 5_000
_TIMEOUT_S: Final = 10.0
_FIRST, _AGAIN = "moving", "moving-again"
_PRODUCE_BY_NAME: Final = 12
_COORDINATOR_EPOCH: Final = 0

_events = get_logger("moving")


class Courier:
    """The ways from this broker to all targets; one for all owners."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        peers: Peers,
        markers: Markers,
        producer_ids: ProducerIds,
        clock: Clock,
    ) -> None:
        """``image`` is the cluster as this broker acts on it."""
        self._node = node
        self._replicas = replicas
        self._image = image
        self._peers = peers
        self._markers = markers
        self._far_markers = FarMarkers(peers)
        self._producer_ids = producer_ids
        self._clock = clock
        self._silent: dict[TopicPartition, None] = {}
        """Targets elsewhere whose last answer did not come, or said nothing."""

    async def new_producer(self) -> ProducerId:
        """An id that nobody else ever had, for ``Mover.enrol``."""
        return await self._producer_ids.take()

    async def send(self, batch: bytes, target: TopicPartition) -> Outcome:
        """Produce a batch."""
        leader = self._leader_of(target)
        if leader is None:
            return Outcome.NOT_NOW
        if leader == self._node:
            return await self._send_here(batch, target)
        return await self._send_far(batch, target, leader)

    async def fence(self, ask: Fence) -> Outcome:
        """Make a producer's epoch known to a target."""
        target = ask.token.target
        marker = Marker(ask.producer_id, ask.producer_epoch, _COORDINATOR_EPOCH, committed=False)
        told: asyncio.Future[WaystationError | None] = asyncio.get_running_loop().create_future()

        def hear(error: WaystationError | None) -> None:
            if not told.done():
                told.set_result(error)

        leader = self._leader_of(target)
        if leader is None:
            return Outcome.NOT_NOW
        if leader == self._node:
            self._markers.write(target, marker, hear)
        else:
            self._far_markers.write(leader, target, marker, hear, again=True)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                error = await told
        except TimeoutError:
            return Outcome.UNCLEAR
        return Outcome.DONE if error is None else outcome_of(error.code)

    async def look(self, ask: Look) -> Outcome:
        """Search a target for a batch."""
        target = ask.token.target
        leader = self._leader_of(target)
        try:
            if leader is None:
                return Outcome.NOT_NOW
            if leader == self._node:
                return await look_here(self._replicas.get(*target), ask.batch)
            return await look_far(self._peers, leader, ask.batch)
        except WaystationError as error:
            _events.debug("search.failed", target=str(target), reason=str(error))
            return Outcome.NOT_NOW

    async def aclose(self) -> None:
        """Carry out nothing more."""
        await self._far_markers.aclose()

    # --- one batch ----------------------------------------------------------------------

    async def _send_here(self, batch: bytes, target: TopicPartition) -> Outcome:
        """HOT: once per batch that is moved."""
        told: asyncio.Future[WaystationError | None] = asyncio.get_running_loop().create_future()

        def hear(error: WaystationError | None) -> None:
            if not told.done():
                told.set_result(error)

        try:
            partition = self._replicas.get(*target)
            now = self._clock.now()
            appended = partition.append(memoryview(bytearray(batch)), ACKS_ALL, now)
        except WaystationError as error:
            return outcome_of(error.code)
        if partition.when_committed(Offset(appended.last_offset + 1), hear):
            return Outcome.DONE
        # Whatever comes now comes after the append: nobody can say that it did not happen.
        return Outcome.DONE if await told is None else Outcome.UNCLEAR

    async def _send_far(self, batch: bytes, target: TopicPartition, leader: NodeId) -> Outcome:
        purpose = _AGAIN if target in self._silent else _FIRST
        self._silent[target] = None
        try:
            answer = await self._peers.ask(
                leader,
                _produce(batch, target),
                ProduceResponse,
                version=_PRODUCE_BY_NAME,
                timeout_s=_TIMEOUT_S,
                purpose=purpose,
            )
        except PeerUnreachableError:
            return Outcome.UNCLEAR
        code = _code_of(answer)
        # It may have led when it appended the batch, and no longer when it was to commit it.
        unclear = code in (None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        outcome = Outcome.UNCLEAR if unclear or code is None else outcome_of(code)
        if outcome is not Outcome.UNCLEAR:
            # Another owner's batch may have been answered before.
            self._silent.pop(target, None)
        return outcome

    def _leader_of(self, target: TopicPartition) -> NodeId | None:
        topic = self._image().topics.get(target.topic)
        if topic is None or target.partition >= len(topic.partitions):
            return None
        return topic.partitions[target.partition].leader


class Moves:
    """One owner's mover, and what is under way for it."""

    def __init__(
        self,
        mover: Mover,
        courier: Courier,
        contents: Contents,
        append: Callable[[Decision], object],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        """``append`` puts a decision into the owner's log; ``wake`` says that something changed.

        Where an append fails, the owner lets its mover resign, and begins anew.
        """
        self._mover = mover
        self._courier = courier
        self._contents = contents
        self._append = append
        self._wake = wake
        self._clock = clock
        self._tasks = Tasks()
        self.arrived: Callable[[Decided, Millis], None] = lambda _batch, _now: None
        """Hears of each batch that its target has."""

    async def enrol(self, target: TopicPartition) -> None:
        """See to it that ``decide`` has a producer id, where it needs one."""
        if self._mover.needs_producer(target):
            self._mover.enrol(await self._courier.new_producer())

    def work(self) -> None:
        """Begin with everything that is to be done now."""
        for ask in self._mover.work(self._clock.now()):
            if isinstance(ask, Append):
                self._append(ask.decision)
            else:
                self._tasks.spawn(self._carry_out(ask), f"move-{ask.token.target}")

    async def aclose(self) -> None:
        """Give up what is under way: whoever leads next finds the decisions."""
        await self._tasks.aclose()

    async def _carry_out(self, ask: Send | Fence | Look) -> None:
        outcome = Outcome.UNCLEAR
        try:
            outcome = await self._outcome(ask)
        except WaystationError as error:
            _events.warning("move.failed", target=str(ask.token.target), reason=str(error))
        except Exception as error:  # the outermost frame of this task
            _events.error("move.failed", target=str(ask.token.target), exc_info=error)
        now = self._clock.now()
        self._mover.answered(ask.token, outcome, now)
        if isinstance(ask, Send) and outcome is Outcome.DONE:
            self.arrived(ask.batch, now)
        self._wake()

    async def _outcome(self, ask: Send | Fence | Look) -> Outcome:
        match ask:
            case Send(token, decided):
                batch = await self._contents(decided)
                if batch is None:
                    return Outcome.REFUSED
                return await self._courier.send(batch, token.target)
            case Fence():
                return await self._courier.fence(ask)
            case Look():
                return await self._courier.look(ask)


def append_decision(partition: Partition, decision: Decision, now: Millis) -> Offset:
    """Put a decision into the log of a partition that this broker leads; where it ends there."""
    batch = memoryview(bytearray(decision_batch(decision, now)))
    return Offset(partition.append_decision(batch, now).last_offset + 1)


def _produce(batch: bytes, target: TopicPartition) -> ProduceRequest:
    records = PartitionProduceData(index=target.partition, records=memoryview(batch))
    return ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=target.topic, partition_data=[records])],
    )


def _code_of(answer: ProduceResponse) -> ErrorCode | None:
    for topic in answer.responses:
        for one in topic.partition_responses:
            try:
                return ErrorCode(one.error_code)
            except ValueError:
                return None
    return None
