"""A member of a group by the classic protocol: members share partitions out themselves.

Round after round it joins, with everyone else; one of them, the leader, assigns; it fetches its
share, and stays until someone comes, goes or is missed.  Promises:

1. it never reads a partition that it did not get in its generation: with an assignor that
   is not cooperative it gives everything up before it joins, with a cooperative one it gives up
   what it does not get, and joins again so that others may have it;
2. it does not join while the application has messages in hand that it would have to give up;
3. heartbeats go on while it waits for the application; if that stays away too long, it leaves.
"""

import asyncio
from contextlib import suppress

from waystation.client.errors import is_retriable
from waystation.client.group_offsets import Identity
from waystation.client.member import Surroundings, partitions_of, without
from waystation.client.protocols import (
    MemberState,
    assigned_in,
    assignment_bytes,
    is_cooperative,
    subscriber_of,
    subscription_bytes,
)
from waystation.groups.embedded import PROTOCOL_TYPE
from waystation.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from waystation.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from waystation.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from waystation.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from waystation.model.errors import (
    ErrorCode,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

__all__ = ["ClassicMember"]

_events = get_logger("client")

_NO_GENERATION = -1
_GRACE_MS = 5_000


class ClassicMember:
    """One member; ``run`` is its life."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._cooperative = is_cooperative(around.settings.assignors)
        self._member_id = ""
        self._generation = _NO_GENERATION
        self.assigned_in = _NO_GENERATION
        """The generation in which it was given what it has; a later one may be under way."""
        self._previous: tuple[TopicPartition, ...] = ()
        self._partitions: dict[str, int] | None = None  # what the leader has shared out
        self._followed: set[str] = set()
        self._rejoin = asyncio.Event()
        self._beating = False
        self._is_lost = False
        self._is_late = False
        self._tasks = Tasks()

    @property
    def identity(self) -> Identity | None:
        """Who commits; ``None`` while it is no member."""
        if self._generation == _NO_GENERATION:
            return None
        return Identity(self._member_id, self._generation, self._around.settings.group_instance_id)

    def resubscribe(self) -> None:
        """Join again with other topics."""
        self._rejoin.set()

    async def run(self) -> None:
        """Join and stay, until cancelled or told something that only the application can mend."""
        router = self._around.router
        router.on_change.append(self._look_at_topics)
        self._tasks.spawn(self._beat(), f"group-heartbeat {self._around.coordinator.group_id}")
        failures = 0
        try:
            while True:
                try:
                    await self._round()
                    failures = 0
                except WaystationError as error:
                    self._take_note(error)
                    failures += 1
                    await asyncio.sleep(router.backoff.delay_s(failures))
        finally:
            self._beating = False
            router.on_change.remove(self._look_at_topics)
            await self._tasks.aclose()

    async def leave(self) -> None:
        """Go at once; a static member does not, for it may be back."""
        around = self._around
        if not self._member_id or around.settings.group_instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=around.coordinator.group_id,
            member_id=self._member_id,
            members=[MemberIdentity(member_id=self._member_id, reason="the consumer was closed")],
        )
        self._member_id, self._generation = "", _NO_GENERATION
        with suppress(WaystationError):  # then it is missed, in the end
            await around.coordinator.ask(request, LeaveGroupResponse)

    # --- one round ------------------------------------------------------------------------------

    async def _round(self) -> None:
        await self._prepare()
        self._rejoin.clear()
        joined = await self._join()
        assigned = await self._sync(joined)
        _events.debug(
            "group.joined", member=self._member_id, generation=self._generation, owns=len(assigned)
        )
        self._beating = True
        if not await self._adopt(assigned):
            await self._rejoin.wait()

    async def _prepare(self) -> None:
        """Give up, before joining, what may not be kept."""
        ownership = self._around.ownership
        if self._is_lost or self._to_give_up():
            await self._around.progress.at_rest()
        if self._is_lost:  # perhaps only since then
            await ownership.lose()
            self._is_lost = False
        await ownership.revoke(self._to_give_up())
        if self._is_late:
            await self._around.progress.polled()
            self._is_late = False

    def _to_give_up(self) -> list[TopicPartition]:
        owned = self._around.ownership.owned
        if not self._cooperative:
            return list(owned)
        topics = set(self._around.subscription.topics)
        return [where for where in owned if where.topic not in topics]

    async def _join(self) -> JoinGroupResponse:
        around = self._around
        self._beating = False
        request = JoinGroupRequest(
            group_id=around.coordinator.group_id,
            session_timeout_ms=around.settings.session_timeout_ms,
            rebalance_timeout_ms=around.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=around.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=self._offers(),
        )
        told = await around.coordinator.ask(request, JoinGroupResponse, held_ms=self._held_ms)
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = told.member_id
            return await self._join()
        around.coordinator.raise_if(told.error_code)
        self._member_id, self._generation = told.member_id, told.generation_id
        return told

    def _offers(self) -> list[JoinGroupRequestProtocol]:
        owned = self._around.ownership.owned
        state = MemberState(
            self._around.subscription.topics, owned, owned or self._previous, self.assigned_in
        )
        return [
            JoinGroupRequestProtocol(name=name, metadata=subscription_bytes(name, state))
            for name in self._around.settings.assignors
        ]

    async def _sync(self, joined: JoinGroupResponse) -> tuple[TopicPartition, ...]:
        around = self._around
        request = SyncGroupRequest(
            group_id=around.coordinator.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=around.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=await self._shares(joined),
        )
        told = await around.coordinator.ask(request, SyncGroupResponse, held_ms=self._held_ms)
        around.coordinator.raise_if(told.error_code)
        return assigned_in(told.assignment)

    async def _adopt(self, assigned: tuple[TopicPartition, ...]) -> bool:
        """Read what was assigned; true if something was given up, so that all must join again."""
        around = self._around
        await around.progress.at_rest()
        if self._is_lost:
            return True
        topics = set(around.subscription.topics)
        self._previous, self.assigned_in = assigned, self._generation
        wanted = [one for one in assigned if one.topic in topics]
        going = without(around.ownership.owned, set(wanted))
        await around.ownership.revoke(going)
        await around.ownership.assign(wanted)
        return bool(going)

    # --- the leader -----------------------------------------------------------------------------

    async def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """What the leader hands out; nothing, from everyone else."""
        router, assignor = self._around.router, joined.protocol_name or ""
        if joined.leader != self._member_id:
            self._partitions = None
            self._follow(set())
            return []
        members = [
            subscriber_of(assignor, one.member_id, one.group_instance_id, one.metadata)
            for one in joined.members
        ]
        topics = {topic for one in members for topic in one.topics}
        self._follow(topics)
        await router.refresh()
        self._partitions = partitions_of(router, topics)
        if joined.skip_assignment:
            return []
        shares = assignment_bytes(assignor, members, self._partitions)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=octets)
            for member, octets in shares.items()
        ]

    def _follow(self, topics: set[str]) -> None:
        """Keep others' topics in view for as long as this member shares them out."""
        router, own = self._around.router, set(self._around.subscription.topics)
        for topic in sorted(self._followed - topics - own):
            router.unfollow(topic)
        for topic in sorted(topics):
            router.follow(topic)
        self._followed = topics

    def _look_at_topics(self) -> None:
        """The leader lets all join again when topics have got partitions, or are gone."""
        if self._partitions is not None and self._beating:
            now = partitions_of(self._around.router, self._followed)
            if now != self._partitions:
                self._rejoin.set()

    # --- staying --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Say that this member is alive, and hear what happened."""
        around = self._around
        failures = 0
        while True:
            wait_s = around.settings.heartbeat_interval_ms / 1_000
            if failures:
                wait_s = min(wait_s, around.router.backoff.delay_s(failures))
            await asyncio.sleep(wait_s)
            if not self._beating:
                continue
            if around.is_late:
                await self._give_way()
                continue
            try:
                await self._beat_once()
                failures = 0
            except WaystationError:
                failures += 1

    async def _beat_once(self) -> None:
        who, coordinator = self.identity, self._around.coordinator
        request = HeartbeatRequest(
            group_id=coordinator.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._around.settings.group_instance_id,
        )
        try:
            told = await coordinator.ask(request, HeartbeatResponse)
            coordinator.raise_if(told.error_code)
        except RebalanceInProgressError:
            self._rejoin.set()
        except WaystationError as error:
            if is_retriable(error):
                raise
            if self._beating and who == self.identity:
                self._forget(error)

    async def _give_way(self) -> None:
        """The application stays away: let others have the partitions until it is back."""
        _events.warning(
            "group.late", member=self._member_id, limit=self._around.settings.max_poll_interval_ms
        )
        self._is_late = True
        await self.leave()
        self._forget(None)

    # --- trouble --------------------------------------------------------------------------------

    def _take_note(self, error: WaystationError) -> None:
        """Go on after ``error``, or raise it."""
        match error:
            case RebalanceInProgressError():
                pass
            case UnknownMemberError() | IllegalGenerationError():
                self._forget(error)
            case _ if is_retriable(error):
                pass
            case _:
                raise error

    def _forget(self, error: WaystationError | None) -> None:
        """The group goes on without this member: what it owns is others' by now."""
        if isinstance(error, UnknownMemberError):
            self._member_id = ""
        self._generation = self.assigned_in = _NO_GENERATION
        self._beating = False
        self._is_lost = True
        self._around.ownership.halt()
        self._rejoin.set()

    @property
    def _held_ms(self) -> int:
        return self._around.rebalance_timeout_ms + _GRACE_MS
