"""What an admin is told about transactions."""

from typing import NamedTuple

from waystation.client.bootstrap import Address
from waystation.model.ids import NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset

__all__ = [
    "ONGOING",
    "PREPARED",
    "OpenTransaction",
    "TransactionDescription",
    "TransactionListing",
    "TransactionOutcome",
]

ONGOING, PREPARED = "Ongoing", "Prepared"
"""The states of a transaction that is open: Kafka's, and ours of two-phase commit."""


class TransactionListing(NamedTuple):
    """A transactional id, the state of its last transaction, and where it is coordinated."""

    transactional_id: str
    state: str
    """Kafka's word: Empty, Ongoing, PrepareCommit, CompleteAbort ..., or ``PREPARED``."""
    producer: ProducerId
    coordinator: NodeId


class TransactionDescription(NamedTuple):
    """A transactional id, its producer and its last transaction."""

    transactional_id: str
    state: str
    producer: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    started_at: Millis | None
    """``None`` if none is under way."""
    partitions: tuple[TopicPartition, ...]
    """While it ends, those whose markers are still to be written."""
    coordinator: Address

    @property
    def open(self) -> bool:
        """Whether it can still be committed or aborted."""
        return self.state in (ONGOING, PREPARED)


class OpenTransaction(NamedTuple):
    """A transaction that one partition knows the beginning of and not the end."""

    partition: TopicPartition
    producer: ProducerId
    epoch: int
    coordinator_epoch: int
    first_offset: Offset
    last_written_at: Millis


class TransactionOutcome(NamedTuple):
    """What became of a transaction, and since when; ``None`` if nobody knows."""

    state: str
    """``ongoing``, ``prepared``, ``committing``, ``aborting``, ``committed``, ``aborted``,
    ``aborted_by_limit`` or ``unknown``."""
    at: Millis | None
