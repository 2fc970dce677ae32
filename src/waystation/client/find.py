"""Finds the messages of one key among all others of a topic, by its index of keys.

The topic must have one (``index.keys=true``).  A key's messages lie in one partition, where its
leader finds them without going through the log.  Promises:

1. what is found is what a consumer of committed messages would see, in the same order, and no
   message of another key;
2. a lost broker or a new leader costs time, never a message.

A topic that got more partitions since has older messages of a key elsewhere: name the ``partition``
to look there.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from waystation.client.errors import error_of
from waystation.client.message import Message
from waystation.client.partitioner import partition_of_key
from waystation.client.router import Router
from waystation.messages.find_messages import FindMessagesRequest, FindMessagesResponse
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = ["Finder", "FoundPage"]

_PAGE: Final = 500
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
        wait_ms: int = 0,
        partition: int | None = None,
    ) -> FoundPage:
        """Up to ``limit`` messages from ``offset`` on; waits for the first for ``wait_ms``."""
        where = await self.partition_of(key) if partition is None else partition
        loop = asyncio.get_running_loop()
        deadline, at = loop.time() + wait_ms / 1_000, offset
        while True:
            left_ms = max(int((deadline - loop.time()) * 1_000), 0)
            told = await self._ask(where, _bytes(key), at, limit, min(left_ms, self._wait_max_ms))
            complete = told.next_offset >= told.end
            if told.messages or (complete and loop.time() >= deadline):
                return FoundPage(
                    self._messages(_bytes(key), where, told),
                    where,
                    Offset(told.next_offset),
                    complete,
                    Offset(told.end),
                )
            at = max(at, told.next_offset)

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
        given, at, complete = 0, offset, False
        while limit is None or given < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - given)
            page = await self.page(
                key, offset=at, limit=size, wait_ms=wait_ms if complete else 0, partition=where
            )
            for message in page.messages:
                given += 1
                yield message
            if not page.messages and page.complete and (complete or not wait_ms):
                return
            at, complete = page.next_offset, page.complete

    @property
    def _wait_max_ms(self) -> int:
        """An answer must come before a request counts as lost."""
        return min(_WAIT_MAX_MS, self._router.settings.request_timeout_ms // 2)

    async def _ask(
        self, partition: int, key: bytes, offset: int, limit: int, wait_ms: int
    ) -> FindMessagesResponse:
        request = FindMessagesRequest(
            topic=self.topic,
            partition=partition,
            key=key,
            offset=offset,
            limit=limit,
            max_wait_ms=wait_ms,
        )

        async def attempt() -> FindMessagesResponse:
            where = TopicPartition(self.topic, partition)
            leader = await self._router.leader_of(where)
            to = self._router.to_node(leader, held=wait_ms > 0)
            told = await self._router.ask(to, request, FindMessagesResponse)
            if told.error_code:
                raise error_of(told.error_code, str(where), told.error_message)
            return told

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    def _messages(self, key: bytes, partition: int, told: FindMessagesResponse) -> list[Message]:
        return [
            Message(
                key,
                one.value,
                self.topic,
                partition,
                Offset(one.offset),
                Millis(one.timestamp_ms),
                tuple((header.name, header.value) for header in one.headers),
            )
            for one in told.messages
        ]


def _bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key
