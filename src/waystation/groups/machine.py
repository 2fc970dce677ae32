"""All groups of one partition of ``__consumer_offsets``, and their offsets: the way in.

A group is of one of two kinds, each in a class of its own: ``classic.py``, whose members share
out partitions themselves, and ``consumer.py``, to whom the coordinator assigns them.  A group
that only stores offsets has no object at all: it is there as long as its offsets are.  Promises:

1. what is answered rests on records that are appended first: a replay knows all of it;
2. what is remembered changes in ``apply`` only; events change no more than who waits;
3. an error in a request is an answer to it and touches no other member;
4. a committed offset goes only by a newer commit, on demand, by expiry, or with its topic.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Commit,
    Committed,
    ConsumerHeartbeat,
    DeletedOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    GroupDescription,
    GroupListing,
    Heartbeat,
    Join,
    Leave,
    Left,
    OffsetToCommit,
    Sync,
    TopicsSeen,
)
from waystation.groups.deadlines import Deadlines
from waystation.groups.draft import Draft
from waystation.groups.embedded import PROTOCOL_TYPE
from waystation.groups.expiry import MILLIS_PER_MINUTE, Retention, Round, expired
from waystation.groups.gone_topics import GoneTopics
from waystation.groups.offsets import Offsets
from waystation.groups.rebalances import DEAD, EMPTY, PREPARING, STABLE
from waystation.groups.records import (
    NEVER,
    ClassicGroupForgotten,
    ClassicGroupStored,
    OffsetCommitted,
    OffsetForgotten,
    Record,
)
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    GroupNotFoundError,
    GroupSubscribedError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.ids import NO_TOPIC_ID
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis


class Groups:
    """One coordinator; ``topics`` is the cluster as it is now, ``new_id`` makes unique texts."""

    __slots__ = (
        "_deadlines",
        "_gone_topics",
        "_groups",
        "_new_id",
        "_offsets",
        "_round",
        "_settings",
        "_sweep_at",
        "_topics",
    )

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
    ) -> None:
        self._settings, self._topics, self._new_id = settings, topics, new_id
        self._groups: dict[str, ClassicGroup] = {}
        self._offsets = Offsets()
        self._gone_topics = GoneTopics(self._offsets, topics)
        self._deadlines = Deadlines()
        self._round: Round | None = None
        self._sweep_at: Millis | None = None

    # --- replay -------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Remember.  HOT: for offsets, see ``Offsets.keep``."""
        if type(record) is OffsetCommitted:
            self._offsets.keep(record)
            return
        match record:
            case OffsetForgotten():
                self._offsets.forget(*record)
            case ClassicGroupStored():
                self._classic(record.group_id).apply(record)
            case ClassicGroupForgotten():
                group = self._groups.pop(record.group_id, None)
                if group is not None:
                    group.apply(record)
                    self._deadlines.cancel(record.group_id)
            case _:
                raise AssertionError(f"no kind of group knows {record}")

    def loaded(self, now: Millis) -> Outcome[Record]:
        """The replay is over: members have their session time-outs to be heard of."""
        draft = Draft()
        for group in list(self._groups.values()):
            draft.add(self._settle(group, group.loaded(now)))
        self._sweep_at = Millis(now + self._settings().offsets_retention_check_interval_ms)
        draft.records.extend(self._gone_topics.offsets_to_forget())
        return draft.outcome()

    # --- time ---------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        earliest, sweep_at = self._deadlines.earliest(), self._sweep_at
        if earliest is None or (sweep_at is not None and sweep_at < earliest):
            return sweep_at
        return earliest

    def tick(self, now: Millis) -> Outcome[Record]:
        """Do what has fallen due."""
        draft = Draft()
        for group_id in self._deadlines.due(now):
            group = self._groups[group_id]
            draft.add(self._settle(group, group.tick(now)))
        if self._sweep_at is not None and self._sweep_at <= now:
            self._sweep(now, draft)
        return draft.outcome()

    def topics_changed(self, now: Millis) -> Outcome[Record]:
        """Forget the offsets of topics that are gone, also if another has taken their name.

        Members of classic groups find out about new partitions themselves.
        """
        return Outcome(self._gone_topics.offsets_to_forget())

    def abandon(self) -> list[Waiter]:
        """Everyone who waits; the machine is of no use afterwards."""
        return [to for group in self._groups.values() for to in group.abandon()]

    # --- members of classic groups ------------------------------------------------------------

    def join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Record]:
        """Answered by ``Joined`` once the rebalance is over."""
        problem = self._check_session_timeout(command)
        if problem is not None:
            return _answer(to, problem)
        group = self._groups.get(command.group_id)
        if group is None and command.member_id:
            return _answer(to, _unknown_member(command.group_id, command.member_id))
        group = self._classic(command.group_id)
        return self._settle(group, group.join(now, command, to))

    def sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Record]:
        """Answered by ``Synced`` once the leader has shared out."""
        group = self._groups.get(command.group_id)
        if group is None:
            return _answer(to, _unknown_member(command.group_id, command.member_id))
        return self._settle(group, group.sync(now, command, to))

    def heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Record]:
        """Answered by ``None``."""
        group = self._groups.get(command.group_id)
        if group is None:
            return _answer(to, _unknown_member(command.group_id, command.member_id))
        return self._settle(group, group.heartbeat(now, command, to))

    def leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Record]:
        """Answered by ``Left``."""
        group = self._groups.get(command.group_id)
        if group is None:
            refusals = [
                (leaving, _unknown_member(command.group_id, leaving.member_id))
                for leaving in command.members
            ]
            return _answer(to, Left(tuple(refusals)))
        return self._settle(group, group.leave(now, command, to))

    # --- members of the server-side protocol ----------------------------------------------------

    def consumer_heartbeat(
        self, now: Millis, command: ConsumerHeartbeat, to: Waiter
    ) -> Outcome[Record]:
        """Answered by ``ConsumerHeartbeatDone``."""
        raise NotImplementedError

    # --- offsets ------------------------------------------------------------------------------

    def commit(self, now: Millis, command: Commit, to: Waiter) -> Outcome[Record]:
        """Answered by ``Committed``."""
        problem = self._check_commit(now, command)
        if problem is not None:
            return _answer(to, problem)
        draft = Draft()
        retention_ms = command.retention_ms
        expires_at = NEVER if retention_ms < 0 else now + retention_ms
        errors = []
        for offset in command.offsets:
            error = self._check_note(offset)
            errors.append(error)
            if error is None:
                draft.records.append(self._committed(command.group_id, offset, now, expires_at))
        draft.reply(to, Committed(tuple(errors)))
        return draft.outcome()

    def fetch_offsets(self, now: Millis, command: FetchOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``FetchedOffsets``; of a group that is not there, without offsets."""
        group_id = command.group_id
        if command.topics is None:
            fetched = [
                FetchedOffset(*position[:5])
                for position in sorted(self._offsets.of_group(group_id))
            ]
        else:
            fetched = [
                self._fetched(group_id, topic, partition)
                for topic, partitions in command.topics
                for partition in partitions
            ]
        return _answer(to, FetchedOffsets(tuple(fetched)))

    def delete_offsets(self, now: Millis, command: DeleteOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``DeletedOffsets``."""
        group_id = command.group_id
        group = self._groups.get(group_id)
        if group is None and group_id not in self._offsets:
            return _answer(to, _no_group(group_id))
        if group is not None and not group.is_empty and group.protocol_type != PROTOCOL_TYPE:
            # What its members read is not to be known.
            return _answer(to, NonEmptyGroupError(f"group {group_id!r} has members"))
        draft = Draft()
        errors: dict[tuple[str, int], WaystationError | None] = {}
        for topic, partitions in command.topics:
            error = _is_read(group, topic)
            for partition in dict.fromkeys(partitions):
                errors[topic, partition] = error
                if error is None and self._offsets.find(group_id, topic, partition):
                    draft.records.append(OffsetForgotten(group_id, topic, partition))
        draft.reply(to, DeletedOffsets(errors))
        return draft.outcome()

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed."""
        for group_id in self._offsets.group_ids():
            for position in self._offsets.of_group(group_id):
                yield group_id, position.topic, position.partition, position.offset

    # --- administration -----------------------------------------------------------------------

    def describe(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by ``GroupDescription``, whose state is "Dead" where there is no such group."""
        group = self._groups.get(group_id)
        if group is not None:
            return _answer(to, group.describe())
        state = EMPTY if group_id in self._offsets else DEAD
        return _answer(to, GroupDescription(group_id, state, "", "", ()))

    def describe_consumer(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by ``ConsumerGroupDescription``."""
        return _answer(to, _no_group(group_id))

    def delete(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Record]:
        """Forget a group without members and all its offsets; answered by ``None``."""
        group = self._groups.get(group_id)
        if group is None and group_id not in self._offsets:
            return _answer(to, _no_group(group_id))
        if group is not None and not group.is_empty:
            return _answer(to, NonEmptyGroupError(f"group {group_id!r} has members"))
        records: list[Record] = [
            OffsetForgotten(group_id, position.topic, position.partition)
            for position in self._offsets.of_group(group_id)
        ]
        if group is not None:
            records.extend(group.tombstones())
        return Outcome(records, [Reply(to, None)])

    def list(self) -> list[GroupListing]:
        """Every group, also those that only store offsets."""
        listed = [
            GroupListing(group_id, group.protocol_type or "", group.state, group.kind)
            for group_id, group in self._groups.items()
        ]
        listed.extend(
            GroupListing(group_id, "", EMPTY, ClassicGroup.kind)
            for group_id in self._offsets.group_ids()
            if group_id not in self._groups
        )
        return listed

    # --- groups -------------------------------------------------------------------------------

    def _classic(self, group_id: str) -> ClassicGroup:
        """The group, made if it is not there."""
        group = self._groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._settings, self._new_id)
            self._groups[group_id] = group
        return group

    def _settle(self, group: ClassicGroup, outcome: Outcome[Record]) -> Outcome[Record]:
        """Keep the group's next deadline, or let it go if it came to nothing."""
        if group.is_idle and not group.is_remembered:
            del self._groups[group.group_id]
            self._deadlines.cancel(group.group_id)
        else:
            self._deadlines.set(group.group_id, group.next_deadline())
        return outcome

    def _check_session_timeout(self, command: Join) -> WaystationError | None:
        settings, timeout_ms = self._settings(), command.session_timeout_ms
        least_ms, most_ms = (
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
        )
        if least_ms <= timeout_ms <= most_ms:
            return None
        return InvalidSessionTimeoutError(
            f"a session time-out of {timeout_ms} ms: must be {least_ms} to {most_ms} "
            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )

    # --- the parts of a commit ------------------------------------------------------------------

    def _check_commit(self, now: Millis, command: Commit) -> WaystationError | None:
        group_id, member_id = command.group_id, command.member_id
        group = self._groups.get(group_id)
        if group is None:
            if command.generation < 0:
                return None  # a program that only stores its offsets here
            if group_id in self._offsets:
                return _unknown_member(group_id, member_id)
            return _no_group(group_id)
        problem = group.check_commit(member_id, command.generation, command.instance_id)
        if problem is None and group.state in (STABLE, PREPARING):
            group.heard(now, member_id)
        return problem

    def _check_note(self, offset: OffsetToCommit) -> WaystationError | None:
        most = self._settings().offset_metadata_max_bytes
        if len(offset.metadata) <= most:
            return None
        return OffsetMetadataTooLargeError(
            f"a note of {len(offset.metadata)} to the offset of {offset.topic}-"
            f"{offset.partition}: at most {most} are allowed (offset.metadata.max.bytes)"
        )

    def _committed(
        self, group_id: str, offset: OffsetToCommit, now: Millis, expires_at: int
    ) -> OffsetCommitted:
        current_id = self._gone_topics.current_id(offset.topic)
        return OffsetCommitted(
            group_id,
            offset.topic,
            offset.partition,
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            now,
            expires_at,
            current_id if offset.topic_id == NO_TOPIC_ID else offset.topic_id,
        )

    def _fetched(self, group_id: str, topic: str, partition: int) -> FetchedOffset:
        position = self._offsets.find(group_id, topic, partition)
        if position is None:
            return FetchedOffset(topic, partition, -1, -1, "")
        return FetchedOffset(*position[:5])

    # --- offsets that go ------------------------------------------------------------------------

    def _sweep(self, now: Millis, draft: Draft) -> None:
        """Look at some groups, and at the others in the next moments."""
        if self._round is None:
            self._round = Round(chain(self._groups, self._offsets.group_ids()))
        settings = self._settings()
        kept_ms = settings.offsets_retention_minutes * MILLIS_PER_MINUTE
        for group_id in self._round.slice(self._offsets.count):
            draft.records.extend(self._outdated(group_id, now, kept_ms))
        if self._round.is_over:
            self._round = None
            self._sweep_at = Millis(now + settings.offsets_retention_check_interval_ms)

    def _outdated(self, group_id: str, now: Millis, kept_ms: int) -> Sequence[Record]:
        """What to forget of a group: offsets, and with the last of them an empty group."""
        group = self._groups.get(group_id)
        retention = Retention() if group is None else group.retention()
        if retention is None:
            return []
        records: list[Record] = [*expired(self._offsets, group_id, retention, now, kept_ms)]
        if group is not None and group.is_idle and len(records) == self._offsets.count(group_id):
            records.extend(group.tombstones())
        return records


def _answer(to: Waiter, answer: object) -> Outcome[Record]:
    return Outcome((), [Reply(to, answer)])


def _unknown_member(group_id: str, member_id: str) -> UnknownMemberError:
    return UnknownMemberError(
        f"there is no group {group_id!r} with a member {member_id!r}: join without a member id"
    )


def _no_group(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(f"there is no group {group_id!r}")


def _is_read(group: ClassicGroup | None, topic: str) -> WaystationError | None:
    if group is None or not group.subscribes_to(topic):
        return None
    return GroupSubscribedError(f"a member of group {group.group_id!r} reads {topic!r}")
