"""What is remembered of queues in ``__share_group_state``: the facts that a restart replays.

A snapshot says all there is to know of a queue; updates say what has changed since.  Each update
has a slot, and slots are used again after the next snapshot: so the log can be compacted, and
holds at most one snapshot and one round of slots per queue.  An update counts only behind the
snapshot whose epoch it names.  How they are written as Kafka writes them is the broker's.
"""

from typing import Final, NamedTuple

from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.states import StateBatch


class QueueId(NamedTuple):
    """A group's queue over one partition."""

    group_id: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class Notes(NamedTuple):
    """What a leader leaves for the next one, such as a batch of dead letters that is on its way.

    Of two the one with the higher version counts.
    """

    version: int = 0
    content: bytes = b""


NO_NOTES: Final = Notes()


class SnapshotStored(NamedTuple):
    """All that is known of a queue."""

    queue: QueueId
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset
    batches: tuple[StateBatch, ...]
    notes: Notes = NO_NOTES
    is_new: bool = False
    """Whether no leader has loaded it yet: where it begins was said by nobody who led."""


class UpdateStored(NamedTuple):
    """What has changed since the snapshot of that epoch, and the updates before."""

    queue: QueueId
    slot: int
    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    start: Offset
    batches: tuple[StateBatch, ...]
    notes: Notes = NO_NOTES
    """Without a version: as they were."""


class StateForgotten(NamedTuple):
    """The queue is no more."""

    queue: QueueId


class UpdateForgotten(NamedTuple):
    """A slot that was in use is not any more."""

    queue: QueueId
    slot: int


StateRecord = SnapshotStored | UpdateStored | StateForgotten | UpdateForgotten
