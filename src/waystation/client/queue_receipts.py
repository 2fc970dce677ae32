"""Messages that outlive the process that received them: held by a receipt, settled by anybody.

Kafka's protocol ends what a consumer holds with its connection, so that a command which receives a
message could never leave it to another command to acknowledge it.  Our brokers keep a session that
is opened with ``outlives_connection`` (a tagged field of ShareFetch, which others pass over) until
it is closed or its locks are over.  Each message is acquired in a session of its own, under a
member id that nobody else knows: a receipt names both, and whoever has it settles that message and
no other.

1. A receipt settles its message once, and not after its lock is over.
2. Whoever loses a receipt loses nothing: its message is delivered again when its lock is over.
"""

import asyncio
from random import Random
from types import TracebackType
from typing import NamedTuple, Self, Unpack

from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.coordinator import Coordinator
from waystation.client.errors import error_of
from waystation.client.message import Message
from waystation.client.metadata import TopicView
from waystation.client.queue_errors import NotHeldError, unknown_queue
from waystation.client.queue_member import Assignment, QueueMember
from waystation.client.queue_records import acquired_in
from waystation.client.queue_requests import Named, Place, acknowledge_request, fetched_in
from waystation.client.queue_settings import QueueOptions, ReceivingSettings, queue_settings
from waystation.client.router import Router
from waystation.client.transport import Connect, connect_tcp
from waystation.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from waystation.messages.share_fetch import (
    BY_LIMIT,
    CLOSE_SESSION,
    OPEN_SESSION,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from waystation.model.ids import NodeId, TopicPartition, uuid_text
from waystation.model.offsets import Millis, Offset
from waystation.runtime.chance import SeededChance
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import ACCEPT, REJECT, RELEASE, RENEW
from waystation.wire.versions import ApiKey

__all__ = ["HeldMessage", "Receipt", "Receipts"]

_TURN_MS = 200
_LOST = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
_NOT_HELD = "is not held by this receipt (any more): its lock is over, or it was settled already"


class Receipt(NamedTuple):
    """Names a message that is held; as text it can be kept anywhere."""

    partition: int
    offset: Offset
    renewals: int
    member_id: str

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}-{self.renewals}-{self.member_id}"

    @classmethod
    def of(cls, text: str) -> "Receipt":
        """Read what ``str`` has written."""
        parts = text.strip().split("-", 3)
        if len(parts) != 4 or not all(one.isdecimal() for one in parts[:3]) or not parts[3]:
            raise InvalidRequestError(
                f"{text!r} is no receipt: it is what `waystation queue receive --hold` prints"
            )
        return cls(int(parts[0]), Offset(int(parts[1])), int(parts[2]), parts[3])


class HeldMessage(NamedTuple):
    """A message, how often it was delivered, and what it is settled by."""

    message: Message
    deliveries: int
    receipt: Receipt
    lock_ms: int


class Receipts:
    """Receives messages of a queue and lets others settle them."""

    def __init__(
        self,
        name: str,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        group: str | None = None,
        connect: Connect = connect_tcp,
        chance: Random | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        self.name, self.group_id = name, name if group is None else group
        self._settings: ReceivingSettings
        self._settings, connection = queue_settings(options)
        self._router = Router(bootstrap, connection, connect=connect, chance=chance)

    async def __aenter__(self) -> Self:
        await self._router.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._router.close()

    # --- receiving ------------------------------------------------------------------------------

    async def hold(self, max_messages: int = 1, wait_ms: int = 1000) -> list[HeldMessage]:
        """Up to ``max_messages``; an empty list if none came in time."""
        await self._check_kept()
        await self._topic()
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1_000
        assigned: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()

        def take(assignment: Assignment) -> None:
            if any(assignment.values()) and not assigned.done():
                assigned.set_result(assignment)

        coordinator = Coordinator(self._router, self.group_id)
        member = QueueMember(
            self._router,
            coordinator,
            self.name,
            self._new_id(),
            self._settings.client_rack,
            take,
        )
        life = Tasks()
        joined = life.spawn(member.run(), f"queue-member {self.group_id}")
        try:
            await asyncio.wait((joined, assigned), return_when=asyncio.FIRST_COMPLETED)
            if joined.done():
                joined.result()
            return await self._held(await assigned, max_messages, ends_at)
        finally:
            await life.aclose()
            await member.leave()
            await coordinator.close()

    async def _held(
        self, assignment: Assignment, max_messages: int, ends_at: float
    ) -> list[HeldMessage]:
        loop = asyncio.get_running_loop()
        by_leader: dict[NodeId, list[Place]] = {}
        for topic_id, numbers in assignment.items():
            for number in numbers:
                leader = await self._router.leader_of(TopicPartition(self.name, number))
                by_leader.setdefault(leader, []).append((topic_id, number))
        found: list[HeldMessage] = []
        is_first = True
        while by_leader and (is_first or loop.time() < ends_at):
            is_first = False
            for leader, places in by_leader.items():
                while len(found) < max_messages:
                    left_ms = int((ends_at - loop.time()) * 1_000)
                    wait_ms = 0 if found else max(min(left_ms, _TURN_MS), 0)
                    one = await self._acquire(leader, places, wait_ms)
                    if one is None:
                        break
                    found.append(one)
            if found:
                break
        return found

    async def _acquire(
        self, leader: NodeId, places: list[Place], wait_ms: int
    ) -> HeldMessage | None:
        name = Named(self.group_id, self._new_id())
        topics: dict[object, FetchTopic] = {}
        for topic_id, number in places:
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
            topic.partitions.append(FetchPartition(partition_index=number))
        request = ShareFetchRequest(
            group_id=name.group_id,
            member_id=name.member_id,
            share_session_epoch=OPEN_SESSION,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._settings.fetch_max_bytes,
            max_records=1,
            batch_size=1,
            share_acquire_mode=BY_LIMIT,
            topics=list(topics.values()),
            outlives_connection=True,
        )
        told = await self._router.ask(self._router.to_node(leader), request, ShareFetchResponse)
        if told.error_code:
            raise error_of(told.error_code, f"queue {self.name}", told.error_message)
        held = self._held_in(told, name.member_id)
        if held is None:
            # It holds nothing, or only a gap, which the next consumer finds as well.
            await self._ask(leader, acknowledge_request(name, CLOSE_SESSION, {}, {}))
        return held

    def _held_in(self, told: ShareFetchResponse, member_id: str) -> HeldMessage | None:
        for (_, number), one in fetched_in(told).items():
            if one.error_code:
                where = TopicPartition(self.name, number)
                raise error_of(one.error_code, f"partition {where}", one.error_message)
            if not one.acquired_records:
                continue
            assert isinstance(one.records, memoryview), f"records came as {type(one.records)}"
            limit_bytes = self._settings.batch_limit_bytes
            found = acquired_in(one.records, one.acquired_records, limit_bytes)
            for (offset, at, key, value, headers), deliveries in found.rows:
                message = Message(
                    key, value, self.name, number, Offset(offset), Millis(at), headers
                )
                receipt = Receipt(number, Offset(offset), 0, member_id)
                return HeldMessage(message, deliveries, receipt, told.acquisition_lock_timeout_ms)
        return None

    # --- settling -------------------------------------------------------------------------------

    async def ack(self, receipt: Receipt) -> None:
        """Settle a message for good; ``NotHeldError`` if it is not held any more."""
        await self._end(receipt, ACCEPT)

    async def nack(self, receipt: Receipt, *, requeue: bool = True) -> None:
        """Give a message back, or with ``requeue=False`` up."""
        await self._end(receipt, RELEASE if requeue else REJECT)

    async def extend(self, receipt: Receipt) -> Receipt:
        """Let the lock begin anew; the receipt to use from then on."""
        await self._tell(receipt, receipt.renewals + 1, RENEW)
        return receipt._replace(renewals=receipt.renewals + 1)

    async def _end(self, receipt: Receipt, kind: int) -> None:
        """A session holds one message: what settles it also closes the session."""
        await self._tell(receipt, CLOSE_SESSION, kind)

    async def _tell(self, receipt: Receipt, epoch: int, kind: int) -> None:
        view = await self._topic()
        where = TopicPartition(self.name, receipt.partition)
        leader = await self._router.leader_of(where)
        request = acknowledge_request(
            Named(self.group_id, receipt.member_id),
            epoch,
            {where: {receipt.offset: kind}},
            {(view.id, receipt.partition): where},
        )
        told = await self._ask(leader, request)
        codes = [told.error_code]
        codes += [one.error_code for topic in told.responses for one in topic.partitions]
        if any(code in _LOST for code in codes):
            raise NotHeldError([(where, receipt.offset, _NOT_HELD)])
        for code in codes:
            if code:
                raise error_of(code, f"partition {where}")

    async def _ask(
        self, leader: NodeId, request: ShareAcknowledgeRequest
    ) -> ShareAcknowledgeResponse:
        to = self._router.to_node(leader)
        return await self._router.ask(to, request, ShareAcknowledgeResponse)

    # --- parts ----------------------------------------------------------------------------------

    async def _topic(self) -> TopicView:
        try:
            return await self._router.topic(self.name)
        except UnknownTopicError:
            raise unknown_queue(self.name) from None

    async def _check_kept(self) -> None:
        """Raise unless the brokers are ours: others would end the sessions behind our back."""
        connection = await self._router.to_any()
        if not connection.speaks(ApiKey.CLUSTER_STATUS):
            raise UnsupportedVersionError(
                f"the broker at {connection.address} is not Waystation's, and would take messages "
                "back when this command ends: receive without holding"
            )

    def _new_id(self) -> str:
        return uuid_text(SeededChance(self._router.chance.getrandbits(128)).new_id())
