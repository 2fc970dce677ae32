"""Acquires messages of a queue under receipts, one request to one leader at a time.

Each request has a member id that nobody else knows: it is what the receipts are made of.  Beside
them there is one session with each leader, which never fetches anything: a leader loads a queue for
those who have sessions, and forgets it after them, so that it is not loaded for each message.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from waystation.client.connection import Connection
from waystation.client.errors import error_of
from waystation.client.message import Message
from waystation.client.queue_records import acquired_in
from waystation.client.queue_requests import (
    Named,
    Place,
    acknowledge_request,
    fetched_in,
    where_leaders_are,
)
from waystation.client.queue_settings import ReceivingSettings
from waystation.client.receipt_descriptions import HeldMessage, Receipt
from waystation.client.receipt_settling import ReceiptSettling
from waystation.client.router import Router
from waystation.messages.queue_status import QueueStatusRequest, QueueStatusResponse
from waystation.messages.share_acknowledge import ShareAcknowledgeResponse
from waystation.messages.share_fetch import (
    BY_LIMIT,
    CLOSE_SESSION,
    OPEN_SESSION,
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId, TopicId, TopicPartition, uuid_text
from waystation.model.offsets import Millis, Offset
from waystation.runtime.chance import SeededChance
from waystation.sharing.states import GAP, RELEASE

__all__ = ["Acquiring"]

_LOADED_WITHIN_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.01
_LATE_S: Final = 5.0
_CLOSING_S: Final = 1.0


class Acquiring:
    """The leaders of one queue, and messages from them."""

    def __init__(
        self,
        router: Router,
        settings: ReceivingSettings,
        topic: str,
        group_id: str,
        settling: ReceiptSettling,
    ) -> None:
        self._router, self._settings = router, settings
        self._topic, self._group_id = topic, group_id
        self._settling = settling
        self._name = Named(group_id, self._new_id())
        self._turn = 0
        self._polled: dict[NodeId, Connection] = {}
        self._stopped: set[NodeId] = set()
        """Leaders that are not to be asked after all, since ``acquire`` began."""
        self._sessions: dict[NodeId, tuple[Connection, tuple[Place, ...]]] = {}

    async def leaders(self) -> dict[NodeId, list[Place]]:
        """Which partitions each leader has; those that nobody leads are left out."""
        topic = await self._router.topic(self._topic)
        found: dict[NodeId, list[Place]] = {}
        for one in topic.partitions:
            leader = self._router.view.leader(TopicPartition(self._topic, one.partition))
            if leader is None:
                self._router.want_refresh()
                continue
            found.setdefault(leader, []).append((topic.id, one.partition))
        return found

    async def acquire(
        self, leader: NodeId, places: Sequence[Place], most: int, wait_ms: int = 0
    ) -> list[HeldMessage]:
        """Up to ``most`` messages; waits at the leader for the first of them."""
        if wait_ms:
            self._stopped.discard(leader)
        session = self._sessions.get(leader)
        connection = await self._router.to_node(leader)
        if session is None or session[0] is not connection or session[1] != tuple(places):
            await self._open(leader, connection, places)
        return await self._ask(leader, places, most, wait_ms)

    def give_up(self, leader: NodeId) -> None:
        """Let a leader stop waiting: its broker drops what is asked over a connection that ends."""
        connection = self._polled.get(leader)
        if connection is None:
            self._stopped.add(leader)
        else:
            connection.close()

    async def close(self) -> None:
        """End the sessions, so that queues are forgotten; receipts do not depend on them."""
        closing = acknowledge_request(self._name, CLOSE_SESSION, {}, {})
        for connection, _ in self._sessions.values():
            with suppress(WaystationError):
                await connection.ask(closing, ShareAcknowledgeResponse, _CLOSING_S)

    async def _open(self, leader: NodeId, connection: Connection, places: Sequence[Place]) -> None:
        """Open a session that reads these partitions, and wait until they are loaded."""
        request = ShareFetchRequest(
            group_id=self._name.group_id,
            member_id=self._name.member_id,
            share_session_epoch=OPEN_SESSION,
            topics=_topics(places),
        )
        timeout_s = self._router.settings.request_timeout_ms / 1_000
        told = await connection.ask(request, ShareFetchResponse, timeout_s)
        if told.error_code:
            raise error_of(told.error_code, f"queue {self._topic}", told.error_message)
        self._sessions[leader] = connection, tuple(places)
        await self._loaded(connection, places)

    async def _ask(
        self, leader: NodeId, places: Sequence[Place], most: int, wait_ms: int
    ) -> list[HeldMessage]:
        member_id = self._new_id()
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=member_id,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._settings.fetch_max_bytes,
            max_records=most,
            batch_size=most,
            share_acquire_mode=BY_LIMIT,
            topics=_topics(self._in_turn(places)),
            by_receipt=True,
        )
        connection = await self._router.to_node(leader, held=wait_ms > 0)
        timeout_s = self._router.settings.request_timeout_ms / 1_000
        if wait_ms:
            if leader in self._stopped:
                return []
            timeout_s = min(timeout_s, wait_ms / 1_000 + _LATE_S)
            self._polled[leader] = connection
        try:
            told = await connection.ask(request, ShareFetchResponse, timeout_s)
        finally:
            if wait_ms:
                del self._polled[leader]
        if told.error_code:
            raise error_of(told.error_code, f"queue {self._topic}", told.error_message)
        return await self._held_in(leader, told, member_id)

    def _in_turn(self, places: Sequence[Place]) -> Sequence[Place]:
        """Each time another partition comes first: none is left out while others have messages."""
        self._turn += 1
        first = self._turn % len(places)
        return [*places[first:], *places[:first]]

    async def _held_in(
        self, leader: NodeId, told: ShareFetchResponse, member_id: str
    ) -> list[HeldMessage]:
        """What came; an error of a partition counts only if no other gave anything."""
        found: list[HeldMessage] = []
        trouble: WaystationError | None = None
        for (_, number), one in fetched_in(told).items():
            where = TopicPartition(self._topic, number)
            if one.error_code:
                trouble = error_of(one.error_code, f"partition {where}", one.error_message)
                self._strayed(leader, where, one, told)
            elif one.acquired_records:
                found += await self._taken(where, one, member_id, told.acquisition_lock_timeout_ms)
        if trouble is not None and not found:
            raise trouble
        return found

    async def _taken(
        self, where: TopicPartition, told: PartitionData, member_id: str, lock_ms: int
    ) -> list[HeldMessage]:
        assert isinstance(told.records, memoryview), f"records came as {type(told.records)}"
        limit_bytes = self._settings.batch_limit_bytes
        found = acquired_in(told.records, told.acquired_records, limit_bytes)
        for offsets, kind in ((found.gaps, GAP), (found.corrupt, RELEASE)):
            if offsets:
                # What is not told is found by the next consumer as well, once its lock is over.
                with suppress(WaystationError):
                    await self._settling.settle(
                        [Receipt(where.partition, Offset(one), member_id) for one in offsets], kind
                    )
        return [
            HeldMessage(
                Message(key, value, *where, Offset(offset), Millis(at), headers),
                deliveries,
                Receipt(where.partition, Offset(offset), member_id),
                lock_ms,
            )
            for (offset, at, key, value, headers), deliveries in found.rows
        ]

    def _strayed(
        self, leader: NodeId, where: TopicPartition, one: PartitionData, told: ShareFetchResponse
    ) -> None:
        self._sessions.pop(leader, None)
        named = one.current_leader.leader_id, one.current_leader.leader_epoch
        hint = named if named[0] >= 0 else None
        self._router.strayed(where, leader, hint, where_leaders_are(told))

    async def _loaded(self, connection: Connection, places: Sequence[Place]) -> None:
        """Wait until the leader knows how its queues stand."""
        request = QueueStatusRequest(
            group_id=self._group_id,
            topic_id=places[0][0],
            partitions=[number for _, number in places],
        )
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _LOADED_WITHIN_S
        while loop.time() < ends_at:
            told = await connection.ask(request, QueueStatusResponse, _LOADED_WITHIN_S)
            if all(one.in_use or one.error_code for one in told.partitions):
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _new_id(self) -> str:
        return uuid_text(SeededChance(self._router.chance.getrandbits(128)).new_id())


def _topics(places: Sequence[Place]) -> list[FetchTopic]:
    topics: dict[TopicId, FetchTopic] = {}
    for topic_id, number in places:
        topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
        topic.partitions.append(FetchPartition(partition_index=number))
    return list(topics.values())
