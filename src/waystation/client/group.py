"""One consumer's part in its group: a membership, or partitions taken by hand, and commits.

Everything a group adds to a consumer is reached through here: who it is to the others
(``classic_member.py``, ``server_side_member.py``), what it owns (``ownership.py``), what the
application has in hand (``progress.py``) and what it has committed (``commits.py``).
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress

from waystation.client.classic_member import ClassicMember
from waystation.client.commits import Commits
from waystation.client.coordinator import Coordinator
from waystation.client.fetcher import Fetcher
from waystation.client.group_offsets import NOBODY, CommittedOffset, Identity
from waystation.client.listeners import Listeners
from waystation.client.member import Member, Surroundings
from waystation.client.ownership import Ownership
from waystation.client.places import Places
from waystation.client.progress import Progress
from waystation.client.router import Router
from waystation.client.server_side_member import ServerSideMember
from waystation.client.settings import MemberSettings
from waystation.client.subscription import Subscription
from waystation.client.transactor import GroupOffsets
from waystation.model.errors import UnknownMemberError
from waystation.model.ids import TopicPartition
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.runtime.weakly import weakly

__all__ = ["Group"]

PATIENCE_AT_THE_END_MS = 5_000
"""How long a coordinator that does not answer holds up who wants to leave: twice this."""

_MEMBERS: dict[str, type[ClassicMember] | type[ServerSideMember]] = {
    "classic": ClassicMember,
    "consumer": ServerSideMember,
}


class Group:
    """A consumer's part in the group ``group_id``.

    ``commits_first`` says that messages are committed before they are handed out,
    ``commits_when_polled`` that each poll commits, these or the ones before.
    """

    def __init__(
        self,
        group_id: str,
        router: Router,
        fetcher: Fetcher,
        settings: MemberSettings,
        places: Places,
        clock: Clock,
    ) -> None:
        self.group_id = group_id
        self.progress = Progress(fetcher.feeds, fetcher.arrived.set)
        self.coordinator = Coordinator(router, group_id)
        self.commits = Commits(router, self.coordinator, self.progress, weakly(self._identity))
        self.ownership = Ownership(
            group_id,
            fetcher,
            self.progress,
            self.commits,
            places,
            auto_commit=settings.auto_commit or settings.delivery == "at-most-once",
            thrown=weakly(self._threw),
        )
        self.commits_first = settings.delivery == "at-most-once"
        at_every_poll = settings.auto_commit and not settings.auto_commit_interval_ms
        self.commits_when_polled = self.commits_first or at_every_poll
        self._router, self._fetcher = router, fetcher
        self._settings, self._clock = settings, clock
        self._member: Member | None = None
        self._by_hand = False
        self._trouble: Exception | None = None
        self._thrown: list[Exception] = []
        self._background = Tasks()
        self._life = Tasks()

    @property
    def is_troubled(self) -> bool:
        """Whether ``raise_trouble`` would raise."""
        return self._trouble is not None or bool(self._thrown)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to commit what was processed, every now and then."""
        self.progress.went_away(self._clock.monotonic())
        if self._settings.auto_commit and self._settings.auto_commit_interval_ms:
            self._background.spawn(self._commit_now_and_then(), f"group-commit {self.group_id}")

    async def close(self, *, processed: bool) -> None:
        """Commit where that is due, and leave; ``processed`` says whether what is in hand is.

        The member lives until that is committed: cut short, it would not hear of the epoch that
        its last heartbeat gave it, and commit in the name of the one before.
        """
        await self._background.aclose()
        if processed:
            self.progress.finish()
        try:
            if self._commits_by_itself:
                await _with_patience(self.commits.commit_due(PATIENCE_AT_THE_END_MS))
            await self._life.aclose()
            if self.ownership.owned:
                await self.ownership.listeners.revoked(self.ownership.owned)
        finally:
            await self._life.aclose()
            await self._leave()
            await self.coordinator.close()

    # --- what to read ---------------------------------------------------------------------------

    async def subscribe(self, subscription: Subscription, listeners: Listeners) -> None:
        """Share ``subscription`` with the other members; returns before partitions are assigned."""
        self.ownership.listeners = listeners
        if self._by_hand or subscription.is_empty or self._trouble is not None:
            await self._give_all_up()
        if subscription.is_empty:
            return
        if self._member is None:
            self._member = self._new_member(subscription)
            self._life.spawn(self._live(self._member), f"group-member {self.group_id}")
        else:
            self._member.resubscribe()

    def resubscribe(self) -> None:
        """The subscription matches other topics than before."""
        if self._member is not None:
            self._member.resubscribe()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these, whoever else reads them, from where the group has got to."""
        wanted = dict.fromkeys(partitions)
        if not self._by_hand:
            await self._give_all_up()
        self._by_hand = True
        self.ownership.listeners = Listeners()
        # The application asks for this itself, so that it is done with what it had.
        self.progress.came_back()
        await self.ownership.revoke([one for one in self.ownership.owned if one not in wanted])
        await self.ownership.assign(wanted)
        self.progress.went_away(self._clock.monotonic())

    # --- the application comes and goes ---------------------------------------------------------

    @property
    def holds_back(self) -> bool:
        """Whether nothing may be handed out: partitions change owners, or are about to."""
        return self.ownership.moving or self.progress.rest_is_wanted

    async def came_back(self) -> None:
        """The application polls; what it had in hand is processed."""
        self.progress.came_back()
        if self.commits_when_polled and not self.commits_first and self._identity() is not None:
            await self.commits.commit_due()

    def went_away(self) -> None:
        """``poll`` returns."""
        self.progress.went_away(self._clock.monotonic())

    def in_transaction(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> GroupOffsets:
        """``offsets``, for a transaction to commit on behalf of this member."""
        return GroupOffsets(self.coordinator, offsets, self._entitled, self.commits.may_repeat)

    def raise_trouble(self) -> None:
        """Raise what a listener has thrown, once, or what ended the membership, every time."""
        if self._thrown:
            raise self._thrown.pop(0)
        if self._trouble is not None:
            raise self._trouble

    # --- behind the scenes ----------------------------------------------------------------------

    @property
    def _commits_by_itself(self) -> bool:
        return self._settings.auto_commit or self.commits_first

    def _new_member(self, subscription: Subscription) -> Member:
        return _MEMBERS[self._settings.group_protocol](
            Surroundings(
                self._router,
                self.coordinator,
                self._settings,
                subscription,
                self.ownership,
                self.progress,
                self._clock,
            )
        )

    async def _live(self, member: Member) -> None:
        try:
            await member.run()
        except Exception as error:  # the outermost frame of the membership; poll raises it
            self._trouble = error
            self._fetcher.arrived.set()

    async def _give_all_up(self) -> None:
        """Leave the group, or what was taken by hand; the application asks for this itself."""
        await self._life.aclose()
        self._trouble = None
        self.progress.came_back()
        await self.ownership.revoke(self.ownership.owned)
        self.progress.went_away(self._clock.monotonic())
        await self._leave()
        self._by_hand = False

    async def _leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await _with_patience(member.leave())

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1_000)
            if self._identity() is not None:
                await self.commits.commit_due(self._settings.auto_commit_interval_ms)

    def _identity(self) -> Identity | None:
        if self._by_hand:
            return NOBODY
        return None if self._member is None else self._member.identity

    def _entitled(self) -> Identity:
        """Who commits; raises once others may have what this member still holds in hand."""
        if self.ownership.halted:
            raise UnknownMemberError(
                f"group {self.group_id} has given this consumer's partitions to others meanwhile: "
                "they get the same messages"
            )
        return self.commits.member()

    def _threw(self, error: Exception) -> None:
        self._thrown.append(error)
        self._fetcher.arrived.set()


async def _with_patience(ending: Awaitable[object]) -> None:
    """Wait for what is done at the end, but not for ever: the others will notice anyway."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_AT_THE_END_MS / 1_000):
            await ending
