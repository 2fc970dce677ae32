"""What a topic may be called and how it may be set.

``TopicSettings`` holds a topic's effective options: its own, over the broker's defaults, over
the values below.  Kafka's name is the option's name wherever Kafka has the option.
"""

import re
from dataclasses import dataclass

from waystation.model.errors import InvalidTopicError
from waystation.model.settings import BALANCED, PROFILES, option

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NAME_CHARACTERS_MAX = 249
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
# A group's id must fit into the key of a record.
_GROUP_ID_BYTES_MAX = 32_767

DAY_MS = 86_400_000
_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


def check_topic_name(name: str) -> None:
    """Refuse what Kafka refuses; a name also becomes part of a directory's name."""
    if not name:
        raise InvalidTopicError("a topic name may not be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic may not be called {name!r}")
    if len(name) > _NAME_CHARACTERS_MAX:
        raise InvalidTopicError(
            f"the topic name has {len(name)} characters, at most {_NAME_CHARACTERS_MAX} may be"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"topic name {name!r} is illegal: letters, digits, '.', '_' and '-' only"
        )


def check_archive_group(group_id: str) -> None:
    """Refuse what cannot be one group's id: nothing would ever be deleted for its sake."""
    if "," in group_id:
        raise ValueError(f"is {group_id!r}, must be the id of one group, not a list")
    if not group_id.isprintable():
        raise ValueError(f"is {group_id!r}, must be a group's id without control characters")
    if len(group_id.encode(errors="replace")) > _GROUP_ID_BYTES_MAX:
        raise ValueError(
            f"has {len(group_id)} characters, a group's id may have {_GROUP_ID_BYTES_MAX} bytes"
        )


def check_ack_groups(groups: tuple[str, ...]) -> None:
    """Refuse what cannot be the ids of groups."""
    for group_id in groups:
        if not group_id:
            raise ValueError("has an empty name in its list of groups")
        check_archive_group(group_id)


def check_throttled_replicas(listed: tuple[str, ...]) -> None:
    """Refuse what is neither a list of ``partition:broker`` nor a star for all."""
    if listed != ("*",) and not all(map(_THROTTLED_REPLICA.fullmatch, listed)):
        raise ValueError(
            f"is {','.join(listed)!r}, must be * for all replicas or a list of partition:broker"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The effective options of one topic."""

    cleanup_policy: tuple[str, ...] = option(
        ("delete",),
        choices=("compact", "delete"),
        live=True,
        doc="What happens to old records: delete drops segments past retention, compact keeps "
        "the last record of each key for good and refuses records without one, both together "
        "do both.",
        kafka="log.cleanup.policy",
    )
    retention_ms: int = option(
        7 * DAY_MS,
        at_least=-1,
        live=True,
        doc="How long a segment is kept after its newest record; -1 keeps it for good. "
        "Longer lets consumers replay further back and costs disk.",
        kafka="log.retention.ms",
    )
    retention_bytes: int = option(
        -1,
        at_least=-1,
        live=True,
        doc="How many bytes of each partition are kept, oldest segments going first; -1 is no "
        "limit. Checked per partition, so a topic takes this times its partitions.",
        kafka="log.retention.bytes",
    )
    retention_after_archive: str = option(
        "",
        live=True,
        rule=check_archive_group,
        doc="The consumer group whose committed offsets say how far the topic is archived; empty "
        "for none. Retention and compaction leave alone what that group has not committed, and "
        "everything of a partition until it has a position there; its offsets never expire. "
        "While the archive stands still, the topic grows.",
    )
    retention_after_ack: tuple[str, ...] = option(
        (),
        live=True,
        rule=check_ack_groups,
        doc="Queues (share groups), or consumer groups, separated by commas, that a message is "
        "kept for: what all of them have acknowledged or committed is deleted, whole segments at "
        "a time, and nothing else is, however old, until each of them has a position. Their "
        "offsets never expire. Empty: retention is by time and size only.",
    )
    retention_after_ack_bytes: int = option(
        -1,
        at_least=-1,
        live=True,
        doc="With retention.after.ack: how many bytes of a partition are kept at most; beyond it "
        "the oldest messages are deleted although a queue has not acknowledged them, which is "
        "warned of. -1 deletes none of those.",
    )
    segment_bytes: int = option(
        1 << 30,
        at_least=14,
        at_most=_INT32_MAX,
        live=True,
        doc="Roll to a new segment before the active one passes this size. Smaller segments "
        "let retention free space sooner and cost more open files.",
        kafka="log.segment.bytes",
    )
    segment_ms: int = option(
        7 * DAY_MS,
        at_least=1,
        live=True,
        doc="Roll the active segment after this time even if it is not full, so that retention "
        "can reach what a quiet topic holds.",
        kafka="log.roll.ms",
    )
    segment_jitter_ms: int = option(
        0,
        at_least=0,
        live=True,
        doc="Take up to this much off segment.ms at random, so that partitions do not all roll "
        "at once.",
        kafka="log.roll.jitter.ms",
    )
    segment_index_bytes: int = option(
        10 << 20,
        at_least=12,
        live=True,
        doc="Roll before an index of the active segment grows past this size.",
        kafka="log.index.size.max.bytes",
    )
    index_interval_bytes: int = option(
        4096,
        at_least=0,
        at_most=_INT32_MAX,
        live=True,
        doc="Add an index entry after about this many bytes of log. Denser indexes find an "
        "offset with less scanning and cost more disk.",
        kafka="log.index.interval.bytes",
    )
    max_message_bytes: int = option(
        1_048_588,
        at_least=0,
        at_most=_INT32_MAX,
        live=True,
        doc="The largest record batch accepted, as compressed by the producer.",
        kafka="message.max.bytes",
    )
    message_timestamp_type: str = option(
        "CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        live=True,
        doc="Whose clock a record's timestamp is: the producer's or the broker's.",
        kafka="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms: int = option(
        _INT64_MAX,
        at_least=0,
        live=True,
        doc="Refuse batches whose timestamp lies further than this before the broker's clock.",
        kafka="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms: int = option(
        3_600_000,
        at_least=0,
        live=True,
        doc="Refuse batches whose timestamp lies further than this after the broker's clock: a "
        "timestamp far in the future would keep its segment from ever expiring.",
        kafka="log.message.timestamp.after.max.ms",
    )
    min_insync_replicas: int = option(
        1,
        at_least=1,
        live=True,
        doc="acks=all is refused while fewer replicas than this are in sync. Where nobody sets "
        "it, 2 for topics with three replicas or more.",
        kafka="min.insync.replicas",
    )
    unclean_leader_election_enable: bool = option(
        False,
        live=True,
        doc="Let a replica lead that may lack committed records, when none that has them is "
        "there. On, a partition is available sooner and what that replica lacks is lost; every "
        "such election is logged as an error and shown by `waystation cluster status`.",
        kafka="unclean.leader.election.enable",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = option(
        (),
        live=True,
        rule=check_throttled_replicas,
        doc="Replicas, as partition:broker and separated by commas, or * for all, whose leader "
        "sends to followers no faster than leader.replication.throttled.rate. Those in sync "
        "are not slowed down.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = option(
        (),
        live=True,
        rule=check_throttled_replicas,
        doc="Replicas, as partition:broker and separated by commas, or * for all, that copy "
        "no faster than follower.replication.throttled.rate while they are not in sync.",
    )
    compression_type: str = option(
        "producer",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        live=True,
        doc="How batches are stored: as the producer sent them, or compressed anew by the "
        "broker, which costs it CPU.",
        kafka="compression.type",
    )
    durability: str = option(
        "disk",
        choices=("disk", "memory"),
        live=True,
        doc="When acks=all is answered: once in-sync replicas have the batch on disk "
        "(fdatasync), or once they have it in the page cache, as Kafka does. Memory is faster "
        "and loses what a power failure of all replicas takes.",
    )
    profile: str = option(
        BALANCED,
        choices=PROFILES,
        live=True,
        doc="What the topic is for: latency answers each message as soon as it may, throughput "
        "lets messages wait a little so that one sync and one answer serve many. It is a word for "
        "the defaults of flush.linger.ms and fetch.linger.ms and, where the broker is started with "
        "it, of options of its sockets; whatever is set itself wins. What acknowledged means is "
        "the same under each.",
    )
    flush_linger_ms: int = option(
        -1,
        at_least=-1,
        at_most=1_000,
        live=True,
        latency=0,
        throughput=20,
        doc="With durability=disk: a sync begins no sooner than this after the one before it, or "
        "once 1 MB of small batches waits, and serves all that came meanwhile. 0 syncs again at "
        "once: the soonest answer, the most syncs. Longer costs each message up to so much and "
        "makes fewer syncs. -1 lets the load decide: small batches that follow each other closely "
        "wait 1 ms, or 3 where there are many partitions, large ones do not.",
    )
    fetch_linger_ms: int = option(
        -1,
        at_least=-1,
        at_most=1_000,
        live=True,
        latency=0,
        throughput=10,
        doc="A consumer that has read everything is answered no sooner than this after its last "
        "answer, if that was small: fewer and larger answers. Each message comes up to so much "
        "later, and up to 5 ms for the broker's timers. A consumer that is behind never waits; one "
        "that reads several topics waits as the least patient of them says. 0 answers at once. -1 "
        "lets the load decide: who reads 16 partitions or more and was just given little waits "
        "2 ms.",
    )
    flush_messages: int = option(
        _INT64_MAX,
        at_least=1,
        live=True,
        doc="With durability=memory: sync to disk after this many records.",
        kafka="log.flush.interval.messages",
    )
    flush_ms: int = option(
        _INT64_MAX,
        at_least=0,
        live=True,
        doc="With durability=memory: sync to disk at the latest after this time.",
        kafka="log.flush.interval.ms",
    )
    file_delete_delay_ms: int = option(
        60_000,
        at_least=0,
        live=True,
        doc="How long the files of a deleted segment stay on disk, renamed, before they go.",
        kafka="log.segment.delete.delay.ms",
    )
    min_cleanable_dirty_ratio: float = option(
        0.5,
        at_least=0,
        at_most=1,
        live=True,
        doc="Compact a log once more than this share of it was not compacted yet. Lower keeps "
        "logs shorter and rewrites what is clean more often.",
        kafka="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = option(
        0,
        at_least=0,
        live=True,
        doc="Leave records younger than this alone, so that readers who keep up see every one.",
        kafka="log.cleaner.min.compaction.lag.ms",
    )
    max_compaction_lag_ms: int = option(
        _INT64_MAX,
        at_least=1,
        live=True,
        doc="Compact records that are older than this, however little there is to gain; the "
        "active segment is rolled in time for it. For data that must be gone by a date.",
        kafka="log.cleaner.max.compaction.lag.ms",
    )
    delete_retention_ms: int = option(
        DAY_MS,
        at_least=0,
        live=True,
        doc="How long compaction keeps a tombstone, a key without a value, after everything it "
        "deletes is gone. A reader slower than this may miss that a key was deleted.",
        kafka="log.cleaner.delete.retention.ms",
    )

    index_keys: bool = option(
        False,
        live=True,
        doc="Keep an index of keys, so that the messages of one key are found at once among all "
        "others: by `waystation find`, and by the inbox. Costs 8 bytes of disk per message and up "
        "to 4 MB of memory per partition. On for a topic with messages, it is built in the "
        "background; off, it is removed.",
    )
    schedule_enable: bool = option(
        False,
        live=True,
        doc="Give the topic a companion, <topic>.delay, where messages wait that say when they are "
        "due, and deliver them here when they are. Off, what waits stays where it is, and nothing "
        "is delivered until it is on again.",
    )
    idempotency_window_ms: int = option(
        DAY_MS,
        at_least=1,
        live=True,
        doc="How long a message's idempotency key is remembered: another message with the key is "
        "not stored but answered with the place of the first. Longer takes memory, 65 bytes for "
        "each key of a partition. Only for messages that are sent with such a key.",
    )
    idempotency_keys_max: int = option(
        1_000_000,
        at_least=1,
        live=True,
        doc="How many idempotency keys a partition remembers at most. Messages with other keys are "
        "refused while there are that many: none is forgotten before its time.",
    )

    @property
    def flush_linger_s(self) -> float | None:
        """How far apart syncs are; ``None`` leaves that to who syncs."""
        return None if self.flush_linger_ms < 0 else self.flush_linger_ms / 1_000

    @property
    def compacts(self) -> bool:
        """Whether the last record of each key is kept, and the others need not be."""
        return "compact" in self.cleanup_policy

    @property
    def expires(self) -> bool:
        """Whether what is past retention goes."""
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How old the active segment may grow: what is in it cannot be compacted."""
        if self.compacts:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
