"""Membership in a share group (KIP-932): one request in a loop, and what the group told.

Partitions are shared, so nothing is given up before others read it, and whoever is thrown out
joins again under the same id: its sessions with leaders do not depend on it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from waystation.client.coordinator import Coordinator
from waystation.client.errors import is_retriable
from waystation.client.queue_errors import not_served, not_this_kind
from waystation.client.router import Router
from waystation.messages.share_group_heartbeat import (
    JOIN,
    LEAVE,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from waystation.model.errors import (
    ErrorCode,
    FencedMemberEpochError,
    GroupNotFoundError,
    UnknownMemberError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.telemetry.logs import get_logger

__all__ = ["Assignment", "QueueMember"]

_events = get_logger("client")

Assignment = Mapping[TopicId, list[int]]
"""The partitions to read, by topic."""

_FIRST_INTERVAL_MS = 3_000
_LEAVING_MS = 2_000
# While its queues are prepared the group has nothing to assign: to hear of it soon is worth some
# heartbeats.
_UNASSIGNED_S = 0.05
_OTHER_KIND = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND)


class QueueMember:
    """One member of the group that reads one topic; ``run`` is its life."""

    def __init__(
        self,
        router: Router,
        coordinator: Coordinator,
        topic: str,
        member_id: str,
        rack: str,
        assigned: Callable[[Assignment], None],
    ) -> None:
        self.member_id = member_id
        self._router, self._coordinator = router, coordinator
        self._topic, self._rack = topic, rack or None
        self._assigned = assigned
        self._epoch = JOIN
        self._interval_ms = _FIRST_INTERVAL_MS
        self._in_vain = 0
        """Heartbeats in a row after which it still had nothing to read."""
        self._has_partitions = False
        self._is_told = False

    async def run(self) -> None:
        """Join and stay, until cancelled or told something that only the application can mend."""
        failures = 0
        while True:
            try:
                await self._stay()
                failures = 0
                wait_s = self._until_next_s()
            except WaystationError as error:
                self._take_note(error)
                failures += 1
                wait_s = self._router.backoff.delay_s(failures)
            await asyncio.sleep(wait_s)

    async def leave(self) -> None:
        """Go at once; ``run`` has ended before."""
        if self._epoch <= JOIN:
            return
        self._epoch = JOIN

        async def attempt() -> None:
            leaving = self._heartbeat(LEAVE)
            told = await self._coordinator.ask(leaving, ShareGroupHeartbeatResponse)
            self._coordinator.raise_if(told.error_code, told.error_message)

        with suppress(WaystationError):  # then it is missed, in the end
            await self._router.retrying(attempt, _LEAVING_MS)

    async def _stay(self) -> None:
        told = await self._coordinator.ask(
            self._heartbeat(self._epoch), ShareGroupHeartbeatResponse
        )
        self._coordinator.raise_if(told.error_code, told.error_message)
        if self._epoch == JOIN:
            _events.debug("queue.joined", member=self.member_id, epoch=told.member_epoch)
        self.member_id = told.member_id or self.member_id
        self._epoch, self._is_told = told.member_epoch, True
        self._interval_ms = told.heartbeat_interval_ms or self._interval_ms
        if told.assignment is not None:
            listed = {
                TopicId(one.topic_id): list(one.partitions)
                for one in told.assignment.topic_partitions
            }
            self._has_partitions = any(listed.values())
            self._assigned(listed)

    def _until_next_s(self) -> float:
        self._in_vain = 0 if self._has_partitions else self._in_vain + 1
        wait_s = self._interval_ms / 1_000
        return min(wait_s, _UNASSIGNED_S * 2**self._in_vain) if self._in_vain else wait_s

    def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._coordinator.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self._rack,
            subscribed_topic_names=None if self._is_told or epoch == LEAVE else [self._topic],
        )

    def _take_note(self, error: WaystationError) -> None:
        """Go on after ``error``, or raise it."""
        match error:
            case FencedMemberEpochError() | UnknownMemberError():
                self._forget()
            case GroupNotFoundError() if self._epoch > JOIN:
                self._forget()  # deleted meanwhile
            case UnsupportedVersionError():
                raise not_served(error)
            case _ if error.code in _OTHER_KIND:
                raise not_this_kind(self._coordinator.group_id, error)
            case _ if is_retriable(error):
                self._is_told = False  # who knows what has arrived
            case _:
                raise error

    def _forget(self) -> None:
        """The group goes on without this member, which joins again at once."""
        self._epoch, self._is_told, self._has_partitions = JOIN, False, False
