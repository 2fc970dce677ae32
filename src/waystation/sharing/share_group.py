"""One share group: who is in it, and what each member shall read.

A group's epoch rises when a member comes or goes, when a subscription changes, when topics
change and when new queues have begun; its targets are shared out in the same event.  A member
is told its target at its next heartbeat, and has nothing to give up first.  It is assigned only
partitions over which the group's queue has begun, for nobody may read before it is known where.

Everything here decides and changes nothing: what was decided comes back through ``apply``.
"""

from collections.abc import Iterable
from hashlib import blake2b

from waystation.model.ids import TopicId
from waystation.sharing.assignor import Subscriber, share_out
from waystation.sharing.group_commands import (
    ShareGroupDescription,
    ShareHeartbeat,
    ShareMemberDescription,
    TopicSeen,
    TopicsSeen,
    flat,
    grouped,
)
from waystation.sharing.group_records import (
    GroupRecord,
    Partitions,
    ShareGroupForgotten,
    ShareGroupStored,
    ShareMemberForgotten,
    ShareMemberStored,
    ShareMemberTargetForgotten,
    ShareMemberTargetStored,
    ShareQueuesForgotten,
    ShareQueuesStored,
    ShareTargetForgotten,
    ShareTargetStored,
)

EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"

Members = dict[str, ShareMemberStored]


class ShareGroup:
    """What a group's records say, and the records that an event leads to."""

    __slots__ = (
        "begun",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = self.metadata_hash = 0
        self.target_epoch = -1
        self.members: Members = {}
        self.targets: dict[str, Partitions] = {}
        self.begun: Partitions = ()

    # --- what is remembered -------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Take over one record."""
        match record:
            case ShareGroupStored():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case ShareMemberStored():
                self.members[record.member_id] = record
            case ShareMemberForgotten():
                self.members.pop(record.member_id, None)
            case ShareTargetStored():
                self.target_epoch = record.epoch
            case ShareTargetForgotten():
                self.target_epoch = -1
            case ShareMemberTargetStored():
                self.targets[record.member_id] = record.partitions
            case ShareMemberTargetForgotten():
                self.targets.pop(record.member_id, None)
            case ShareQueuesStored():
                self.begun = record.begun
            case ShareQueuesForgotten():
                self.begun = ()
            case ShareGroupForgotten():
                raise AssertionError(f"{record} is for whoever keeps the groups")

    def after(self, records: Iterable[GroupRecord]) -> "ShareGroup":
        """The group as it will be once the records count."""
        group = ShareGroup(self.group_id)
        group.epoch, group.metadata_hash = self.epoch, self.metadata_hash
        group.target_epoch, group.begun = self.target_epoch, self.begun
        group.members, group.targets = dict(self.members), dict(self.targets)
        for record in records:
            group.apply(record)
        return group

    def tombstones(self) -> list[GroupRecord]:
        """What makes a replay forget the group."""
        records: list[GroupRecord] = []
        for member_id in {**self.targets, **self.members}:
            records.append(ShareMemberTargetForgotten(self.group_id, member_id))
            records.append(ShareMemberForgotten(self.group_id, member_id))
        return [
            *records,
            ShareTargetForgotten(self.group_id),
            ShareQueuesForgotten(self.group_id),
            ShareGroupForgotten(self.group_id),
        ]

    # --- what follows -------------------------------------------------------------------------

    def joined(self, member: ShareMemberStored, topics: TopicsSeen) -> list[GroupRecord]:
        """A member is new, or is another one than it was."""
        return [member, *self._shared_out({**self.members, member.member_id: member}, topics)]

    def left(self, member_ids: list[str], topics: TopicsSeen) -> list[GroupRecord]:
        """Members are gone."""
        records: list[GroupRecord] = []
        for member_id in member_ids:
            records.append(ShareMemberTargetForgotten(self.group_id, member_id))
            records.append(ShareMemberForgotten(self.group_id, member_id))
        remaining = {one: kept for one, kept in self.members.items() if one not in member_ids}
        return [*records, *self._shared_out(remaining, topics)]

    def topics_changed(self, topics: TopicsSeen) -> list[GroupRecord]:
        """Share out anew if the topics are other ones for those who subscribe to them."""
        if not self.members or _hash(self.members, topics) == self.metadata_hash:
            return []
        return self._shared_out(self.members, topics)

    def queues_begun(self, partitions: Partitions, topics: TopicsSeen) -> list[GroupRecord]:
        """Queues have begun: they may be read from now on."""
        begun = grouped(flat(self.begun) | flat(partitions))
        if begun == self.begun:
            return []
        noted = ShareQueuesStored(self.group_id, begun)
        if not self.members:
            return [noted]
        return [noted, *self._shared_out(self.members, topics, begun)]

    def queues_ended(self, topic_ids: list[TopicId]) -> list[GroupRecord]:
        """The queues over these topics are forgotten."""
        begun = tuple(entry for entry in self.begun if entry[0] not in topic_ids)
        return [] if begun == self.begun else [ShareQueuesStored(self.group_id, begun)]

    def new_epoch(self, topics: TopicsSeen) -> list[GroupRecord]:
        """An epoch that no queue has begun under yet."""
        return self._shared_out(self.members, topics)

    def missing(self, topics: TopicsSeen, members: Members | None = None) -> Partitions:
        """The partitions subscribed to over which no queue has begun."""
        wanted = {
            (topic.id, index)
            for topic in _subscribed(self.members if members is None else members, topics)
            for index in range(topic.partitions)
        }
        return grouped(wanted - flat(self.begun))

    # --- what is shown ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """As Kafka calls it."""
        return STABLE if self.members else EMPTY

    def describe(self, epochs: dict[str, int]) -> ShareGroupDescription:
        """The group for an administrator; ``epochs`` are those that members were seen in."""
        members = tuple(
            ShareMemberDescription(
                member_id,
                member.rack_id,
                epochs.get(member_id, self.target_epoch),
                member.client_id,
                member.client_host,
                member.topics,
                self.targets.get(member_id, ()),
            )
            for member_id, member in self.members.items()
        )
        return ShareGroupDescription(
            self.group_id, self.state, self.epoch, self.target_epoch, members, self.begun
        )

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return any(topic in member.topics for member in self.members.values())

    # --- parts --------------------------------------------------------------------------------

    def _shared_out(
        self, members: Members, topics: TopicsSeen, begun: Partitions | None = None
    ) -> list[GroupRecord]:
        epoch, group_id = self.epoch + 1, self.group_id
        records: list[GroupRecord] = [ShareGroupStored(group_id, epoch, _hash(members, topics))]
        queues = dict(self.begun if begun is None else begun)
        counts = {
            topic.id: [index for index in queues.get(topic.id, ()) if index < topic.partitions]
            for topic in _subscribed(members, topics)
        }
        subscribers = [
            Subscriber(
                member_id,
                frozenset(topic.id for topic in _subscribed({member_id: member}, topics)),
                self.targets.get(member_id, ()),
            )
            for member_id, member in members.items()
        ]
        for member_id, partitions in share_out(subscribers, counts).items():
            if self.targets.get(member_id) != partitions:
                records.append(ShareMemberTargetStored(group_id, member_id, partitions))
        return [*records, ShareTargetStored(group_id, epoch)]


def member_after(
    before: ShareMemberStored | None, command: ShareHeartbeat, member_id: str
) -> ShareMemberStored:
    """The member with what the heartbeat says anew; what it leaves out stays."""
    known = before or ShareMemberStored(command.group_id, member_id, None, "", "", ())
    topics = command.topics
    return known._replace(
        rack_id=known.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=known.topics if topics is None else tuple(sorted(dict.fromkeys(topics))),
    )


def _subscribed(members: Members, topics: TopicsSeen) -> list[TopicSeen]:
    """The topics that exist and that somebody subscribes to, by name."""
    names = sorted({name for member in members.values() for name in member.topics})
    return [topic for name in names if (topic := topics.named(name)) is not None]


def _hash(members: Members, topics: TopicsSeen) -> int:
    """A number that changes with the ids and sizes of the topics subscribed to."""
    digest = blake2b(digest_size=8)
    for topic in _subscribed(members, topics):
        digest.update(f"{topic.name} {topic.id} {topic.partitions}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
