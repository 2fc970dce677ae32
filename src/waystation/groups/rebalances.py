"""From one generation of a classic group to the next: who waits for it, and until when.

A group without members is Empty.  When someone joins, it is in PreparingRebalance until all have
joined or their time is up; then a new generation begins, and in CompletingRebalance everyone
waits for the leader, who shares out the partitions; with that it is Stable.  Promises, whatever
members do:

1. a generation has one leader, who is a member, and one protocol, which every member speaks;
2. generations only rise;
3. everyone who waits is answered: when the rebalance goes on, when its time is up, or when the
   member is removed;
4. what the leader shares out is remembered before anyone hears of it.

Whether a member may ask what it asks for is checked in ``classic.py``.
"""

from collections.abc import Callable

from waystation.groups.commands import Join, Joined, JoinedMember, Synced
from waystation.groups.draft import Draft
from waystation.groups.members import Member, Roster
from waystation.groups.records import ClassicGroupStored, Record
from waystation.groups.settings import GroupSettings
from waystation.model.deadlines import Deadlines
from waystation.model.errors import (
    FencedInstanceIdError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis

EMPTY = "Empty"
PREPARING = "PreparingRebalance"
COMPLETING = "CompletingRebalance"
STABLE = "Stable"
DEAD = "Dead"

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long someone may wait for its first generation.  It may not know its member id yet, so it
cannot show that it is alive, and its retries would fill the group with ghosts."""


class _FirstWait:
    """How long an empty group still waits for more members before it first shares out."""

    __slots__ = ("delay_ms", "grew", "left_ms")

    def __init__(self, delay_ms: int, left_ms: int) -> None:
        self.delay_ms, self.left_ms = delay_ms, left_ms
        self.grew = False

    def extend(self, delay_ms: int) -> bool:
        """Wait once more if someone came and there is time; false if the wait is over."""
        if not self.grew or not self.left_ms:
            return False
        spent_ms, self.delay_ms = self.delay_ms, min(delay_ms, self.left_ms)
        self.left_ms = max(self.left_ms - spent_ms, 0)
        self.grew = False
        return True


class Rebalances:
    """A group's members and its state; knows no request, only what follows from one."""

    __slots__ = (
        "_first_wait",
        "_join_until",
        "_joining",
        "_pending",
        "_sessions",
        "_settings",
        "_sync_until",
        "_syncing",
        "_unsynced",
        "generation",
        "group_id",
        "members",
        "protocol",
        "protocol_type",
        "state",
    )

    def __init__(self, group_id: str, settings: Callable[[], GroupSettings]) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """``None`` while no member has ever joined."""
        self.protocol: str | None = None
        self.members = Roster()
        self._settings = settings
        self._pending: dict[str, None] = {}  # told their id, not yet joined with it
        self._joining: dict[str, Waiter] = {}
        self._syncing: dict[str, Waiter] = {}
        self._unsynced: dict[str, None] = {}  # of this generation, not yet heard of since
        self._sessions = Deadlines()
        self._first_wait: _FirstWait | None = None
        self._join_until: Millis | None = None
        self._sync_until: Millis | None = None

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """When someone's time is up."""
        earliest = self._sessions.earliest()
        for at in (self._join_until, self._sync_until):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    def tick(self, now: Millis) -> Outcome[Record]:
        """Remove those who were silent, go on without those who are late."""
        draft = Draft()
        self._expire_sessions(now, draft)
        if self._join_until is not None and self._join_until <= now:
            self._stop_waiting_for_joins(now, draft)
        if self._sync_until is not None and self._sync_until <= now:
            self._stop_waiting_for_syncs(now, draft)
        return draft.outcome()

    def abandon(self) -> list[Waiter]:
        """Everyone who waits."""
        waiting = [*self._joining.values(), *self._syncing.values()]
        self._joining.clear()
        self._syncing.clear()
        return waiting

    def _expire_sessions(self, now: Millis, draft: Draft) -> None:
        silent = self._sessions.due(now)
        before = len(self.members)
        for member_id in silent:
            if member_id in self._pending:
                del self._pending[member_id]
            elif self._is_overdue(self.members[member_id]):
                self._remove(draft, member_id)
        if silent:
            self._go_on_without(now, draft, removed=len(self.members) < before)

    def _is_overdue(self, member: Member) -> bool:
        """Whoever waits for us need not speak; its time begins anew when it is answered."""
        member_id = member.member_id
        return member.is_new or not (member_id in self._joining or member_id in self._syncing)

    def _stop_waiting_for_joins(self, now: Millis, draft: Draft) -> None:
        delay_ms = self._settings().group_initial_rebalance_delay_ms
        if self._first_wait is not None and self._first_wait.extend(delay_ms):
            self._join_until = Millis(now + self._first_wait.delay_ms)
        else:
            self._begin_generation(now, draft)

    def _stop_waiting_for_syncs(self, now: Millis, draft: Draft) -> None:
        """Members that joined the generation and never asked what to read in it are gone."""
        for member_id in list(self._unsynced):
            self._remove(draft, member_id)
        self._prepare(now, draft)

    # --- coming -------------------------------------------------------------------------------

    def _invite(self, now: Millis, member_id: str, join: Join) -> None:
        """Expect someone to join under a new id; a rebalance waits for it."""
        self._pending[member_id] = None
        self._sessions.set(member_id, Millis(now + join.session_timeout_ms))

    def _uninvite(self, member_id: str) -> None:
        if member_id in self._pending:
            del self._pending[member_id]
            self._sessions.cancel(member_id)

    def _admit(self, now: Millis, draft: Draft, join: Join, member_id: str, to: Waiter) -> None:
        """Let someone new in, who waits for its first generation."""
        self._uninvite(member_id)
        if not self.members:
            self.protocol_type = join.protocol_type
        member = Member(member_id, join)
        member.is_new = True
        self.members.add(member)
        self._joining[member_id] = to
        self._sessions.set(member_id, Millis(now + NEW_MEMBER_TIMEOUT_MS))
        if self._first_wait is not None:
            self._first_wait.grew = True
        self._rebalance(now, draft)

    def _admit_again(
        self, now: Millis, draft: Draft, join: Join, member: Member, to: Waiter
    ) -> None:
        """Let a member wait for the next generation, with what it says now."""
        self.members.update(member, join)
        self._wait(draft, self._joining, member.member_id, to)
        self._rebalance(now, draft)

    def _fence(self, draft: Draft, old_id: str, new_id: str) -> Member:
        """Let a static member go on under another id; whoever waits under the old one is told."""
        self._dismiss(draft, old_id, self._fenced(old_id))
        member = self.members.rename(old_id, new_id)
        member.is_new = False
        return member

    def _wait(self, draft: Draft, waiting: dict[str, Waiter], member_id: str, to: Waiter) -> None:
        """Let the member wait; if it asked before, nobody listens there, but all are answered."""
        before = waiting.get(member_id)
        if before is not None:
            draft.reply(before, self._rebalancing())
        waiting[member_id] = to

    def _hear(self, now: Millis, member: Member) -> None:
        """The member is alive: its session begins anew."""
        self._sessions.set(member.member_id, Millis(now + member.session_timeout_ms))

    # --- going --------------------------------------------------------------------------------

    def _remove(self, draft: Draft, member_id: str) -> None:
        """Let a member go; if it waits after all, it learns that it must join anew."""
        self.members.remove(member_id)
        self._dismiss(draft, member_id, self._unknown(member_id))

    def _dismiss(self, draft: Draft, member_id: str, reason: Exception) -> None:
        self._sessions.cancel(member_id)
        self._has_synced(member_id)
        for waiting in (self._joining, self._syncing):
            to = waiting.pop(member_id, None)
            if to is not None:
                draft.reply(to, reason)

    def _go_on_without(self, now: Millis, draft: Draft, *, removed: bool) -> None:
        """Share out anew after members went, or stop waiting for those who did."""
        if self.state == PREPARING:
            self._begin_if_all_joined(now, draft)
        elif removed:
            self._prepare(now, draft)

    # --- from one generation to the next --------------------------------------------------------

    def _rebalance(self, now: Millis, draft: Draft) -> None:
        """Begin a rebalance, or go on with the one under way if that was the last to join."""
        if self.state == PREPARING:
            self._begin_if_all_joined(now, draft)
        else:
            self._prepare(now, draft)

    def _prepare(self, now: Millis, draft: Draft) -> None:
        """Wait for all members to join again."""
        for member_id, to in self._syncing.items():
            draft.reply(to, self._rebalancing())
            self._hear(now, self.members[member_id])
        self._syncing.clear()
        self._unsynced.clear()
        self._sync_until = None
        was_empty, self.state = self.state == EMPTY, PREPARING
        if was_empty:
            self._wait_for_first_members(now, draft)
        else:
            self._join_until = Millis(now + self.members.rebalance_timeout_ms)
            self._begin_if_all_joined(now, draft)

    def _wait_for_first_members(self, now: Millis, draft: Draft) -> None:
        """Members that start together should share out once, not once each."""
        delay_ms = self._settings().group_initial_rebalance_delay_ms
        if delay_ms == 0:
            self._begin_generation(now, draft)
            return
        left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
        self._first_wait = _FirstWait(delay_ms, left_ms)
        self._join_until = Millis(now + delay_ms)

    def _begin_if_all_joined(self, now: Millis, draft: Draft) -> None:
        """Those who were told an id count too: they are on their way."""
        all_joined = not self._pending and len(self._joining) == len(self.members)
        if not self.members or (all_joined and self._first_wait is None):
            self._begin_generation(now, draft)

    def _begin_generation(self, now: Millis, draft: Draft) -> None:
        """Share out among those who have joined; static members may be away meanwhile."""
        self._first_wait = self._join_until = None
        for member in list(self.members):
            if member.instance_id is None and member.member_id not in self._joining:
                self._remove(draft, member.member_id)
        if not self.members:
            draft.records.append(self._emptied(now))
        elif self.members.elect(self._joining):
            self._ask_the_leader(now, draft)
        else:
            # Only static members, all away: their sessions end, or one comes back.
            self._join_until = Millis(now + self.members.rebalance_timeout_ms)

    def _ask_the_leader(self, now: Millis, draft: Draft) -> None:
        self.state = COMPLETING
        self.generation += 1
        self.protocol = self.members.select_protocol()
        for member in self.members:
            to = self._joining.pop(member.member_id, None)
            if to is not None:
                draft.reply(to, self._joined(member))
            member.is_new = False
            self._hear(now, member)
            self._unsynced[member.member_id] = None
        self._sync_until = Millis(now + self.members.rebalance_timeout_ms)

    def _joined(self, member: Member) -> Joined:
        """The generation as ``member`` is told of it."""
        leader = self.members.leader
        listed: tuple[JoinedMember, ...] = ()
        if member.member_id == leader:
            listed = tuple(
                JoinedMember(one.member_id, one.instance_id, one.subscription(self.protocol))
                for one in self.members
            )
        return Joined(
            self.generation,
            self.protocol_type,
            self.protocol,
            leader or "",
            member.member_id,
            listed,
        )

    def _hand_out(self, now: Millis, draft: Draft, assignments: dict[str, bytes]) -> None:
        """Tell those who wait what they shall read; the record makes the group stable."""
        for member_id, to in self._syncing.items():
            assignment = assignments.get(member_id, b"")
            draft.reply(to, Synced(self.protocol_type, self.protocol, assignment))
            self._hear(now, self.members[member_id])
        self._syncing.clear()
        draft.records.append(self._stored(now, assignments))

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.pop(member_id, None)
        if not self._unsynced:
            self._sync_until = None

    def _stored(self, now: Millis, assignments: dict[str, bytes]) -> ClassicGroupStored:
        return ClassicGroupStored(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            now,
            tuple(
                member.stored(self.protocol, assignments.get(member.member_id, b""))
                for member in self.members
            ),
        )

    def _emptied(self, now: Millis) -> ClassicGroupStored:
        generation, protocol_type = self.generation + 1, self.protocol_type or ""
        return ClassicGroupStored(self.group_id, protocol_type, generation, None, None, now, ())

    # --- what members are told ------------------------------------------------------------------

    def _unknown(self, member_id: str) -> UnknownMemberError:
        return UnknownMemberError(
            f"group {self.group_id!r} has no member {member_id!r}: join without a member id"
        )

    def _fenced(self, member_id: str) -> FencedInstanceIdError:
        return FencedInstanceIdError(
            f"another member of group {self.group_id!r} bears the instance id of {member_id!r}"
        )

    def _rebalancing(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(f"group {self.group_id!r} is rebalancing: join again")
