"""What groups commit: who may, what is told, and when it goes.

A committed offset goes only by a newer commit, on demand, by expiry, or with its topic.  One that
is part of a transaction waits for its end in ``pending.py``.  Nothing here is changed but by
``keep`` and ``apply``, which follow records.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Commit,
    Committed,
    DeletedOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    OffsetToCommit,
    ProducersSeen,
    TopicsSeen,
    TransactionalCommit,
)
from waystation.groups.consumer import ConsumerGroup
from waystation.groups.draft import Draft
from waystation.groups.expiry import MILLIS_PER_MINUTE, Retention, Round, expired
from waystation.groups.gone_topics import GoneTopics
from waystation.groups.inquiries import Inquiries
from waystation.groups.kinds import Group
from waystation.groups.offsets import Offsets
from waystation.groups.pending import Pending
from waystation.groups.records import (
    NEVER,
    OffsetCommitted,
    OffsetForgotten,
    PendingOffset,
    Record,
)
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    GroupNotFoundError,
    GroupSubscribedError,
    IllegalGenerationError,
    InvalidTxnStateError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnstableOffsetCommitError,
    WaystationError,
)
from waystation.model.ids import NO_TOPIC_ID
from waystation.model.machines import InTransaction, Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.records.control import Marker


class Commits:
    """The offsets of all groups; ``groups`` are those that have, or had, members."""

    __slots__ = (
        "_gone_topics",
        "_groups",
        "_offsets",
        "_producers",
        "_round",
        "_settings",
        "_topics",
        "inquiries",
        "keep",
        "pending",
        "sweep_at",
    )

    def __init__(
        self,
        groups: Mapping[str, Group],
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        producers: ProducersSeen,
    ) -> None:
        self._groups, self._settings = groups, settings
        self._topics, self._producers = topics, producers
        self._offsets, self.pending = Offsets(), Pending()
        self.inquiries = Inquiries()
        self.keep = self._offsets.keep
        self._gone_topics = GoneTopics(self._offsets, self.pending, topics)
        self._round: Round | None = None
        self.sweep_at: Millis | None = None
        """When to look for offsets that have expired."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._offsets or group_id in self.pending.groups

    def group_ids(self) -> Iterator[str]:
        """The groups that have committed something, if only in a transaction still open."""
        yield from self._offsets.group_ids()
        yield from (one for one in self.pending.groups if one not in self._offsets)

    def apply(self, record: OffsetForgotten | PendingOffset | Marker) -> None:
        """Remember anything but a plain commit, for which ``keep`` is there."""
        match record:
            case OffsetForgotten():
                self._offsets.forget(*record)
                self.pending.forget(*record)
            case InTransaction(producer_id, _, OffsetCommitted() as offset):
                self.pending.add(producer_id, offset)
            case Marker(producer_id=producer_id, committed=committed):
                for offset in self.pending.end(producer_id, committed=committed):
                    self.keep(offset)
                self.inquiries.ended(producer_id)

    def all(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed."""
        for group_id in self._offsets.group_ids():
            for position in self._offsets.of_group(group_id):
                yield group_id, position.topic, position.partition, position.offset

    def positions(self, group_id: str, to: Waiter) -> Outcome[Record]:
        """Answered by every ``Position`` of the group."""
        return _answer(to, tuple(self._offsets.of_group(group_id)))

    def tombstones(self, group_id: str) -> list[Record]:
        """What makes a replay forget all offsets of a group, pending ones too."""
        committed = [position[:2] for position in self._offsets.of_group(group_id)]
        places = dict.fromkeys([*committed, *self.pending.of_group(group_id)])
        return [OffsetForgotten(group_id, *place) for place in places]

    # --- requests -----------------------------------------------------------------------------

    def commit(self, now: Millis, command: Commit, to: Waiter) -> Outcome[Record]:
        """Answered by ``Committed``."""
        problem = self._check_commit(now, command)
        if problem is not None:
            return _answer(to, problem)
        expires_at = NEVER if command.retention_ms < 0 else now + command.retention_ms
        committed, told = self._taken(command.group_id, command.offsets, now, expires_at)
        return Outcome(committed, [Reply(to, told)])

    def commit_in_transaction(
        self, now: Millis, command: TransactionalCommit, to: Waiter
    ) -> Outcome[Record]:
        """Answered by ``Committed``."""
        problem = self._check_transactional(now, command)
        if problem is not None:
            return _answer(to, problem)
        committed, told = self._taken(command.group_id, command.offsets, now, NEVER)
        producer = command.producer_id, command.producer_epoch
        pending = [InTransaction(*producer, record) for record in committed]
        return Outcome(pending, [Reply(to, told)])

    def end_transaction(self, marker: Marker, to: Waiter) -> Outcome[Record]:
        """Answered by ``None``; also if there was nothing to end, so that it can be repeated."""
        problem = self._producers.refusal_of_marker(marker)
        if problem is not None:
            return _answer(to, problem)
        return Outcome([marker], [Reply(to, None)])

    def fetch(self, command: FetchOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``FetchedOffsets``; of a group that is not there, without offsets."""
        group_id = command.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            problem = group.check_fetch(command.member_id, command.member_epoch)
            if problem is not None:
                return _answer(to, problem)
        if command.topics is None:
            positions = sorted(self._offsets.of_group(group_id))
            fetched = [FetchedOffset(*position[:5]) for position in positions]
        else:
            fetched = [
                self._fetched(group_id, topic, partition)
                for topic, partitions in command.topics
                for partition in partitions
            ]
        if command.require_stable and group_id in self.pending.groups:
            fetched = [self._if_stable(group_id, one) for one in fetched]
        return _answer(to, FetchedOffsets(tuple(fetched)))

    def delete(self, command: DeleteOffsets, to: Waiter) -> Outcome[Record]:
        """Answered by ``DeletedOffsets``."""
        group_id = command.group_id
        group = self._groups.get(group_id)
        if group is None and group_id not in self:
            return _answer(to, GroupNotFoundError(f"there is no group {group_id!r}"))
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
            # What its members read cannot be known.
            return _answer(to, NonEmptyGroupError(f"group {group_id!r} has members"))
        draft = Draft()
        errors: dict[tuple[str, int], WaystationError | None] = {}
        for topic, partitions in command.topics:
            error = _is_read(group, topic)
            for partition in dict.fromkeys(partitions):
                errors[topic, partition] = error
                if error is None and self._is_known(group_id, topic, partition):
                    draft.records.append(OffsetForgotten(group_id, topic, partition))
        draft.reply(to, DeletedOffsets(errors))
        return draft.outcome()

    # --- what has gone ------------------------------------------------------------------------

    def of_gone_topics(self) -> list[OffsetForgotten]:
        """What to forget since topics have changed."""
        return self._gone_topics.offsets_to_forget()

    def loaded(self, now: Millis) -> None:
        """Expired offsets are looked for from now on."""
        self.sweep_at = Millis(now + self._settings().offsets_retention_check_interval_ms)

    def sweep(self, now: Millis) -> list[Record]:
        """What to forget of some groups that it is time to look at; others follow at once."""
        if self._round is None:
            self._round = Round(chain(self._groups, self._offsets.group_ids()))
        settings = self._settings()
        kept_ms = settings.offsets_retention_minutes * MILLIS_PER_MINUTE
        records = [
            record
            for group_id in self._round.slice(self._offsets.count)
            for record in self._outdated(group_id, now, kept_ms)
        ]
        if self._round.is_over:
            self._round = None
            self.sweep_at = Millis(now + settings.offsets_retention_check_interval_ms)
        return records

    def _outdated(self, group_id: str, now: Millis, kept_ms: int) -> list[Record]:
        """What to forget of a group: offsets, and with the last of them an empty group.

        An offset that a transaction may still change stays until that has ended.
        """
        group = self._groups.get(group_id)
        retention = Retention() if group is None else group.retention()
        if retention is None or self._topics.wait_for(group_id):
            return []
        forgotten = expired(self._offsets, group_id, retention, now, kept_ms)
        if group_id in self.pending.groups:
            return [one for one in forgotten if not self.pending.has(*one)]
        records: list[Record] = [*forgotten]
        if group is not None and group.is_idle and len(records) == self._offsets.count(group_id):
            records.extend(group.tombstones())
        return records

    # --- parts --------------------------------------------------------------------------------

    def _check_commit(self, now: Millis, command: Commit) -> WaystationError | None:
        group_id, member_id = command.group_id, command.member_id
        group = self._groups.get(group_id)
        if group is not None:
            problem = group.check_commit(member_id, command.generation, command.instance_id)
            if problem is None:
                group.heard(now, member_id)
            return problem
        if command.generation < 0:
            return None  # a program that only stores its offsets here
        if group_id in self:
            return UnknownMemberError(f"group {group_id!r} has no member {member_id!r}")
        return GroupNotFoundError(f"there is no group {group_id!r}")

    def _check_transactional(
        self, now: Millis, command: TransactionalCommit
    ) -> WaystationError | None:
        group = self._groups.get(command.group_id)
        problem = self._check_member(group, command)
        if problem is None:
            problem = self._check_producer(command)
        if problem is None and group is not None:
            group.heard(now, command.member_id)
        return problem

    def _check_member(
        self, group: Group | None, command: TransactionalCommit
    ) -> WaystationError | None:
        """Clients know these requests only of classic groups, and hear of them in its words."""
        group_id, member_id, generation = command.group_id, command.member_id, command.generation
        if group is None:
            if generation < 0:
                return None
            if group_id in self:
                return UnknownMemberError(f"group {group_id!r} has no member {member_id!r}")
            return IllegalGenerationError(f"there is no group {group_id!r}")
        problem = group.check_commit(
            member_id, generation, command.instance_id, in_transaction=True
        )
        if isinstance(problem, StaleMemberEpochError):
            return IllegalGenerationError(str(problem))
        return problem

    def _check_producer(self, command: TransactionalCommit) -> WaystationError | None:
        producer_id, epoch, inquiry = command.producer_id, command.producer_epoch, command.inquiry
        if inquiry is not None and inquiry.overtaken:
            return InvalidTxnStateError(
                f"the transaction of producer {producer_id} ended before its offsets came"
            )
        return self._producers.refusal(producer_id, epoch)

    def _check_note(self, offset: OffsetToCommit) -> WaystationError | None:
        most = self._settings().offset_metadata_max_bytes
        if len(offset.metadata) <= most:
            return None
        return OffsetMetadataTooLargeError(
            f"a note of {len(offset.metadata)} to the offset of {offset.topic}-"
            f"{offset.partition}: at most {most} are allowed (offset.metadata.max.bytes)"
        )

    def _taken(
        self, group_id: str, offsets: Sequence[OffsetToCommit], now: Millis, expires_at: int
    ) -> tuple[list[OffsetCommitted], Committed]:
        """What to remember, and what is told of each."""
        errors = tuple(self._check_note(offset) for offset in offsets)
        committed = [
            self._committed(group_id, offset, now, expires_at)
            for offset, error in zip(offsets, errors, strict=True)
            if error is None
        ]
        return committed, Committed(errors)

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

    def _is_known(self, group_id: str, topic: str, partition: int) -> bool:
        return self._offsets.find(group_id, topic, partition) is not None or self.pending.has(
            group_id, topic, partition
        )

    def _fetched(self, group_id: str, topic: str, partition: int) -> FetchedOffset:
        position = self._offsets.find(group_id, topic, partition)
        if position is None:
            return FetchedOffset(topic, partition, -1, -1, "")
        return FetchedOffset(*position[:5])

    def _if_stable(self, group_id: str, one: FetchedOffset) -> FetchedOffset:
        if not self.pending.has(group_id, one.topic, one.partition):
            return one
        error = UnstableOffsetCommitError(
            f"a transaction that is still open has an offset of {one.topic}-{one.partition}"
        )
        return FetchedOffset(one.topic, one.partition, -1, -1, "", error)


def _answer(to: Waiter, answer: object) -> Outcome[Record]:
    return Outcome((), [Reply(to, answer)])


def _is_read(group: Group | None, topic: str) -> WaystationError | None:
    if group is None or not group.subscribes_to(topic):
        return None
    return GroupSubscribedError(f"a member of group {group.group_id!r} reads {topic!r}")
