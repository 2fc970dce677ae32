"""When and how far a consumer commits.

Promises:

1. of two commits the later one counts: the next is sent when the last was answered;
2. a commit that may succeed later (the coordinator moved, the members are sharing partitions
   out anew) is repeated with what is true by then, until it succeeds or its time is over;
3. a consumer that is no member at the moment commits nothing: its partitions may be others'.

What may be committed is decided in ``progress.py``.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from waystation.client.coordinator import Coordinator
from waystation.client.errors import is_retriable
from waystation.client.group_offsets import (
    CommittedOffset,
    Identity,
    commit_offsets,
    fetch_offsets,
)
from waystation.client.progress import Progress
from waystation.client.router import Router
from waystation.model.errors import (
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnknownTopicError,
    UnknownTopicIdError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.telemetry.logs import get_logger

__all__ = ["Commits"]

_events = get_logger("client")

_PATIENCE_AHEAD_MS = 1_000

Offsets = Mapping[TopicPartition, CommittedOffset]


class Commits:
    """Commits and reads the offsets of one consumer's group.

    ``identity`` says who commits, ``None`` while the consumer is no member.
    """

    def __init__(
        self,
        router: Router,
        coordinator: Coordinator,
        progress: Progress,
        identity: Callable[[], Identity | None],
    ) -> None:
        self._router, self._coordinator, self._progress = router, coordinator, progress
        self._identity = identity
        self._one_by_one = asyncio.Lock()

    async def commit(self, offsets: Offsets) -> None:
        """Commit what the application says; raises if that fails."""
        await self._commit(lambda: offsets, self._router.settings.request_timeout_ms)

    async def commit_handed_out(self) -> None:
        """Commit everything that was handed out, as processed; raises if that fails."""
        self._progress.finish()
        handed_out = self._progress.processed()
        await self.commit({where: CommittedOffset(at) for where, at in handed_out.items()})

    async def commit_ahead(self) -> None:
        """Commit what is about to be handed out, as if it were processed; raises if that fails."""
        self._progress.finish()
        await self._commit(self._due, _PATIENCE_AHEAD_MS)

    async def commit_due(self, within_ms: int | None = None) -> bool:
        """Commit what was processed; whether that worked, for it may be tried again later."""
        if within_ms is None:
            within_ms = self._router.settings.request_timeout_ms
        try:
            await self._commit(self._due, within_ms)
        except WaystationError as error:
            _events.warning("commit.failed", group=self._coordinator.group_id, error=str(error))
            return False
        return True

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed of these partitions, as soon as its coordinator says."""
        wanted = list(partitions)

        async def attempt() -> dict[TopicPartition, CommittedOffset]:
            return await fetch_offsets(
                self._coordinator, wanted, require_stable=require_stable, view=self._router.view
            )

        return await self._coordinator.patiently(attempt) if wanted else {}

    # --- behind the scenes ----------------------------------------------------------------------

    def _due(self) -> Offsets:
        return {where: CommittedOffset(at) for where, at in self._progress.due().items()}

    async def _commit(self, wanted: Callable[[], Offsets], within_ms: int) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_ms / 1_000
        failures = 0
        async with self._one_by_one:
            while offsets := wanted():
                who = self.member()
                try:
                    await commit_offsets(self._coordinator, who, offsets, self._router.view)
                except WaystationError as error:
                    failures += 1
                    wait_s = self._router.backoff.delay_s(failures)
                    if not self.may_repeat(error, who) or loop.time() + wait_s > deadline:
                        raise
                    await asyncio.sleep(wait_s)
                else:
                    self._progress.committed({where: at.offset for where, at in offsets.items()})
                    return

    def member(self) -> Identity:
        """Who commits; raises while this consumer is no member."""
        who = self._identity()
        if who is None:
            raise UnknownMemberError(
                f"group {self._coordinator.group_id} does not count this consumer among its "
                "members at the moment: poll until it has partitions again"
            )
        return who

    def may_repeat(self, error: WaystationError, who: Identity) -> bool:
        """Whether the same may be tried again; after a new generation, in its name."""
        match error:
            case RebalanceInProgressError() | StaleMemberEpochError():
                return True
            case IllegalGenerationError():
                return self._identity() not in (who, None)
            case UnknownTopicError() | UnknownTopicIdError():
                return False
            case _:
                return is_retriable(error)
