"""ListTransactions: the transactional ids that one broker coordinates."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, int64, string
from waystation.wire.versions import ApiKey

ANY_DURATION = -1
"""Transactions are not asked for by how long they have been open."""


class ListTransactionsRequest(Message, api=ApiKey.LIST_TRANSACTIONS):
    """Asks for all, or for those in some states, of some producers, open for so many ms."""

    state_filters: list[str] = field(array(string))
    producer_id_filters: list[int] = field(array(int64))
    duration_filter: int = field(int64, "1+", default=ANY_DURATION)


class TransactionState(Struct):
    """One transactional id."""

    transactional_id: str = field(string)
    producer_id: int = field(int64)
    transaction_state: str = field(string)


class ListTransactionsResponse(Message, api=ApiKey.LIST_TRANSACTIONS):
    """The transactional ids of this broker; whoever wants all asks every broker."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    unknown_state_filters: list[str] = field(array(string))
    transaction_states: list[TransactionState] = field(array(TransactionState))
