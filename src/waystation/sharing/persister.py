"""What a queue's leader and a group's coordinator ask of the share coordinator: keys 83 to 87.

Each command is about one queue; a request on the wire carries those of one group.  Its answer is
the class named in its docstring, or a ``WaystationError``.
"""

from typing import NamedTuple, Protocol

from waystation.model.ids import LeaderEpoch
from waystation.model.machines import Waiter
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.sharing.lineage import NO_LINEAGE, Lineage
from waystation.sharing.state_records import NO_NOTES, Notes, QueueId
from waystation.sharing.states import StateBatch


class Initialize(NamedTuple):
    """Let a queue begin, or begin anew, under a state epoch; answered by ``None``.

    A start of -1 leaves it to the leader, who resolves the group's reset policy.  Repeating it
    does no harm: what was delivered under the same epoch stays so.
    """

    queue: QueueId
    state_epoch: int
    start: Offset = NO_OFFSET


class Read(NamedTuple):
    """Load a queue for its leader, and fence those before it; answered by ``StateRead``.

    What is known of messages that the leader's log has lost is forgotten, once per leader.
    """

    queue: QueueId
    leader_epoch: LeaderEpoch
    log: Lineage = NO_LINEAGE


class StateRead(NamedTuple):
    """All that a new leader must know."""

    state_epoch: int
    start: Offset
    batches: tuple[StateBatch, ...]
    notes: Notes = NO_NOTES


class Write(NamedTuple):
    """What a leader has decided; answered by ``None`` once no failure takes it back."""

    queue: QueueId
    state_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset
    batches: tuple[StateBatch, ...]
    notes: Notes = NO_NOTES
    """Stored together with the rest; without a version they stay as they were."""


class Delete(NamedTuple):
    """Forget a queue; answered by ``None``, also if there is none."""

    queue: QueueId


class Summarize(NamedTuple):
    """Ask where a queue stands, without fencing anyone; answered by ``StateSummary``."""

    queue: QueueId


class StateSummary(NamedTuple):
    """Where a queue begins, and how many messages at or past that are settled."""

    state_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset
    settled: int


class Persister(Protocol):
    """The share coordinators of a cluster, wherever they are.

    ``to`` is called once.  An error that is retriable says nothing about whether the command was
    followed; all of them may be repeated.
    """

    def initialize(self, command: Initialize, to: Waiter) -> None: ...
    def read(self, command: Read, to: Waiter) -> None: ...
    def write(self, command: Write, to: Waiter) -> None: ...
    def delete(self, command: Delete, to: Waiter) -> None: ...
    def summarize(self, command: Summarize, to: Waiter) -> None: ...
