"""What an admin is told about queues."""

from collections.abc import Iterable
from typing import NamedTuple

from waystation.model.offsets import Offset

__all__ = ["QueueDescription", "QueueListing", "QueuePartition"]


class QueueListing(NamedTuple):
    """A share group, and the topics of which it has queues."""

    group_id: str
    state: str
    topics: tuple[str, ...]


class QueuePartition(NamedTuple):
    """How one partition of a queue stands.

    Everything before ``start`` is settled; a start of ``None`` means that nobody has received
    anything yet.  ``unsettled`` counts messages from there to ``end`` that are neither acknowledged
    nor given up, and is ``None`` where the queue is to begin with what is sent later.
    ``in_flight`` are those of them that are out at consumers, ``waiting`` those that wait for
    another try or for their way to the dead-letter topic; each ``None`` where no broker says.
    """

    partition: int
    start: Offset | None
    end: Offset
    unsettled: int | None
    in_flight: int | None = None
    waiting: int | None = None

    @property
    def ready(self) -> int | None:
        """How many messages could be delivered now."""
        if self.unsettled is None or self.in_flight is None:
            return None
        return max(self.unsettled - self.in_flight - (self.waiting or 0), 0)


class QueueDescription(NamedTuple):
    """A queue over all partitions of its topic."""

    name: str
    group_id: str
    state: str
    """The group's; ``Dead`` if it does not exist yet."""
    members: int
    partitions: tuple[QueuePartition, ...]
    dead_letter_topic: str | None
    dead_letters: int | None

    @property
    def unsettled(self) -> int:
        """Messages that are neither acknowledged nor given up."""
        return sum(one.unsettled or 0 for one in self.partitions)

    @property
    def in_flight(self) -> int | None:
        """Messages that are out at consumers."""
        return _sum(one.in_flight for one in self.partitions)

    @property
    def ready(self) -> int | None:
        """Messages that could be delivered now."""
        return _sum(one.ready for one in self.partitions)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """``None`` if any of them is."""
    listed = list(numbers)
    return None if None in listed else sum(one or 0 for one in listed)
