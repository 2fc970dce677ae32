"""All groups of one partition of ``__consumer_offsets``, and their offsets: the way in.

A group is of one of two kinds, each in a class of its own: ``classic.py``, whose members share
out partitions themselves, and ``consumer.py``, to whom the coordinator assigns them.  A group
that only stores offsets has no object at all: it is there as long as its offsets are.  Promises:

1. what is answered rests on records that are appended first: a replay knows all of it;
2. what is remembered changes in ``apply`` only; events change no more than who waits, and for
   whom;
3. an error in a request is an answer to it and touches no other member.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Commit,
    ConsumerHeartbeat,
    DeleteOffsets,
    FetchOffsets,
    GroupDescription,
    GroupListing,
    Heartbeat,
    Join,
    Leave,
    Left,
    ProducersSeen,
    Sync,
    TopicsSeen,
    TransactionalCommit,
)
from waystation.groups.commits import Commits
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.draft import Draft
from waystation.groups.embedded import PROTOCOL_TYPE
from waystation.groups.inquiries import Inquiry
from waystation.groups.kinds import Group
from waystation.groups.migration import upgrade
from waystation.groups.rebalances import DEAD, EMPTY
from waystation.groups.records import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ConsumerGroupForgotten,
    ConsumerGroupStored,
    ConsumerMemberStored,
    GroupFact,
    MemberCurrentStored,
    MemberTargetStored,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    RegexResolved,
    TargetStored,
)
from waystation.groups.settings import GroupSettings
from waystation.model.deadlines import Deadlines
from waystation.model.errors import (
    GroupNotFoundError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.machines import InTransaction, Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.records.control import Marker

G = TypeVar("G", ClassicGroup, ConsumerGroup)

_JOINING_EPOCH = 0
# As much as Kafka keeps of a whole group by default; a group's record holds all its members.
_SUBSCRIPTION_BYTES_MAX = 1 << 20
_ASSIGNMENTS_BYTES_MAX = 32 << 20
# A member's id is made of its client's or instance's, and must fit into a record's key.
_ID_CHARACTERS_MAX = 4_096


class _AnyProducer:
    """A log that lets every producer write, as one without transactions does."""

    __slots__ = ()

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """Nobody is refused."""

    def refusal_of_marker(self, marker: Marker) -> None:
        """Nobody is refused."""


_ANY_PRODUCER = _AnyProducer()


class Groups:
    """One coordinator; ``topics`` is the cluster as it is now, ``new_id`` makes unique texts.

    ``producers`` is what the log knows of those whose transactions have offsets in it.
    """

    __slots__ = (
        "_commits",
        "_deadlines",
        "_groups",
        "_keep",
        "_new_id",
        "_pending",
        "_settings",
        "_topics",
        "_touched",
    )

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
        producers: ProducersSeen = _ANY_PRODUCER,
    ) -> None:
        self._settings, self._topics, self._new_id = settings, topics, new_id
        self._groups: dict[str, Group] = {}
        self._touched: dict[str, None] = {}  # groups whose next deadline may be another one
        self._deadlines = Deadlines()
        self._commits = Commits(self._groups, settings, topics, producers)
        self._keep, self._pending = self._commits.keep, self._commits.pending.groups

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Remember.  HOT: for offsets, see ``Offsets.keep``."""
        if isinstance(record, OffsetCommitted):
            self._keep(record)
            if self._pending:
                self._commits.pending.overtake(*record[:3])
        elif isinstance(record, OffsetForgotten | InTransaction | Marker):
            self._commits.apply(record)
        else:
            self._apply_to_group(record)
            self._touched[record.group_id] = None

    def loaded(self, now: Millis) -> Outcome[Record]:
        """The replay is over: members have their session time-outs to be heard of."""
        draft = Draft()
        for group in list(self._groups.values()):
            draft.add(self._settle(group, group.loaded(now)))
        draft.records.extend(self._commits.of_gone_topics())
        self._commits.loaded(now)
        return draft.outcome()

    def _apply_to_group(self, record: GroupFact) -> None:
        group_id = record.group_id
        match record:
            case ClassicGroupStored():
                self._of_kind(ClassicGroup, group_id).apply(record)
            case ClassicGroupForgotten():
                self._forget(ClassicGroup, record)
            case ConsumerGroupForgotten():
                self._forget(ConsumerGroup, record)
            case (
                ConsumerGroupStored()
                | ConsumerMemberStored()
                | TargetStored()
                | MemberTargetStored()
                | MemberCurrentStored()
                | RegexResolved()
            ):
                self._of_kind(ConsumerGroup, group_id).apply(record)
            case _:  # a part of a server-side group is forgotten, or went with the group
                group = self._groups.get(group_id)
                if isinstance(group, ConsumerGroup):
                    group.apply(record)

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        sweep_at = self._commits.sweep_at
        if sweep_at is None:
            return None  # not loaded yet
        for group_id in self._touched:
            group = self._groups.get(group_id)
            self._deadlines.set(group_id, None if group is None else group.next_deadline())
        self._touched.clear()
        earliest = self._deadlines.earliest()
        return sweep_at if earliest is None else min(earliest, sweep_at)

    def tick(self, now: Millis) -> Outcome[Record]:
        """Do what has fallen due."""
        draft = Draft()
        self.next_deadline()  # asked for its effect: groups that were touched may be due
        for group_id in self._deadlines.due(now):
            group = self._groups[group_id]
            draft.add(self._settle(group, group.tick(now)))
        if self._commits.sweep_at is not None and self._commits.sweep_at <= now:
            draft.records.extend(self._commits.sweep(now))
        return draft.outcome()

    def topics_changed(self, now: Millis) -> Outcome[Record]:
        """Forget the offsets of topics that are gone, and assign anew what has changed.

        Members of classic groups find out about new partitions themselves.
        """
        draft = Draft()
        draft.records.extend(self._commits.of_gone_topics())
        for group in list(self._groups.values()):
            if isinstance(group, ConsumerGroup):
                draft.add(self._settle(group, group.topics_changed(now)))
        return draft.outcome()

    def abandon(self) -> list[Waiter]:
        """Everyone who waits; the machine is of no use afterwards."""
        return [to for group in self._groups.values() for to in group.abandon()]

    # --- members of classic groups ------------------------------------------------------------

    def join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Record]:
        """Answered by ``Joined`` once the rebalance is over."""
        problem = self._check_session_timeout(command) or _check_subscription(command)
        if problem is not None:
            return _answer(to, problem)
        group = self._groups.get(command.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self._settle(group, group.classic_join(now, command, to))
        if group is None and command.member_id:
            return _answer(to, _unknown_member(command.group_id, command.member_id))
        draft = Draft()
        classic = self._instead_of_empty(ClassicGroup, command.group_id, draft)
        draft.add(classic.join(now, command, to))
        return self._settle(classic, draft.outcome())

    def sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Record]:
        """Answered by ``Synced`` once the leader has shared out."""
        problem = _check_assignments(command)
        if problem is not None:
            return _answer(to, problem)
        match self._groups.get(command.group_id):
            case None:
                return _answer(to, _unknown_member(command.group_id, command.member_id))
            case ConsumerGroup() as consumer:
                return self._settle(consumer, consumer.classic_sync(now, command, to))
            case classic:
                return self._settle(classic, classic.sync(now, command, to))

    def heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Record]:
        """Answered by ``None``."""
        match self._groups.get(command.group_id):
            case None:
                return _answer(to, _unknown_member(command.group_id, command.member_id))
            case ConsumerGroup() as consumer:
                return self._settle(consumer, consumer.classic_heartbeat(now, command, to))
            case classic:
                return self._settle(classic, classic.heartbeat(now, command, to))

    def leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Record]:
        """Answered by ``Left``."""
        match self._groups.get(command.group_id):
            case None:
                refusals = [
                    (leaving, _unknown_member(command.group_id, leaving.member_id))
                    for leaving in command.members
                ]
                return _answer(to, Left(tuple(refusals)))
            case ConsumerGroup() as consumer:
                return self._settle(consumer, consumer.classic_leave(now, command, to))
            case classic:
                return self._settle(classic, classic.leave(now, command, to))

    # --- members of the server-side protocol --------------------------------------------------

    def consumer_heartbeat(
        self, now: Millis, command: ConsumerHeartbeat, to: Waiter
    ) -> Outcome[Record]:
        """Answered by ``ConsumerHeartbeatDone``."""
        group = self._groups.get(command.group_id)
        if isinstance(group, ConsumerGroup):
            return self._settle(group, group.heartbeat(now, command, to))
        if command.member_epoch != _JOINING_EPOCH:
            return _answer(to, _no_group(command.group_id))
        if group is not None and not group.is_empty:
            return self._upgrade(now, group, command, to)
        draft = Draft()
        consumer = self._instead_of_empty(ConsumerGroup, command.group_id, draft)
        draft.add(consumer.heartbeat(now, command, to))
        return self._settle(consumer, draft.outcome())

    # --- offsets ------------------------------------------------------------------------------

    def commit(self, now: Millis, command: Commit, to: Waiter) -> Outcome[Record]:
        """Answered by ``Committed``."""
        self._touched[command.group_id] = None
        return self._commits.commit(now, command, to)

    def inquire(self, producer_id: ProducerId) -> Inquiry:
        """Begun by who asks whether there is a transaction, for a commit in it to show."""
        return self._commits.inquiries.begin(producer_id)

    def commit_in_transaction(
        self, now: Millis, command: TransactionalCommit, to: Waiter
    ) -> Outcome[Record]:
        """Answered by ``Committed``: the offsets count if the transaction is committed."""
        self._touched[command.group_id] = None
        return self._commits.commit_in_transaction(now, command, to)

    def end_transaction(self, now: Millis, marker: Marker, to: Waiter) -> Outcome[Record]:
        """Let the offsets of a transaction count, or not; answered by ``None``."""
        return self._commits.end_transaction(marker, to)

    def fetch_offsets(self, now: Millis, command: FetchOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``FetchedOffsets``."""
        return self._commits.fetch(command, to)

    def delete_offsets(self, now: Millis, command: DeleteOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``DeletedOffsets``."""
        return self._commits.delete(command, to)

    def positions(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by a tuple of ``Position``: all that the group has committed, and where."""
        return self._commits.positions(group_id, to)

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed."""
        return self._commits.all()

    # --- administration -----------------------------------------------------------------------

    def describe(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by ``GroupDescription``, whose state is "Dead" where there is no such group."""
        match self._groups.get(group_id):
            case None:
                state = EMPTY if group_id in self._commits else DEAD
                return _answer(to, GroupDescription(group_id, state, "", "", ()))
            case ConsumerGroup() as consumer:
                return _answer(to, consumer.describe_as_classic())
            case classic:
                return _answer(to, classic.describe())

    def describe_consumer(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by ``ConsumerGroupDescription``."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return _answer(to, group.describe())
        return _answer(to, _no_group(group_id))

    def delete(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Forget a group without members and all its offsets; answered by ``None``."""
        group = self._groups.get(group_id)
        if group is None and group_id not in self._commits:
            return _answer(to, _no_group(group_id))
        if group is not None and not group.is_empty:
            return _answer(to, NonEmptyGroupError(f"group {group_id!r} has members"))
        records = self._commits.tombstones(group_id)
        if group is not None:
            records.extend(group.tombstones())
        return Outcome(records, [Reply(to, None)])

    def list(self) -> list[GroupListing]:
        """Every group, also those that only store offsets."""
        listed = [
            GroupListing(group_id, _protocol_type(group), group.state, group.kind, _size(group))
            for group_id, group in self._groups.items()
        ]
        listed.extend(
            GroupListing(group_id, "", EMPTY, ClassicGroup.kind)
            for group_id in self._commits.group_ids()
            if group_id not in self._groups
        )
        return listed

    # --- parts --------------------------------------------------------------------------------

    def _of_kind(self, kind: type[G], group_id: str) -> G:
        """The group, made if it is not there or of the other kind."""
        group = self._groups.get(group_id)
        if isinstance(group, kind):
            return group
        made = self._new_group(kind, group_id)
        self._groups[group_id] = made
        return made

    def _new_group(self, kind: type[G], group_id: str) -> G:
        if issubclass(kind, ClassicGroup):
            return kind(group_id, self._settings, self._new_id)
        return kind(group_id, self._settings, self._topics, self._new_id)

    def _instead_of_empty(self, kind: type[G], group_id: str, draft: Draft) -> G:
        """The group; one without members, of the other kind, makes way for it."""
        group = self._groups.get(group_id)
        if group is not None and not isinstance(group, kind):
            draft.records.extend(group.tombstones())
        return self._of_kind(kind, group_id)

    def _upgrade(
        self, now: Millis, classic: ClassicGroup, command: ConsumerHeartbeat, to: Waiter
    ) -> Outcome[Record]:
        """Let a member of the new protocol join those of a classic group, which changes its kind.

        Whoever waits in it is told to join again, and will find the new one.
        """
        draft = Draft()
        try:
            draft.records.extend(upgrade(classic, self._settings(), self._topics))
        except WaystationError as error:
            return _answer(to, error)
        consumer = self._new_group(ConsumerGroup, command.group_id)
        for record in draft.records:
            if not isinstance(record, ClassicGroupForgotten):
                consumer.apply(record)
        outcome = consumer.heartbeat(now, command, to)
        if not outcome.records:
            return outcome  # refused: the group stays as it is
        draft.add(outcome)
        for waiting in classic.abandon():
            draft.reply(waiting, RebalanceInProgressError("the group changes its kind: join again"))
        return draft.outcome()

    def _forget(
        self, kind: type[Group], record: ClassicGroupForgotten | ConsumerGroupForgotten
    ) -> None:
        """Let the group go, unless one of the other kind has taken its place."""
        group = self._groups.get(record.group_id)
        if isinstance(group, kind):
            group.apply(record)
            del self._groups[record.group_id]

    def _settle(self, group: Group, outcome: Outcome[Record]) -> Outcome[Record]:
        """After an event: let the group go if it came to nothing."""
        self._touched[group.group_id] = None
        if group.is_idle and not group.is_remembered and not outcome.records:
            del self._groups[group.group_id]
        return outcome

    def _check_session_timeout(self, command: Join) -> WaystationError | None:
        settings, timeout_ms = self._settings(), command.session_timeout_ms
        least_ms = settings.group_min_session_timeout_ms
        most_ms = settings.group_max_session_timeout_ms
        if least_ms <= timeout_ms <= most_ms:
            return None
        return InvalidSessionTimeoutError(
            f"a session time-out of {timeout_ms} ms: must be {least_ms} to {most_ms} "
            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )


def _answer(to: Waiter, answer: object) -> Outcome[Record]:
    return Outcome((), [Reply(to, answer)])


def _check_subscription(command: Join) -> WaystationError | None:
    """A decision that fits into no record would end the machine, and harm every group in it."""
    nbytes = sum(len(name) + len(subscription) for name, subscription in command.protocols)
    named = max(len(command.client_id), len(command.instance_id or ""), len(command.member_id))
    if named > _ID_CHARACTERS_MAX:
        return InvalidRequestError(
            f"an id of {named} characters: a client, instance or member id may have "
            f"{_ID_CHARACTERS_MAX}"
        )
    if nbytes <= _SUBSCRIPTION_BYTES_MAX:
        return None
    return InvalidRequestError(
        f"a subscription of {nbytes} bytes: at most {_SUBSCRIPTION_BYTES_MAX} can be kept"
    )


def _check_assignments(command: Sync) -> WaystationError | None:
    nbytes = sum(len(name) + len(assignment) for name, assignment in command.assignments)
    if nbytes <= _ASSIGNMENTS_BYTES_MAX:
        return None
    return InvalidRequestError(
        f"assignments of {nbytes} bytes: at most {_ASSIGNMENTS_BYTES_MAX} can be kept"
    )


def _unknown_member(group_id: str, member_id: str) -> UnknownMemberError:
    return UnknownMemberError(
        f"there is no group {group_id!r} with a member {member_id!r}: join without a member id"
    )


def _no_group(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(f"there is no group {group_id!r}")


def _size(group: Group) -> int:
    return len(group.book.members if isinstance(group, ConsumerGroup) else group.members)


def _protocol_type(group: Group) -> str:
    return PROTOCOL_TYPE if isinstance(group, ConsumerGroup) else group.protocol_type or ""
