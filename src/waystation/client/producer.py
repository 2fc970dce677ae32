"""The producer: ``send`` waits for the broker's word, ``submit`` gives a future instead.

Order and identity are kept in ``delivery.py``, batches in ``accumulator.py``; the requests
are made in ``sender.py``.  With a transactional id everything is sent in transactions
(``transaction.py``), one after the other.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self, Unpack

from waystation.client.accumulator import Accumulator, Headers, NewRecord, Route
from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.errors import (
    BufferFullError,
    ClosedError,
    NoSuchPartitionError,
    TopicMadeAnewError,
)
from waystation.client.once import OnceMessage, OnceSender
from waystation.client.options import ProducerOptions, producer_settings
from waystation.client.outgoing import Delivered, OutgoingBatch, RecordMetadata, Submitted
from waystation.client.router import Router
from waystation.client.schedules import Schedules
from waystation.client.sender import Sender
from waystation.client.standing import Phase, Standing
from waystation.client.timing import Timing, timing_headers
from waystation.client.transaction import Transaction
from waystation.client.transactor import PreparedTransaction, Transactor, end_prepared
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.offsets import Millis
from waystation.records.packed import PackedBatch
from waystation.runtime.clock import Clock, SystemClock
from waystation.scheduling.topics import companion_of

__all__ = ["Producer"]

Payload = bytes | str | None
HeadersLike = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

_FULL_PART = 0.75
_OPEN = Phase.OPEN  # a look into an enum costs


class Producer:
    """Sends records; use it as ``async with Producer(...) as producer``.

    Options are keywords, documented in ``settings.py``.  Text is sent as UTF-8; a value of
    ``None`` is a tombstone.
    """

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        chance: Random | None = None,
        create_topics: bool = True,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """``create_topics`` lets brokers that do so make a topic that is sent to."""
        self.settings, connection = producer_settings(options)
        self._clock = clock or SystemClock()
        self._router = Router(
            bootstrap, connection, connect=connect, chance=chance, create_topics=create_topics
        )
        self._transactor: Transactor | None = None
        self._standing: Standing | None = None
        if self.settings.transactional_id is not None:
            self._transactor = Transactor(self._router, self.settings, self._clock)
            self._standing = self._transactor.standing
        # Without numbers a retried batch could pass the one behind it: then one at a time.
        pipelined = self.settings.idempotent or self.settings.acks == "0"
        self._accumulator = Accumulator(
            self.settings,
            self._clock,
            self._router.chance,
            lane_limit=self.settings.max_in_flight if pipelined else 1,
            opened=self._batch_opened,
            filled=lambda lane: self._sender_now().mark(lane),
            failed=None if self._transactor is None else self._transactor.failed,
        )
        self._schedulable: set[str] = set()
        self._once: OnceSender | None = None
        self._sender: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Reach the cluster; ``async with`` does this.

        With a transactional id this also ends what another producer has left open under it, and
        lets that one write no more.
        """
        if self._sender is None:
            self._loop = asyncio.get_running_loop()
            await self._router.start()
            sender = Sender(
                self._router, self._accumulator, self.settings, self._clock, self._transactor
            )
            try:
                await sender.start()
            except BaseException:
                await self._router.close()
                raise
            self._sender = sender
        return self

    async def close(self) -> None:
        """Deliver what was submitted, then end; raises ``DeliveryError`` as ``flush`` does.

        A transaction that is still open is aborted by the broker, in time.
        """
        try:
            if self._sender is not None and self._transactor is None:
                await self.flush()
        finally:
            await self._end()

    async def abandon(self) -> None:
        """End at once: what was submitted and has no answer yet may be delivered or not."""
        await self._end()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close.  An error that is on its way out is not hidden behind one of delivery."""
        if error is None:
            await self.close()
        elif isinstance(error, Exception):
            with suppress(WaystationError):
                await self.close()
        else:
            await self._end()

    # --- records ----------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Payload = None,
        *,
        key: Payload = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: int | None = None,
        idempotency_key: str | None = None,
        **timing: Unpack[Timing],
    ) -> RecordMetadata:
        """Send one record and wait until the broker has it, as ``acks`` asks.

        Waits for room in the buffer first.  Cancelling does not call the record back.

        With ``idempotency_key`` it is stored once, however often and by whomever it is sent with
        that key (``once.py``): ``replayed`` of what is told says whether that was before.  Such a
        record is sent with acks=all, and in no transaction.

        With ``deliver_at``, ``deliver_after`` or ``deliver_cron`` the broker keeps the record and
        delivers it then (``timing.py``).  What is told is where it waits, which is its id.
        """
        if timing:
            topic, headers = await self._waiting_place(topic, _headers(headers), timing)
        if idempotency_key is not None:
            when = self._clock.now() if timestamp is None else Millis(timestamp)
            message = OnceMessage(
                _payload(key), _payload(value), tuple(_headers(headers)), when, idempotency_key
            )
            return await self._once_sender().send(topic, message, partition)
        is_known = False
        while True:
            try:
                delivered = self.submit(
                    topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
                )
            except BufferFullError:
                await self._accumulator.room()
                continue
            except NoSuchPartitionError:
                if is_known:
                    raise
                await self._router.refresh()  # it may have been added since we looked
                is_known = True
                continue
            try:
                return await delivered
            except WaystationError as error:
                self._accumulator.failures -= 1  # told here, so not by flush
                if is_known or partition is not None or not isinstance(error, TopicMadeAnewError):
                    raise
                is_known = True  # its key has another partition by now

    def submit(
        self,
        topic: str,
        value: Payload = None,
        *,
        key: Payload = None,
        headers: HeadersLike = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivered:
        """Hand one record over without waiting; the future holds where it went.

        Raises ``BufferFullError`` where ``send`` would wait: await ``drain()`` now and then.
        Whoever drops the future learns of a failure from ``flush``.

        HOT: once per record produced (benchmarks/client/producer.py).
        """
        sender, accumulator, loop = self._sender, self._accumulator, self._loop
        if sender is None or loop is None:
            raise _not_open()
        standing = self._standing
        if standing is not None and standing.phase is not _OPEN:
            standing.check_open()
        if type(value) is not bytes:
            value = _payload(value)
        if key is not None and type(key) is not bytes:
            key = _payload(key)
        listed = _headers(headers) if headers else ()
        charged_bytes = accumulator.charge(topic, key, value, listed)
        route = accumulator.routes.get(topic)
        if route is None:
            route = accumulator.route(topic)
            sender.discover(topic)
        when = self._clock.now() if timestamp is None else Millis(timestamp)
        delivered: Delivered = loop.create_future()
        accumulator.add(route, partition, key, value, listed, when, charged_bytes, delivered)
        return delivered

    def submit_many(self, topic: str, records: Iterable[NewRecord]) -> Submitted:
        """Hand records over without waiting, at a third of the cost of one by one.

        Takes them in order until the buffer is full: ``taken`` says how many; await ``drain()``
        before the rest.  A record that cannot be sent fails by itself.  ``partitions_of`` must
        have been asked about the topic.

        HOT: once per POST of many messages (benchmarks/gateway/posts.py).
        """
        sender, loop = self._sender, self._loop
        if sender is None or loop is None:
            raise _not_open()
        if self._standing is not None:
            self._standing.check_open()
        submitted = Submitted(loop)
        route = self._known_route(topic)
        self._accumulator.add_many(route, records, self._clock.now(), submitted)
        return submitted

    def submit_batch(self, topic: str, partition: int, packed: PackedBatch) -> Delivered:
        """Hand a whole batch over without waiting; the future holds where its first record went.

        For those who make batches themselves, of columns (``records/packing.py``): it is
        numbered, compressed, acknowledged and repeated as other batches are, but not cut if it is
        too large for its topic, of which ``partitions_of`` must have been asked.  Raises
        ``BufferFullError`` as ``submit`` does.
        """
        sender, accumulator, loop = self._sender, self._accumulator, self._loop
        if sender is None or loop is None:
            raise _not_open()
        if self._standing is not None:
            self._standing.check_open()
        delivered: Delivered = loop.create_future()
        accumulator.add_whole(self._known_route(topic), partition, packed, delivered)
        return delivered

    async def drain(self) -> None:
        """Give the sender a turn, and wait while the buffer is nearly full."""
        if self._accumulator.buffered_bytes < self.settings.buffer_bytes * _FULL_PART:
            await asyncio.sleep(0)
        else:
            await self._accumulator.room()

    async def flush(self) -> None:
        """Send now what waits, and return when everything submitted so far has its answer.

        Raises ``DeliveryError`` if any record that was submitted since the last flush failed.
        """
        if self._sender is None:
            raise _not_open()
        await self._sender.flushed()

    # --- transactions -----------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """A block in which everything sent counts as one: ``async with producer.transaction()``.

        Leaving it commits, an exception aborts.  A producer writes one transaction at a time.
        """
        return Transaction(self, self.transactor)

    async def prepare(self) -> PreparedTransaction:
        """First phase of two: the open transaction waits for its outcome, whatever crashes.

        Everything sent is delivered; then neither a time-out nor another producer ends the
        transaction, only ``end``, from any process, or an operator.
        """
        return await self.transactor.prepare()

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Second phase: commit or abort what any producer has prepared, in any process.

        To decide the same once more is harmless, to decide otherwise is ``InvalidTxnStateError``.
        This producer needs no transactional id of its own for that.
        """
        if self._sender is None:
            raise _not_open()
        if self._transactor is not None and self._transactor.holds(prepared):
            await self._transactor.end(commit=commit)
        else:
            within_ms = self.settings.delivery_timeout_ms
            await end_prepared(self._router, prepared, within_ms, commit=commit)

    @property
    def transactor(self) -> Transactor:
        """What begins and ends the transactions, for those who build blocks of their own."""
        if self._sender is None:
            raise _not_open()
        if self._transactor is None:
            raise InvalidRequestError(
                "this producer writes no transactions: give it a name of its own, "
                "Producer(transactional_id=...)"
            )
        return self._transactor

    # --- the cluster ------------------------------------------------------------------------

    async def partitions_of(self, topic: str) -> int:
        """How many partitions ``topic`` has; it is created if the broker does that."""
        return len((await self._router.topic(topic)).partitions)

    # --- behind the scenes ------------------------------------------------------------------

    def _once_sender(self) -> OnceSender:
        if self._sender is None:
            raise _not_open()
        if self._transactor is not None:
            raise InvalidRequestError(
                "a message with an idempotency key is in no transaction: send it by a producer "
                "without transactional_id"
            )
        if self._once is None:
            self._once = OnceSender(self._router, self.settings.delivery_timeout_ms)
        return self._once

    async def _waiting_place(
        self, topic: str, headers: Headers, timing: Timing
    ) -> tuple[str, Headers]:
        """Where a record for later is sent, and with which headers.

        A topic that keeps nothing for later is refused: brokers that create topics would make
        one of the companion's name, and nobody would ever look into it.
        """
        added = timing_headers(**timing)
        if not added:
            return topic, headers
        if topic not in self._schedulable:
            await Schedules(self._router, topic).count_partitions()
            self._schedulable.add(topic)
        return companion_of(topic), (*headers, *added)

    def _known_route(self, topic: str) -> Route:
        """The route of a topic whose partitions are known, so that nothing is parked on it."""
        route = self._accumulator.routes.get(topic)
        if route is None or not route.targets:
            known = self._router.view.topics.get(topic)
            if known is None or not known.partitions:
                raise InvalidRequestError(
                    f"the partitions of topic {topic} are not known yet: await partitions_of()"
                )
            route = self._accumulator.route(topic)
            self._accumulator.learn(known)
        return route

    def _batch_opened(self, batch: OutgoingBatch) -> None:
        self._sender_now().opened(batch)

    def _sender_now(self) -> Sender:
        assert self._sender is not None, "a batch before the producer was started"
        return self._sender

    async def _end(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()
        if self._transactor is not None:
            await self._transactor.close()
        if self._once is not None:
            await self._once.close()
        await self._router.close()
        closed = ClosedError("the producer was closed before the record was delivered")
        self._accumulator.abandon(closed)


def _payload(text: object) -> bytes | None:
    if text is None or type(text) is bytes:
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"keys and values are bytes, str or None, not {type(text).__name__}")


def _headers(headers: HeadersLike) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _payload(content)) for name, content in pairs)


def _not_open() -> ClosedError:
    return ClosedError("the producer is not open: use `async with`, or await start()")
