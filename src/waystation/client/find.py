"""Finds the messages of one key among all others of a topic, by its index of keys.

The topic must have one (``index.keys=true``).  A key's messages lie in one partition, where its
leader finds them without going through the log.  Promises:

1. what is found is what a consumer of committed messages would see, in the same order, and no
   message of another key;
2. a lost broker or a new leader costs time, never a message;
3. a page is of one topic: one that was made anew under the name begins again at offset 0, so that
   whoever goes on says of which topic (``topic_id``), and is told if that is gone.

A topic that got more partitions since has older messages of a key elsewhere: name the ``partition``
to look there.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from waystation.client.errors import error_of
from waystation.client.message import Message
from waystation.client.partitioner import partition_of_key
from waystation.client.raw import TopicRecreatedError
from waystation.client.router import Router
from waystation.messages.find_messages import FindMessagesRequest, FindMessagesResponse
from waystation.model.ids import NO_TOPIC_ID, TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["Finder", "FoundPage"]

_PAGE: Final = 250
"""What is asked for at once: what a turn of the loop is enough for, here and at the broker."""
_PAGE_BYTES: Final = 1 << 20
_WAIT_MAX_MS: Final = 30_000


class FoundPage(NamedTuple):
    """All messages of the key in ``[offset, next_offset)`` of a partition."""

    messages: list[Message]
    partition: int
    next_offset: Offset
    """Where to go on."""
    complete: bool
    """Whether there were no others yet when this was answered."""
    end: Offset
    """Where what could be read ended."""
    topic_id: TopicId
    """Whose offsets these are."""


class Finder:
    """Searches one topic; ``Admin.finder(topic)`` makes one."""

    def __init__(self, router: Router, topic: str) -> None:
        self._router = router
        self.topic = topic

    async def partition_of(self, key: bytes | str) -> int:
        """Where messages of the key are sent, as every Kafka client decides it."""

        async def attempt() -> int:
            topic = await self._router.topic(self.topic)
            return partition_of_key(_bytes(key), len(topic.partitions))

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    async def page(
        self,
        key: bytes | str,
        *,
        offset: int = 0,
        limit: int = 100,
        max_bytes: int = _PAGE_BYTES,
        wait_ms: int = 0,
        partition: int | None = None,
        topic_id: TopicId = NO_TOPIC_ID,
        busy_ms: int | None = None,
    ) -> FoundPage:
        """Up to ``limit`` messages from ``offset`` on; waits for the first for ``wait_ms``.

        They take about ``max_bytes`` at most, unless one alone takes more.  If ``topic_id`` is
        given and the topic has another one, ``TopicRecreatedError``.  After ``busy_ms`` without
        any the page ends where it has come to: an index that is being built takes its time.
        """
        where = await self.partition_of(key) if partition is None else partition
        loop = asyncio.get_running_loop()
        began_s, at, asked_for = loop.time(), offset, topic_id
        found: list[Message] = []
        waited_ms = 0
        while True:
            topic_id = await self._same(topic_id)
            request = FindMessagesRequest(
                topic=self.topic,
                partition=where,
                key=_bytes(key),
                offset=at,
                limit=min(limit - len(found), _PAGE),
                max_bytes=max_bytes,
                max_wait_ms=0 if found else min(max(wait_ms - waited_ms, 0), self._wait_max_ms),
                topic_id=topic_id,
            )
            told = await self._ask(request)
            if told is None:
                topic_id, at, found = asked_for, offset, []
                continue
            more = self._messages(request, told)
            max_bytes -= sum(one.size for one in more)
            found += more
            at, complete = max(at, told.next_offset), told.next_offset >= told.end
            waited_ms = int((loop.time() - began_s) * 1_000)
            goes_on = len(more) == request.limit and len(found) < limit and max_bytes > 0
            over = complete and waited_ms >= wait_ms
            tired = not complete and busy_ms is not None and waited_ms >= busy_ms
            if over or tired or (found and not goes_on):
                return FoundPage(found, where, Offset(at), complete, Offset(told.end), topic_id)

    async def find(
        self,
        key: bytes | str,
        *,
        offset: int = 0,
        limit: int | None = None,
        wait_ms: int = 0,
        partition: int | None = None,
    ) -> AsyncIterator[Message]:
        """All messages of the key, page by page as they are asked for.

        Ends once there was nothing new for ``wait_ms``.
        """
        where = await self.partition_of(key) if partition is None else partition
        given, at, complete, topic_id = 0, offset, False, NO_TOPIC_ID
        while limit is None or given < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - given)
            page = await self.page(
                key,
                offset=at,
                limit=size,
                wait_ms=wait_ms if complete else 0,
                partition=where,
                topic_id=topic_id,
            )
            for message in page.messages:
                given += 1
                yield message
            if not page.messages and page.complete and (complete or not wait_ms):
                return
            at, complete, topic_id = page.next_offset, page.complete, page.topic_id

    @property
    def _wait_max_ms(self) -> int:
        """An answer must come before a request counts as lost."""
        return min(_WAIT_MAX_MS, self._router.settings.request_timeout_ms // 2)

    async def _same(self, topic_id: TopicId) -> TopicId:
        """The topic's id, which must be ``topic_id`` if that is known already."""
        topic = await self._router.topic(self.topic)
        if topic_id in (NO_TOPIC_ID, topic.id):
            return topic.id
        await self._router.refresh()  # what is known here may be older
        topic = await self._router.topic(self.topic)
        if topic_id != topic.id:
            raise TopicRecreatedError(self.topic)
        return topic_id

    async def _ask(self, request: FindMessagesRequest) -> FindMessagesResponse | None:
        """What the leader answers; nothing if the name is another topic's by now."""
        where = TopicPartition(self.topic, request.partition)

        async def attempt() -> FindMessagesResponse | None:
            leader = await self._router.leader_of(where)
            if self._router.view.topics[self.topic].id != request.topic_id:
                return None
            to = self._router.to_node(leader, held=request.max_wait_ms > 0)
            told = await self._router.ask(to, request, FindMessagesResponse)
            if told.error_code:
                raise error_of(told.error_code, str(where), told.error_message)
            return told

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    def _messages(self, asked: FindMessagesRequest, told: FindMessagesResponse) -> list[Message]:
        return [
            Message(
                asked.key,
                one.value,
                self.topic,
                asked.partition,
                Offset(one.offset),
                Millis(one.timestamp_ms),
                tuple((header.name, header.value) for header in one.headers),
            )
            for one in told.messages
        ]


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key
