"""One group of the server-side protocol (KIP-848): members ask, the server shares out.

A member heartbeats with what it wants and owns, and is told what to read and its epoch.  The
group is Empty without members, Assigning between a new epoch and its target (which no one ever
sees, for both come with one event), Reconciling while someone is on its way to its target, else
Stable.  Promises, whatever members do:

1. no partition is held by two members: it changes hands only when the one who had it says that
   it gave it up, or is removed;
2. whoever keeps a partition is not disturbed when others come and go;
3. a member that lost an answer goes on by repeating its request;
4. a member that is silent, or keeps what it shall give up, is removed when its time is over;
5. what is answered rests on records only, so a replay continues where the group was.

Members that still speak the classic protocol are served by ``classic_members.py``.
"""

from collections.abc import Callable

from waystation.groups.book import Book, BookDraft
from waystation.groups.classic_members import ClassicMembers
from waystation.groups.commands import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatDone,
    ConsumerMemberDescription,
    GroupDescription,
    Heartbeat,
    Join,
    Leave,
    Sync,
    TopicsSeen,
)
from waystation.groups.expiry import Retention
from waystation.groups.heartbeats import (
    asks_for_all,
    check_heartbeat,
    is_leaving,
    subscription_after,
)
from waystation.groups.membership import Membership
from waystation.groups.migration import downgrade, may_downgrade
from waystation.groups.partition_sets import flat
from waystation.groups.reconciliation import (
    JOINING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
    MemberState,
    away_for_a_while,
    check_epoch,
    is_reconciled,
)
from waystation.groups.records import (
    ConsumerMemberForgotten,
    ConsumerMemberStored,
    MemberCurrentForgotten,
    MemberCurrentStored,
    MemberTargetForgotten,
    Record,
)
from waystation.groups.settings import GroupSettings
from waystation.groups.targets import (
    metadata_hash,
    preferred_assignor,
    resolve_again,
    retarget,
    topics_of,
)
from waystation.groups.watch import Watch
from waystation.model.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    StaleMemberEpochError,
    WaystationError,
)
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis

EMPTY = "Empty"
ASSIGNING = "Assigning"
RECONCILING = "Reconciling"
STABLE = "Stable"
DEAD = "Dead"

AT_ONCE = Millis(0)


class ConsumerGroup:
    """One group; nobody waits in it, for every request is answered at once."""

    kind = "consumer"

    __slots__ = (
        "_book",
        "_classic",
        "_members",
        "_new_id",
        "_settings",
        "_topics",
        "_topics_version",
        "_unwatched",
        "_watch",
        "group_id",
    )

    def __init__(
        self,
        group_id: str,
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
    ) -> None:
        self.group_id = group_id
        self._settings, self._topics, self._new_id = settings, topics, new_id
        self._topics_version = topics.version
        self._book = Book(group_id)
        self._watch = Watch()
        self._unwatched = False
        """Whether there may be members whose sessions have not begun here."""
        self._members = Membership(self._book, settings, topics)
        self._classic = ClassicMembers(self._members, self._watch, settings, topics, new_id)

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take over one record."""
        self._book.apply(record)
        match record:
            case ConsumerMemberStored():
                self._unwatched |= record.member_id not in self._watch.sessions
            case ConsumerMemberForgotten():
                self._watch.forget(record.member_id)

    def loaded(self, now: Millis) -> Outcome[Record]:
        """Give every member its session to show that it is alive, and make up for what was
        missed: topics that changed meanwhile, and the rest of an event that was cut off.
        """
        self._watch_all(now)
        draft = BookDraft(self._book)
        self._forget_strangers(draft)
        self._follow_topics(draft, now)
        if draft.book.target_epoch != draft.book.epoch:
            retarget(draft, now, self._topics, self._settings().group_consumer_assignors)
        return draft.outcome()

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """When someone's time is up; at once if there is something to do."""
        if self._unwatched or self.wants_downgrade:
            return AT_ONCE
        return self._watch.earliest()

    def tick(self, now: Millis) -> Outcome[Record]:
        """Remove those who are late, and share out what they held; or give way to a classic
        group, if its members are all that are left.
        """
        if self._unwatched:
            self._watch_all(now)
        late = [member for member in self._watch.late(now) if member in self._book.members]
        draft = BookDraft(self._book)
        if late:
            self._members.remove(draft, now, late)
        elif self.wants_downgrade:
            return Outcome(downgrade(self._book, now, self._topics))
        return draft.outcome()

    def topics_changed(self, now: Millis) -> Outcome[Record]:
        """Share out anew if the topics are other ones for those who subscribe to them."""
        draft = BookDraft(self._book)
        if self._topics.version != self._topics_version:
            self._follow_topics(draft, now)
        return draft.outcome()

    def abandon(self) -> list[Waiter]:
        """Everyone who waits: nobody."""
        return []

    # --- members' requests --------------------------------------------------------------------

    def heartbeat(self, now: Millis, command: ConsumerHeartbeat, to: Waiter) -> Outcome[Record]:
        """Let a member join, go on, or leave."""
        draft = BookDraft(self._book)
        try:
            check_heartbeat(command, self._settings().group_consumer_assignors)
            answer = self._leave if is_leaving(command) else self._go_on
            draft.reply(to, answer(draft, now, command))
        except WaystationError as error:
            return Outcome(replies=[Reply(to, error)])
        return draft.outcome()

    def classic_join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Record]:
        """Let a member of the classic protocol join, or join again."""
        return self._classic.join(now, command, to)

    def classic_sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Record]:
        """Tell a member of the classic protocol what to read."""
        return self._classic.sync(now, command, to)

    def classic_heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Record]:
        """Tell a member of the classic protocol whether it must join again."""
        return self._classic.heartbeat(now, command, to)

    def classic_leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Record]:
        """Let members of the classic protocol go."""
        return self._classic.leave(now, command, to)

    # --- offsets ------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        instance_id: str | None = None,
        *,
        in_transaction: bool = False,
    ) -> WaystationError | None:
        """Why the member may not commit offsets, if it may not.

        In a transaction it need not say which member it is.
        """
        if epoch < 0 and self.is_empty:
            return None  # nobody to contradict: a program without group membership, or a person
        if in_transaction and epoch < 0 and not member_id and instance_id is None:
            return None
        return self._check_epoch(member_id, epoch, instance_id)

    def check_fetch(self, member_id: str | None, epoch: int) -> WaystationError | None:
        """Why the member may not fetch offsets, if it may not; others always may."""
        if not member_id and epoch < 0:
            return None
        return self._check_epoch(member_id or "", epoch, None)

    def heard(self, now: Millis, member_id: str) -> None:
        """A commit shows that a classic member is alive; others heartbeat whatever they do."""
        member = self._book.members.get(member_id)
        if member is not None and member.classic is not None:
            self._watch.sessions.set(member_id, Millis(now + member.classic.session_timeout_ms))

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return any(topic in topics_of(self._book, m) for m in self._book.members.values())

    def retention(self) -> Retention | None:
        """From when on offsets grow old: since the last member left; with members, those of
        topics that nobody reads, since their commit.
        """
        if self.is_empty:
            return Retention(None if self._book.targets_at < 0 else self._book.targets_at)
        return Retention(None, self.subscribes_to)

    # --- administration -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        """As Kafka calls it."""
        book = self._book
        if book.is_forgotten:
            return DEAD
        if not book.members:
            return EMPTY
        if book.epoch > book.target_epoch:
            return ASSIGNING
        if all(is_reconciled(book.current(m), book.target_epoch) for m in book.members):
            return STABLE
        return RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it may be deleted."""
        return not self._book.members

    @property
    def is_idle(self) -> bool:
        """Whether it is empty; nobody is ever half in."""
        return self.is_empty

    @property
    def is_remembered(self) -> bool:
        """Whether a replay would find it."""
        return self._book.epoch > 0 and not self._book.is_forgotten

    @property
    def book(self) -> Book:
        """What is remembered, to be read only."""
        return self._book

    @property
    def wants_downgrade(self) -> bool:
        """Whether it shall give way to a classic group."""
        return may_downgrade(self._book, self._settings())

    def tombstones(self) -> list[Record]:
        """What makes a replay forget the group, but for its offsets."""
        return self._book.tombstones()

    def describe(self) -> ConsumerGroupDescription:
        """The group for an administrator."""
        book = self._book
        return ConsumerGroupDescription(
            self.group_id,
            self.state,
            book.epoch,
            book.target_epoch,
            preferred_assignor(book, self._settings().group_consumer_assignors),
            tuple(self._describe_member(member) for member in book.members.values()),
        )

    def describe_as_classic(self) -> GroupDescription:
        """The group for tools that know classic groups only."""
        return self._classic.describe(self.state)

    # --- parts --------------------------------------------------------------------------------

    def _go_on(
        self, draft: BookDraft, now: Millis, command: ConsumerHeartbeat
    ) -> ConsumerHeartbeatDone:
        member_id = command.member_id or self._new_id()
        before = self._enter(draft, command, member_id)
        was_reading = draft.book.current(member_id)
        after = subscription_after(before, command, member_id)
        self._members.subscribe(draft, now, before, after)
        owned = None if command.owned is None else flat(command.owned)
        current = self._members.step(draft, member_id, owned)
        self._expect(now, after, was_reading, current)
        is_news = asks_for_all(command) or current.assigned != was_reading.assigned
        return ConsumerHeartbeatDone(
            member_id,
            current.epoch,
            self._settings().group_consumer_heartbeat_interval_ms,
            current.assigned if is_news else None,
        )

    def _enter(
        self, draft: BookDraft, command: ConsumerHeartbeat, member_id: str
    ) -> ConsumerMemberStored | None:
        """The member as it is known; ``None`` if it is new."""
        if command.member_epoch == JOINING_EPOCH:
            return self._members.admit(draft, member_id, command.instance_id, is_classic=False)
        member = self._members.member(member_id, command.instance_id)
        if member.classic is not None:
            raise FencedMemberEpochError(
                f"member {member_id!r} speaks the classic protocol so far: "
                "join with epoch 0 to speak the new one"
            )
        owned = None if command.owned is None else flat(command.owned)
        check_epoch(self._book.current(member_id), command.member_epoch, owned)
        return member

    def _expect(
        self,
        now: Millis,
        member: ConsumerMemberStored,
        before: MemberCurrentStored,
        current: MemberCurrentStored,
    ) -> None:
        """Wait for the member's next heartbeat, and for it to give up what it must."""
        member_id = member.member_id
        watch = self._watch
        session_ms = self._settings().group_consumer_session_timeout_ms
        watch.sessions.set(member_id, Millis(now + session_ms))
        watch.joins.cancel(member_id)
        watch.syncs.cancel(member_id)
        if current.state != MemberState.UNREVOKED_PARTITIONS:
            watch.revocations.cancel(member_id)
        elif current.revoking != before.revoking:
            watch.revocations.set(member_id, Millis(now + member.rebalance_timeout_ms))

    def _leave(
        self, draft: BookDraft, now: Millis, command: ConsumerHeartbeat
    ) -> ConsumerHeartbeatDone:
        member = self._members.member(command.member_id, command.instance_id)
        member_id = member.member_id
        self._watch.forget(member_id)
        if command.member_epoch == LEAVING_FOR_A_WHILE_EPOCH:
            draft.note(away_for_a_while(draft.book.current(member_id)))
            session_ms = self._settings().group_consumer_session_timeout_ms
            self._watch.sessions.set(member_id, Millis(now + session_ms))
        else:
            self._members.remove(draft, now, [member_id])
        return ConsumerHeartbeatDone(member_id, command.member_epoch, 0, None)

    def _watch_all(self, now: Millis) -> None:
        """Begin the sessions of all members who have none yet."""
        self._unwatched = False
        for member_id, member in self._book.members.items():
            if member_id in self._watch.sessions:
                continue
            session_ms = self._settings().group_consumer_session_timeout_ms
            if member.classic is not None:
                session_ms = member.classic.session_timeout_ms
            self._watch.sessions.set(member_id, Millis(now + session_ms))
            if self._book.current(member_id).revoking and member.classic is None:
                until = Millis(now + member.rebalance_timeout_ms)
                self._watch.revocations.set(member_id, until)

    def _follow_topics(self, draft: BookDraft, now: Millis) -> None:
        self._topics_version = self._topics.version
        resolve_again(draft, now, self._topics)
        if draft.book.members and (
            draft.records or metadata_hash(draft.book, self._topics) != draft.book.metadata_hash
        ):
            self._members.share_out(draft, now)

    def _forget_strangers(self, draft: BookDraft) -> None:
        """Forget what is left of members who are none: they were cut off while they left."""
        book = self._book
        for member_id in [m for m in book.currents if m not in book.members]:
            draft.note(MemberCurrentForgotten(self.group_id, member_id))
        for member_id in [m for m in book.targets if m not in book.members]:
            draft.note(MemberTargetForgotten(self.group_id, member_id))

    def _check_epoch(
        self, member_id: str, epoch: int, instance_id: str | None
    ) -> WaystationError | None:
        try:
            member = self._members.member(member_id, instance_id)
        except WaystationError as error:
            return error
        known = self._book.current(member_id).epoch
        if epoch == known:
            return None
        said = f"member {member_id!r} of group {self.group_id!r} is in epoch {known}, not {epoch}"
        if member.classic is not None:
            return IllegalGenerationError(said)
        return StaleMemberEpochError(said)

    def _describe_member(self, member: ConsumerMemberStored) -> ConsumerMemberDescription:
        current = self._book.current(member.member_id)
        return ConsumerMemberDescription(
            member.member_id,
            member.instance_id,
            member.rack_id,
            current.epoch,
            member.client_id,
            member.client_host,
            member.topics,
            member.topic_regex,
            current.assigned,
            self._book.targets.get(member.member_id, ()),
            member.classic is not None,
        )
