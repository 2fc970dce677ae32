"""The inbox in Python: messages from user to user, as ``POST /send`` and ``GET /receive``.

It is the same inbox, kept in the same topic under the same ids, whichever way it is used:

1. a message whose id was returned is kept as ``acks=all`` asks;
2. a user gets its own messages, each once, in the order they were kept, and ``after`` an id all
   that came behind it and are still there;
3. an id is unique, and stays what it is across restarts and new leaders.

Which topic it is, and over how many partitions users are spread, the brokers say (``inbox.topic``,
``inbox.partitions``).  If it is deleted meanwhile, calls wait ``metadata_timeout_ms`` for it to
come back, as for every topic.  What an id is made of is in ``inbox_ids.py``.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self, Unpack

from waystation.client.admin import Admin
from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.errors import BrokerError, BrokerUnreachableError
from waystation.client.find import FoundPage
from waystation.client.inbox_ids import NotAnIdError, Place, decode, encode
from waystation.client.message import Message
from waystation.client.options import ConnectionOptions
from waystation.client.partitioner import partition_of_key
from waystation.client.producer import Producer
from waystation.client.raw import TopicRecreatedError
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
    WaystationError,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId
from waystation.model.offsets import Millis

__all__ = ["Inbox", "InboxMessage", "MessageGoneError"]

_FROM: Final = "from_user"
_CONFIG: Final = {"index.keys": "true", "cleanup.policy": "delete"}
_LONGEST_NAME: Final = 256


class MessageGoneError(WaystationError):
    """What came behind an id is not known any more: ask without one, and take what is there."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class InboxMessage(NamedTuple):
    """A message to a user; ``None`` is what one that was not sent by an inbox does not say."""

    message_id: str
    from_user: str | None
    to_user: str
    message: str | None
    timestamp: Millis
    """Milliseconds since 1970."""


class _Topic(NamedTuple):
    name: str
    partitions: int


class Inbox:
    """Sends and receives for any user; use it as ``async with Inbox(...) as inbox``."""

    def __init__(
        self, bootstrap: str = DEFAULT_BOOTSTRAP, **options: Unpack[ConnectionOptions]
    ) -> None:
        self._bootstrap, self._options = bootstrap, options
        self._admin = Admin(bootstrap, **options)
        self._producer = Producer(bootstrap, create_topics=False, linger_ms=0, **options)
        self._waiters: list[Admin] = []
        self._topic: _Topic | None = None
        self._looking = asyncio.Lock()

    async def start(self) -> Self:
        """Find the cluster."""
        await self._admin.start()
        await self._producer.start()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; what was sent and returned is kept."""
        await self._producer.close()
        for admin in (self._admin, *self._waiters):
            await admin.close()

    async def send(self, from_user: str, to_user: str, message: str) -> str:
        """Keep ``message`` for ``to_user``; its id is returned once it is kept."""
        user, sender = _name(to_user, "to_user"), _name(from_user, "from_user")
        try:
            return await self._sent(user, sender, message)
        except (UnknownTopicError, UnknownTopicIdError):
            # Deleted since it was looked at, so that nothing was stored: the next one takes it.
            self._topic = None
            return await self._sent(user, sender, message)

    async def receive(
        self, user_id: str, *, after: str | None = None, limit: int = 100, wait_ms: int = 0
    ) -> list[InboxMessage]:
        """The next messages of ``user_id``, behind the one with the id ``after``.

        Waits for the first for ``wait_ms``, over a connection that other calls do not use.
        """
        user = _name(user_id, "user_id")
        place = _place(after, user)
        topic = await self._ready()
        where = partition_of_key(user, topic.partitions)
        if place is not None and place.partition != where:
            raise _gone(after, "inbox.partitions was changed since")
        try:
            page = await self._page(self._admin, topic, user, where, place, limit, 0)
            if not page.messages and wait_ms:
                page = await self._waited(topic, user, where, page, limit, wait_ms)
        except (TopicRecreatedError, UnknownTopicError, UnknownTopicIdError):
            self._topic = None
            if place is None:
                return []  # deleted meanwhile, and with it all there was
            raise _gone(after, "it is of another inbox, or of one that was deleted") from None
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            raise _gone(after, "the message was lost: the log ends before it") from None
        return [_shown(one, page.topic_id, user_id, user) for one in page.messages]

    async def _sent(self, user: bytes, sender: bytes, message: str) -> str:
        topic = await self._ready()
        told = await self._producer.send(
            topic.name,
            message,
            key=user,
            headers=((_FROM, sender),),
            partition=partition_of_key(user, topic.partitions),
        )
        return encode(Place(told.topic_id, told.partition, told.offset), user)

    async def _page(
        self,
        admin: Admin,
        topic: _Topic,
        user: bytes,
        where: int,
        place: Place | None,
        limit: int,
        wait_ms: int,
    ) -> FoundPage:
        begin, topic_id = (0, NO_TOPIC_ID) if place is None else (place.offset + 1, place.topic_id)
        return await admin.finder(topic.name).page(
            user,
            offset=begin,
            limit=limit,
            wait_ms=wait_ms,
            partition=where,
            topic_id=TopicId(topic_id),
        )

    async def _waited(
        self, topic: _Topic, user: bytes, where: int, page: FoundPage, limit: int, wait_ms: int
    ) -> FoundPage:
        """Answers of one connection come in order: who waits has one of its own meanwhile."""
        if self._waiters:
            admin = self._waiters.pop()
        else:
            admin = await Admin(self._bootstrap, **self._options).start()
        place = Place(page.topic_id, where, page.next_offset - 1)
        try:
            found = await self._page(admin, topic, user, where, place, limit, wait_ms)
        except BaseException:
            # Behind a request that is still held the next one would wait.
            await admin.close()
            raise
        self._waiters.append(admin)
        return found

    # --- the topic ------------------------------------------------------------------------------

    async def _ready(self) -> _Topic:
        """The topic, made if there is none."""
        if self._topic is not None:
            return self._topic
        async with self._looking:
            topic = await self._asked()
            try:
                there = len((await self._admin.describe_topic(topic.name)).partitions)
            except UnknownTopicError:
                with suppress(TopicExistsError):  # somebody else was quicker
                    await self._admin.create_topic(topic.name, topic.partitions, configs=_CONFIG)
                there = topic.partitions
            if there < topic.partitions:
                raise InvalidRequestError(
                    f"topic {topic.name} has {there} partitions, the inbox uses "
                    f"{topic.partitions}: set inbox.partitions or inbox.topic of the brokers"
                )
            self._topic = topic
            return topic

    async def _asked(self) -> _Topic:
        """What the brokers call the inbox; any of them knows."""
        failed: WaystationError | None = None
        for broker in (await self._admin.describe_cluster()).brokers:
            try:
                options = await self._admin.describe_configs(broker=broker.node)
            except BrokerUnreachableError as error:
                failed = error
                continue
            if "inbox.topic" in options:
                name, count = options["inbox.topic"].value, options["inbox.partitions"].value
                return _Topic(name or "", int(count or 0))
        raise failed or InvalidRequestError("these brokers have no inbox: Waystation's do")


def _name(user: str, field: str) -> bytes:
    if not 1 <= len(user) <= _LONGEST_NAME:
        raise InvalidRequestError(
            f"{field} has {len(user)} characters: users have names of 1 to {_LONGEST_NAME}"
        )
    return user.encode()


def _place(after: str | None, user: bytes) -> Place | None:
    if not after:
        return None
    try:
        place, is_users = decode(after, user)
    except NotAnIdError as error:
        raise InvalidRequestError(f"{after!r} is not the id of a message: {error}") from None
    if not is_users:
        raise InvalidRequestError(f"{after!r} is the id of a message to another user")
    return place


def _gone(after: str | None, why: str) -> MessageGoneError:
    return MessageGoneError(f"nobody knows what came behind {after}: {why}; ask without an id")


def _shown(one: Message, topic_id: TopicId, user_id: str, user: bytes) -> InboxMessage:
    sender = next((value for name, value in one.headers if name == _FROM), None)
    return InboxMessage(
        encode(Place(topic_id, one.partition, one.offset), user),
        _text(sender),
        user_id,
        _text(one.value),
        one.timestamp,
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")
