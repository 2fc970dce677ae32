"""Sees everything that members are told, and knows what must never be.

It looks from outside: at answers, and at records as they are appended.  What the machine believes
of itself is asked for in one place only, the offsets it holds.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from waystation.groups.records import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ConsumerGroupForgotten,
    ConsumerGroupStored,
    MemberCurrentForgotten,
    MemberCurrentStored,
    Partitions,
    Record,
)
from waystation.testing.network import End
from waystation.testing.world import World

if TYPE_CHECKING:
    from tests.simulation.coordinator import Request, Topics

Place = tuple[str, str, int]
"""Group, topic, partition."""


class Witness:
    """Keeps count of owners, offsets and unanswered requests."""

    def __init__(self, world: World, topics: "Topics") -> None:
        self._world, self._topics = world, topics
        self._owners: dict[tuple[str, int, str, int], str] = {}
        self._doubly_owned: list[str] = []
        self._current: dict[tuple[str, str], MemberCurrentStored] = {}
        self._generations: dict[str, int] = {}
        self._forgotten: dict[str, None] = {}
        self._overlaps: list[str] = []
        self._objections: list[str] = []
        self.shown: dict[Place, int] = {}
        """The furthest offset that a member was told is committed."""
        self.reached: dict[Place, int] = {}
        """How far some member has processed."""
        self._unanswered: dict[int, tuple[str, End, str]] = {}
        self._asked = 0
        self.answers = self.told = 0

    # --- what members tell ------------------------------------------------------------------

    def took(self, who: str, group: str, generation: int, topic: str, partition: int) -> None:
        """A member begins to read a partition; ``who`` outlives restarts of a static member."""
        owner = self._owners.setdefault((group, generation, topic, partition), who)
        if owner != who:
            self._doubly_owned.append(
                f"{topic}-{partition} in generation {generation} of {group}: {owner} and {who}"
            )

    def begins(self, who: str, place: Place, offset: int) -> None:
        """A member begins at a position it was given: nobody may have skipped what is before."""
        reached = self.reached.get(place, 0)
        assert offset <= reached, (
            f"{who} is sent to {offset} of {place}, all have reached {reached}"
        )

    def processed(self, place: Place, offset: int) -> None:
        """Everything before ``offset`` was processed by somebody."""
        self.reached[place] = max(self.reached.get(place, 0), offset)

    def told_offset(self, place: Place, offset: int) -> None:
        """A member was told that ``offset`` is committed."""
        if offset > self.shown.get(place, -1):
            self.shown[place] = offset
            self.told += 1

    def object_to(self, what: str) -> None:
        """Somebody has seen what must not be, where to raise would be to tell a machine's host."""
        self._objections.append(what)

    # --- what must never be -----------------------------------------------------------------

    def one_owner(self) -> None:
        assert not self._doubly_owned, self._doubly_owned[0]

    def disjoint(self) -> None:
        assert not self._overlaps, self._overlaps[0]

    def no_objections(self) -> None:
        assert not self._objections, self._objections[0]

    def offsets_kept(self, committed: Iterable[tuple[str, str, int, int]]) -> None:
        held = {(group, topic, partition): offset for group, topic, partition, offset in committed}
        for place, offset in self.shown.items():
            assert held.get(place, -1) >= offset, (
                f"{place} was told to be at {offset}, the coordinator has {held.get(place)}"
            )

    def all_answered(self) -> None:
        assert not self._unanswered, f"never answered: {list(self._unanswered.values())[:3]}"

    # --- what the machine remembers ---------------------------------------------------------

    def remembered(self, records: Sequence[Record], *, check: bool = True) -> None:
        """One decision was appended: afterwards nobody may hold what another still holds."""
        groups: dict[str, None] = {}
        for record in records:
            match record:
                case ClassicGroupStored() | ConsumerGroupStored():
                    self._check_rise(record)
                case ClassicGroupForgotten():
                    self._forgotten[record.group_id] = None
                case MemberCurrentStored():
                    self._current[record.group_id, record.member_id] = record
                    groups[record.group_id] = None
                case MemberCurrentForgotten():
                    self._current.pop((record.group_id, record.member_id), None)
                case ConsumerGroupForgotten():
                    self._forgotten[record.group_id] = None
                    for key in [one for one in self._current if one[0] == record.group_id]:
                        del self._current[key]
        for group in groups if check else ():
            self._check_disjoint(group)

    def _check_rise(self, record: ClassicGroupStored | ConsumerGroupStored) -> None:
        """Generations and epochs rise, unless the group had been forgotten: then it is another.

        That is so, as in Kafka, when a group without members changes its kind.  Of what was
        forgotten a compacted log may have nothing left to compare with.
        """
        group, before = record.group_id, self._generations.get(record.group_id)
        after = record.epoch if isinstance(record, ConsumerGroupStored) else record.generation
        is_another = group in self._forgotten and (before is None or after < before)
        if before is not None and after < before and not is_another:
            self._overlaps.append(f"{group} goes back from generation {before} to {after}")
        if is_another:
            self._owners = {key: who for key, who in self._owners.items() if key[0] != group}
        self._generations[group] = after
        self._forgotten.pop(group, None)

    def rebuilt(self, records: Sequence[Record]) -> None:
        """A replay is over: what was not committed may be gone."""
        self._current, self._generations, self._forgotten = {}, {}, {}
        for record in records:
            self.remembered([record], check=False)
        for group in dict.fromkeys(group for group, _ in self._current):
            self._check_disjoint(group)

    def _check_disjoint(self, group: str) -> None:
        holders: dict[tuple[Any, int], str] = {}
        for (group_id, member), held in self._current.items():
            if group_id == group:
                for place in _places(held.assigned) + _places(held.revoking):
                    other = holders.setdefault(place, member)
                    if other != member:
                        self._overlaps.append(f"{place} of {group}: {other} and {member}")

    # --- requests ---------------------------------------------------------------------------

    def asked(self, node: str, end: End, request: "Request") -> Callable[[object], None]:
        """A request has arrived; what to call with its answer, once."""
        self._asked += 1
        number = self._asked
        self._unanswered[number] = (node, end, request.method)
        answered = False

        def to(answer: object) -> None:
            nonlocal answered
            assert not answered, f"{request} was answered twice, now with {answer!r}"
            answered = True
            self.answers += 1
            self._unanswered.pop(number, None)
            end.send((request.number, answer))

        return to

    def crashed(self, node: str) -> None:
        """Nobody waits for a node without power: their connections are told."""
        gone = [number for number, (at, _, _) in self._unanswered.items() if at == node]
        for number in gone:
            del self._unanswered[number]

    def hung_up(self, end: End) -> None:
        """Whoever asked on a closed connection has been told; an answer may still be made."""
        gone = [number for number, (_, at, _) in self._unanswered.items() if at is end]
        for number in gone:
            del self._unanswered[number]


def _places(partitions: Partitions) -> list[tuple[Any, int]]:
    return [(topic_id, number) for topic_id, numbers in partitions for number in numbers]
