"""The options of share groups: the broker's, and those of each group.

A group's options have Kafka's names where Kafka has one (KIP-932), and are set as configs of the
group, each for itself, live.
"""

from dataclasses import dataclass

from waystation.model.errors import InvalidTopicError
from waystation.model.settings import option
from waystation.model.topics import check_topic_name
from waystation.sharing.breaker import BreakerRule
from waystation.sharing.reset import BY_DURATION, EARLIEST, LATEST, duration_ms
from waystation.sharing.retry import RetryPolicy
from waystation.sharing.states import DELIVERIES_MAX

_INT32_MAX = (1 << 31) - 1

IN_ANY_ORDER, BY_KEY = "none", "key"
READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """How share groups form, how much they may hold, and how their state is kept."""

    group_share_session_timeout_ms: int = option(
        45_000,
        at_least=1,
        live=True,
        doc="How long a member of a share group may be silent before it is removed.",
    )
    group_share_heartbeat_interval_ms: int = option(
        5_000,
        at_least=1,
        live=True,
        doc="How often members of share groups are told to say that they are alive. They learn "
        "of a new assignment at their next heartbeat.",
    )
    group_share_max_size: int = option(
        200,
        at_least=1,
        at_most=_INT32_MAX,
        live=True,
        doc="How many members a share group may have.",
    )
    group_share_max_share_sessions: int = option(
        2_000,
        at_least=1,
        live=True,
        doc="How many consumers of queues one broker serves at a time.",
    )
    group_share_partition_max_record_locks: int = option(
        2_000,
        at_least=1,
        at_most=1_000_000,
        live=True,
        doc="How many messages of one partition may be out at consumers of one group, but for the "
        "rest of a batch, which is not split. More lets more consumers work on one partition, and "
        "costs more redeliveries when a broker dies.",
    )
    group_share_partition_max_ranges: int = option(
        10_000,
        at_least=100,
        at_most=200_000,
        live=True,
        doc="Into how many ranges of equal state a queue may fall before it waits for its oldest "
        "messages to be settled. Bounds memory and the size of what is stored; neighbours of "
        "equal state are one range however many they are.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = option(
        100,
        at_least=0,
        at_most=10_000,
        live=True,
        doc="How many changes of a queue are stored before its whole state is stored again. "
        "Fewer load faster, more write less.",
    )
    share_coordinator_state_topic_num_partitions: int = option(
        50,
        at_least=1,
        at_most=10_000,
        doc="Partitions of __share_group_state, which is made when the first share group appears.",
    )
    share_coordinator_state_topic_replication_factor: int = option(
        3,
        at_least=1,
        at_most=32_767,
        doc="Replicas of __share_group_state, as far as there are brokers.",
    )
    share_coordinator_state_topic_segment_bytes: int = option(
        100 << 20,
        at_least=1 << 20,
        doc="Segment size of __share_group_state; smaller ones are compacted sooner.",
    )
    share_coordinator_state_topic_min_isr: int = option(
        2,
        at_least=1,
        doc="In-sync replicas that __share_group_state needs, as far as it has that many.",
    )


def _check_reset(value: str) -> None:
    if value.startswith(BY_DURATION):
        duration_ms(value.removeprefix(BY_DURATION))
    elif value not in (EARLIEST, LATEST):
        raise ValueError(
            f"is {value!r}, must be earliest, latest or by_duration: with a duration such as PT1H"
        )


def _check_dead_letter_topic(value: str) -> None:
    try:
        if value:
            check_topic_name(value)
    except InvalidTopicError as error:
        raise ValueError(f"is {value!r}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What one group says about its members and its queues."""

    share_session_timeout_ms: int = option(
        45_000,
        at_least=1,
        at_most=_INT32_MAX,
        live=True,
        doc="How long a member of this group may be silent before it is removed; as "
        "group.share.session.timeout.ms says unless it is set.",
    )
    share_heartbeat_interval_ms: int = option(
        5_000,
        at_least=1,
        at_most=_INT32_MAX,
        live=True,
        doc="How often members of this group are told to say that they are alive; as "
        "group.share.heartbeat.interval.ms says unless it is set.",
    )
    share_auto_offset_reset: str = option(
        LATEST,
        live=True,
        rule=_check_reset,
        doc="Where a queue begins when the group first reads a partition: earliest, latest, or "
        "by_duration:PT1H for what is not older than that.",
    )
    share_isolation_level: str = option(
        READ_UNCOMMITTED,
        choices=(READ_UNCOMMITTED, READ_COMMITTED),
        live=True,
        doc="Whether messages of open transactions are delivered; read_committed waits for the "
        "transaction to end and leaves aborted messages out.",
    )
    share_record_lock_duration_ms: int = option(
        30_000,
        at_least=100,
        at_most=3_600_000,
        live=True,
        doc="How long a message is a consumer's before it is delivered to another. Longer suits "
        "slow work, shorter notices dead consumers sooner.",
    )
    share_order: str = option(
        IN_ANY_ORDER,
        choices=(IN_ANY_ORDER, BY_KEY),
        live=True,
        doc="key: of each key at most one message is out at a time, so that order per key holds "
        "with any number of consumers on one partition. Costs a look at every key.",
    )
    share_priority: bool = option(
        False,
        live=True,
        doc="Whether messages with a higher number (0 to 9) in their header priority go first. "
        "Messages of one key are never reordered. Costs a look at every message's headers.",
    )
    share_priority_window: int = option(
        10_000,
        at_least=1,
        at_most=1_000_000,
        live=True,
        doc="Among how many unsettled messages of a partition a queue with order by key or with "
        "priorities chooses. A blocked key costs others nothing within the window.",
    )
    share_priority_patience: int = option(
        20,
        at_least=1,
        at_most=1_000_000,
        live=True,
        doc="How many messages of higher priority may pass the oldest one in a row before it is "
        "delivered all the same.",
    )
    max_deliveries: int = option(
        5,
        at_least=1,
        at_most=DELIVERIES_MAX,
        live=True,
        doc="How often a message is delivered before it is given up.",
        kafka="share.delivery.count.limit",
    )
    retry_backoff_ms: int = option(
        0,
        at_least=0,
        at_most=86_400_000,
        live=True,
        name="share.retry.backoff.ms",
        doc="How long a message waits after its first delivery failed; 0 delivers it again at "
        "once. In a queue with order by key the messages behind it wait too.",
    )
    retry_backoff_max_ms: int = option(
        60_000,
        at_least=0,
        at_most=86_400_000,
        live=True,
        name="share.retry.backoff.max.ms",
        doc="The longest wait between two deliveries.",
    )
    retry_backoff_factor: float = option(
        2.0,
        at_least=1.0,
        at_most=100.0,
        live=True,
        name="share.retry.backoff.factor",
        doc="By how much each wait is longer than the one before.",
    )
    dead_letter_topic: str = option(
        "",
        live=True,
        name="share.dead.letter.topic",
        rule=_check_dead_letter_topic,
        kafka="errors.deadletterqueue.topic.name",
        doc="Where messages go that were rejected or delivered too often; without one they are "
        "archived, which is to say: passed over.",
    )
    dead_letter_breaker_part: float = option(
        0.0,
        at_least=0.0,
        at_most=1.0,
        live=True,
        name="share.dead.letter.breaker.part",
        doc="When this part of all messages within the breaker's window is given up, deliveries "
        "pause instead: the messages are hardly at fault. 0 turns the breaker off.",
    )
    dead_letter_breaker_least: int = option(
        20,
        at_least=1,
        live=True,
        name="share.dead.letter.breaker.least",
        doc="How many messages must be given up within the window for the breaker to open.",
    )
    dead_letter_breaker_window_ms: int = option(
        60_000,
        at_least=10,
        live=True,
        name="share.dead.letter.breaker.window.ms",
        doc="Over how long the breaker counts.",
    )
    dead_letter_breaker_pause_ms: int = option(
        30_000,
        at_least=1,
        live=True,
        name="share.dead.letter.breaker.pause.ms",
        doc="How long deliveries pause before a message is tried again.",
    )

    def retry(self) -> RetryPolicy:
        """How failed deliveries are repeated."""
        return RetryPolicy(
            self.max_deliveries,
            self.retry_backoff_ms,
            self.retry_backoff_max_ms,
            self.retry_backoff_factor,
        )

    def breaker(self) -> BreakerRule:
        """When a flood of dead letters is stopped."""
        return BreakerRule(
            self.dead_letter_breaker_part,
            self.dead_letter_breaker_least,
            self.dead_letter_breaker_window_ms,
            self.dead_letter_breaker_pause_ms,
        )

    @property
    def is_ordered(self) -> bool:
        """Whether messages are looked at one by one to choose the next."""
        return self.share_order == BY_KEY or self.share_priority
