"""The options of transactions."""

from dataclasses import dataclass

from waystation.model.settings import option

NO_LIMIT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """How long transactions may take, and how long transactional ids and outcomes are kept."""

    transaction_max_timeout_ms: int = option(
        900_000,
        at_least=1,
        live=True,
        doc="The longest time-out a producer may ask for. A transaction that is not ended by then "
        "is aborted; until it is, those who read committed records only wait behind it.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        100,
        at_least=1,
        live=True,
        doc="How often, at most, transactions are ended whose time-out is over: those that fall "
        "due within this time end together. Longer is cheaper and keeps readers waiting longer.",
    )
    transactional_id_expiration_ms: int = option(
        604_800_000,
        at_least=1,
        live=True,
        doc="How long a transactional id is kept after its last transaction. Whoever uses it "
        "later is a new producer.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        3_600_000,
        at_least=1,
        live=True,
        doc="How often expired transactional ids and outcomes are looked for.",
    )
    transaction_prepared_max_ms: int = option(
        NO_LIMIT,
        at_least=NO_LIMIT,
        live=True,
        doc="How long a prepared transaction may wait for its end before it is aborted; -1 for "
        "ever. With a limit nobody has to look for forgotten ones, and an outer transaction that "
        "decides later than that to commit cannot: its writes are gone.",
    )
    transaction_outcome_retention_ms: int = option(
        604_800_000,
        at_least=1,
        live=True,
        doc="How long it can be asked how a prepared transaction ended.",
    )
    transaction_state_log_num_partitions: int = option(
        50,
        at_least=1,
        at_most=10_000,
        doc="Partitions of __transaction_state, which is made when the first transactional "
        "producer appears. Transactional ids are spread over them.",
    )
    transaction_state_log_replication_factor: int = option(
        3,
        at_least=1,
        at_most=32_767,
        doc="Replicas of __transaction_state, as far as there are brokers.",
    )
    transaction_state_log_min_isr: int = option(
        2,
        at_least=1,
        at_most=32_767,
        doc="In-sync replicas that __transaction_state needs, as far as it has replicas.",
    )
    transaction_state_log_segment_bytes: int = option(
        100 << 20,
        at_least=1,
        doc="Segments of __transaction_state are this large: smaller ones are compacted sooner "
        "and load faster.",
    )
