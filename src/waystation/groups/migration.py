"""A group changes its kind while its members go on.

When a member of a classic group of consumers joins again with the new protocol, the group is
*upgraded*: every member keeps what it reads, and the others speak the classic protocol until
they too join anew (``classic_members.py``).  When the last member of the new protocol goes, the
group is *downgraded*: the members keep what they read and share out among themselves again.
Whether a group may do either is ``group.consumer.migration.policy``; a group without members
changes its kind freely.  Two promises:

1. no member's epoch or generation goes back;
2. a partition that two classic members claim goes to one of them.

A change is nothing but records: the old kind is forgotten, the new one stored.
"""

from collections.abc import Iterable, Iterator

from waystation.groups.book import Book
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import TopicsSeen
from waystation.groups.embedded import (
    NEWEST_VERSION,
    PROTOCOL_TYPE,
    Assignment,
    EmbeddedProtocolError,
    NamedPartitions,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from waystation.groups.members import Member
from waystation.groups.partition_sets import PartitionOf, grouped
from waystation.groups.reconciliation import MemberState
from waystation.groups.records import (
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolMember,
    ConsumerGroupStored,
    ConsumerMemberStored,
    MemberCurrentStored,
    MemberTargetStored,
    Partitions,
    Record,
)
from waystation.groups.settings import GroupSettings
from waystation.groups.targets import metadata_hash
from waystation.model.errors import GroupNotFoundError, UnsupportedVersionError
from waystation.model.offsets import Millis

_USUAL_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_UPGRADING_POLICIES = ("bidirectional", "upgrade")
_DOWNGRADING_POLICIES = ("bidirectional", "downgrade")


def upgrade(group: ClassicGroup, settings: GroupSettings, topics: TopicsSeen) -> list[Record]:
    """What makes a group of the new kind of a classic one, with members and what they read.

    It is stored without a target: whoever joins it next has everything shared out anew, though
    it only takes the place of a static member.  Raises what the member is told that wanted it,
    if it cannot be.
    """
    _check_upgrade(group, settings)
    try:
        return [*group.tombstones(), *_members_upgraded(group, topics)]
    except EmbeddedProtocolError as error:
        raise GroupNotFoundError(
            f"group {group.group_id!r} cannot change to the new protocol: "
            f"what a member said when it joined cannot be read: {error}"
        ) from error


def may_downgrade(book: Book, settings: GroupSettings) -> bool:
    """Whether only members of the classic protocol are left, and may have a classic group."""
    size = len(book.members)
    return (
        0 < size == book.classic_members
        and size <= settings.group_max_size
        and settings.group_consumer_migration_policy in _DOWNGRADING_POLICIES
    )


def downgrade(book: Book, now: Millis, topics: TopicsSeen) -> list[Record]:
    """What makes a classic group of one whose members all speak the classic protocol.

    It is stored without a leader: nobody has shared out yet, so the members begin by that.  Its
    generation is the epoch, in which most members are: they read on until they have joined.
    """
    protocol = _common_protocol(book)
    stored = ClassicGroupStored(
        book.group_id,
        PROTOCOL_TYPE,
        book.epoch,
        protocol,
        None,
        now,
        tuple(_downgraded(book, member, protocol, topics) for member in book.members.values()),
    )
    return [*book.tombstones(), stored]


# --- up -------------------------------------------------------------------------------------------


def _check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    policy = settings.group_consumer_migration_policy
    most = settings.group_consumer_max_size
    if policy not in _UPGRADING_POLICIES:
        problem = f"group.consumer.migration.policy is {policy}"
    elif group.protocol_type != PROTOCOL_TYPE:
        problem = f"its members are of type {group.protocol_type!r}, not consumers"
    elif len(group.members) > most:
        problem = f"it has {len(group.members)} members; group.consumer.max.size is {most}"
    else:
        return
    raise GroupNotFoundError(
        f"group {group.group_id!r} is a classic group and stays one: {problem}"
    )


def _members_upgraded(group: ClassicGroup, topics: TopicsSeen) -> Iterator[Record]:
    """All members with what they were assigned last.

    A cooperative one that has not fetched that yet still reads what it named when it joined, so
    that is held for it too, until it joins again without.
    """
    group_id, epoch, book = group.group_id, group.generation, Book(group.group_id)
    members = [(member, read_subscription(member.protocols[0][1])) for member in group.members]
    taken: set[PartitionOf] = set()
    assigned = [_take(_assigned(group, member), topics, taken) for member, _ in members]
    claimed = [_take(subscription.owned, topics, taken) for _, subscription in members]
    for (member, subscription), reads, claims in zip(members, assigned, claimed, strict=True):
        upgraded = _upgraded(group_id, member, subscription)
        book.apply(upgraded)
        state = MemberState.UNREVOKED_PARTITIONS if claims else MemberState.STABLE
        yield upgraded
        yield MemberTargetStored(group_id, member.member_id, reads)
        yield MemberCurrentStored(group_id, member.member_id, epoch, epoch, state, reads, claims)
    yield ConsumerGroupStored(group_id, epoch, metadata_hash(book, topics))


def _upgraded(group_id: str, member: Member, subscription: Subscription) -> ConsumerMemberStored:
    return ConsumerMemberStored(
        group_id,
        member.member_id,
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        tuple(sorted(dict.fromkeys(subscription.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicProtocolMember(member.session_timeout_ms, member.protocols),
    )


def _assigned(group: ClassicGroup, member: Member) -> NamedPartitions:
    """What the member was assigned last.

    Members that still speak the classic protocol will get no more data with it than that, which
    the assignors of Kafka's clients do without, though some of them send it.
    """
    assignment = read_assignment(member.assignment)
    if assignment.user_data and group.protocol not in _USUAL_ASSIGNORS:
        raise UnsupportedVersionError(
            f"assignor {group.protocol!r} of group {group.group_id!r} adds data of its own to "
            "assignments, which would be lost: change to another assignor first"
        )
    return assignment.partitions


def _take(named: NamedPartitions, topics: TopicsSeen, taken: set[PartitionOf]) -> Partitions:
    """Those that exist and were not taken; they are now."""
    found = [
        (topic.id, index)
        for name, indexes in named
        if (topic := topics.named(name)) is not None
        for index in indexes
        if 0 <= index < topic.partitions and (topic.id, index) not in taken
    ]
    taken.update(found)
    return grouped(found)


# --- down -----------------------------------------------------------------------------------------


def _common_protocol(book: Book) -> str:
    """The first member's favourite among the protocols that all speak.

    There is one, for nobody joins without; if there were none, the favourite alone.
    """
    spoken = [
        dict(member.classic.protocols)
        for member in book.members.values()
        if member.classic is not None
    ]
    favourites = list(spoken[0])
    common = (name for name in favourites if all(name in others for others in spoken))
    return next(common, favourites[0])


def _downgraded(
    book: Book, member: ConsumerMemberStored, protocol: str, topics: TopicsSeen
) -> ClassicMemberStored:
    assert member.classic is not None, f"{member.member_id} does not speak the classic protocol"
    favourite = member.classic.protocols[0][1]  # read when the member joined; the others not
    version = min(read_subscription(favourite).version, NEWEST_VERSION)
    subscription = dict(member.classic.protocols).get(protocol, favourite)
    reads = tuple(_named(book.current(member.member_id).assigned, topics))
    return ClassicMemberStored(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        subscription,
        write_assignment(Assignment(reads, version)),
    )


def _named(partitions: Partitions, topics: TopicsSeen) -> Iterable[tuple[str, tuple[int, ...]]]:
    for topic_id, indexes in partitions:
        topic = topics.of_id(topic_id)
        if topic is not None:
            yield topic.name, indexes
