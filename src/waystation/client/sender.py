"""Moves batches from the accumulator to the brokers and tells the lanes what became of them.

Everything happens in callbacks on the loop: a lane is marked when it may have something to
send, and once per turn of the loop the marked lanes are gathered into one request per broker.
Nothing is awaited between asking a lane for a batch and writing it to the connection, so the
order that a lane decides is the order on the wire.

What waits for a connection, an identity, a leader or a place in the transaction is marked again
when that arrives.
"""

import asyncio
from collections import defaultdict
from functools import partial

from waystation.client.accumulator import Accumulator
from waystation.client.connection import Connection
from waystation.client.delivery import Identity, Verdict
from waystation.client.errors import (
    BrokerError,
    DeliveryError,
    MessageRefusedError,
    TopicMadeAnewError,
    error_of,
    is_retriable,
)
from waystation.client.metadata import endpoints_in
from waystation.client.outgoing import Outgoing, OutgoingBatch, OutgoingLane
from waystation.client.produce import answers_in, produce_request
from waystation.client.router import Router
from waystation.client.settings import ProducerSettings
from waystation.client.transactor import Transactor
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from waystation.model.errors import (
    ErrorCode,
    MessageTooLargeError,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.ids import NodeId, ProducerEpoch, ProducerId
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks

__all__ = ["Sender"]

_ACCEPTED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_START_OVER = (ErrorCode.UNKNOWN_PRODUCER_ID,)
_MARKERS_S = 0.01
"""How soon to look whether the end of the transaction before has reached all its partitions."""


class Sender:
    """Drains one accumulator through one router, within transactions if there is a transactor."""

    def __init__(
        self,
        router: Router,
        accumulator: Accumulator,
        settings: ProducerSettings,
        clock: Clock,
        transactor: Transactor | None = None,
    ) -> None:
        self._router, self._accumulator = router, accumulator
        self._settings, self._clock = settings, clock
        self._transactor = transactor
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._marked: dict[OutgoingLane, None] = {}
        self._scheduled = self._closed = False
        self._requests: defaultdict[NodeId, int] = defaultdict(int)
        self._leaderless: dict[OutgoingLane, None] = {}
        self._unreached: dict[NodeId, dict[OutgoingLane, None]] = {}
        self._behind: defaultdict[NodeId, dict[OutgoingLane, None]] = defaultdict(dict)
        self._identity: Identity | None = None
        self._unidentified: dict[OutgoingLane, None] = {}
        self._unadmitted: dict[OutgoingLane, None] = {}

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Get an identity if one is needed, and begin to watch deadlines."""
        if self._transactor is not None:
            self._identity = await self._transactor.start(self)
        elif self._settings.idempotent:
            self._identity = await self._new_identity()
        self._router.on_change.append(self._cluster_changed)
        self._tasks.spawn(self._watch_deadlines(), "producer-deadlines")

    async def close(self) -> None:
        """Stop; batches that are left stay undelivered."""
        self._closed = True
        self._router.on_change.clear()
        await self._tasks.aclose()

    # --- marking ----------------------------------------------------------------------------

    def mark(self, lane: OutgoingLane) -> None:
        """Look at ``lane`` in the next turn of the loop."""
        self._marked[lane] = None
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def opened(self, batch: Outgoing) -> None:
        """Begin the time that ``batch`` may linger."""
        if self._settings.linger_ms:
            self._loop.call_later(self._settings.linger_ms / 1_000, self.hurry, batch)
        else:
            self.hurry(batch)

    def hurry(self, batch: Outgoing) -> None:
        """Let ``batch`` wait for no more records."""
        batch.due = True
        self.mark(batch.lane)

    def discover(self, topic: str) -> None:
        """Find out about a topic that records are parked for."""
        self._tasks.spawn(self._discover(topic), f"producer-discover {topic}")

    def hurry_all(self) -> None:
        """Let no batch wait for more records."""
        for batch in self._accumulator.batches:
            self.hurry(batch)

    async def flushed(self) -> None:
        """Send now what waits, and return when everything submitted so far has its answer.

        Raises ``DeliveryError`` if any record that was submitted since the last time failed.
        """
        for route in list(self._accumulator.routes.values()):
            if route.parked:
                await asyncio.wait([route.settled])
        await self._answers()
        failures, first = self._accumulator.take_failures()
        if failures > 0 and first is not None:
            raise DeliveryError(failures, first)

    # --- transactions -----------------------------------------------------------------------

    def admitted(self) -> None:
        """Partitions have become part of the transaction: look at those that wait for that."""
        lanes, self._unadmitted = self._unadmitted, {}
        for lane in lanes:
            self.mark(lane)

    def abandon(self, error: WaystationError) -> None:
        """Send nothing more of what there is, and do not repeat what is under way."""
        self._accumulator.refuse_parked(error)
        for batch in list(self._accumulator.batches):
            self._drop(batch, error)

    async def settled(self) -> None:
        """Return once nothing is under way; what failed is not told again."""
        await self._answers()
        self._accumulator.take_failures()

    def renew(self, identity: Identity) -> None:
        """Number what comes next under ``identity``, from zero."""
        self._identity = identity
        for lane in self._lanes():
            lane.renew(identity)

    @property
    def has_gaps(self) -> bool:
        """Whether numbers were given up that the broker may miss or not."""
        return any(lane.has_gap for lane in self._lanes())

    def _lanes(self) -> list[OutgoingLane]:
        return [lane for route in self._accumulator.routes.values() for lane in route.lanes]

    async def _answers(self) -> None:
        waiting = []
        for batch in self._accumulator.batches:
            if batch.done is None:
                batch.done = self._loop.create_future()
            waiting.append(batch.done)
        self.hurry_all()
        if waiting:
            await asyncio.wait(waiting)

    # --- draining ---------------------------------------------------------------------------

    def _drain(self) -> None:
        self._scheduled = False
        marked, self._marked = self._marked, {}
        by_node: dict[NodeId, list[OutgoingLane]] = {}
        for lane in marked:
            leader = self._router.view.leader(lane.partition)
            if leader is None:
                if not self._is_gone(lane):
                    self._leaderless[lane] = None
                    self._router.want_refresh()
            else:
                by_node.setdefault(leader, []).append(lane)
        for node, lanes in by_node.items():
            self._drain_to(node, lanes)

    def _drain_to(self, node: NodeId, lanes: list[OutgoingLane]) -> None:
        while self._requests[node] < self._settings.max_in_flight:
            connection = self._writable(node)
            if connection is None:
                self._await(node, lanes)
                return
            batches, lanes = self._gather(lanes)
            if not batches:
                return
            self._send(connection, node, batches)
        # These may have more to send: they are looked at again after the next answer.
        self._behind[node].update(dict.fromkeys(lanes))

    def _writable(self, node: NodeId) -> Connection | None:
        connection = self._router.connected(node)
        return None if connection is None or connection.congested else connection

    def _gather(self, lanes: list[OutgoingLane]) -> tuple[list[Outgoing], list[OutgoingLane]]:
        """Batches for one request, at most one per lane, and the lanes that may have more."""
        now = self._clock.monotonic()
        batches: list[Outgoing] = []
        served, later, size = [], [], 0
        for lane in lanes:
            self._accumulator.close_if_due(lane)
            batch = lane.ready(now)
            if batch is None or not self._is_admitted(lane):
                continue
            if not self._is_identified(lane, batch):
                continue
            size += batch.size_bytes
            if batches and size > self._settings.max_request_bytes:
                later.append(lane)
                continue
            lane.sent(batch)
            batches.append(batch)
            served.append(lane)
        return batches, later + served

    def _is_admitted(self, lane: OutgoingLane) -> bool:
        """Whether the lane's partition is part of the transaction, where there are any."""
        if self._transactor is None or self._transactor.takes(lane.partition):
            return True
        self._unadmitted[lane] = None
        return False

    def _is_identified(self, lane: OutgoingLane, batch: Outgoing) -> bool:
        if not self._settings.idempotent or batch.waiting or not lane.needs_identity():
            return True
        if self._identity is not None and lane.accepts(self._identity):
            lane.identify(self._identity)
            return True
        if not self._unidentified:
            self._tasks.spawn(self._identify(), "producer-identity")
        self._unidentified[lane] = None
        return False

    def _send(self, connection: Connection, node: NodeId, batches: list[Outgoing]) -> None:
        for batch in batches:
            batch.attempts += 1
        acks = -1 if self._settings.acks == "all" else int(self._settings.acks)
        timeout_ms = self._router.settings.request_timeout_ms
        standing = None if self._transactor is None else self._transactor.standing
        request, version = produce_request(
            batches, self._router.view, acks, timeout_ms, connection, standing
        )
        if acks == 0:
            connection.tell(request, version)
            for batch in batches:
                self._acknowledge(batch, -1, -1)
            return
        self._requests[node] += 1
        answer = connection.start(request, ProduceResponse, timeout_ms / 1_000, version)
        answer.add_done_callback(partial(self._answered, node, request, batches))

    # --- answers ----------------------------------------------------------------------------

    def _answered(
        self,
        node: NodeId,
        request: ProduceRequest,
        batches: list[Outgoing],
        answer: asyncio.Future[ProduceResponse],
    ) -> None:
        self._requests[node] -= 1
        error = answer.exception()
        if error is None:
            response = answer.result()
            for batch, told in answers_in(response, request, batches):
                self._settle(batch, told, node, response)
        else:
            assert isinstance(error, WaystationError), f"{error!r} came out of a connection"
            self._router.want_refresh()
            for batch in batches:
                self._try_again(batch, error)
        for lane in self._behind.pop(node, ()):
            self.mark(lane)

    def _settle(
        self,
        batch: Outgoing,
        told: PartitionProduceResponse | None,
        node: NodeId,
        response: ProduceResponse,
    ) -> None:
        """Act on the broker's word about one batch."""
        subject = _subject(batch)
        if told is None:
            error = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, subject, "missing from the answer")
            self._give_up(batch, error)
        elif told.error_code in _ACCEPTED:
            self._acknowledge(batch, told.base_offset, told.log_append_time_ms)
        elif told.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._goes_on:
            self._out_of_order(batch)
        elif told.error_code in _START_OVER and self._transactor is None:
            batch.lane.start_over(batch)
            self.mark(batch.lane)
        else:
            error = error_of(told.error_code, subject, _told_why(told))
            too_large = isinstance(error, MessageTooLargeError) and batch.count > 1
            if too_large and self._goes_on and isinstance(batch, OutgoingBatch):
                batch.lane.cut(batch, self._accumulator.halved(batch))
                self.mark(batch.lane)
            elif error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                hint, at = told.current_leader, endpoints_in(response)
                named = None if hint is None else (hint.leader_id, hint.leader_epoch)
                at_once = self._router.strayed(batch.lane.partition, node, named, at)
                self._try_again(batch, error, at_once=at_once)
            elif is_retriable(error):
                self._router.want_refresh()
                self._try_again(batch, error)
            else:
                self._give_up(batch, _with_size(error, batch))

    def _acknowledge(self, batch: Outgoing, base_offset: int, append_time: int) -> None:
        batch.lane.acknowledged(batch)
        self._accumulator.acknowledged(batch, base_offset, append_time)
        self.mark(batch.lane)

    def _try_again(self, batch: Outgoing, error: WaystationError, *, at_once: bool = False) -> None:
        """Send the batch again after the back-off, unless its time is over by then."""
        if self._is_gone(batch.lane):
            view = self._router.view.topics[batch.lane.partition.topic]
            error = TopicMadeAnewError(batch.lane.partition, len(view.partitions))
            self._give_up(batch, error)
            return
        wait_s = 0.0 if at_once else self._router.backoff.delay_s(batch.attempts)
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            wait_s = min(wait_s, _MARKERS_S)
        retry_at = self._clock.monotonic() + wait_s
        if retry_at > batch.deadline or not self._goes_on:
            self._give_up(batch, error)
            return
        batch.lane.failed(batch, retry_at)
        self._mark_at(retry_at, batch.lane)

    def _is_gone(self, lane: OutgoingLane) -> bool:
        """Whether the topic was made anew without this lane's partition."""
        topic, number = lane.partition
        route = self._accumulator.routes.get(topic)
        return route is not None and route.id is not None and number >= len(route.lanes)

    def _out_of_order(self, batch: Outgoing) -> None:
        retry_at = self._clock.monotonic() + self._router.backoff.delay_s(batch.attempts)
        if batch.lane.out_of_order(batch, retry_at) is Verdict.LOST:
            error = BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"partition {batch.lane.partition} does not have the records that came before "
                "these, although they were acknowledged: the broker has lost data",
            )
            self._accumulator.gave_up(batch, error)
        self._mark_at(retry_at, batch.lane)

    @property
    def _goes_on(self) -> bool:
        """Whether batches may still be sent again: not those of a transaction that failed."""
        return self._transactor is None or self._transactor.standing.writes

    def _drop(self, batch: Outgoing, error: WaystationError) -> None:
        """Give ``batch`` up unless it is under way: then its answer decides."""
        lane = batch.lane
        if lane.open is batch:
            lane.close_batch()
        if batch.waiting or batch not in lane.under_way:
            self._give_up(batch, error)

    def _give_up(self, batch: Outgoing, error: WaystationError) -> None:
        if self._transactor is not None:
            error = self._transactor.explained(error)
        batch.lane.gave_up(batch)
        self._accumulator.gave_up(batch, error)
        self.mark(batch.lane)

    def _mark_at(self, when: float, lane: OutgoingLane) -> None:
        delay_s = max(0.0, when - self._clock.monotonic())
        self._loop.call_later(delay_s, self._mark_if_due, when, lane)

    def _mark_if_due(self, when: float, lane: OutgoingLane) -> None:
        """Mark the lane, unless the timer was early: nobody else would look at it again.

        A loop that was held up, say because its process stood still, counts from a time that is
        over, and its timers with it.
        """
        if self._clock.monotonic() < when:
            self._mark_at(when, lane)
        else:
            self.mark(lane)

    # --- waiting ----------------------------------------------------------------------------

    def _await(self, node: NodeId, lanes: list[OutgoingLane]) -> None:
        """Hold ``lanes`` until ``node`` can be written to."""
        held = self._unreached.get(node)
        if held is None:
            held = self._unreached[node] = {}
            self._tasks.spawn(self._reach(node), f"producer-reach {node}")
        held.update(dict.fromkeys(lanes))

    async def _reach(self, node: NodeId) -> None:
        try:
            connection = await self._router.to_node(node)
            await connection.drained()
        except WaystationError:
            pass  # marking the lanes tries again, by then perhaps with another leader
        for lane in self._unreached.pop(node):
            self.mark(lane)

    def _cluster_changed(self) -> None:
        for topic in list(self._accumulator.routes):
            view = self._router.view.topics.get(topic)
            if view is not None and view.partitions:
                for lane in self._accumulator.learn(view):
                    self._lose(lane, len(view.partitions))
        lanes, self._leaderless = self._leaderless, {}
        for lane in lanes:
            self.mark(lane)

    def _lose(self, lane: OutgoingLane, partitions: int) -> None:
        """Tell those who wait for a lane that its partition is gone, for good."""
        error = TopicMadeAnewError(lane.partition, partitions)
        for batch in list(self._accumulator.batches):
            if batch.lane is lane:
                self._drop(batch, error)

    async def _discover(self, topic: str) -> None:
        """Have the router follow the topic; ``_cluster_changed`` learns of its partitions."""
        try:
            self._accumulator.learn(await self._router.topic(topic))
        except WaystationError as error:
            self._accumulator.refuse(topic, error)

    async def _identify(self) -> None:
        try:
            self._identity = await self._new_identity()
        except WaystationError as error:
            self._fail_unidentified(error)
            return
        lanes, self._unidentified = self._unidentified, {}
        for lane in lanes:
            self.mark(lane)

    def _fail_unidentified(self, error: WaystationError) -> None:
        lanes, self._unidentified = self._unidentified, {}
        for lane in lanes:
            for batch in list(lane.queued):
                self._give_up(batch, error)

    async def _new_identity(self) -> Identity:
        within_ms = self._router.settings.request_timeout_ms
        return await self._router.retrying(self._ask_for_identity, within_ms)

    async def _ask_for_identity(self) -> Identity:
        request = InitProducerIdRequest(transaction_timeout_ms=0x7FFFFFFF)
        told = await self._router.ask(self._router.to_any(), request, InitProducerIdResponse)
        if told.error_code:
            raise error_of(told.error_code, "the request for a producer id")
        return Identity(ProducerId(told.producer_id), ProducerEpoch(told.producer_epoch))

    async def _watch_deadlines(self) -> None:
        """Give up what waited too long; a batch that is under way is waited for."""
        pause_s = min(1.0, max(0.02, self._settings.delivery_timeout_ms / 10_000))
        missing: dict[str, float] = {}
        while True:
            await asyncio.sleep(pause_s)
            now = self._clock.monotonic()
            missing = self._missing(missing, now)
            for batch in list(self._accumulator.batches):
                # With the first of a transaction all that wait are given up.
                if batch not in self._accumulator.batches:
                    continue
                if batch.deadline <= now:
                    self._expire(batch)
                elif (
                    missing
                    and missing.get(batch.lane.partition.topic, now) < now - self._patience_s
                ):
                    error = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _subject(batch))
                    self._drop(batch, error)

    def _missing(self, before: dict[str, float], now: float) -> dict[str, float]:
        """Since when topics do not exist (any more), as far as brokers say."""
        return {
            name: before.get(name, now)
            for name, code in self._router.view.refused.items()
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

    @property
    def _patience_s(self) -> float:
        """How long a topic may take to exist, in seconds."""
        return self._router.settings.metadata_timeout_ms / 1_000

    def _expire(self, batch: Outgoing) -> None:
        self._drop(
            batch,
            RequestTimedOutError(
                f"partition {batch.lane.partition} took no record within "
                f"{self._settings.delivery_timeout_ms} ms (delivery_timeout_ms)"
            ),
        )


def _told_why(told: PartitionProduceResponse) -> str | None:
    """The broker's message, with the first record that it objects to."""
    for record in told.record_errors:
        if record.batch_index_error_message:
            return f"record {record.batch_index}: {record.batch_index_error_message}"
    return told.error_message


def _with_size(error: WaystationError, batch: Outgoing) -> WaystationError:
    """``error`` with the size in it, which not every broker says."""
    if not isinstance(error, MessageTooLargeError):
        return error
    size_bytes, sentence = batch.size_bytes, str(error)
    if not any(letter.isdigit() for letter in sentence.removeprefix(_subject(batch))):
        sentence = f"{sentence} (it had {size_bytes} bytes, compressed perhaps less)"
    return MessageRefusedError(sentence, size_bytes)


def _subject(batch: Outgoing) -> str:
    return f"partition {batch.lane.partition}"
