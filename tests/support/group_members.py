"""Members of groups as their coordinator sees them: hundreds on one loop, of either protocol.

Real clients cost a thread and megabytes each.  These speak JoinGroup and its kin, or
ConsumerGroupHeartbeat, and read no records.  Like real ones they stop owning partitions before
they say so, and own them only after they were told; ``Owners`` therefore may complain whenever a
partition has two owners.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from uuid import UUID, uuid4

from tests.support.plain_client import answered, framed
from waystation.messages.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from waystation.messages.heartbeat import HeartbeatRequest
from waystation.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from waystation.messages.leave_group import LeaveGroupRequest, MemberIdentity
from waystation.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from waystation.model.errors import ErrorCode
from waystation.wire.message import Message

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
SERVER_SIDE_VERSION = 1
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"

Partition = tuple[str, int]

_LENGTH = struct.Struct(">i")
_AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
_AGAIN_AFTER_S = 0.1
_LOOK_EVERY_S = 0.005


class Owners:
    """Who owns which partition at this moment, by what the members themselves say."""

    def __init__(self) -> None:
        self.now: dict[Partition, str] = {}
        self.given_up = 0
        self.conflicts: list[str] = []

    def take(self, member: str, partitions: Iterable[Partition]) -> None:
        """``member`` begins to own partitions."""
        for one in partitions:
            before = self.now.get(one)
            if before is not None:
                self.conflicts.append(f"{one} belongs to {before} and to {member}")
            self.now[one] = member

    def give_up(self, member: str, partitions: Iterable[Partition]) -> None:
        """``member`` owns them no more."""
        for one in partitions:
            if self.now.get(one) == member:
                del self.now[one]
                self.given_up += 1


class Line:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, bootstrap: str) -> Self:
        """A new connection."""
        host, _, port = bootstrap.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: Message, version: int) -> Any:
        """The reply to one request."""
        self._writer.write(framed(request, version))
        (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        return answered(request, version, await self._reader.readexactly(length))

    def hang_up(self) -> None:
        """Close it, whatever is under way."""
        self._writer.close()


class Member:
    """What both kinds share: a connection, a task that lives a member's life, and an end."""

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        topics: Mapping[str, tuple[UUID, int]],
        owners: Owners,
        *,
        heartbeat_s: float = 1.0,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        session_timeout_ms: int = 45_000,
    ) -> None:
        """``topics`` are the subscribed ones, with their ids and how many partitions each has."""
        self.group_id, self.topics = group_id, topics
        self.member_id = ""
        self.epoch = 0
        """The generation or the member's epoch; 0 until there is one."""
        self.owned: frozenset[Partition] = frozenset()
        self.joined_times = 0
        self._bootstrap, self._owners = bootstrap, owners
        self._name = f"member-{uuid4()}"
        self._heartbeat_s = heartbeat_s
        self._instance_id = instance_id
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._session_timeout_ms = session_timeout_ms
        self._line: Line | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, after_s: float = 0.0) -> None:
        """Begin to join, now or a little later."""
        self._task = asyncio.create_task(self._live(after_s))

    async def close(self) -> None:
        """Leave the group, as a consumer does that is closed."""
        await self._stop()
        self._hang_up()  # the answer to what was under way is for nobody
        self._own(frozenset())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self.member_id:
                await self._leave()
        self._hang_up()

    async def kill(self) -> None:
        """Be gone without a word; what it owned is owned until the coordinator misses it."""
        await self._stop()
        self._hang_up()
        self._own(frozenset())

    def check(self) -> None:
        """Raise what ended the member's life early, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _live(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while True:
            try:
                await self._take_part()
            except (OSError, asyncio.IncompleteReadError):
                self._hang_up()  # the broker is away: it will be back
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _take_part(self) -> None:
        raise NotImplementedError

    async def _leave(self) -> None:
        raise NotImplementedError

    async def _ask(self, request: Message, version: int) -> Any:
        """The reply, once there is a coordinator."""
        while True:
            if self._line is None:
                self._line = await Line.to(self._bootstrap)
            answer = await self._line.ask(request, version)
            if answer.error_code not in _AGAIN:
                return answer
            await asyncio.sleep(_AGAIN_AFTER_S)

    def _own(self, partitions: frozenset[Partition]) -> bool:
        """Give up what is not in ``partitions``, take what is new; whether anything changed."""
        lost, won = self.owned - partitions, partitions - self.owned
        self._owners.give_up(self._name, lost)
        self._owners.take(self._name, won)
        self.owned = partitions
        return bool(lost or won)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.hang_up()
            self._line = None


class ClassicMember(Member):
    """Speaks the classic protocol, eagerly: gives up everything before it joins again."""

    async def _take_part(self) -> None:
        if self.epoch or await self._join():
            await self._beat()
            self.epoch = 0

    async def _join(self) -> bool:
        """One attempt to be in the next generation; true if it was."""
        self._own(frozenset())
        joined = await self._ask(self._join_request(), JOIN_VERSION)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.error_code:
            self._forget_unless_rebalancing(joined.error_code)
            return False
        self.member_id = joined.member_id
        shared = [] if joined.leader != joined.member_id else self._share_out(joined.members)
        synced = await self._ask(self._sync_request(joined.generation_id, shared), SYNC_VERSION)
        if synced.error_code:
            self._forget_unless_rebalancing(synced.error_code)
            return False
        self._own(frozenset(read_assignment(synced.assignment)))
        self.epoch = joined.generation_id
        self.joined_times += 1
        return True

    async def _beat(self) -> None:
        """Heartbeats, until one is answered with anything but all's well."""
        while True:
            await asyncio.sleep(self._heartbeat_s)
            beat = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
            )
            answer = await self._ask(beat, HEARTBEAT_VERSION)
            if answer.error_code:
                self._forget_unless_rebalancing(answer.error_code)
                return

    async def _leave(self) -> None:
        who = MemberIdentity(member_id=self.member_id, group_instance_id=self._instance_id)
        await self._ask(LeaveGroupRequest(group_id=self.group_id, members=[who]), LEAVE_VERSION)

    def _forget_unless_rebalancing(self, code: int) -> None:
        match code:
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                pass
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            case _:
                raise AssertionError(f"{self._name} was told {ErrorCode(code).name}")

    def _join_request(self) -> JoinGroupRequest:
        subscription = written_subscription(self.topics)
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
        )

    def _sync_request(
        self, generation: int, shared: list[SyncGroupRequestAssignment]
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=shared,
        )

    def _share_out(self, members: Iterable[Any]) -> list[SyncGroupRequestAssignment]:
        """Every partition in turn to the next member, by their ids."""
        ids = sorted(one.member_id for one in members)
        shares: dict[str, list[Partition]] = {one: [] for one in ids}
        partitions = all_partitions(self.topics)
        for number, partition in enumerate(sorted(partitions)):
            shares[ids[number % len(ids)]].append(partition)
        return [
            SyncGroupRequestAssignment(member_id=one, assignment=written_assignment(share))
            for one, share in shares.items()
        ]


class ServerSideMember(Member):
    """Speaks the server-side protocol: gives up only what it is told to, and acknowledges it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.member_id = str(uuid4())
        self._names = {topic_id: name for name, (topic_id, _) in self.topics.items()}

    async def _take_part(self) -> None:
        self.joined_times += not self.epoch
        answer = await self._ask(self._whole_request(), SERVER_SIDE_VERSION)
        while not answer.error_code:
            self.epoch = answer.member_epoch
            self._heartbeat_s = answer.heartbeat_interval_ms / 1_000
            has_news = answer.assignment is not None and self._own(self._partitions_of(answer))
            if not has_news:
                await asyncio.sleep(self._heartbeat_s)
            answer = await self._ask(self._beat_request(told=has_news), SERVER_SIDE_VERSION)
        match answer.error_code:
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self.epoch = 0
                self._own(frozenset())
            case code:
                said = f"{ErrorCode(code).name}: {answer.error_message}"
                raise AssertionError(f"{self._name} was told {said}")

    async def _leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE
        )
        await self._ask(request, SERVER_SIDE_VERSION)

    def _whole_request(self) -> ConsumerGroupHeartbeatRequest:
        """What joins, or says everything again: only then is the whole assignment told again."""
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch or JOIN,
            instance_id=self._instance_id,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            subscribed_topic_names=list(self.topics),
            topic_partitions=self._owned_by_topic(),
        )

    def _beat_request(self, *, told: bool) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=self._owned_by_topic() if told else None,
        )

    def _owned_by_topic(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        return [
            TopicPartitions(topic_id=self.topics[name][0], partitions=indexes)
            for name, indexes in by_topic.items()
        ]

    def _partitions_of(self, answer: Any) -> frozenset[Partition]:
        return frozenset(
            (self._names[one.topic_id], index)
            for one in answer.assignment.topic_partitions
            for index in one.partitions
        )


class Crowd:
    """A group of such members; use it as an async context."""

    def __init__(
        self,
        kind: type[Member],
        bootstrap: str,
        group_id: str,
        topics: Mapping[str, tuple[UUID, int]],
        **options: Any,
    ) -> None:
        self.owners = Owners()
        self.members: list[Member] = []
        self._topics = topics
        self._make: Callable[[], Member] = lambda: kind(
            bootstrap, group_id, topics, self.owners, **options
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(one.kill() for one in self.members))

    def add(self, count: int, over_s: float = 0.0) -> list[Member]:
        """More members, which join at once, or one after the other in so many seconds."""
        added = [self._make() for _ in range(count)]
        self.members += added
        for number, one in enumerate(added):
            one.start(over_s * number / count)
        return added

    async def settle(self, within_s: float) -> float:
        """Wait until all partitions are owned in one generation or epoch; the seconds it took."""
        began = time.perf_counter()
        while not self._is_settled():
            for one in self.members:
                one.check()
            waited_s = time.perf_counter() - began
            assert waited_s < within_s, f"not settled in {within_s} s: {self._state()}"
            assert not self.owners.conflicts, self.owners.conflicts[:5]
            await asyncio.sleep(_LOOK_EVERY_S)
        return time.perf_counter() - began

    def _is_settled(self) -> bool:
        if len(self.owners.now) < sum(count for _, count in self._topics.values()):
            return False
        epochs = {one.epoch for one in self.members}
        return len(epochs) == 1 and 0 not in epochs

    def _state(self) -> str:
        epochs = sorted({one.epoch for one in self.members})
        return f"{len(self.owners.now)} partitions owned, epochs {epochs[:3]} to {epochs[-3:]}"


def all_partitions(topics: Mapping[str, tuple[UUID, int]]) -> list[Partition]:
    """Each partition of each topic."""
    return [(name, index) for name, (_, count) in topics.items() for index in range(count)]


# --- what classic members tell each other ------------------------------------------------------


def written_subscription(topics: Iterable[str]) -> bytes:
    """A consumer's subscription, in its oldest version."""
    names = list(topics)
    body = b"".join(_text(name) for name in names)
    return struct.pack(">hi", 0, len(names)) + body + struct.pack(">i", -1)


def written_assignment(partitions: Iterable[Partition]) -> bytes:
    """A consumer's assignment, in its oldest version."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    body = b"".join(
        _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        for topic, indexes in by_topic.items()
    )
    return struct.pack(">hi", 0, len(by_topic)) + body + struct.pack(">i", -1)


def read_assignment(written: bytes) -> list[Partition]:
    """The partitions of an assignment; none where it has no bytes at all."""
    found: list[Partition] = []
    if not written:
        return found
    (topics,), at = struct.unpack_from(">i", written, 2), 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", written, at)
        topic = written[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", written, at)
        found += [(topic, index) for index in struct.unpack_from(f">{count}i", written, at + 4)]
        at += 4 + 4 * count
    return found


def _text(value: str) -> bytes:
    written = value.encode()
    return struct.pack(">h", len(written)) + written
