"""A queue: every message goes to one consumer, which says what became of it.

Over the wire a queue is a topic read by a share group (KIP-932), of the topic's own name unless
another is given, so that every Kafka client that knows share groups can take part.  ``receive``
gives messages that are this consumer's for as long as their lock lasts; ``ack`` settles them for
good, ``nack`` gives them back or up, ``extend`` begins the lock anew.  Promises:

1. a message that was acknowledged, as ``ack`` returning says, is never delivered again;
2. one that was not comes again, to somebody, until it is settled or given up as a dead letter;
3. what is not held any more cannot be settled, and ``NotHeldError`` says so and why.

Receiving is in ``queue_receiving.py``, the conversation with a leader in ``queue_session.py``.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self, Unpack

from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.errors import ClosedError
from waystation.client.outgoing import RecordMetadata
from waystation.client.producer import HeadersLike, Payload, Producer
from waystation.client.queue_errors import unknown_queue
from waystation.client.queue_message import QueueMessage
from waystation.client.queue_receiving import Receiving
from waystation.client.queue_sending import priority_header
from waystation.client.queue_settings import QueueOptions, queue_settings
from waystation.client.router import Router
from waystation.client.timing import Delay, Timing, delay_ms
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import (
    InvalidGroupIdError,
    InvalidRequestError,
    UnknownTopicError,
    WaystationError,
)
from waystation.runtime.clock import Clock, SystemClock
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import ACCEPT, REJECT, RELEASE

__all__ = ["Queue", "QueueMessage"]

_EXTEND_PART = 0.5


class Queue:
    """Sends and receives; use it as ``async with Queue("orders") as queue``.

    Reads the topic ``name`` as a member of the share group ``group``, which has the same name
    unless told: queues of other groups over one topic get all its messages too, each for itself.
    Options are keywords, documented in ``queue_settings.py``.  Text is sent as UTF-8.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        group: str | None = None,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        chance: Random | None = None,
        every_partition: bool = False,
        **options: Unpack[QueueOptions],
    ) -> None:
        """``every_partition``: read all, whichever the group gives to this consumer."""
        if not name:
            raise InvalidRequestError("the queue has no name: give that of its topic")
        if group is not None and not group:
            raise InvalidGroupIdError("the group has no name: give it one, or leave group away")
        self.settings, self._connection = queue_settings(options)
        self.name, self.group_id = name, name if group is None else group
        self._bootstrap, self._connect = bootstrap, connect
        self._clock, self._chance = clock or SystemClock(), chance
        self._every_partition = every_partition
        self._router = Router(bootstrap, self._connection, connect=connect, chance=chance)
        self._receiving: Receiving | None = None
        self._producer: Producer | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self._failure: WaystationError | None = None
        self._delays = Tasks()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Reach the cluster; ``async with`` does this.  The group is joined by ``receive``."""
        if not self._is_open:
            await self._router.start()
            self._is_open = True
        return self

    async def close(self) -> None:
        """Give back what is held, leave the group, deliver what was sent.

        Raises what ``flush`` would.
        """
        if not self._is_open:
            return
        self._is_open = False
        await self._delays.aclose()
        try:
            if self._receiving is not None:
                await self._receiving.close()
            if self._producer is not None:
                await self._producer.close()
        finally:
            await self._router.close()
        self._raise_failure()

    async def abandon(self) -> None:
        """Close, and do not wait for requests that wait at brokers, as ``close`` does.

        What is held is back in the queue at once, and others have it a moment sooner.
        """
        if self._is_open and self._receiving is not None:
            await self._receiving.cut()
        await self.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close.  An error that is on its way out is not hidden behind another."""
        if error is None:
            await self.close()
        else:
            with suppress(WaystationError):
                await self.close()

    # --- sending --------------------------------------------------------------------------------

    async def send(
        self,
        value: Payload = None,
        *,
        key: Payload = None,
        headers: HeadersLike = (),
        priority: int | None = None,
        idempotency_key: str | None = None,
        **timing: Unpack[Timing],
    ) -> RecordMetadata:
        """Send one message and wait until the cluster has it; once, if it has an idempotency key.

        Messages of one key go to one partition.  A ``priority`` from 0 to 9 is obeyed where the
        group has ``share.priority``.  With ``deliver_after``, ``deliver_at`` or ``deliver_cron``
        (``timing.py``) it waits in ``<name>.delay``; the answer names its place there, by which it
        can be cancelled.
        """
        if priority is not None:
            headers = [*_pairs(headers), priority_header(priority)]
        producer = await self._sender()
        try:
            return await producer.send(
                self.name,
                value,
                key=key,
                headers=headers,
                idempotency_key=idempotency_key,
                **timing,
            )
        except UnknownTopicError:
            raise unknown_queue(self.name) from None

    # --- receiving ------------------------------------------------------------------------------

    async def join(self) -> None:
        """Become a member of the group, and return once it has assigned something to read.

        ``receive`` joins as well, and waits for that no longer than for messages.
        """
        await (await self._receiver()).joined()

    async def receive(self, max_messages: int = 10, wait_ms: int = 1000) -> list[QueueMessage]:
        """Up to ``max_messages``, as soon as there is one; an empty list if none came in time.

        They are this consumer's until their lock is over (``message.seconds_left``).
        """
        if max_messages < 1:
            raise InvalidRequestError(f"max_messages is {max_messages}, must be at least 1")
        return await (await self._receiver()).next(max_messages, wait_ms / 1_000)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> QueueMessage:
        """The next message, however long it takes."""
        receiving = await self._receiver()
        (message,) = receiving.at_once(1) or await receiving.next(1, None)
        return message

    # --- settling -------------------------------------------------------------------------------

    async def ack(self, messages: QueueMessage | Iterable[QueueMessage]) -> None:
        """Settle messages for good; returns when that is stored.

        Raises ``NotHeldError`` if some are not held any more, after settling the others.
        """
        await self._settle(messages, ACCEPT)

    def submit_ack(self, messages: QueueMessage | Iterable[QueueMessage]) -> "asyncio.Future[None]":
        """As ``ack``, without waiting: whoever drops the future learns of a failure from ``flush``.

        Acknowledgements go together, with the next request for messages where there is one.
        """
        done = self._receives().settle(_listed(messages), ACCEPT).done
        done.add_done_callback(self._note_failure)
        return done

    async def nack(
        self,
        messages: QueueMessage | Iterable[QueueMessage],
        *,
        requeue: bool = True,
        delay: Delay | None = None,
        why: str = "",
    ) -> None:
        """Give messages back, for another delivery, or with ``requeue=False`` up.

        What is given up, or was delivered too often, goes to the group's dead-letter topic, if it
        has one; ``why`` it was given up goes with it, as a header, unless a broker dies in between.
        A ``delay`` keeps messages locked here for so long before they are given back; at
        once if this queue is closed, or dies.  For waits that grow, see ``share.retry.backoff.ms``.
        """
        if why and requeue:
            raise InvalidRequestError("why is for what is given up: say requeue=False as well")
        if delay is None:
            await self._settle(messages, RELEASE if requeue else REJECT, why)
            return
        if not requeue:
            raise InvalidRequestError("a delay is for what comes again: leave requeue=False away")
        wait_s = delay_ms(delay, "delay") / 1_000
        for message in _listed(messages):
            await self.extend(message)
            self._delays.spawn(self._release_after(message, wait_s), f"queue-delay {message.id}")

    async def give_back(self, messages: Iterable[QueueMessage]) -> None:
        """Give back those of them that are still held; the others are no concern any more."""
        if self._is_open and (held := [one for one in messages if one.is_held]):
            await self.nack(held)

    async def extend(self, message: QueueMessage) -> None:
        """Let the lock begin anew; ``NotHeldError`` if it is over already."""
        await self._receives().renew(message)

    async def flush(self) -> None:
        """Return when everything settled so far has its answer; raises the first failure."""
        await self._receives().flushed()
        self._raise_failure()

    # --- behind the scenes ----------------------------------------------------------------------

    async def _settle(
        self, messages: QueueMessage | Iterable[QueueMessage], kind: int, why: str = ""
    ) -> None:
        await self._receives().settle(_listed(messages), kind, why).done

    async def _release_after(self, message: QueueMessage, wait_s: float) -> None:
        """Keep a message for a while; if its lock is lost meanwhile, that is as good."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_s
        with suppress(WaystationError):
            while (left_s := ends_at - loop.time()) > 0:
                await asyncio.sleep(min(left_s, max(message.seconds_left * _EXTEND_PART, 0.01)))
                if ends_at > loop.time():
                    await self.extend(message)
            await self._settle(message, RELEASE)

    async def _receiver(self) -> Receiving:
        if self._receiving is None:
            self._check_open()
            async with self._opening:
                if self._receiving is None:
                    made = Receiving(
                        self._router,
                        self.settings,
                        self.name,
                        self.group_id,
                        every_partition=self._every_partition,
                    )
                    await made.start()
                    self._receiving = made
        return self._receiving

    def _receives(self) -> Receiving:
        if self._receiving is None or not self._is_open:
            self._check_open()
            raise InvalidRequestError("nothing was received yet, so that nothing can be settled")
        return self._receiving

    async def _sender(self) -> Producer:
        self._check_open()
        if self._producer is None:
            async with self._opening:
                if self._producer is None:
                    made = Producer(
                        self._bootstrap,
                        connect=self._connect,
                        clock=self._clock,
                        chance=self._chance,
                        create_topics=False,
                        client_id=self._connection.client_id,
                        request_timeout_ms=self._connection.request_timeout_ms,
                        metadata_timeout_ms=self._connection.metadata_timeout_ms,
                        linger_ms=0,
                    )
                    self._producer = await made.start()
        return self._producer

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError("the queue is not open: use `async with`, or await start()")

    def _note_failure(self, done: "asyncio.Future[None]") -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, WaystationError) and self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _listed(messages: QueueMessage | Iterable[QueueMessage]) -> Iterable[QueueMessage]:
    # A message is a tuple itself.
    return [messages] if isinstance(messages, QueueMessage) else messages


def _pairs(headers: HeadersLike) -> Iterable[tuple[str, bytes | str | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers
