"""What is remembered of one group of the server-side protocol, and how an event changes it.

A ``Book`` is what the group's records say, and changes only by them.  A ``BookDraft`` is one
event being decided: each record that is noted counts at once for the rest of the decision, but
in a copy, so that the group itself changes when its host applies the records.

A replay may meet a partition under two members for a while, for compaction keeps the newest
record of every member but not their order; whoever is recorded last counts.
"""

from typing import Self

from waystation.groups.draft import Draft
from waystation.groups.partition_sets import PartitionOf
from waystation.groups.reconciliation import just_joined
from waystation.groups.records import (
    ConsumerGroupForgotten,
    ConsumerGroupStored,
    ConsumerMemberForgotten,
    ConsumerMemberStored,
    MemberCurrentForgotten,
    MemberCurrentStored,
    MemberTargetForgotten,
    MemberTargetStored,
    Partitions,
    Record,
    RegexForgotten,
    RegexResolved,
    TargetForgotten,
    TargetStored,
)
from waystation.model.offsets import Millis

NO_TARGET = -1


class Book:
    """Members, what they shall read and what they read; and who holds which partition."""

    __slots__ = (
        "_instances",
        "_owners",
        "classic_members",
        "currents",
        "epoch",
        "group_id",
        "is_forgotten",
        "members",
        "metadata_hash",
        "regexes",
        "target_epoch",
        "targets",
        "targets_at",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.is_forgotten = False
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMemberStored] = {}
        self.classic_members = 0
        """How many members still speak the classic protocol."""
        self.target_epoch = NO_TARGET
        self.targets: dict[str, Partitions] = {}
        self.targets_at = Millis(-1)
        self.currents: dict[str, MemberCurrentStored] = {}
        self.regexes: dict[str, RegexResolved] = {}
        self._owners: dict[PartitionOf, str] = {}
        self._instances: dict[str, str] = {}

    def copy(self) -> Self:
        """Another book that says the same; its values never change, so they are shared."""
        copy = type(self)(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(copy, name, value.copy() if isinstance(value, dict) else value)
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Book) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # books change

    def current(self, member_id: str) -> MemberCurrentStored:
        """Where the member stands on its way; at the beginning if nothing is known."""
        known = self.currents.get(member_id)
        return just_joined(self.group_id, member_id) if known is None else known

    def owner(self, partition: PartitionOf) -> str | None:
        """Who is assigned the partition, or has not yet confirmed that it gave it up."""
        return self._owners.get(partition)

    def of_instance(self, instance_id: str) -> str | None:
        """The member that bears the static name."""
        return self._instances.get(instance_id)

    def tombstones(self) -> list[Record]:
        """What makes a replay forget the group."""
        group_id, records = self.group_id, list[Record]()
        records += [MemberCurrentForgotten(group_id, member_id) for member_id in self.currents]
        records += [MemberTargetForgotten(group_id, member_id) for member_id in self.targets]
        records += [ConsumerMemberForgotten(group_id, member_id) for member_id in self.members]
        records += [RegexForgotten(group_id, regex) for regex in self.regexes]
        return [*records, TargetForgotten(group_id), ConsumerGroupForgotten(group_id)]

    def apply(self, record: Record) -> None:
        """Take over one record."""
        match record:
            case ConsumerGroupStored():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case ConsumerGroupForgotten():
                self.is_forgotten = True
            case ConsumerMemberStored():
                self._uncount(self.members.get(record.member_id))
                self.members[record.member_id] = record
                self._count(record)
            case ConsumerMemberForgotten():
                self._uncount(self.members.pop(record.member_id, None))
            case TargetStored():
                self.target_epoch, self.targets_at = record.epoch, Millis(record.computed_at)
            case TargetForgotten():
                self.target_epoch = NO_TARGET
            case MemberTargetStored():
                self.targets[record.member_id] = record.partitions
            case MemberTargetForgotten():
                self.targets.pop(record.member_id, None)
            case MemberCurrentStored():
                self._release(record.member_id)
                self._hold(record)
            case MemberCurrentForgotten():
                self._release(record.member_id)
            case RegexResolved():
                self.regexes[record.regex] = record
            case RegexForgotten():
                self.regexes.pop(record.regex, None)
            case _:
                raise AssertionError(f"{record} is not about a group of the server-side protocol")

    def _count(self, member: ConsumerMemberStored) -> None:
        self.classic_members += member.classic is not None
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def _uncount(self, member: ConsumerMemberStored | None) -> None:
        if member is None:
            return
        self.classic_members -= member.classic is not None
        if (
            member.instance_id is not None
            and self.of_instance(member.instance_id) == member.member_id
        ):
            del self._instances[member.instance_id]

    def _hold(self, current: MemberCurrentStored) -> None:
        self.currents[current.member_id] = current
        for partitions in (current.assigned, current.revoking):
            for topic, indexes in partitions:
                for index in indexes:
                    self._owners[topic, index] = current.member_id

    def _release(self, member_id: str) -> None:
        current = self.currents.pop(member_id, None)
        if current is None:
            return
        for partitions in (current.assigned, current.revoking):
            for topic, indexes in partitions:
                for index in indexes:
                    if self._owners.get((topic, index)) == member_id:
                        del self._owners[topic, index]


class BookDraft(Draft):
    """One event being decided: ``book`` is as it will be once the records noted so far count."""

    __slots__ = ("_is_copy", "book")

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book
        self._is_copy = False

    def note(self, record: Record) -> None:
        """Remember this, and decide the rest as if it were remembered already."""
        if not self._is_copy:  # most heartbeats change nothing and need no copy
            self.book, self._is_copy = self.book.copy(), True
        self.book.apply(record)
        self.records.append(record)
