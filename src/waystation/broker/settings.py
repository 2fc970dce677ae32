"""The options of a broker that are not storage's, the server's or a topic's own."""

from dataclasses import dataclass

from waystation.model.settings import option

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """How this broker makes topics, serves fetches and keeps house."""

    node_id: int = option(
        1,
        at_least=0,
        at_most=_INT32_MAX,
        doc="This broker's number, unique in its cluster and kept for life: partitions are "
        "assigned to it by this number.",
        kafka="broker.id",
    )
    broker_rack: str = option(
        "",
        doc="The rack, zone or room this broker stands in; clients see it in metadata.",
    )
    broker_machine: str = option(
        "",
        doc="The machine this broker runs on; the host's name if empty. Brokers of one machine "
        "die together, so no two replicas of a partition are placed on them.",
    )
    replicas_share_machine: bool = option(
        False,
        live=True,
        doc="Let brokers of one machine hold replicas of the same partition: for a cluster that "
        "is tried out on one machine.",
    )
    num_partitions: int = option(
        1,
        at_least=1,
        at_most=100_000,
        live=True,
        doc="Partitions of a topic that is made without saying how many.",
    )
    default_replication_factor: int = option(
        1,
        at_least=1,
        at_most=32_767,
        live=True,
        doc="Replicas of a topic that is made without saying how many. Where this is not set, "
        "and there are three brokers or more, 3.",
    )
    auto_create_topics_enable: bool = option(
        True,
        live=True,
        doc="Make a topic when a client first asks for it. Off protects against misspelt names.",
    )
    delete_topic_enable: bool = option(
        True,
        live=True,
        doc="Let clients delete topics.",
    )
    fetch_max_bytes: int = option(
        55 << 20,
        at_least=1024,
        at_most=_INT32_MAX,
        live=True,
        doc="The largest fetch response, whatever the client asks for; one batch always fits.",
    )
    max_incremental_fetch_session_cache_slots: int = option(
        1_000,
        at_least=0,
        at_most=_INT32_MAX,
        doc="Fetch sessions remembered, so that a consumer names only what changed. Consumers "
        "beyond this many send whole requests.",
    )
    log_retention_check_interval_ms: int = option(
        300_000,
        at_least=1,
        live=True,
        doc="How often retention looks for segments to drop.",
    )
    log_cleaner_enable: bool = option(
        True,
        live=True,
        doc="Compact the logs of topics with cleanup.policy=compact. Off lets them grow.",
    )
    log_cleaner_backoff_ms: int = option(
        15_000,
        at_least=1,
        live=True,
        doc="How long to wait before looking again when no log was worth compacting.",
    )
    log_cleaner_dedupe_buffer_bytes: int = option(
        64 << 20,
        at_least=1 << 20,
        live=True,
        name="log.cleaner.dedupe.buffer.size",
        doc="Memory for the keys of one pass, 32 bytes each, taken while a log is compacted and "
        "no more than its keys need. With less, a log of many keys takes several passes.",
    )
    log_cleaner_io_max_bytes_per_second: int = option(
        90 << 20,
        at_least=1 << 10,
        live=True,
        doc="How much compaction may read and write per second. Each byte of a log is read at "
        "most twice and written at most once, so that this compacts 30 MB a second or more; "
        "Kafka has no limit unless told.",
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        5_000,
        at_least=1,
        live=True,
        doc="How often logs with much to sync are synced, and recovery points written down; a "
        "log with little waits up to six times as long. A crash leaves about this much to "
        "verify; Kafka waits a minute, we trade a little disk work for a quick restart.",
    )
    replica_lag_time_max_ms: int = option(
        30_000,
        at_least=100,
        live=True,
        doc="A follower that has not caught up with its leader for so long leaves the in-sync "
        "set. Lower lets acks=all go on sooner without a slow replica, and lets replicas leave "
        "for a short hiccup.",
    )
    replica_fetch_wait_max_ms: int = option(
        500,
        at_least=1,
        at_most=60_000,
        live=True,
        doc="How long a follower lets its leader wait for something new before it asks again. "
        "It is told of news at once either way.",
    )
    replica_fetch_max_bytes: int = option(
        1 << 20,
        at_least=1_024,
        at_most=1 << 28,
        live=True,
        doc="How much of one partition a follower takes at a time; a larger batch comes whole.",
    )
    replica_fetch_response_max_bytes: int = option(
        8 << 20,
        at_least=1_024,
        at_most=1 << 28,
        live=True,
        doc="How much a follower takes at a time from one leader, of all partitions together.",
    )
    leader_replication_throttled_rate: int = option(
        _INT64_MAX,
        at_least=1,
        live=True,
        doc="Bytes a second that this broker sends to followers of throttled replicas: see a "
        "topic's leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate: int = option(
        _INT64_MAX,
        at_least=1,
        live=True,
        doc="Bytes a second that this broker copies into throttled replicas: see a topic's "
        "follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = option(
        _INT64_MAX,
        at_least=1,
        live=True,
        doc="Bytes a second that this broker copies between its own data directories.",
    )
    flush_threads: int = option(
        8,
        at_least=1,
        at_most=64,
        doc="Threads that sync logs to disk. More let many active partitions sync side by side.",
    )
    broker_session_timeout_ms: int = option(
        9_000,
        at_least=1_000,
        doc="How long the coordination service waits for a sign of life before this broker "
        "counts as dead. Shorter finds dead brokers sooner, and takes a pause for death sooner.",
    )
    store_connect_timeout_ms: int = option(
        30_000,
        at_least=0,
        doc="How long a start waits for the coordination service to answer, and gives up then. "
        "Once the broker runs, it goes on without the service for as long as it must.",
    )
    auto_leader_rebalance_enable: bool = option(
        True,
        live=True,
        doc="Let preferred leaders lead again once they are back.",
    )
    leader_imbalance_check_interval_seconds: int = option(
        300,
        at_least=1,
        live=True,
        doc="How often the controller looks whether preferred leaders lead.",
    )
    leader_imbalance_per_broker_percentage: int = option(
        10,
        at_least=0,
        at_most=100,
        live=True,
        doc="Preferred leaders take over when a broker does not lead more than this share of "
        "what it is preferred for.",
    )
    idempotency_broker_keys_max: int = option(
        10_000_000,
        at_least=1,
        live=True,
        doc="How many idempotency keys this broker remembers at most, of all its partitions, as "
        "leader and as follower; 65 bytes of memory each. While there are that many, partitions "
        "that it leads refuse messages with other keys.",
    )
    reassignment_moves_max: int = option(
        50,
        at_least=1,
        live=True,
        doc="Partitions that are moved between brokers at a time; further ones wait.",
    )
    controlled_shutdown_timeout_ms: int = option(
        10_000,
        at_least=0,
        doc="How long a clean shutdown waits for others to lead what this broker leads, and as "
        "long again for requests in flight to be answered.",
    )
