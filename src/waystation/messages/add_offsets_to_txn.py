"""AddOffsetsToTxn: the offsets of a group become part of a transaction.

Its coordinator adds the partition of ``__consumer_offsets`` that keeps them.  The offsets
themselves follow in TxnOffsetCommit, which since v5 needs nobody to have asked here before.
"""

from waystation.wire.message import Message
from waystation.wire.schema import field, int16, int32, int64, string
from waystation.wire.versions import ApiKey


class AddOffsetsToTxnRequest(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    """Announces that the transaction will commit offsets of the group."""

    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    group_id: str = field(string)


class AddOffsetsToTxnResponse(Message, api=ApiKey.ADD_OFFSETS_TO_TXN):
    """Whether it may."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
