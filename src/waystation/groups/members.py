"""Who is in a classic group: members, their static names, their leader, what they all speak.

The roster changes while a rebalance is under way; only what the leader's assignment made of it is
remembered.  Two promises: a static instance id belongs to one member at a time, and members who
joined have one of them as their leader.
"""

from collections.abc import Iterable, Iterator, Mapping

from waystation.groups.commands import Join
from waystation.groups.records import ClassicMemberStored

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, the member's favourite first."""


class Member:
    """One member, as it last joined."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(self, member_id: str, join: Join) -> None:
        self.member_id = member_id
        self.instance_id = join.instance_id
        self.assignment = b""
        self.is_new = False
        """Whether it waits for its first generation, and cannot yet show that it is alive."""
        self.update(join)

    def update(self, join: Join) -> None:
        """Take over what a member may say anew each time it joins."""
        self.client_id, self.client_host = join.client_id, join.client_host
        self.protocols = join.protocols
        self.session_timeout_ms = join.session_timeout_ms
        # Versions without a rebalance time-out use the session's for both.
        timeout_ms = join.rebalance_timeout_ms
        self.rebalance_timeout_ms = join.session_timeout_ms if timeout_ms < 0 else timeout_ms

    def subscription(self, protocol: str | None) -> bytes:
        """What the member said for ``protocol``."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: Mapping[str, object]) -> str | None:
        """Its favourite among the candidates."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None

    def stored(self, protocol: str | None, assignment: bytes) -> ClassicMemberStored:
        """What is remembered of it."""
        return ClassicMemberStored(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.subscription(protocol),
            assignment,
        )


class Roster:
    """All members by id, in the order in which they came."""

    __slots__ = ("_by_id", "_by_instance", "_speakers", "leader")

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        self._speakers: dict[str, int] = {}  # how many members know a protocol
        self.leader: str | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        """The member of that id."""
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> str | None:
        """The id of the member that bears the static name."""
        return self._by_instance.get(instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: the slowest member decides."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def add(self, member: Member) -> None:
        """Let the member in; the first one leads."""
        held = None if member.instance_id is None else self.of_instance(member.instance_id)
        assert held is None, f"{member.instance_id} belongs to {held}, not to {member.member_id}"
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        self._count(member, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Let the member go; if it led, the one who has been here longest leads."""
        member = self._by_id.pop(member_id)
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        self._count(member, -1)
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        return member

    def update(self, member: Member, join: Join) -> None:
        """The member joined again and may speak other protocols now."""
        self._count(member, -1)
        member.update(join)
        self._count(member, 1)

    def rename(self, old_id: str, new_id: str) -> Member:
        """A static member came back under a new id: it keeps its place and its assignment."""
        member = self._by_id[old_id]
        assert member.instance_id is not None, f"{old_id} is not a static member"
        member.member_id = new_id
        # Anew and in the same order: a replay must find the same eldest member.
        self._by_id = {one.member_id: one for one in self._by_id.values()}
        self._by_instance[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def elect(self, candidates: Mapping[str, object]) -> bool:
        """Let one of ``candidates`` lead, if possible the one who did; false if there is none."""
        if self.leader in candidates:
            return True
        for member_id in self._by_id:
            if member_id in candidates:
                self.leader = member_id
                return True
        return False

    def supports(self, protocols: Protocols) -> bool:
        """Whether every member knows one of ``protocols``."""
        everyone = len(self._by_id)
        return any(self._speakers.get(name, 0) == everyone for name, _ in protocols)

    def select_protocol(self) -> str | None:
        """The protocol with the most votes among those that every member knows."""
        everyone = len(self._by_id)
        votes = {name: 0 for name, count in self._speakers.items() if count == everyone}
        for member in self:
            name = member.vote(votes)
            if name is not None:
                votes[name] += 1
        return max(votes, key=votes.__getitem__, default=None)

    def restore(
        self, members: Iterable[ClassicMemberStored], protocol: str | None, leader: str | None
    ) -> None:
        """Be as remembered; who is here already keeps the protocols that were not chosen."""
        here, self._by_id, self._by_instance, self._speakers = self._by_id, {}, {}, {}
        self.leader = None
        for stored in members:
            member = here.get(stored.member_id)
            if member is None or member.stored(protocol, stored.assignment) != stored:
                member = _restored(stored, protocol)
            member.assignment = stored.assignment
            self.add(member)
        self.leader = leader if leader in self._by_id else None

    def _count(self, member: Member, change: int) -> None:
        speakers = self._speakers
        for name in dict(member.protocols):  # once each, even if a client names one twice
            count = speakers.get(name, 0) + change
            if count:
                speakers[name] = count
            else:
                del speakers[name]


def _restored(stored: ClassicMemberStored, protocol: str | None) -> Member:
    return Member(
        stored.member_id,
        Join(
            group_id="",
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            protocol_type="",
            protocols=((protocol or "", stored.subscription),),
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
        ),
    )
