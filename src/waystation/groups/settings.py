"""The options of consumer groups."""

from dataclasses import dataclass

from waystation.model.settings import option

_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How groups form, how long members may be silent, how long offsets are kept."""

    group_min_session_timeout_ms: int = option(
        6_000,
        at_least=1,
        live=True,
        doc="The shortest session time-out a classic member may ask for. Shorter finds dead "
        "members sooner and costs more heartbeats.",
    )
    group_max_session_timeout_ms: int = option(
        1_800_000,
        at_least=1,
        live=True,
        doc="The longest session time-out a classic member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = option(
        3_000,
        at_least=0,
        live=True,
        doc="How long an empty classic group waits for more members before it first shares out "
        "partitions. Longer spares rebalances when many start together; 0 starts at once.",
    )
    group_max_size: int = option(
        _INT32_MAX,
        at_least=1,
        live=True,
        doc="How many members a classic group may have.",
    )
    group_consumer_session_timeout_ms: int = option(
        45_000,
        at_least=1,
        live=True,
        doc="How long a member of the server-side protocol may be silent before it is removed.",
    )
    group_consumer_heartbeat_interval_ms: int = option(
        5_000,
        at_least=1,
        live=True,
        doc="How often members of the server-side protocol are told to say that they are alive. "
        "They learn of a new assignment at their next heartbeat.",
    )
    group_consumer_max_size: int = option(
        _INT32_MAX,
        at_least=1,
        live=True,
        doc="How many members a group of the server-side protocol may have.",
    )
    group_consumer_assignors: tuple[str, ...] = option(
        ("uniform", "range"),
        choices=("uniform", "range"),
        doc="The server's assignors; the first serves members that name none.",
    )
    group_consumer_migration_policy: str = option(
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        live=True,
        doc="Whether a group may change between the classic and the server-side protocol while "
        "it has members.",
    )
    offset_metadata_max_bytes: int = option(
        4_096,
        at_least=0,
        live=True,
        doc="The longest note that may be committed with an offset.",
        kafka="offset.metadata.max.bytes",
    )
    offsets_retention_minutes: int = option(
        10_080,
        at_least=1,
        live=True,
        doc="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int = option(
        600_000,
        at_least=1,
        live=True,
        doc="How often expired offsets are looked for.",
    )
    offsets_topic_num_partitions: int = option(
        50,
        at_least=1,
        at_most=10_000,
        doc="Partitions of __consumer_offsets, which is made when the first group appears. "
        "Groups are spread over them.",
    )
    offsets_topic_replication_factor: int = option(
        3,
        at_least=1,
        at_most=32_767,
        doc="Replicas of __consumer_offsets, as far as there are brokers.",
    )
    offsets_topic_segment_bytes: int = option(
        100 << 20,
        at_least=1,
        doc="Segments of __consumer_offsets are this large: smaller ones are compacted sooner "
        "and load faster.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What one group of the server-side protocol says about its members."""

    consumer_session_timeout_ms: int = option(
        45_000,
        at_least=1,
        at_most=_INT32_MAX,
        live=True,
        doc="How long a member of this group may be silent before it is removed; as "
        "group.consumer.session.timeout.ms says unless it is set.",
    )
    consumer_heartbeat_interval_ms: int = option(
        5_000,
        at_least=1,
        at_most=_INT32_MAX,
        live=True,
        doc="How often members of this group are told to say that they are alive; as "
        "group.consumer.heartbeat.interval.ms says unless it is set.",
    )
