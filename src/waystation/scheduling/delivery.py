"""A decided batch as it goes to its target, and what the target's answer means for the mover.

Key, value and headers are those of the scheduled record, its own schedule included, so that a
consumer can tell how late a message came.  The timestamp is that of the decision.
"""

from collections.abc import Sequence
from typing import Final

from waystation.model.errors import ErrorCode
from waystation.model.offsets import Millis
from waystation.records.batch import BatchBuilder
from waystation.records.record import Row
from waystation.scheduling.mover import Outcome
from waystation.scheduling.records import Decided

__all__ = ["delivery_batch", "fitting", "outcome_of", "packed", "sealed"]

_LARGEST_BYTES: Final = (1 << 31) - 1
_DONE: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_NOT_NOW: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
_REFUSED: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.POLICY_VIOLATION,
)
_FORGOTTEN: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
)
_OUTCOMES: Final = {
    **dict.fromkeys(_DONE, Outcome.DONE),
    **dict.fromkeys(_NOT_NOW, Outcome.NOT_NOW),
    **dict.fromkeys(_REFUSED, Outcome.REFUSED),
    **dict.fromkeys(_FORGOTTEN, Outcome.FORGOTTEN),
}


def fitting(rows: Sequence[Row], limit_bytes: int) -> int:
    """How many of the rows, from the first on, one batch of that size takes; one at least."""
    return packed(rows, limit_bytes, Millis(0)).records_count


def packed(rows: Sequence[Row], limit_bytes: int, at: Millis) -> BatchBuilder:
    """A batch of the first rows, as many as one of that size takes, and one at least.

    Who decides upon these at ``at`` may seal it, and need not build it again.
    """
    builder = BatchBuilder(limit_bytes=limit_bytes)
    for _, _, key, value, headers in rows:
        if not builder.append(key, value, headers, timestamp=at):
            break
    return builder if builder.records_count else packed(rows[:1], _LARGEST_BYTES, at)


def sealed(batch: BatchBuilder, decided: Decided) -> bytes:
    """The batch to produce, of what was packed at the moment and for the decision."""
    assert batch.records_count == len(decided.items), "other records"
    batch.producer_id, batch.producer_epoch = decided.producer_id, decided.producer_epoch
    batch.base_sequence = decided.sequence
    return batch.build()


def delivery_batch(decided: Decided, rows: Sequence[Row]) -> bytes:
    """The batch to produce; ``rows`` are the records that the decision names, in its order.

    Whoever sends it, it is the same, byte for byte.
    """
    assert [row[0] for row in rows] == [offset for _, offset in decided.items], "other records"
    return sealed(packed(rows, _LARGEST_BYTES, decided.at), decided)


def outcome_of(code: ErrorCode) -> Outcome:
    """What a target's answer to Produce says; whatever is not known to be clear is unclear."""
    return _OUTCOMES.get(code, Outcome.UNCLEAR)
