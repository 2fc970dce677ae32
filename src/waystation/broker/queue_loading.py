"""How a queue begins at a new leader: from what the last one stored, or where its group says.

A queue that nobody has begun yet begins at the log's start, at its end, or where messages are
young enough.  Its leader must know the end of what is committed for that: one that was just
elected may not yet.
"""

from collections.abc import Callable
from typing import Final

from waystation.model.error_codes import ErrorCode
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.partition.partition import Partition
from waystation.sharing.leader import QueueLeader
from waystation.sharing.lineage import Lineage
from waystation.sharing.ordered_partition import OrderedPartition
from waystation.sharing.persister import StateRead
from waystation.sharing.reset import reset_of
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.state_records import QueueId

_EPOCHS_TOLD: Final = 100


class LogNotReadyError(WaystationError):
    """A new leader does not know yet how far its log is committed."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


def lineage_of(partition: Partition) -> Lineage:
    """Which leaders wrote a log that is led here; of a long history the newest part."""
    starts = tuple((one.epoch, one.start) for one in partition.epochs.entries[-_EPOCHS_TOLD:])
    return Lineage(partition.log.log_end, starts)


def begun(
    queue_id: QueueId,
    partition: Partition,
    epoch: LeaderEpoch,
    stored: StateRead,
    now: Millis,
    wall_now: Millis,
    group: Callable[[], QueueSettings],
    share: Callable[[], ShareSettings],
) -> QueueLeader[SharePartition]:
    """The queue as its leader of ``epoch`` has it, from what is stored."""
    start = stored.start
    if start == NO_OFFSET:
        start = _first(partition, wall_now, group().share_auto_offset_reset)
    kind = OrderedPartition if group().is_ordered else SharePartition
    queue = kind(start, group, share)
    queue.load(now, stored.batches)
    if stored.start == NO_OFFSET:
        queue.begin()
    return QueueLeader(queue_id, epoch, stored.state_epoch, queue, stored.notes)


def _first(partition: Partition, wall_now: Millis, policy: str) -> Offset:
    """Where a queue begins that has no state."""
    if not partition.settled:
        raise LogNotReadyError(f"{partition.name} is led since a moment ago")
    reset = reset_of(policy)
    if reset.is_earliest:
        return partition.log.log_start
    mark = partition.high_watermark
    if reset.age_ms is None:
        return mark
    found = partition.log.find_by_time(Millis(max(0, wall_now - reset.age_ms)))
    return mark if found is None else min(found[0], mark)
