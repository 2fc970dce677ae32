"""EndTxn: a producer commits or aborts its transaction.

Since v5 each transaction has an epoch of its own: the answer gives the one that the next
transaction of this producer writes under, so that nothing late can join it.
"""

from waystation.wire.message import Message
from waystation.wire.schema import boolean, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

BUMPS_FROM = 5
"""The first version that ends a transaction by raising the producer's epoch."""


class EndTxnRequest(Message, api=ApiKey.END_TXN):
    """Commits or aborts; to ask the same again is harmless."""

    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    committed: bool = field(boolean)


class EndTxnResponse(Message, api=ApiKey.END_TXN):
    """The decision is made; who the producer is from now on, or -1 if it stays who it was."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    producer_id: int = field(int64, "5+", default=-1)
    producer_epoch: int = field(int16, "5+", default=-1)
