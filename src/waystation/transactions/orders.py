"""Markers that were asked for, and the partitions that have not got theirs yet.

Nothing of it survives a restart: the next coordinator asks for all of them again, which does no
harm, since a marker that ends nothing changes nothing.
"""

from collections.abc import Iterable

from waystation.model.ids import NO_PRODUCER_EPOCH, TopicPartition
from waystation.transactions.commands import MarkersDue
from waystation.transactions.lifecycle import is_committed
from waystation.transactions.records import TransactionStored


class Orders:
    """At most one order per transactional id; a new one replaces what came before."""

    __slots__ = ("_coordinator_epoch", "_orders")

    def __init__(self, coordinator_epoch: int) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._orders: dict[str, tuple[MarkersDue, dict[TopicPartition, None]]] = {}

    def place(self, state: TransactionStored) -> MarkersDue:
        """Ask for a marker in each partition of a transaction whose end is decided."""
        due = MarkersDue(
            state.transactional_id,
            state.producer_id,
            state.epoch,
            self._coordinator_epoch,
            is_committed(state),
            state.partitions,
            bumped=state.last_epoch != NO_PRODUCER_EPOCH,
        )
        self._orders[state.transactional_id] = due, dict.fromkeys(state.partitions)
        return due

    def written(self, due: MarkersDue, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all that ``due`` asks for is done now; false if it is done already, or undone.

        Orders are told apart by identity: in the classic flow two of one producer are equal.
        """
        order = self._orders.get(due.transactional_id)
        if order is None or order[0] is not due:
            return False
        left = order[1]
        for partition in partitions:
            left.pop(partition, None)
        if left:
            return False
        del self._orders[due.transactional_id]
        return True
