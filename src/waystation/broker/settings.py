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
        doc="Replicas of a topic that is made without saying how many.",
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
        "counts as dead.",
    )
    controlled_shutdown_timeout_ms: int = option(
        10_000,
        at_least=0,
        doc="How long a clean shutdown waits for requests in flight to be answered.",
    )
