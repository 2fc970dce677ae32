"""PrepareTxn: the first phase of two, after which a transaction waits for its outcome.

An API of our own, versioned as Kafka's are; what it promises is in
``docs/protocol/two-phase-commit.md``.  The second phase is EndTxn, which any process may send
that knows the three values named here.
"""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class PrepareTxnRequest(Message, api=ApiKey.PREPARE_TXN):
    """Asks that the ongoing transaction neither grow nor end by itself; harmless to repeat."""

    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)


class PrepareTxnResponse(Message, api=ApiKey.PREPARE_TXN):
    """Without an error the transaction is prepared, whatever crashes."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
