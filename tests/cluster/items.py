"""A coordination store in a dictionary, for tests of pure decisions."""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from waystation.cluster.changes import BYTES_MAX, OPERATIONS_MAX, Changes, Transaction, in_batches
from waystation.cluster.image import ClusterImage
from waystation.cluster.membership import register
from waystation.cluster.topics import TopicDefaults, TopicPlan, TopicSpec, create_topics
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId, TopicId


class Change(NamedTuple):
    revision: int
    puts: dict[str, tuple[bytes, int]]
    deletes: tuple[str, ...]


class Items:
    """Items, their revision, and the image kept by applying every change."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[bytes, int]] = {}
        self.image = ClusterImage()
        self.transactions = 0

    def txn(self, txn: Transaction) -> bool:
        """As the port promises; false if a compare failed."""
        assert max(len(txn.compares), len(txn.puts) + len(txn.deletes)) <= OPERATIONS_MAX
        assert sum(len(k) + len(v) for k, v in txn.puts.items()) <= BYTES_MAX
        assert not set(txn.puts) & set(txn.deletes)
        self.transactions += 1
        for key, version in txn.compares.items():
            if self.items.get(key, (b"", 0))[1] != version:
                return False
        revision = self.image.revision + 1
        puts = {key: (value, revision) for key, value in txn.puts.items()}
        self.items.update(puts)
        for key in txn.deletes:
            self.items.pop(key, None)
        self.image = self.image.apply(Change(revision, puts, tuple(txn.deletes)))
        return True

    def commit(self, *decisions: Changes) -> bool:
        """All of the decisions, stopping at the first that is void."""
        return all(self.txn(txn) for txn in in_batches(decisions))

    def join(self, *nodes: int) -> None:
        for node in nodes:
            _, changes = register(self.image, NodeId(node), f"host{node}", 9092)
            assert self.commit(changes)

    def create(self, *specs: TopicSpec) -> dict[str, TopicPlan | WaystationError]:
        """Decide and commit what can be; the outcomes as they were decided."""
        outcomes = create_topics(self.image, specs, TopicDefaults(), new_id)
        assert self.commit(*plans_of(outcomes.values()))
        return outcomes


def plans_of(outcomes: Iterable[TopicPlan | WaystationError]) -> list[Changes]:
    return [each.changes for each in outcomes if isinstance(each, TopicPlan)]


_made = 0


def new_id() -> TopicId:
    """Ids that differ, and look random, and are the same in every run."""
    global _made
    _made += 1
    return TopicId(UUID(int=(_made * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128)))
