"""The inbox: messages from user to user, as ``POST /send`` and ``GET /receive``.

One topic holds the messages of all users, by the user they are sent to; its index of keys finds
those of one user among all others.  Promises:

1. a message that was answered with "success" is kept as ``acks=all`` asks;
2. a user gets its own messages, each once, in the order they were kept, and with
   ``last_message_id`` all that came behind it and are still there;
3. an id is unique, and stays what it is across restarts and new leaders.

Users are spread over a fixed number of partitions, whatever the topic has: with partitions that
were added later another hash would look for a user's messages where they are not.

What an id is made of is in ``client/inbox_ids.py``, what the topic must be like in
``inbox_topic.py``; ``client/inbox.py`` is the same for Python.
"""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from waystation.client.errors import BrokerError
from waystation.client.find import Finder, FoundPage
from waystation.client.inbox_ids import NotAnIdError, Place, decode, encode
from waystation.client.message import Message
from waystation.client.outgoing import RecordMetadata
from waystation.client.partitioner import partition_of_key
from waystation.client.raw import TopicRecreatedError
from waystation.gateway.inbox_topic import InboxTopic, unindexed
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.settings import GatewaySettings
from waystation.gateway.turns import in_turns
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    MessageTooLargeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId

if TYPE_CHECKING:
    from waystation.gateway.clients import Clients

__all__ = ["Inbox", "inbox_routes"]

_FROM: Final = "from_user"
_LAST_MS: Final = 253_402_300_799_999  # the year 9999
_ANEW: Final = "leave last_message_id away to get everything that is there"

User = Annotated[
    str, Meta(min_length=1, max_length=256, description="Any text.", examples=["user123"])
]


class NewInboxMessage(Params, frozen=True):
    """A message to a user."""

    from_user: User
    to_user: User
    message: Annotated[str, Meta(examples=["Hello!"])]


class Sent(msgspec.Struct, frozen=True):
    """The message is kept."""

    status: Literal["success"]
    message_id: str


class ReceiveParams(Params, frozen=True):
    """Whose messages, and from where on; as parameters, or as the fields of a JSON body."""

    user_id: Annotated[User, Meta(description="Whose messages.")] | None = None
    last_message_id: (
        Annotated[str, Meta(description="Those behind this one; all, if not given or empty.")]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="At most so many; 100.")] | None = None
    wait_ms: (
        Annotated[int, Meta(ge=0, le=60_000, description="Wait so long for the first one; 0.")]
        | None
    ) = None


class ReceiveBody(ReceiveParams, frozen=True):
    """The same as the parameters."""


class InboxMessage(msgspec.Struct, frozen=True):
    """A message to a user."""

    message_id: str
    from_user: str | None
    """Null if it came by other ways than POST /send and says nothing of it."""
    to_user: str
    message: str | None
    """Null if it came by other ways and has no value."""
    timestamp: str
    """When it was sent: ISO 8601, UTC."""


class Received(msgspec.Struct, frozen=True):
    """Messages of one user, in order; none if there are no others yet."""

    messages: list[InboxMessage]


class Inbox:
    """The inbox of one node; all nodes with the same settings share one."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._topic = InboxTopic(settings)

    async def send(self, call: Call[None, NewInboxMessage]) -> Sent:
        """Keep a message for its user; answered once it is kept."""
        wanted = call.body
        user = _bytes(wanted.to_user, "to_user")
        sender, value = _bytes(wanted.from_user, "from_user"), _bytes(wanted.message, "message")
        try:
            told = await self._sent(call.clients, user, sender, value)
        except (UnknownTopicError, UnknownTopicIdError):
            # Deleted since it was looked at, so that nothing was stored: the next one takes it.
            await call.clients.forget(self._topic.name)
            told = await self._sent(call.clients, user, sender, value)
        return Sent("success", encode(Place(told.topic_id, told.partition, told.offset), user))

    async def receive(self, call: Call[ReceiveParams, ReceiveBody]) -> Received:
        """The next messages of a user."""
        wanted = _merged(call.parameters, call.body)
        assert wanted.user_id is not None, "_merged lets nobody pass without"
        user = _bytes(wanted.user_id, "user_id")
        after = _decoded(wanted.last_message_id, user)
        await self._topic.ready(call.clients)
        where = partition_of_key(user, self._topic.partitions)
        if after is not None:
            _check_partition(after, where)
        try:
            page = await self._found(call.clients, user, where, after, wanted)
        except (TopicRecreatedError, UnknownTopicError, UnknownTopicIdError):
            if after is None:
                return Received([])  # deleted meanwhile, and with it all there was
            raise _gone("is of another inbox, or of one that was deleted") from None
        except InvalidRequestError:
            raise unindexed(self._topic.name) from None
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise _gone("is of a message that was lost: the log ends before it") from None
        show = partial(_shown, page.topic_id, wanted.user_id, user)
        return Received(await in_turns(lambda some: list(map(show, some)), page.messages))

    async def _sent(
        self, clients: "Clients", user: bytes, sender: bytes, value: bytes
    ) -> RecordMetadata:
        await self._topic.ready(clients)
        try:
            return await (await clients.producer()).send(
                self._topic.name,
                value,
                key=user,
                headers=((_FROM, sender),),
                partition=partition_of_key(user, self._topic.partitions),
            )
        except MessageTooLargeError as error:
            raise _too_large(self._topic.name, error) from None

    async def _found(
        self,
        clients: "Clients",
        user: bytes,
        where: int,
        after: Place | None,
        wanted: ReceiveParams,
    ) -> FoundPage:
        """A look first, by what all calls share; who waits borrows a router of its own."""
        name, limit = self._topic.name, 100 if wanted.limit is None else wanted.limit
        begin, topic_id = (0, NO_TOPIC_ID) if after is None else (after.offset + 1, after.topic_id)
        finder = Finder(await clients.router(), name)
        look = finder.page(
            user, offset=begin, limit=limit, partition=where, topic_id=TopicId(topic_id)
        )
        page = await clients.promptly(name, look)
        if page.messages or not wanted.wait_ms:
            return page
        async with clients.waiting() as router:
            waiting = Finder(router, name).page(
                user,
                offset=max(begin, page.next_offset),
                limit=limit,
                wait_ms=wanted.wait_ms,
                partition=where,
                topic_id=page.topic_id,
            )
            return await clients.promptly(name, waiting, wait_ms=wanted.wait_ms)


def inbox_routes(settings: GatewaySettings) -> list[Route]:
    """The calls of the inbox."""
    inbox = Inbox(settings)
    return [
        Route(
            method="POST",
            path="/send",
            summary="Send a message to a user",
            tag="inbox",
            handler=inbox.send,
            body=NewInboxMessage,
            answer=Sent,
            errors=(403, 409, 429, 504),
        ),
        Route(
            method="GET",
            path="/receive",
            summary="The messages of a user, in order",
            tag="inbox",
            handler=inbox.receive,
            parameters=ReceiveParams,
            body=ReceiveBody,
            body_optional=True,
            media_types=("*/*",),  # no page can send a GET with a body, so that nobody is tricked
            answer=Received,
            errors=(403, 409, 410, 429, 504),
        ),
    ]


def _merged(query: ReceiveParams, body: ReceiveParams) -> ReceiveParams:
    """What is asked for, by either of the ways that a call may say it."""
    given: dict[str, object] = {}
    for name in ReceiveParams.__struct_fields__:
        said = {one for one in (getattr(query, name), getattr(body, name)) if one is not None}
        if len(said) > 1:
            raise refusal(
                400,
                "invalid-parameter",
                f"{name} is one thing in the address and another in the body",
                field=name,
                remedy="say it once",
            )
        if said:
            given[name] = said.pop()
    if "user_id" not in given:
        raise refusal(
            400,
            "invalid-parameter",
            "whose messages is not said",
            field="user_id",
            remedy="GET /receive?user_id=..., or a JSON body with user_id",
        )
    return msgspec.convert(given, ReceiveParams)


def _bytes(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeError as error:
        raise refusal(
            400,
            "invalid-field",
            f"what is not text cannot be sent: {error}",
            field=field,
            remedy="UTF-8 without lone surrogates",
        ) from None


def _decoded(text: str | None, user: bytes) -> Place | None:
    if not text:
        return None
    try:
        place, is_users = decode(text, user)
    except NotAnIdError as error:
        raise refusal(
            400,
            "invalid-message-id",
            f"last_message_id is not the id of a message: {error}",
            field="last_message_id",
            remedy=f"the message_id of the last message received, as it came; or {_ANEW}",
        ) from None
    if not is_users:
        raise refusal(
            400,
            "message-of-another-user",
            "last_message_id is of a message to another user",
            field="last_message_id",
            remedy=f"the id of a message that this user received; or {_ANEW}",
        )
    return place


def _check_partition(after: Place, where: int) -> None:
    if after.partition != where:
        raise _gone(
            f"is of partition {after.partition}, where this user's messages are no more: "
            "inbox.partitions was changed"
        )


def _shown(topic_id: TopicId, user_id: str, user: bytes, one: Message) -> InboxMessage:
    sender = next((value for name, value in one.headers if name == _FROM), None)
    return InboxMessage(
        encode(Place(topic_id, one.partition, one.offset), user),
        _text(sender),
        user_id,
        _text(one.value),
        _moment(one.timestamp),
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _moment(timestamp_ms: int) -> str:
    seconds, ms = divmod(min(max(timestamp_ms, 0), _LAST_MS), 1_000)
    told = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1_000, tzinfo=None)
    return f"{told.isoformat(timespec='milliseconds')}Z"


def _gone(why: str) -> ProblemError:
    return refusal(
        410, "message-gone", f"last_message_id {why}", field="last_message_id", remedy=_ANEW
    )


def _too_large(topic: str, error: MessageTooLargeError) -> ProblemError:
    return refusal(
        413,
        "message-too-large",
        str(error),
        field="message",
        remedy=f"send a smaller one, or raise max.message.bytes of topic {topic}",
    )
