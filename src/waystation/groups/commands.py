"""What members and administrators ask of a group, and what they are told.

A command's answer is the class named in its docstring, or a ``WaystationError``.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from waystation.groups.inquiries import Inquiry
from waystation.groups.records import Partitions
from waystation.model.errors import WaystationError
from waystation.model.ids import NO_TOPIC_ID, ProducerEpoch, ProducerId, TopicId
from waystation.records.control import Marker


class TopicSeen(NamedTuple):
    """A topic, as far as groups look at it."""

    name: str
    id: TopicId
    partitions: int


class TopicsSeen(Protocol):
    """The cluster's topics now; ``version`` rises whenever any of them changes.

    Topics ``wait_for`` a group that archives them: what it has not committed they keep.
    """

    @property
    def version(self) -> int: ...
    def named(self, name: str) -> TopicSeen | None: ...
    def of_id(self, topic_id: TopicId) -> TopicSeen | None: ...
    def names(self) -> Iterable[str]: ...
    def wait_for(self, group_id: str) -> bool: ...


class ProducersSeen(Protocol):
    """What the machine's log knows of transactional producers: what it would refuse to store.

    A machine asks first, for a log that refuses a decision ends the machine.
    """

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> WaystationError | None: ...
    def refusal_of_marker(self, marker: Marker) -> WaystationError | None: ...


# --- the classic protocol ---------------------------------------------------------------------


class Join(NamedTuple):
    """Become or stay a member; answered by ``Joined`` when the rebalance is over."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    requires_member_id: bool = True
    """Whether a new member is first told its id (JoinGroup v4+)."""
    may_skip_assignment: bool = False
    """Whether a returning static leader may be told not to assign (JoinGroup v9+)."""


class JoinedMember(NamedTuple):
    """What the leader is told of a member."""

    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(NamedTuple):
    """The new generation; ``members`` only for the leader, who assigns."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class Sync(NamedTuple):
    """Fetch one's assignment, or, as the leader, hand out all; answered by ``Synced``."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(NamedTuple):
    """What the member shall read."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


class Heartbeat(NamedTuple):
    """Say that one is alive; answered by ``None``."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class Leaving(NamedTuple):
    """One of those who leave; by instance id alone, an administrator removes it."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """Leave the group; answered by ``Left``."""

    group_id: str
    members: tuple[Leaving, ...]


class Left(NamedTuple):
    """For each that was named: itself, and the error that kept it."""

    members: tuple[tuple[Leaving, WaystationError | None], ...]


# --- the server-side protocol -----------------------------------------------------------------


class ConsumerHeartbeat(NamedTuple):
    """Join (epoch 0), go on, or leave (-1; -2 for a static member that returns)."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    """-1 if unchanged."""
    topics: tuple[str, ...] | None
    """``None`` if unchanged, as are the next three."""
    topic_regex: str | None
    assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str


class ConsumerHeartbeatDone(NamedTuple):
    """``assignment`` is ``None`` where it did not change since the member was last told."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None


# --- offsets ----------------------------------------------------------------------------------


class OffsetToCommit(NamedTuple):
    """One partition's position."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: TopicId = NO_TOPIC_ID


class Commit(NamedTuple):
    """Keep positions; answered by ``Committed``.  -1 and "" for those who are no member."""

    group_id: str
    generation: int
    """Or the member's epoch."""
    member_id: str
    instance_id: str | None
    retention_ms: int
    """-1 for the broker's own setting."""
    offsets: tuple[OffsetToCommit, ...]


class TransactionalCommit(NamedTuple):
    """Keep positions if the producer's transaction is committed; answered by ``Committed``.

    -1, "" and ``None`` for one who does not say which member it is.
    """

    group_id: str
    generation: int
    """Or the member's epoch."""
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    inquiry: Inquiry | None = None
    """Begun before the transaction's coordinator was asked, if it had to be."""


class Committed(NamedTuple):
    """In the order of the command: ``None``, or why the offset was not taken."""

    errors: tuple[WaystationError | None, ...]


class FetchOffsets(NamedTuple):
    """Read positions; answered by ``FetchedOffsets``.  ``topics`` of ``None`` means all."""

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False
    """Whether positions that an open transaction may change are refused."""


class FetchedOffset(NamedTuple):
    """A position; offset -1 where there is none, or where it is refused."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: WaystationError | None = None


class FetchedOffsets(NamedTuple):
    """In the order asked for, or by topic and partition."""

    offsets: tuple[FetchedOffset, ...]


class DeleteOffsets(NamedTuple):
    """Forget positions of topics that no member reads; answered by ``DeletedOffsets``."""

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


class DeletedOffsets(NamedTuple):
    """For each partition: ``None``, or why it was kept."""

    errors: Mapping[tuple[str, int], WaystationError | None]


# --- administration ---------------------------------------------------------------------------


class MemberDescription(NamedTuple):
    """A member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A classic group, or one of the other kind as classic tools see it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class ConsumerMemberDescription(NamedTuple):
    """A member of a server-side group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: Partitions
    target: Partitions
    is_classic: bool


class ConsumerGroupDescription(NamedTuple):
    """A group of the server-side protocol."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]


class GroupListing(NamedTuple):
    """One line of a list of groups; ``kind`` is "classic" or "consumer"."""

    group_id: str
    protocol_type: str
    state: str
    kind: str
    members: int = 0
