"""Messages of queues: send, receive under a lease, settle by receipt.

1. What is received is its caller's until its lease is over; a receipt settles it, from any node and
   over any connection (``client/queue_receipts.py``).
2. What nobody settles comes again after its lease, and counts one delivery more.
3. Many are settled together: one that is not held any more spoils no other, and is named.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from waystation.client.queue_errors import NotHeldError
from waystation.client.queue_receipts import HeldMessage, Receipt, Receipts
from waystation.client.queue_sending import priority_header
from waystation.client.receipt_settling import Outcomes as Settlings
from waystation.client.timing import delay_ms
from waystation.gateway.once import ONCE_HEADER
from waystation.gateway.payloads import Moment, NewMessage, StoredMessage, Values, shown
from waystation.gateway.problems import Problem, ProblemError, problem_of, refusal
from waystation.gateway.producing import Outcomes, Place, send_message, send_messages
from waystation.gateway.queue_holders import QueueHolders
from waystation.gateway.queues import QueueParams, check_queue, unknown_queue
from waystation.gateway.routes import Call, Handler, Params, Reply, Route
from waystation.gateway.topics import TopicName, TopicParams
from waystation.model.errors import InvalidRequestError, UnknownTopicError, WaystationError
from waystation.records.record import Headers

__all__ = ["queue_message_routes"]

Lease = Annotated[
    int,
    Meta(ge=100, le=12 * 3_600_000, description="As long as the queue says, unless given."),
]
_DELAY_MAX_MS: Final = 24 * 3_600_000


class SendParams(Params, frozen=True):
    """Which queue; all groups that read its topic get what is sent."""

    queue: TopicName


class NewQueueMessage(NewMessage, frozen=True):
    """A message to send to a queue."""

    priority: (
        Annotated[
            int, Meta(ge=0, le=9, description="9 goes first, in queues that heed priorities.")
        ]
        | None
    ) = None

    def header_pairs(self, at: str = "") -> Headers:
        """The headers as they are sent, the priority among them."""
        given = super().header_pairs(at)
        return given if self.priority is None else (*given, priority_header(self.priority))


class QueueBatch(Params, frozen=True):
    """Messages to send; those of one partition keep their order."""

    messages: Annotated[list[NewQueueMessage], Meta(min_length=1)]


class Receive(Params, frozen=True):
    """How many messages, and for how long."""

    max: Annotated[int, Meta(ge=1, le=1_000, description="At most so many.")] = 1
    wait_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="Wait so long for the first message.")
    ] = 0
    lease_ms: Lease | None = None
    values: Annotated[
        Values, Meta(description="How values are shown: what is not text, or not JSON, as base64.")
    ] = "text"


class ReceivedMessage(StoredMessage, frozen=True, kw_only=True):
    """A message that is its caller's for ``lease_ms``; ``receipt`` settles it."""

    receipt: str
    deliveries: int
    """How often it was delivered, this time included."""
    lease_ms: int


class Received(msgspec.Struct, frozen=True):
    """What came; nothing, if nothing came in time."""

    messages: list[ReceivedMessage]


class Named(Params, frozen=True):
    """Messages that were received, by their receipts."""

    receipts: Annotated[list[str], Meta(min_length=1, max_length=1_000)]


class GivenBack(Named, frozen=True):
    """Messages to give back, for another delivery, or up."""

    delay: (
        Annotated[Moment, Meta(description="Deliver them again so much later: '30s', or ms.")]
        | None
    ) = None
    requeue: Annotated[bool, Meta(description="False: never again; dead letters.")] = True
    why: Annotated[
        str, Meta(max_length=300, description="Goes with what is given up, as a header.")
    ] = ""


class Extension(Named, frozen=True):
    """Messages to keep for longer, from now on."""

    lease_ms: Lease | None = None


class Refused(msgspec.Struct, frozen=True):
    """A receipt that settled nothing, and why."""

    receipt: str
    problem: Problem


class Settled(msgspec.Struct, frozen=True):
    """How many messages were settled, and what was not."""

    settled: int
    refused: list[Refused]


Telling = Callable[[Receipts, list[Receipt]], Coroutine[Any, Any, Settlings]]


async def send_to_queue(call: Call[SendParams, NewQueueMessage]) -> object:
    """Send one; answered once it is kept as acks=all asks."""
    return await _sent(call, send_message)


async def send_many_to_queue(call: Call[SendParams, Any]) -> object:
    """Send many; a mistake in any of them is told before any is sent."""
    return await _sent(call, send_messages)


async def _sent(
    call: Call[SendParams, Any], send: Callable[[Call[TopicParams, Any]], Awaitable[object]]
) -> object:
    queue = call.parameters.queue
    try:
        return await send(Call(call.clients, TopicParams(queue), call.body, call.headers))
    except UnknownTopicError:
        raise unknown_queue(queue) from None


class QueueMessages:
    """The calls that receive and settle."""

    def __init__(self, holders: QueueHolders) -> None:
        self._holders = holders

    async def receive(self, call: Call[QueueParams, Receive]) -> Received:
        """Receive messages; waits for the first of them."""
        wanted = call.body
        await check_queue(call.clients, call.parameters.queue)
        clients, queue = call.clients, call.parameters.of
        try:
            async with self._holders.waiting(), self._holders.of(clients, queue) as own:
                holding = own.hold(wanted.max, wanted.wait_ms, lock_ms=wanted.lease_ms)
                held = await clients.promptly(queue.name, holding)
        except UnknownTopicError:
            raise unknown_queue(queue.name) from None
        return Received(_received(held, wanted.values))

    async def ack(self, call: Call[QueueParams, Named]) -> Reply:
        """Settle messages for good."""
        return await self._told(call, lambda own, receipts: own.ack_all(receipts))

    async def nack(self, call: Call[QueueParams, GivenBack]) -> Reply:
        """Give messages back, or up."""
        wait_ms = _delay(call.body)
        if call.body.why and call.body.requeue:
            raise refusal(
                400,
                "invalid-field",
                "why is for what is given up",
                field="why",
                remedy="leave it away, or say requeue=false",
            )
        return await self._told(
            call,
            lambda own, receipts: own.nack_all(
                receipts, requeue=call.body.requeue, delay=wait_ms, why=call.body.why
            ),
        )

    async def extend(self, call: Call[QueueParams, Extension]) -> Reply:
        """Keep messages for longer."""
        lease_ms = call.body.lease_ms
        return await self._told(call, lambda own, receipts: own.extend_all(receipts, lease_ms))

    async def _told(self, call: Call[QueueParams, Any], tell: Telling) -> Reply:
        receipts = [_receipt(text, number) for number, text in enumerate(call.body.receipts)]
        await check_queue(call.clients, call.parameters.queue)
        try:
            async with self._holders.of(call.clients, call.parameters.of) as own:
                told = tell(own, receipts)
                outcomes = await call.clients.promptly(call.parameters.queue, told)
        except UnknownTopicError:
            raise unknown_queue(call.parameters.queue) from None
        numbers = {one: number for number, one in reversed(list(enumerate(receipts)))}
        refused = [
            Refused(str(one), _problem(one, numbers[one], error))
            for one, error in outcomes.items()
            if error is not None
        ]
        if len(refused) == len(outcomes):
            raise ProblemError(refused[0].problem)
        answer = Settled(len(outcomes) - len(refused), refused)
        return Reply(msgspec.json.encode(answer), 207 if refused else 200)


def _received(held: list[HeldMessage], values: Values) -> list[ReceivedMessage]:
    plain = shown([one.message for one in held], values)
    return [
        ReceivedMessage(
            **{name: getattr(message, name) for name in StoredMessage.__struct_fields__},
            receipt=str(one.receipt),
            deliveries=one.deliveries,
            lease_ms=one.lock_ms,
        )
        for one, message in zip(held, plain, strict=True)
    ]


def _receipt(text: str, number: int) -> Receipt:
    try:
        return Receipt.of(text)
    except InvalidRequestError as error:
        raise refusal(
            400,
            "invalid-field",
            str(error),
            field=f"receipts[{number}]",
            remedy="send it as POST /v1/queues/{queue}/receive has answered",
        ) from None


def _delay(wanted: GivenBack) -> int | None:
    if wanted.delay is None:
        return None
    problem = None if wanted.requeue else "a delay is for what comes again"
    try:
        wait_ms = delay_ms(wanted.delay, "delay")
        if wait_ms > _DELAY_MAX_MS:
            problem = f"a delay of {wait_ms} ms is longer than a day"
    except InvalidRequestError as error:
        wait_ms, problem = 0, str(error)
    if problem is not None:
        raise refusal(
            400,
            "invalid-field",
            problem,
            field="delay",
            remedy="up to a day, such as '30s' or 30000, and not with requeue=false",
        )
    return wait_ms


def _problem(receipt: Receipt, number: int, error: WaystationError) -> Problem:
    field = f"receipts[{number}]"
    if not isinstance(error, NotHeldError):
        return msgspec.structs.replace(problem_of(error), field=field)
    return refusal(
        409,
        "not-held",
        f"receipt {receipt}: {error}",
        field=field,
        remedy="receive it again if it is not done: whoever gets it has another receipt",
    ).problem


def queue_message_routes(holders: QueueHolders) -> list[Route]:
    """The calls that are about a queue's messages."""
    calls = QueueMessages(holders)
    settling: list[tuple[str, str, Handler, type[Named]]] = [
        ("ack", "Acknowledge messages: they are done", calls.ack, Named),
        ("nack", "Give messages back, now or later, or up", calls.nack, GivenBack),
        ("extend", "Keep messages for longer", calls.extend, Extension),
    ]
    return [
        Route(
            method="POST",
            path="/v1/queues/{queue}/messages",
            summary="Send a message to a queue",
            tag="queues",
            handler=send_to_queue,
            parameters=SendParams,
            body=NewQueueMessage,
            many="/v1/queues/{queue}/messages/batch",
            answer=Place,
            header_fields=(ONCE_HEADER,),
            errors=(403, 422, 429, 504),
        ),
        Route(
            method="POST",
            path="/v1/queues/{queue}/messages/batch",
            summary="Send many messages to a queue, as JSON or one per line",
            tag="queues",
            handler=send_many_to_queue,
            parameters=SendParams,
            body=QueueBatch,
            lines=NewQueueMessage,
            answer=Outcomes,
            others={207: Outcomes},
            header_fields=(ONCE_HEADER,),
            errors=(403, 429, 504),
        ),
        Route(
            method="POST",
            path="/v1/queues/{queue}/receive",
            summary="Receive messages under a lease",
            tag="queues",
            handler=calls.receive,
            parameters=QueueParams,
            body=Receive,
            body_optional=True,
            answer=Received,
            waits=True,
            errors=(409, 504),
        ),
        *(
            Route(
                method="POST",
                path=f"/v1/queues/{{queue}}/{name}",
                summary=summary,
                tag="queues",
                handler=handler,
                parameters=QueueParams,
                body=body,
                answer=Settled,
                others={207: Settled},
                errors=(409, 504),
            )
            for name, summary, handler, body in settling
        ),
    ]
