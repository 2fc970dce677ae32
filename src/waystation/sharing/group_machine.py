"""All share groups of one partition of ``__consumer_offsets``: the way in.

1. What is answered rests on records that are appended first: a replay knows all of it.
2. What is remembered changes in ``apply`` only; events change no more than deadlines, and what
   was ordered.
3. A member that is silent for longer than its session is removed, and what it read is shared out.
4. Queues that have to begin are ordered until it is said that they have, and again after each
   load.

What follows from an event is decided in ``share_group.py``; this file keeps the groups and time.
"""

from collections.abc import Callable

from waystation.model.deadlines import Deadlines
from waystation.model.errors import (
    FencedMemberEpochError,
    GroupFullError,
    GroupNotFoundError,
    GroupSubscribedError,
    InvalidRequestError,
    NonEmptyGroupError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.sharing.group_commands import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    OffsetsPermit,
    QueuesDue,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatDone,
    TopicsSeen,
)
from waystation.sharing.group_records import (
    GroupRecord,
    Partitions,
    ShareGroupForgotten,
    ShareMemberForgotten,
    ShareMemberTargetForgotten,
    ShareQueuesForgotten,
    ShareTargetForgotten,
)
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_group import DEAD, Members, ShareGroup, member_after
from waystation.sharing.state_records import QueueId

NAME_CHARACTERS_MAX = 8_000
TOPICS_MAX = 10_000

Records = list[GroupRecord]

_FORGETTING = (
    ShareMemberForgotten,
    ShareMemberTargetForgotten,
    ShareTargetForgotten,
    ShareQueuesForgotten,
)


class ShareGroups:
    """One coordinator of share groups; ``orders`` is told each ``QueuesDue``."""

    __slots__ = (
        "_epochs",
        "_groups",
        "_new_id",
        "_of_group",
        "_ordered",
        "_orders",
        "_sessions",
        "_settings",
        "_topics",
        "_topics_version",
    )

    def __init__(
        self,
        settings: Callable[[], ShareSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
        orders: Waiter,
        of_group: Callable[[str], QueueSettings] | None = None,
    ) -> None:
        """``of_group`` are a group's own settings, where groups may have some."""
        self._settings, self._topics, self._new_id = settings, topics, new_id
        self._of_group = of_group
        self._orders = orders
        self._topics_version = topics.version
        self._groups: dict[str, ShareGroup] = {}
        self._sessions = Deadlines()
        self._epochs: dict[str, dict[str, int]] = {}
        """The epochs in which members were answered last; only shown, so not remembered."""
        self._ordered: dict[str, QueuesDue] = {}

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Remember."""
        if isinstance(record, ShareGroupForgotten):
            self._groups.pop(record.group_id, None)
            self._epochs.pop(record.group_id, None)
            self._ordered.pop(record.group_id, None)
            return
        group = self._groups.get(record.group_id)
        if group is None:
            if isinstance(record, _FORGETTING):
                return  # of a group that is gone
            group = self._groups[record.group_id] = ShareGroup(record.group_id)
        group.apply(record)

    def loaded(self, now: Millis) -> Outcome[GroupRecord]:
        """The replay is over: members have their sessions to be heard of."""
        records, replies = Records(), list[Reply]()
        for group in self._groups.values():
            for member_id in group.members:
                self._expect(now, group.group_id, member_id)
            records += group.topics_changed(self._topics)
            replies += self._order(group)
        return Outcome(records, replies)

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """When a member's session ends."""
        return self._sessions.earliest()

    def tick(self, now: Millis) -> Outcome[GroupRecord]:
        """Remove those who are late, and share out what they read."""
        late: dict[str, list[str]] = {}
        for key in self._sessions.due(now):
            group_id, _, member_id = key.rpartition("\0")
            late.setdefault(group_id, []).append(member_id)
        records = Records()
        for group_id, member_ids in late.items():
            group = self._groups.get(group_id)
            gone = [one for one in member_ids if group is not None and one in group.members]
            if group is not None and gone:
                records += group.left(gone, self._topics)
            for member_id in member_ids:
                self._epochs.get(group_id, {}).pop(member_id, None)
        return Outcome(records)

    def topics_changed(self, now: Millis) -> Outcome[GroupRecord]:
        """Follow topics that came, went or grew."""
        if self._topics.version == self._topics_version:
            return Outcome()
        self._topics_version = self._topics.version
        records, replies = Records(), list[Reply]()
        for group in self._groups.values():
            gone = [topic for topic, _ in group.begun if self._topics.of_id(topic) is None]
            records += group.queues_ended(gone)
            records += group.topics_changed(self._topics)
            replies += self._order(group)
        return Outcome(records, replies)

    def abandon(self) -> list[Waiter]:
        """Everyone who waits: nobody."""
        return []

    # --- members ------------------------------------------------------------------------------

    def heartbeat(self, now: Millis, command: ShareHeartbeat, to: Waiter) -> Outcome[GroupRecord]:
        """Answered by ``ShareHeartbeatDone``."""
        try:
            _check(command)
            if command.member_epoch == LEAVING_EPOCH:
                return self._leave(command, to)
            return self._go_on(now, command, to)
        except WaystationError as refusal:
            return Outcome((), [Reply(to, refusal)])

    def queues_begun(
        self, now: Millis, due: QueuesDue, partitions: Partitions
    ) -> Outcome[GroupRecord]:
        """The share coordinators know these queues of an order now."""
        group = self._groups.get(due.group_id)
        if group is None or self._ordered.get(due.group_id) != due:
            return Outcome()
        del self._ordered[due.group_id]
        return Outcome(group.queues_begun(partitions, self._topics))

    def order_failed(self, now: Millis, due: QueuesDue) -> None:
        """The order was not carried out: it is given again at the next heartbeat."""
        if self._ordered.get(due.group_id) == due:
            del self._ordered[due.group_id]

    # --- administration -----------------------------------------------------------------------

    def describe(self, now: Millis, group_id: str, to: Waiter) -> Outcome[GroupRecord]:
        """Answered by ``ShareGroupDescription``, whose state is "Dead" where there is no group."""
        group = self._groups.get(group_id)
        if group is None:
            return Outcome((), [Reply(to, ShareGroupDescription(group_id, DEAD, 0, 0, (), ()))])
        return Outcome((), [Reply(to, group.describe(self._epochs.get(group_id, {})))])

    def permit_alter(
        self, now: Millis, group_id: str, partitions: Partitions, to: Waiter
    ) -> Outcome[GroupRecord]:
        """Let the queues of an empty group begin elsewhere; answered by ``OffsetsPermit``.

        The share coordinators are to be told under the permit's epoch: whoever still writes
        under an older one is fenced.  A group that does not exist comes into being.
        """
        group = self._groups.get(group_id) or ShareGroup(group_id)
        if group.members:
            return Outcome((), [Reply(to, _not_empty(group_id))])
        records = group.new_epoch(self._topics)
        records += group.queues_begun(partitions, self._topics)
        permit = OffsetsPermit(group_id, group.epoch + 1, partitions)
        return Outcome(records, [Reply(to, permit)])

    def permit_delete(
        self, now: Millis, group_id: str, topic_ids: list[TopicId], to: Waiter
    ) -> Outcome[GroupRecord]:
        """Forget the queues over some topics; answered by ``OffsetsPermit``, for their states."""
        group = self._groups.get(group_id)
        if group is None:
            return Outcome((), [Reply(to, _no_group(group_id))])
        for topic_id in topic_ids:
            topic = self._topics.of_id(topic_id)
            if topic is not None and group.subscribes_to(topic.name):
                return Outcome((), [Reply(to, _subscribed(group_id, topic.name))])
        partitions = tuple(entry for entry in group.begun if entry[0] in topic_ids)
        permit = OffsetsPermit(group_id, group.epoch, partitions)
        return Outcome(group.queues_ended(topic_ids), [Reply(to, permit)])

    def delete(self, now: Millis, group_id: str, to: Waiter) -> Outcome[GroupRecord]:
        """Forget a group without members; answered by ``OffsetsPermit``, for its queues."""
        group = self._groups.get(group_id)
        if group is None:
            return Outcome((), [Reply(to, _no_group(group_id))])
        if group.members:
            return Outcome((), [Reply(to, _not_empty(group_id))])
        permit = OffsetsPermit(group_id, group.epoch, group.begun)
        return Outcome(group.tombstones(), [Reply(to, permit)])

    def listing(self) -> list[tuple[str, str]]:
        """Each group and its state."""
        return [(group_id, group.state) for group_id, group in self._groups.items()]

    def size_of(self, group_id: str) -> int:
        """How many members a group has."""
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.members)

    def begun(self) -> list[QueueId]:
        """Every queue that was begun, of all groups, over topics that there are."""
        return [
            QueueId(group_id, topic, index)
            for group_id, group in self._groups.items()
            for topic, indexes in group.begun
            if self._topics.of_id(topic) is not None
            for index in indexes
        ]

    def is_ordered(self, group_id: str) -> bool:
        """Whether queues of the group are about to begin."""
        return group_id in self._ordered

    def queues_lost(self, now: Millis, group_id: str) -> Outcome[GroupRecord]:
        """The states of all queues of a group were deleted although it goes on: begin anew."""
        group = self._groups.get(group_id)
        if group is None:
            return Outcome()
        return Outcome(group.queues_ended([topic for topic, _ in group.begun]))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    # --- parts --------------------------------------------------------------------------------

    def _go_on(self, now: Millis, command: ShareHeartbeat, to: Waiter) -> Outcome[GroupRecord]:
        group = self._groups.get(command.group_id)
        member_id = command.member_id or self._new_id()
        before = None if group is None else group.members.get(member_id)
        if before is None and command.member_epoch != JOINING_EPOCH:
            raise _unknown_member(command.group_id, member_id)
        group = group or ShareGroup(command.group_id)
        if command.member_epoch > group.epoch:
            raise _from_the_future(group, member_id, command.member_epoch)
        if before is None and len(group.members) >= self._settings().group_share_max_size:
            raise GroupFullError(
                f"group {command.group_id!r} has {len(group.members)} members: raise "
                "group.share.max.size, or start fewer"
            )
        after = member_after(before, command, member_id)
        self._expect(now, command.group_id, member_id)
        if after == before:
            answer = self._answer(group, command, member_id)
            return Outcome((), [Reply(to, answer), *self._order(group)])
        records = group.joined(after, self._topics)
        answer = self._answer(group.after(records), command, member_id)
        members = {**group.members, member_id: after}
        return Outcome(records, [Reply(to, answer), *self._order(group, group.epoch + 1, members)])

    def _answer(
        self, group: ShareGroup, command: ShareHeartbeat, member_id: str
    ) -> ShareHeartbeatDone:
        """What the member is told of the group, which is as it will be once the records count."""
        epoch = max(group.target_epoch, 0)
        is_news = command.member_epoch != epoch or command.topics is not None
        self._epochs.setdefault(group.group_id, {})[member_id] = epoch
        interval_ms = self._interval_ms(group.group_id)
        assigned = group.targets.get(member_id, ()) if is_news else None
        return ShareHeartbeatDone(member_id, epoch, interval_ms, assigned)

    def _leave(self, command: ShareHeartbeat, to: Waiter) -> Outcome[GroupRecord]:
        group = self._groups.get(command.group_id)
        if group is None or command.member_id not in group.members:
            raise _unknown_member(command.group_id, command.member_id)
        self._sessions.cancel(_session(command.group_id, command.member_id))
        self._epochs.get(command.group_id, {}).pop(command.member_id, None)
        done = ShareHeartbeatDone(command.member_id, LEAVING_EPOCH, 0, None)
        return Outcome(group.left([command.member_id], self._topics), [Reply(to, done)])

    def _order(
        self, group: ShareGroup, epoch: int | None = None, members: Members | None = None
    ) -> list[Reply]:
        """Have queues begin that somebody wants to read; one order per group at a time."""
        if group.group_id in self._ordered:
            return []
        missing = group.missing(self._topics, members)
        if not missing:
            return []
        state_epoch = group.epoch if epoch is None else epoch
        due = self._ordered[group.group_id] = QueuesDue(group.group_id, state_epoch, missing)
        return [Reply(self._orders, due)]

    def _expect(self, now: Millis, group_id: str, member_id: str) -> None:
        session_ms = self._session_ms(group_id)
        self._sessions.set(_session(group_id, member_id), Millis(now + session_ms))

    def _session_ms(self, group_id: str) -> int:
        if self._of_group is None:
            return self._settings().group_share_session_timeout_ms
        return self._of_group(group_id).share_session_timeout_ms

    def _interval_ms(self, group_id: str) -> int:
        if self._of_group is None:
            return self._settings().group_share_heartbeat_interval_ms
        return self._of_group(group_id).share_heartbeat_interval_ms


def _session(group_id: str, member_id: str) -> str:
    return f"{group_id}\0{member_id}"


def _check(command: ShareHeartbeat) -> None:
    """Refuse what contradicts the protocol, whoever says it."""
    if not command.group_id:
        raise InvalidRequestError("the group id is empty: name the queue's group")
    if command.member_epoch < LEAVING_EPOCH:
        raise InvalidRequestError(f"member epoch {command.member_epoch}: -1 leaves, 0 joins")
    if not command.member_id and command.member_epoch != JOINING_EPOCH:
        raise InvalidRequestError("only who joins may come without a member id")
    if command.rack_id == "":
        raise InvalidRequestError("a rack id may be missing but not empty")
    if command.member_epoch == JOINING_EPOCH and not command.topics:
        raise InvalidRequestError("who joins must subscribe to topics, by their names")
    names = (command.group_id, command.member_id, command.rack_id or "", *(command.topics or ()))
    if max(map(len, names)) > NAME_CHARACTERS_MAX or "\0" in command.member_id:
        raise InvalidRequestError(
            f"an id or a name of more than {NAME_CHARACTERS_MAX} characters, or one with a zero"
        )
    if len(command.topics or ()) > TOPICS_MAX:
        raise InvalidRequestError(f"more than {TOPICS_MAX} topics are subscribed to")


def _unknown_member(group_id: str, member_id: str) -> UnknownMemberError:
    return UnknownMemberError(
        f"nobody called {member_id!r} is in share group {group_id!r}: join with epoch 0"
    )


def _from_the_future(group: ShareGroup, member_id: str, epoch: int) -> FencedMemberEpochError:
    return FencedMemberEpochError(
        f"member {member_id!r} says epoch {epoch}, group {group.group_id!r} is in "
        f"{group.epoch}: join again with epoch 0"
    )


def _no_group(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(f"there is no share group {group_id!r}")


def _not_empty(group_id: str) -> NonEmptyGroupError:
    return NonEmptyGroupError(f"share group {group_id!r} has members: stop them first")


def _subscribed(group_id: str, topic: str) -> GroupSubscribedError:
    return GroupSubscribedError(
        f"members of share group {group_id!r} read {topic!r}: stop them first"
    )
