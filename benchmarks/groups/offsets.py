"""What a committed offset costs: time to take it in, bytes to keep it, time to read it back.

Run: python benchmarks/groups/offsets.py
"""

import tracemalloc
from collections.abc import Callable, Iterator
from time import process_time

from waystation.groups.commands import FetchOffsets, TopicSeen
from waystation.groups.machine import Groups
from waystation.groups.records import OffsetCommitted
from waystation.groups.settings import GroupSettings
from waystation.model.ids import TopicId
from waystation.model.offsets import Millis

GROUPS, PER_GROUP = 2_000, 100
SHAPES = {"1 topic of 100 partitions": (1, 100), "100 topics of 1 partition": (100, 1)}
NOW = Millis(1_700_000_000_000)


class NoTopics:
    """A cluster without topics, so that only the machine's own work counts."""

    version = 0

    def named(self, name: str) -> TopicSeen | None:
        """None is there."""

    def of_id(self, topic_id: TopicId) -> TopicSeen | None:
        """None is there."""

    def names(self) -> tuple[str, ...]:
        """None is there."""
        return ()

    def wait_for(self, group_id: str) -> bool:
        """None is there."""
        return False


def new_machine() -> Groups:
    """A coordinator that knows nothing yet."""
    settings = GroupSettings()
    return Groups(lambda: settings, NoTopics(), lambda: "id")


def records(topics: int, partitions: int, offset: int) -> Iterator[OffsetCommitted]:
    """One commit of every partition by every group, as a log holds them."""
    names = [f"topic-{number}" for number in range(topics)]
    for group in range(GROUPS):
        group_id = f"group-{group}"
        for name in names:
            for partition in range(partitions):
                yield OffsetCommitted(group_id, name, partition, offset, 5, "", NOW)


def seconds(work: Callable[[], object]) -> float:
    """How much of a processor's time ``work`` takes."""
    began = process_time()
    work()
    return process_time() - began


def apply_all(machine: Groups, log: list[OffsetCommitted]) -> None:
    """Replay the log."""
    apply = machine.apply
    for record in log:
        apply(record)


def fetch_all(machine: Groups) -> None:
    """Every group asks for all its offsets."""
    for group in range(GROUPS):
        machine.fetch_offsets(NOW, FetchOffsets(f"group-{group}", None), print)


if __name__ == "__main__":
    count = GROUPS * PER_GROUP
    for shape, (topics, partitions) in SHAPES.items():
        first, again = (list(records(topics, partitions, at)) for at in (1 << 40, 1 << 41))
        machine = new_machine()
        new_ns = seconds(lambda m=machine, log=first: apply_all(m, log)) / count * 1e9
        old_ns = seconds(lambda m=machine, log=again: apply_all(m, log)) / count * 1e9
        read_ns = seconds(lambda m=machine: fetch_all(m)) / count * 1e9
        tracemalloc.start()
        kept = new_machine()
        apply_all(kept, first)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"{shape}: first commit {new_ns:4.0f} ns, next {old_ns:4.0f} ns, "
            f"fetched {read_ns:4.0f} ns, {taken / count:4.0f} bytes each"
        )
