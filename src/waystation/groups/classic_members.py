"""Members of a server-side group that still speak the classic protocol.

They join, sync and heartbeat as ever, but nobody of them leads: what they read is decided as
for all others, and their generation is their epoch.  A join is answered at once.  Where a member
of the new protocol would be told of a change by its heartbeat, they are told to join again:

1. when a new epoch has begun that they have not joined yet;
2. while they must confirm, by the partitions that they name when they join, that they gave
   something up: cooperative ones name what they still own, eager ones own nothing when they join
   (who names more than it was ever given is told to begin anew);
3. when what they wait for has become free.
"""

from collections.abc import Callable, Iterable

from waystation.groups.book import Book, BookDraft
from waystation.groups.commands import (
    GroupDescription,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaving,
    Left,
    MemberDescription,
    Sync,
    Synced,
    TopicsSeen,
)
from waystation.groups.embedded import (
    NEWEST_VERSION,
    PROTOCOL_TYPE,
    Assignment,
    EmbeddedProtocolError,
    NamedPartitions,
    Subscription,
    read_subscription,
    write_assignment,
    write_subscription,
)
from waystation.groups.membership import Membership
from waystation.groups.partition_sets import PartitionOf, flat
from waystation.groups.reconciliation import MemberState
from waystation.groups.records import (
    ClassicProtocolMember,
    ConsumerMemberStored,
    MemberCurrentStored,
    Partitions,
    Record,
)
from waystation.groups.settings import GroupSettings
from waystation.groups.targets import topics_of
from waystation.groups.watch import Watch
from waystation.model.errors import (
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis

_CLASSIC_STATES = {"Assigning": "PreparingRebalance", "Reconciling": "PreparingRebalance"}


class ClassicMembers:
    """Serves the classic protocol to the members of one server-side group."""

    __slots__ = ("_book", "_members", "_new_id", "_settings", "_topics", "_watch")

    def __init__(
        self,
        members: Membership,
        watch: Watch,
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
    ) -> None:
        self._members, self._watch, self._settings = members, watch, settings
        self._topics, self._new_id = topics, new_id
        self._book: Book = members.book

    def join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Record]:
        """Let a member in, or in again, and take it as far towards its target as it can go."""
        draft = BookDraft(self._book)
        try:
            draft.reply(to, self._join(draft, now, command))
        except WaystationError as error:
            return Outcome(replies=[Reply(to, error)])
        return draft.outcome()

    def sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Record]:
        """Tell the member what to read; what it says itself of others does not count."""
        try:
            answer: object = self._sync(now, command)
        except WaystationError as error:
            answer = error
        return Outcome(replies=[Reply(to, answer)])

    def heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Record]:
        """Note that the member is alive, and tell it whether it must join again."""
        answer: object = None
        try:
            member = self._member_of(command)
            self._hear(now, member)
            if self._must_join(self._book.current(member.member_id)):
                answer = self._rebalancing(now, member)
        except WaystationError as error:
            answer = error
        return Outcome(replies=[Reply(to, answer)])

    def leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Record]:
        """Let members go at once."""
        draft = BookDraft(self._book)
        going: dict[str, None] = {}
        told = tuple((leaving, self._leave_one(leaving, going)) for leaving in command.members)
        if going:
            self._members.remove(draft, now, list(going))
        for member_id in going:
            self._watch.forget(member_id)
        draft.reply(to, Left(told))
        return draft.outcome()

    def describe(self, state: str) -> GroupDescription:
        """The whole group, as if all its members spoke the classic protocol."""
        book = self._book
        return GroupDescription(
            book.group_id,
            _CLASSIC_STATES.get(state, state),
            PROTOCOL_TYPE,
            self._common_protocol() or "",
            tuple(self._describe_member(member) for member in book.members.values()),
        )

    # --- joining ------------------------------------------------------------------------------

    def _join(self, draft: BookDraft, now: Millis, command: Join) -> Joined | WaystationError:
        self._check_join(command)
        subscription = _subscription(command.protocols)
        member_id = command.member_id or self._new_member_id(command)
        before = self._enter(draft, now, command, member_id)
        owned = self._by_id(subscription.owned)
        if not _may_own(draft.book.current(member_id), owned):
            return self._disown(draft, now, member_id)
        after = self._subscribed(command, member_id, subscription)
        self._members.subscribe(draft, now, before, after)
        current = self._members.step(draft, member_id, owned)
        self._expect_sync(now, after, current)
        protocol = command.protocols[0][0]
        return Joined(current.epoch, PROTOCOL_TYPE, protocol, "", member_id)

    def _enter(
        self, draft: BookDraft, now: Millis, command: Join, member_id: str
    ) -> ConsumerMemberStored | None:
        """The member as it is known; ``None`` if it is new.

        Who comes with an id that we neither know nor told it was removed meanwhile, and may
        believe that it owns partitions which others read by now: it must give up everything.
        """
        instance_id, invitations = command.instance_id, self._watch.invitations
        is_static = instance_id is not None
        if command.member_id:
            if is_static or member_id in self._book.members or member_id not in invitations:
                return self._members.member(member_id, instance_id)
            invitations.cancel(member_id)
        before = self._members.admit(draft, member_id, instance_id, is_classic=True)
        if not command.member_id and not is_static and command.requires_member_id:
            invitations.set(member_id, Millis(now + command.session_timeout_ms))
            raise MemberIdRequiredError(member_id)
        return before

    def _disown(self, draft: BookDraft, now: Millis, member_id: str) -> WaystationError:
        """Let a member go that believes to own what is not its own, for it missed a generation.

        Until it has fetched what it shall read, it would go on with that in the new one.  Being
        told that it is unknown, it gives up everything and joins anew.
        """
        if member_id in draft.book.members:
            self._members.remove(draft, now, [member_id])
            self._watch.forget(member_id)
        return self._members.unknown(member_id)

    def _new_member_id(self, command: Join) -> str:
        return f"{command.instance_id or command.client_id}-{self._new_id()}"

    def _expect_sync(
        self, now: Millis, member: ConsumerMemberStored, current: MemberCurrentStored
    ) -> None:
        """Wait for the member to fetch what it shall read, and to give up what it must."""
        member_id, watch = member.member_id, self._watch
        until = Millis(now + member.rebalance_timeout_ms)
        self._hear(now, member)
        watch.joins.cancel(member_id)
        watch.syncs.set(member_id, until)
        if not current.revoking:
            watch.revocations.cancel(member_id)
        elif member_id not in watch.revocations:
            watch.revocations.set(member_id, until)

    def _check_join(self, command: Join) -> None:
        settings, timeout_ms = self._settings(), command.session_timeout_ms
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not low <= timeout_ms <= high:
            raise InvalidSessionTimeoutError(
                f"a session time-out of {timeout_ms} ms; it may be from {low} to {high} ms"
            )
        spoken = [name for name, _ in command.protocols]
        if command.protocol_type != PROTOCOL_TYPE or not self._is_understood(
            spoken, command.member_id
        ):
            raise InconsistentProtocolError(
                f"group {self._book.group_id!r} consists of consumers, and no protocol of "
                f"{', '.join(spoken) or 'none'} is known to all that speak the classic one"
            )

    def _is_understood(self, spoken: Iterable[str], member_id: str) -> bool:
        common = dict.fromkeys(spoken)
        for member in self._book.members.values():
            if member.classic is not None and member.member_id != member_id:
                known = dict(member.classic.protocols)
                common = {name: None for name in common if name in known}
        return bool(common)

    def _subscribed(
        self, command: Join, member_id: str, subscription: Subscription
    ) -> ConsumerMemberStored:
        timeout_ms = command.rebalance_timeout_ms
        return ConsumerMemberStored(
            self._book.group_id,
            member_id,
            command.instance_id,
            subscription.rack_id or None,
            command.client_id,
            command.client_host,
            tuple(sorted(dict.fromkeys(subscription.topics))),
            None,
            # Versions without a rebalance time-out use the session's for both.
            command.session_timeout_ms if timeout_ms < 0 else timeout_ms,
            None,
            ClassicProtocolMember(command.session_timeout_ms, command.protocols),
        )

    # --- afterwards ---------------------------------------------------------------------------

    def _sync(self, now: Millis, command: Sync) -> Synced:
        member = self._member_of(command)
        assert member.classic is not None
        protocol, metadata = member.classic.protocols[0]
        for said, is_so in ((command.protocol_type, PROTOCOL_TYPE), (command.protocol, protocol)):
            if said is not None and said != is_so:
                raise InconsistentProtocolError(
                    f"member {member.member_id!r} joined with {is_so!r}, not {said!r}"
                )
        self._hear(now, member)
        current = self._book.current(member.member_id)
        # Who must give up partitions has joined already: it learns here what to give up.
        if current.epoch < self._book.epoch and not current.revoking:
            raise self._rebalancing(now, member)
        self._watch.syncs.cancel(member.member_id)
        version = min(_version(metadata), NEWEST_VERSION)
        assignment = Assignment(self._by_name(current.assigned), version)
        return Synced(PROTOCOL_TYPE, protocol, write_assignment(assignment))

    def _must_join(self, current: MemberCurrentStored) -> bool:
        if current.epoch < self._book.epoch or current.revoking:
            return True
        return current.state == MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(
            current
        )

    def _waits_for_others(self, current: MemberCurrentStored) -> bool:
        target = self._book.targets.get(current.member_id, ())
        missing = flat(target) - flat(current.assigned)
        return any(self._book.owner(partition) is not None for partition in missing)

    def _leave_one(self, leaving: Leaving, going: dict[str, None]) -> WaystationError | None:
        """By instance id alone, an administrator removes a member, whatever it speaks."""
        member_id, instance_id = leaving
        try:
            if not member_id and instance_id is not None:
                member_id = self._book.of_instance(instance_id) or ""
                self._members.member(member_id, instance_id)
            else:
                self._speaker(member_id, instance_id)
        except WaystationError as error:
            return error
        if member_id in going:
            return self._members.unknown(member_id)
        going[member_id] = None
        return None

    # --- small parts --------------------------------------------------------------------------

    def _speaker(self, member_id: str, instance_id: str | None) -> ConsumerMemberStored:
        member = self._members.member(member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberError(f"member {member_id!r} does not speak the classic protocol")
        return member

    def _member_of(self, command: Sync | Heartbeat) -> ConsumerMemberStored:
        member = self._speaker(command.member_id, command.instance_id)
        epoch = self._book.current(member.member_id).epoch
        if command.generation != epoch:
            raise IllegalGenerationError(
                f"member {member.member_id!r} of group {self._book.group_id!r} is in generation "
                f"{epoch}, not in {command.generation}"
            )
        return member

    def _hear(self, now: Millis, member: ConsumerMemberStored) -> None:
        assert member.classic is not None
        until = Millis(now + member.classic.session_timeout_ms)
        self._watch.sessions.set(member.member_id, until)

    def _rebalancing(self, now: Millis, member: ConsumerMemberStored) -> RebalanceInProgressError:
        """The member is told to join, and from the first time on has its time-out to do so."""
        if member.member_id not in self._watch.joins:
            until = Millis(now + member.rebalance_timeout_ms)
            self._watch.joins.set(member.member_id, until)
        return RebalanceInProgressError(
            f"group {self._book.group_id!r} is sharing out anew: join again"
        )

    def _common_protocol(self) -> str | None:
        for member in self._book.members.values():
            for name, _ in member.classic.protocols if member.classic is not None else ():
                if self._is_understood([name], ""):
                    return name
        return None

    def _by_id(self, owned: NamedPartitions) -> set[PartitionOf]:
        return {
            (topic.id, index)
            for name, indexes in owned
            if (topic := self._topics.named(name)) is not None
            for index in indexes
        }

    def _by_name(self, partitions: Partitions) -> NamedPartitions:
        return tuple(
            (topic.name, indexes)
            for topic_id, indexes in partitions
            if (topic := self._topics.of_id(topic_id)) is not None
        )

    def _describe_member(self, member: ConsumerMemberStored) -> MemberDescription:
        current = self._book.current(member.member_id)
        topics = tuple(sorted(dict.fromkeys(topics_of(self._book, member))))
        assigned = self._by_name(current.assigned)
        return MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            write_subscription(Subscription(topics, rack_id=member.rack_id)),
            write_assignment(Assignment(assigned)),
        )


def _subscription(protocols: tuple[tuple[str, bytes], ...]) -> Subscription:
    """What the member wants; all its protocols say the same."""
    try:
        return read_subscription(protocols[0][1])
    except EmbeddedProtocolError as error:
        raise InconsistentProtocolError(f"the subscription cannot be read: {error}") from error


def _may_own(current: MemberCurrentStored, owned: set[PartitionOf]) -> bool:
    return owned <= flat(current.assigned) | flat(current.revoking)


def _version(metadata: bytes) -> int:
    return read_subscription(metadata).version
