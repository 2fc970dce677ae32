"""Every option of the client, documented where it is declared.

``Producer``, ``Consumer`` and ``Admin`` take these as keywords.
"""

from dataclasses import dataclass
from typing import TypeVar

from waystation.client.partitioner import PARTITIONERS
from waystation.model.errors import InvalidSettingsError
from waystation.model.settings import BALANCED, PROFILES, option, options_of

__all__ = [
    "ASSIGNORS",
    "ConnectionSettings",
    "ConsumerSettings",
    "MemberSettings",
    "ProducerSettings",
    "checked",
]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How brokers are reached and how long they may take."""

    client_id: str = option(
        "waystation",
        doc="Names this client in the broker's logs and metrics.",
        kafka="client.id",
    )
    connect_timeout_ms: int = option(
        5_000,
        at_least=1,
        doc="How long one attempt to connect may take, the agreement on versions included.",
        kafka="socket.connection.setup.timeout.ms",
    )
    request_timeout_ms: int = option(
        30_000,
        at_least=1,
        doc="How long a broker may take to answer. Then the connection is given up and the "
        "request tried again where that is safe.",
        kafka="request.timeout.ms",
    )
    metadata_timeout_ms: int = option(
        10_000,
        at_least=0,
        doc="How long to wait for a topic to exist and to have a leader. Longer rides out a "
        "slow election, shorter reports a wrong name sooner.",
        kafka="max.block.ms",
    )
    metadata_max_age_ms: int = option(
        60_000,
        at_least=100,
        doc="Ask for the cluster's layout at least this often: how soon new partitions are "
        "noticed. Lower costs a small request each time.",
        kafka="metadata.max.age.ms",
    )
    retry_backoff_ms: int = option(
        50,
        at_least=1,
        doc="Wait about this long before the first retry; each further one waits twice as "
        "long, with a random part so that clients do not retry together.",
        kafka="retry.backoff.ms",
    )
    retry_backoff_max_ms: int = option(
        1_000,
        at_least=1,
        doc="No wait before a retry is longer than this.",
        kafka="retry.backoff.max.ms",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are gathered, sent and acknowledged."""

    profile: str = option(
        BALANCED,
        choices=PROFILES,
        doc="What the producer is for: a word for defaults of linger_ms, batch_bytes and "
        "compression. Whatever is given itself wins.",
    )
    acks: str = option(
        "all",
        choices=("0", "1", "all"),
        doc="Who must have a record before it counts as sent: 0 nobody (no answer, no offset, "
        "may be lost), 1 the partition's leader, all every in-sync replica.",
        kafka="acks",
    )
    idempotent: bool = option(
        True,
        doc="Number every batch so that the broker drops a repeated one: retries neither "
        "duplicate nor reorder. Needs acks=all. Without it one batch per partition is under "
        "way at a time, unless acks=0, because order is never given up.",
        kafka="enable.idempotence",
    )
    linger_ms: int = option(
        5,
        at_least=0,
        latency=0,
        throughput=50,
        doc="Hold a batch that is not full for up to this long, for more records to join it. "
        "Longer makes larger batches, 0 sends as soon as the event loop turns.",
        kafka="linger.ms",
    )
    batch_bytes: int = option(
        128 << 10,
        at_least=1,
        throughput=512 << 10,
        doc="Close a batch at this size, before compression. Larger costs memory and helps "
        "throughput; a record larger than this gets a batch of its own.",
        kafka="batch.size",
    )
    compression: str = option(
        "none",
        throughput="lz4",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How batches are compressed. lz4 is cheap, zstd is small.",
        kafka="compression.type",
    )
    compression_level: int | None = option(
        None,
        doc="The codec's own level; None is its default.",
        kafka="compression.gzip.level, compression.lz4.level, compression.zstd.level",
    )
    partitioner: str = option(
        "sticky",
        choices=PARTITIONERS,
        doc="Where records without a key go: sticky fills one batch before it moves to "
        "another partition, round-robin moves with every record.",
        kafka="partitioner.class",
    )
    buffer_bytes: int = option(
        32 << 20,
        at_least=1,
        doc="Records not yet acknowledged may take this much memory; beyond it send() waits "
        "and submit() refuses.",
        kafka="buffer.memory",
    )
    max_request_bytes: int = option(
        1 << 20,
        at_least=1,
        doc="The largest request, and so the largest message. Raise it together with "
        "max.message.bytes of the topic.",
        kafka="max.request.size",
    )
    max_in_flight: int = option(
        5,
        at_least=1,
        at_most=5,
        doc="How many requests may be under way to one broker. Brokers remember the last five "
        "batches of an idempotent producer, so that more would not be safe.",
        kafka="max.in.flight.requests.per.connection",
    )
    delivery_timeout_ms: int = option(
        120_000,
        at_least=1,
        doc="Give a record up this long after it was handed over, retries included; a request "
        "that is under way at that moment is waited for.",
        kafka="delivery.timeout.ms",
    )
    transactional_id: str | None = option(
        None,
        doc="A name of its own lets a producer write transactions, and only those. Whoever starts "
        "with the same name ends the transaction that another has left open, and that other can "
        "write nothing more: give every instance its own, the same after each restart.",
        kafka="transactional.id",
    )
    transaction_timeout_ms: int = option(
        60_000,
        at_least=1,
        doc="The broker aborts a transaction that is open for longer. Readers of committed records "
        "wait behind an open one, so that a producer that hangs holds them up for so long.",
        kafka="transaction.timeout.ms",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What is fetched, how much of it and what happens where there is nothing."""

    profile: str = option(
        BALANCED,
        choices=PROFILES,
        doc="What the consumer is for: a word for defaults of fetch_min_bytes and "
        "fetch_max_wait_ms. Whatever is given itself wins.",
    )
    auto_offset_reset: str = option(
        "earliest",
        choices=("earliest", "latest", "error"),
        doc="Where to go on when the wanted offset does not exist (any more), or the group has "
        "committed none: the oldest record, the end, or nowhere: poll() raises "
        "OffsetOutOfRangeError.",
        kafka="auto.offset.reset",
    )
    isolation: str = option(
        "read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are shown.",
        kafka="isolation.level",
    )
    client_rack: str = option(
        "",
        doc="Where this consumer runs, as brokers name it by broker.rack. Partitions are then read "
        "from a replica there, if one is in sync: less traffic between racks, and a little later. "
        "Empty: from leaders only.",
        kafka="client.rack",
    )
    fetch_max_wait_ms: int = option(
        500,
        at_least=0,
        throughput=100,
        doc="How long a broker may hold a fetch that has less than fetch_min_bytes to give.",
        kafka="fetch.max.wait.ms",
    )
    fetch_min_bytes: int = option(
        1,
        at_least=0,
        throughput=64 << 10,
        doc="Answer a fetch once there is this much. Higher makes fewer and larger answers, "
        "and delays the first record of a quiet topic by up to fetch_max_wait_ms.",
        kafka="fetch.min.bytes",
    )
    fetch_max_bytes: int = option(
        32 << 20,
        at_least=1,
        doc="The most one answer holds; a single larger batch still comes.",
        kafka="fetch.max.bytes",
    )
    fetch_partition_bytes: int = option(
        1 << 20,
        at_least=1,
        doc="The most one answer holds of each partition; a single larger batch still comes.",
        kafka="max.partition.fetch.bytes",
    )
    prefetch_bytes: int = option(
        64 << 20,
        at_least=1,
        doc="Fetch ahead of poll() up to this much memory, as received.",
        kafka="queued.max.messages.kbytes (librdkafka)",
    )
    batch_limit_bytes: int = option(
        256 << 20,
        at_least=1,
        doc="Refuse a batch that decompresses to more than this.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """How a consumer takes part in its group, and when it says how far it has read."""

    delivery: str = option(
        "at-least-once",
        choices=("at-least-once", "at-most-once", "exactly-once"),
        doc="at-least-once commits what was processed: after a crash some messages come again. "
        "at-most-once commits before poll() hands messages out: none comes twice, a crash "
        "loses those in hand. One round trip to the coordinator per poll(). exactly-once commits "
        "in the transaction that also holds the results: messages come from transaction(), not "
        "from poll(), and only those of committed transactions.",
    )
    auto_commit: bool = option(
        True,
        doc="Commit without being asked, as delivery says. Without, only commit() does; "
        "at-most-once commits in any case.",
        kafka="enable.auto.commit",
    )
    auto_commit_interval_ms: int = option(
        5_000,
        at_least=0,
        doc="How often what was processed is committed; 0 commits at every poll(). Shorter "
        "repeats less after a crash and costs more requests.",
        kafka="auto.commit.interval.ms",
    )
    group_protocol: str = option(
        "classic",
        choices=("classic", "consumer"),
        doc="classic: members share partitions out themselves, every broker has it. consumer: "
        "the broker does (KIP-848), and nobody stops for who comes and goes.",
        kafka="group.protocol",
    )
    assignors: tuple[str, ...] = option(
        ("range", "cooperative-sticky"),
        choices=ASSIGNORS,
        doc="How a leader of the classic protocol may share partitions out, the preferred "
        "first; all members must have one in common. With cooperative-sticky alone, members "
        "go on reading what they keep during a rebalance.",
        kafka="partition.assignment.strategy",
    )
    remote_assignor: str | None = option(
        None,
        doc="The broker's assignor for group_protocol=consumer: uniform, range or another that "
        "it has; None is its default.",
        kafka="group.remote.assignor",
    )
    group_instance_id: str | None = option(
        None,
        doc="A name of its own makes a static member: if it is back within session_timeout_ms "
        "it goes on with the same partitions, and nobody else notices. It does not leave the "
        "group when it is closed.",
        kafka="group.instance.id",
    )
    session_timeout_ms: int = option(
        45_000,
        at_least=1,
        doc="A member that is silent for so long has died, and others get its partitions. "
        "With group_protocol=consumer the broker decides.",
        kafka="session.timeout.ms",
    )
    heartbeat_interval_ms: int = option(
        3_000,
        at_least=1,
        doc="How often a member says that it is alive, and learns of a rebalance: at most a "
        "third of session_timeout_ms. With group_protocol=consumer the broker decides.",
        kafka="heartbeat.interval.ms",
    )
    max_poll_interval_ms: int = option(
        300_000,
        at_least=1,
        doc="A consumer that is away from poll() for longer leaves the group, so that others "
        "get its partitions. Longer than the slowest batch takes to be processed.",
        kafka="max.poll.interval.ms",
    )
    rebalance_timeout_ms: int | None = option(
        None,
        doc="How long the others wait for this member in a rebalance; None is "
        "max_poll_interval_ms.",
    )


def checked(settings: T) -> T:
    """``settings`` itself, unless options are wrong: then all that are get named at once."""
    problems = []
    for known in options_of(type(settings)):
        value = getattr(settings, known.field)
        if not isinstance(value, known.kind):
            kind = getattr(known.kind, "__name__", known.kind)
            problems.append(f"{known.field} is {value!r}, must be of type {kind}")
            continue
        try:
            known.check(value)
        except ValueError as problem:
            problems.append(f"{known.field} {problem}")
    if problems:
        raise InvalidSettingsError(problems)
    return settings
