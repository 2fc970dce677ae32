"""What is measured of queues, as declarations: the loads, and in whose life each is run.

A load is one queue with a producer and several consumers at once.  RabbitMQ's queue is one process
and knows no partitions; it stands beside ours of one partition and of four.
"""

from __future__ import annotations

from dataclasses import dataclass

WAYSTATION, RABBITMQ, KAFKA = "waystation", "rabbitmq", "kafka"


@dataclass(frozen=True)
class QueueLoad:
    """One row: a queue of so many partitions, and what is asked of it."""

    name: str
    partitions: int = 4
    order: str = "none"
    beside: bool = False
    """Whether a consumer group reads the same topic at the same time."""
    keys: int = 0
    consumers: int = 4
    size_bytes: int = 1024
    is_quick: bool = True
    """Whether it is part of a quick look."""

    def row(self, durability: str) -> str:
        """What it is called where this is promised."""
        return f"queue {durability} {self.name}"


ONE = QueueLoad("1KB 1p", partitions=1, is_quick=False)
FOUR = QueueLoad("1KB 4p")
BY_KEY = QueueLoad("by key 1KB 4p", order="key", keys=10_000)
BESIDE = QueueLoad("and a group 1KB 4p", beside=True)


@dataclass(frozen=True)
class Life:
    """One life of a product and the loads in it; all of them begin with a fresh directory.

    RabbitMQ runs its one load once, which stands beside all that are named.
    """

    peer: str
    durability: str
    loads: tuple[QueueLoad, ...]


LIVES: tuple[Life, ...] = (
    Life(WAYSTATION, "disk", (ONE, FOUR, BY_KEY)),
    Life(RABBITMQ, "disk", (ONE, FOUR)),
    Life(WAYSTATION, "memory", (ONE, FOUR, BY_KEY, BESIDE)),
    Life(KAFKA, "memory", (ONE, FOUR, BESIDE)),
)


def chosen(peers: tuple[str, ...], *, quick: bool) -> list[Life]:
    """The lives of these products; a quick look leaves some loads out."""
    return [
        Life(one.peer, one.durability, tuple(x for x in one.loads if x.is_quick or not quick))
        for one in LIVES
        if one.peer in peers
    ]
