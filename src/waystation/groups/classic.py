"""One classic group as members and administrators meet it: who may ask what, and what follows.

Every request is held against the member id, the static instance id and the generation it names,
and refused with Kafka's codes where they are not the group's.  What follows from an accepted one
is in ``rebalances.py``.

Who is a member, and who waits, is lost in a restart up to the last assignment: a replay finds
the group Stable as of then, or Empty, and silent members fall out of it as ever.
"""

from collections.abc import Callable

from waystation.groups.commands import (
    GroupDescription,
    Heartbeat,
    Join,
    Leave,
    Leaving,
    Left,
    MemberDescription,
    Sync,
    Synced,
)
from waystation.groups.draft import Draft
from waystation.groups.embedded import PROTOCOL_TYPE, EmbeddedProtocolError, read_subscription
from waystation.groups.expiry import Retention
from waystation.groups.members import Member
from waystation.groups.rebalances import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Rebalances
from waystation.groups.records import ClassicGroupForgotten, ClassicGroupStored, Record
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis


class ClassicGroup(Rebalances):
    """One group; who waits for the end of a rebalance waits in it."""

    kind = "classic"

    __slots__ = ("_new_id", "_unheard", "changed_at", "is_remembered")

    def __init__(
        self, group_id: str, settings: Callable[[], GroupSettings], new_id: Callable[[], str]
    ) -> None:
        super().__init__(group_id, settings)
        self._new_id = new_id
        self._unheard = False
        """Whether members came by a record and not by joining, so that no session runs."""
        self.changed_at = Millis(-1)
        """When the group became as it is remembered; -1 if that is not known."""
        self.is_remembered = False
        """Whether a replay would find it."""

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Be as remembered; what only the living know, such as who waits, stays."""
        match record:
            case ClassicGroupStored():
                self.generation, self.protocol = record.generation, record.protocol
                self.protocol_type = record.protocol_type or None
                self.changed_at = Millis(record.changed_at)
                self.members.restore(record.members, record.protocol, record.leader)
                self.state = STABLE if record.members else EMPTY
                self.is_remembered = True
                self._unheard = any(one.member_id not in self._sessions for one in self.members)
            case ClassicGroupForgotten():
                self.state = DEAD
            case _:
                raise AssertionError(f"{record} is not about a classic group")

    def loaded(self, now: Millis) -> Outcome[Record]:
        """Give every member its session time-out to show that it is alive."""
        draft = Draft()
        self._unheard = False
        for member in self.members:
            self._hear(now, member)
        if self.state == STABLE and (self.members.leader is None or self._is_too_large()):
            # Nobody has shared out yet; or the last ones to join again will not get in.
            self._prepare(now, draft)
        return draft.outcome()

    def next_deadline(self) -> Millis | None:
        """When someone's time is up; at once if there are members whose time has not begun."""
        return Millis(0) if self._unheard else super().next_deadline()

    def tick(self, now: Millis) -> Outcome[Record]:
        """Do what has fallen due."""
        return self.loaded(now) if self._unheard else super().tick(now)

    # --- members' requests --------------------------------------------------------------------

    def join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Record]:
        """Let a member in, or in again."""
        draft = Draft()
        if not self._has_room(command.member_id):
            self._refuse(now, draft, command.member_id, to)
        elif not self._speaks_with(command):
            draft.reply(to, InconsistentProtocolError(self._foreign(command)))
        elif not command.member_id:
            self._join_new(now, draft, command, to)
        elif command.member_id in self._pending and command.instance_id is None:
            self._admit(now, draft, command, command.member_id, to)
        else:
            self._join_again(now, draft, command, to)
        return draft.outcome()

    def sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Record]:
        """Hand out what the leader shared out, or take it from the leader."""
        draft = Draft()
        member_id = command.member_id
        problem = self._check_sync(command)
        if problem is not None:
            draft.reply(to, problem)
        elif self.state == PREPARING:
            draft.reply(to, self._rebalancing())
        elif self.state == STABLE:
            self._has_synced(member_id)
            member = self.members[member_id]
            self._hear(now, member)
            draft.reply(to, Synced(self.protocol_type, self.protocol, member.assignment))
        else:
            self._wait(draft, self._syncing, member_id, to)
            self._has_synced(member_id)
            if member_id == self.members.leader:
                self._hand_out(now, draft, dict(command.assignments))
        return draft.outcome()

    def heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Record]:
        """Note that the member is alive, and tell it whether it must join again."""
        draft = Draft()
        problem = self._check_generation(command)
        if problem is None:
            self._hear(now, self.members[command.member_id])
            problem = self._rebalancing() if self.state == PREPARING else None
        draft.reply(to, problem)
        return draft.outcome()

    def leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Record]:
        """Let members go at once instead of waiting for their silence."""
        draft = Draft()
        before = len(self.members)
        left = tuple((leaving, self._leave_one(draft, leaving)) for leaving in command.members)
        draft.reply(to, Left(left))
        self._go_on_without(now, draft, removed=len(self.members) < before)
        return draft.outcome()

    # --- offsets ------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        in_transaction: bool = False,
    ) -> WaystationError | None:
        """Why the member may not commit offsets, if it may not.

        In a transaction it need not say which member it is, and may be ahead of its assignment:
        that only one producer gets through is the transaction's affair.
        """
        if self.state == EMPTY and generation < 0:
            return None  # nobody to contradict: a program without group membership, or a person
        if generation < 0 and not member_id and instance_id is None:
            if in_transaction:
                return None
            return UnknownMemberError(
                f"group {self.group_id!r} has members: only they may commit offsets"
            )
        said = Heartbeat(self.group_id, generation, member_id, instance_id)
        problem = self._check_generation(said)
        if problem is None and self.state == COMPLETING and not in_transaction:
            # It knows the generation but not yet what to read in it.
            return self._rebalancing()
        return problem

    def heard(self, now: Millis, member_id: str) -> None:
        """A commit shows that a member is alive."""
        member = self.members.get(member_id)
        if member is not None:
            self._hear(now, member)

    def subscriptions(self) -> dict[str, None] | None:
        """The topics that members read; ``None`` if that cannot be known.

        Only consumers are understood: others, such as Connect's workers, say what they please.
        """
        topics: dict[str, None] = {}
        for member in self.members:
            subscribed = self._topics_of(member)
            if subscribed is None:
                return None
            topics.update(subscribed)
        return topics

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member is known to read the topic."""
        return any(topic in (self._topics_of(member) or ()) for member in self.members)

    def retention(self) -> Retention | None:
        """From when on offsets grow old; ``None`` while none may expire."""
        if self.protocol_type is None:
            return Retention()
        if self.state == EMPTY:
            return Retention(None if self.changed_at < 0 else self.changed_at)
        topics = self.subscriptions() if self.state == STABLE else None
        return None if topics is None else Retention(None, topics.__contains__)

    @property
    def is_of_consumers(self) -> bool:
        """Whether members say what they read in a way that is understood here."""
        return self.protocol_type == PROTOCOL_TYPE

    def _topics_of(self, member: Member) -> dict[str, None] | None:
        """What a consumer subscribes to, under whichever protocol; ``None`` if unreadable.

        The rest of a subscription, such as what the member owns, is other after each restart.
        """
        if not self.is_of_consumers:
            return None
        try:
            return dict.fromkeys(read_subscription(member.protocols[0][1]).topics)
        except EmbeddedProtocolError:
            return None

    # --- administration -----------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""
        return self.state in (EMPTY, DEAD)

    @property
    def is_idle(self) -> bool:
        """Whether it is empty and nobody is about to join."""
        return self.is_empty and not self._pending

    def tombstones(self) -> list[Record]:
        """What makes a replay forget the group, but for its offsets."""
        return [ClassicGroupForgotten(self.group_id)]

    def describe(self) -> GroupDescription:
        """The group for an administrator; who reads what is known in a stable one only."""
        stable = self.state == STABLE
        members = tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.subscription(self.protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in self.members
        )
        protocol = (self.protocol or "") if stable else ""
        return GroupDescription(
            self.group_id, self.state, self.protocol_type or "", protocol, members
        )

    # --- joining ------------------------------------------------------------------------------

    def _has_room(self, member_id: str) -> bool:
        """Whether one more may join; in a rebalance, those count who have joined already.

        So a group that is larger than allowed, because the limit was lowered, loses the last
        ones to join again.
        """
        most = self._settings().group_max_size
        if self.state == PREPARING:
            return member_id in self._joining or len(self._joining) < most
        if self.state in (COMPLETING, STABLE):
            return member_id in self.members or len(self.members) < most
        return True

    def _is_too_large(self) -> bool:
        return len(self.members) > self._settings().group_max_size

    def _refuse(self, now: Millis, draft: Draft, member_id: str, to: Waiter) -> None:
        most = self._settings().group_max_size
        draft.reply(to, GroupFullError(f"group {self.group_id!r} has its {most} members"))
        self._uninvite(member_id)
        if member_id in self.members:
            self._remove(draft, member_id)
        self._go_on_without(now, draft, removed=False)

    def _speaks_with(self, command: Join) -> bool:
        if self.state == EMPTY:
            return bool(command.protocol_type and command.protocols)
        same_type = command.protocol_type == self.protocol_type
        return same_type and self.members.supports(command.protocols)

    def _foreign(self, command: Join) -> str:
        names = ", ".join(name for name, _ in command.protocols) or "none"
        return (
            f"group {self.group_id!r} of type {self.protocol_type!r} has no protocol in common "
            f"with a member of type {command.protocol_type!r} that speaks {names}"
        )

    def _join_new(self, now: Millis, draft: Draft, command: Join, to: Waiter) -> None:
        instance_id = command.instance_id
        name = command.client_id if instance_id is None else instance_id
        member_id = f"{name}-{self._new_id()}"
        replaced = None if instance_id is None else self.members.of_instance(instance_id)
        if replaced is not None:
            self._replace(now, draft, command, replaced, member_id, to)
        elif instance_id is None and command.requires_member_id:
            self._invite(now, member_id, command)
            draft.reply(to, MemberIdRequiredError(member_id))
        else:
            self._admit(now, draft, command, member_id, to)

    def _join_again(self, now: Millis, draft: Draft, command: Join, to: Waiter) -> None:
        """A member joins anew: because it must, or wants to, or did not get the last answer."""
        problem = self._check_member(command.member_id, command.instance_id)
        if problem is not None:
            draft.reply(to, problem)
            return
        member = self.members[command.member_id]
        # A leader that joins a stable group again wants a rebalance: it may see new partitions.
        may_want = self.state == STABLE and member.member_id == self.members.leader
        waits_anyway = self.state == PREPARING
        if waits_anyway or may_want or member.protocols != command.protocols:
            self._admit_again(now, draft, command, member, to)
        else:
            draft.reply(to, self._joined(member))

    def _replace(
        self, now: Millis, draft: Draft, command: Join, old_id: str, new_id: str, to: Waiter
    ) -> None:
        """A static member is back, as a restart knows no member id: the old one is fenced."""
        led_by = self.members.leader
        member = self._fence(draft, old_id, new_id)
        topics = self._topics_of(member)
        self.members.update(member, command)
        self._hear(now, member)
        same_protocol = self.members.select_protocol() == self.protocol
        if self.state == STABLE and same_protocol and self._topics_of(member) == topics:
            self._resume(now, draft, command, member, led_by or "", to)
        else:
            # A leader who is sharing out does not know the new id: that must begin anew too.
            self._wait(draft, self._joining, new_id, to)
            self._rebalance(now, draft)

    def _resume(
        self,
        now: Millis,
        draft: Draft,
        command: Join,
        member: Member,
        led_by: str,
        to: Waiter,
    ) -> None:
        """Let a static member go on with what it had, in the same generation.

        A leader that comes back must not assign.  One that cannot be told so is told that it
        does not lead.
        """
        assigned = {other.member_id: other.assignment for other in self.members}
        draft.records.append(self._stored(now, assigned))
        joined = self._joined(member)
        if not command.may_skip_assignment:
            joined = joined._replace(leader=led_by, members=())
        elif member.member_id == self.members.leader:
            joined = joined._replace(skip_assignment=True)
        draft.reply(to, joined)

    # --- leaving ------------------------------------------------------------------------------

    def _leave_one(self, draft: Draft, leaving: Leaving) -> WaystationError | None:
        member_id, instance_id = leaving
        if member_id in self._pending:
            self._uninvite(member_id)
            return None
        if not member_id and instance_id is not None:
            member_id = self.members.of_instance(instance_id) or ""
        problem = self._check_member(member_id, instance_id)
        if problem is None:
            self._remove(draft, member_id)
        return problem

    # --- checks -------------------------------------------------------------------------------

    def _check_member(self, member_id: str, instance_id: str | None) -> WaystationError | None:
        """Why the request is not a member's, if it is not."""
        if instance_id is not None:
            holder = self.members.of_instance(instance_id)
            if holder is not None and holder != member_id:
                return self._fenced(member_id)
            if holder is None:
                return self._unknown(member_id)
        return None if member_id in self.members else self._unknown(member_id)

    def _check_generation(self, command: Heartbeat | Sync) -> WaystationError | None:
        problem = self._check_member(command.member_id, command.instance_id)
        if problem is None and command.generation != self.generation:
            return IllegalGenerationError(
                f"group {self.group_id!r} is in generation {self.generation}, "
                f"not in {command.generation}"
            )
        return problem

    def _check_sync(self, command: Sync) -> WaystationError | None:
        problem = self._check_generation(command)
        if problem is not None:
            return problem
        for said, is_so in (
            (command.protocol_type, self.protocol_type),
            (command.protocol, self.protocol),
        ):
            if said is not None and is_so is not None and said != is_so:
                return InconsistentProtocolError(
                    f"group {self.group_id!r} speaks {is_so!r}, not {said!r}"
                )
        return None
