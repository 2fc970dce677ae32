"""Dead letters of queues: look at them, and send them back.

They are in the topic that the queue's group names (``share.dead.letter.topic``).  A list is read
page by page, and every page costs a bounded look at the log, whatever the filter.  Sending back is
an order to the brokers, which go on by themselves; its id asks how it goes.
"""

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from waystation.client.dead_letters import DeadLetter, DeadLetters, Redrive
from waystation.client.errors import NoSuchPartitionError
from waystation.client.offsets import EARLIEST
from waystation.client.schedule_descriptions import MessageId
from waystation.filters.lexing import EXPRESSION_CHARACTERS
from waystation.filters.selecting import Filter
from waystation.gateway.payloads import StoredMessage, Values, shown
from waystation.gateway.problems import refusal
from waystation.gateway.queues import GroupName, QueueParams, check_queue
from waystation.gateway.reading import filter_of, moment_of, read_page
from waystation.gateway.routes import Call, Params, Reply, Route
from waystation.gateway.topics import Offset as OffsetField
from waystation.gateway.topics import Partition, TopicName
from waystation.model.errors import InvalidRequestError, UnknownTopicError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["DEAD_LETTERS"]

_PAGES = 8
"""How many pages of the log one call looks at: what was sent back, or is too old, fills some."""
_REDRIVE_ID = r"^[a-zA-Z0-9._-]{1,64}$"

Where = Annotated[
    str, Meta(max_length=EXPRESSION_CHARACTERS, description="Only those this SQL is true of.")
]
Moment = Annotated[str, Meta(description="ISO 8601 with an offset, or ms since 1970.")]
LetterId = Annotated[
    str,
    Meta(max_length=40, description="Partition and offset in the dead-letter topic, as 0-17."),
]


class ListParams(QueueParams, frozen=True):
    """Which dead letters."""

    partition: Partition | None = None
    since: Annotated[Moment, Meta(description="Dead at that time or later.")] | None = None
    before: Annotated[Moment, Meta(description="Dead before that time.")] | None = None
    where: Where | None = None
    redriven: Annotated[bool, Meta(description="Those too that were sent back.")] = False
    after: Annotated[str, Meta(max_length=40, description="The next of the last page.")] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    values: Values = "text"


class LetterParams(Params, frozen=True):
    """Which dead letter."""

    queue: TopicName
    letter: LetterId
    group: GroupName | None = None
    values: Values = "text"

    @property
    def of(self) -> QueueParams:
        """Its queue."""
        return QueueParams(self.queue, self.group)


class RedriveParams(Params, frozen=True):
    """Which redrive."""

    queue: TopicName
    redrive: Annotated[str, Meta(min_length=1, max_length=64)]
    group: GroupName | None = None

    @property
    def of(self) -> QueueParams:
        """Its queue."""
        return QueueParams(self.queue, self.group)


class Death(msgspec.Struct, frozen=True):
    """Why a message was given up, from where it came, and how often it was delivered."""

    reason: str
    group: str
    deliveries: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    died_ms: int
    cause: str
    """What the consumer that rejected it said of it, if it did."""


class ShownLetter(StoredMessage, frozen=True, kw_only=True):
    """A dead letter; ``death`` is null for what somebody else sent to the topic."""

    id: str
    redriven: bool
    death: Death | None


class Letters(msgspec.Struct, frozen=True):
    """A page of dead letters."""

    topic: str
    letters: list[ShownLetter]
    next: str | None
    """Where to go on, as ``after``; null at the end.  A page may be empty and still lead on."""


class NewRedrive(Params, frozen=True):
    """Which dead letters to send back, and how."""

    id: (
        Annotated[str, Meta(pattern=_REDRIVE_ID, description="Giving it again asks how it goes.")]
        | None
    ) = None
    partition: Partition | None = None
    from_offset: OffsetField | None = None
    until_offset: OffsetField | None = None
    since: Moment | None = None
    before: Moment | None = None
    where: Where | None = None
    to: Annotated[TopicName, Meta(description="Another topic than each came from.")] | None = None
    rate: Annotated[
        float, Meta(ge=0, le=1e9, description="Messages per second; 0 is no limit.")
    ] = 0.0


class PartitionRedrive(msgspec.Struct, frozen=True):
    """How far it got in one partition of the dead-letter topic."""

    partition: int
    id: str
    state: str
    """running, done, cancelled or failed."""
    first_offset: int
    end_offset: int
    at_offset: int
    sent_back: int
    refused: int
    strays: int
    problem: str
    begun_ms: int
    ended_ms: int | None
    """Null while it runs."""


class Redrives(msgspec.Struct, frozen=True):
    """The last order, partition by partition."""

    topic: str
    redrives: list[PartitionRedrive]


class Ordered(msgspec.Struct, frozen=True):
    """An order that the brokers have."""

    id: str
    topic: str
    redrives: list[PartitionRedrive]


async def list_dead_letters(call: Call[ListParams, None]) -> Letters:
    """A page of those in the topic, by partition and offset."""
    wanted = call.parameters
    chosen = None if wanted.where is None else filter_of(wanted.where)
    since = 0 if wanted.since is None else moment_of(wanted.since)
    before = None if wanted.before is None else moment_of(wanted.before, "before")
    begin = None if wanted.after is None else _letter_id(wanted.after, "after")
    letters = await _letters(call.clients, wanted)
    if not await _exists(call.clients, letters):
        return Letters(letters.topic, [], None)
    listing = _Listing(call.clients, letters, wanted, chosen, since, before)
    found, following = await listing.page(begin)
    return Letters(letters.topic, _shown(found, wanted.values), following)


async def show_dead_letter(call: Call[LetterParams, None]) -> ShownLetter:
    """One of them."""
    place = _letter_id(call.parameters.letter, "letter")
    letters = await _letters(call.clients, call.parameters.of)
    try:
        if not await _exists(call.clients, letters):
            raise InvalidRequestError(f"nothing is dead yet: there is no {place}")
        found = await letters.get(*place)
    except (InvalidRequestError, NoSuchPartitionError) as error:
        raise refusal(
            404,
            "no-such-dead-letter",
            str(error),
            field="letter",
            remedy="GET /v1/queues/{queue}/dead-letters lists those there are",
        ) from None
    return _shown([found], call.parameters.values)[0]


async def begin_redrive(call: Call[QueueParams, NewRedrive]) -> Reply:
    """Send dead letters back; answered once the brokers have the order."""
    wanted = call.body
    if wanted.where is not None:
        filter_of(wanted.where)
    since = None if wanted.since is None else moment_of(wanted.since)
    before = None if wanted.before is None else moment_of(wanted.before, "before")
    letters = await _letters(call.clients, call.parameters)
    order, redrives = wanted.id or secrets.token_hex(8), list[Redrive]()
    if await _exists(call.clients, letters):
        redrives = await letters.redrive(
            order,
            partitions=await letters.partitions(wanted.partition),
            first=wanted.from_offset or 0,
            end=wanted.until_offset,
            since=since,
            until=before,
            where=wanted.where or "",
            to=wanted.to or "",
            rate=wanted.rate,
        )
    answer = Ordered(order, letters.topic, _told(redrives))
    return Reply(msgspec.json.encode(answer), 202)


async def redrive_status(call: Call[QueueParams, None]) -> Redrives:
    """How far the last order got."""
    letters = await _letters(call.clients, call.parameters)
    found = await letters.progress() if await _exists(call.clients, letters) else []
    return Redrives(letters.topic, _told(found))


async def cancel_redrive(call: Call[RedriveParams, None]) -> Redrives:
    """Stop an order; what was sent back stays so."""
    letters = await _letters(call.clients, call.parameters.of)
    name = call.parameters.redrive
    found = await letters.cancel(name) if await _exists(call.clients, letters) else []
    if not found:
        raise refusal(
            404,
            "no-such-redrive",
            f"there is no redrive {name!r} of {letters.topic}, or not any more",
            field="redrive",
            remedy="GET /v1/queues/{queue}/redrives shows the last one",
        )
    return Redrives(letters.topic, _told(found))


class _Listing:
    """Reads a dead-letter topic for one call."""

    def __init__(
        self,
        clients: "Clients",
        letters: DeadLetters,
        wanted: ListParams,
        chosen: Filter | None,
        since: int,
        before: int | None,
    ) -> None:
        self._clients, self._letters, self._wanted = clients, letters, wanted
        self._chosen, self._since, self._before = chosen, since, before

    async def page(self, begin: MessageId | None) -> tuple[list[DeadLetter], str | None]:
        """Letters from ``begin`` on, and where to go on."""
        numbers = await self._letters.partitions(self._wanted.partition)
        found: list[DeadLetter] = []
        pages = 0
        for number in numbers:
            if begin is not None and number < begin.partition:
                continue
            is_first = begin is not None and number == begin.partition
            where = TopicPartition(self._letters.topic, number)
            at = begin.offset if begin is not None and is_first else await self._start(where)
            while True:
                left = self._wanted.limit - len(found)
                if left <= 0 or pages >= _PAGES:
                    return found, str(MessageId(number, at))
                pages += 1
                page = await read_page(self._clients, where, at, limit=left, chosen=self._chosen)
                judged = await self._letters.judged(number, page.messages)
                found += [one for one in judged if self._is_wanted(one)]
                at = page.next_offset
                if at >= page.end_offset:
                    break
        return found, None

    async def _start(self, where: TopicPartition) -> Offset:
        admin = await self._clients.admin()
        return (await admin.list_offsets({where: EARLIEST}))[where].offset

    def _is_wanted(self, one: DeadLetter) -> bool:
        at = one.message.timestamp
        is_timely = at >= self._since and (self._before is None or at < self._before)
        return is_timely and (self._wanted.redriven or not one.is_redriven)


async def _letters(clients: "Clients", wanted: QueueParams) -> DeadLetters:
    """The dead letters of a queue: in the topic that its group names."""
    await check_queue(clients, wanted.queue)
    admin = await clients.admin()
    configs = await admin.describe_configs(group=wanted.of.group)
    topic = configs["share.dead.letter.topic"].value
    if not topic:
        raise refusal(
            409,
            "no-dead-letter-topic",
            f"group {wanted.of.group} has no dead-letter topic: what it gives up is passed over",
            field="queue",
            remedy="PATCH /v1/queues/{queue}/config: set share.dead.letter.topic",
        )
    return admin.dead_letters(topic)


async def _exists(clients: "Clients", letters: DeadLetters) -> bool:
    """Whether the topic is there: brokers make it when the first message dies."""
    try:
        await clients.topic(letters.topic)
    except UnknownTopicError:
        return False
    return True


def _letter_id(text: str, field: str) -> MessageId:
    try:
        found = MessageId.of(text)
        if found.partition >= 2**31 or found.offset >= 2**63:
            raise InvalidRequestError(f"{text!r} is beyond all messages")
    except InvalidRequestError as error:
        raise refusal(
            400, "invalid-parameter", str(error), field=field, remedy="partition and offset: 0-17"
        ) from None
    return found


def _shown(letters: Sequence[DeadLetter], values: Values) -> list[ShownLetter]:
    plain = shown([one.message for one in letters], values)
    return [
        ShownLetter(
            **{name: getattr(message, name) for name in StoredMessage.__struct_fields__},
            id=f"{one.message.partition}-{one.message.offset}",
            redriven=one.is_redriven,
            death=_death(one),
        )
        for one, message in zip(letters, plain, strict=True)
    ]


def _death(one: DeadLetter) -> Death | None:
    origin = one.origin
    if origin is None:
        return None
    return Death(
        origin.reason,
        origin.group,
        origin.deliveries,
        origin.source.topic,
        origin.source.partition,
        origin.offset,
        origin.timestamp,
        origin.died_at,
        origin.cause,
    )


def _told(redrives: Sequence[Redrive]) -> list[PartitionRedrive]:
    told = (PartitionRedrive(*one) for one in redrives)
    return [
        one if (one.ended_ms or 0) >= 0 else msgspec.structs.replace(one, ended_ms=None)
        for one in told
    ]


DEAD_LETTERS = [
    Route(
        method="GET",
        path="/v1/queues/{queue}/dead-letters",
        summary="List the dead letters of a queue",
        tag="dead-letters",
        handler=list_dead_letters,
        parameters=ListParams,
        answer=Letters,
        errors=(409, 416, 504),
    ),
    Route(
        method="GET",
        path="/v1/queues/{queue}/dead-letters/{letter}",
        summary="Show a dead letter",
        tag="dead-letters",
        handler=show_dead_letter,
        parameters=LetterParams,
        answer=ShownLetter,
        errors=(409, 504),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/redrives",
        summary="Send dead letters back",
        tag="dead-letters",
        handler=begin_redrive,
        parameters=QueueParams,
        body=NewRedrive,
        body_optional=True,
        answer=Ordered,
        status=202,
        errors=(403, 409, 504),
    ),
    Route(
        method="GET",
        path="/v1/queues/{queue}/redrives",
        summary="How far the last redrive got",
        tag="dead-letters",
        handler=redrive_status,
        parameters=QueueParams,
        answer=Redrives,
        errors=(409, 504),
    ),
    Route(
        method="DELETE",
        path="/v1/queues/{queue}/redrives/{redrive}",
        summary="Stop a redrive",
        tag="dead-letters",
        handler=cancel_redrive,
        parameters=RedriveParams,
        answer=Redrives,
        errors=(409, 504),
    ),
]
