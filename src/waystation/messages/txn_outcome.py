"""TxnOutcome: what became of a transaction, for those who must know before they go on.

An API of our own, versioned as Kafka's are; what it promises is in
``docs/protocol/two-phase-commit.md``.
"""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

NO_TIME = -1
"""The time of a state that is not known."""


class TxnOutcomeRequest(Message, api=ApiKey.TXN_OUTCOME):
    """Asks about one transaction, by what PrepareTxn named it."""

    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)


class TxnOutcomeResponse(Message, api=ApiKey.TXN_OUTCOME):
    """The state of that transaction, and since when it is in it, in ms since 1970."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    state: str = field(string)
    at_ms: int = field(int64, default=NO_TIME)
