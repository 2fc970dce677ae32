"""Everything that can go wrong, each with a code for the client and facts for the operator.

An error is raised where its facts are known and translated once, in ``apis/``.  The facts
are attributes; the sentence is built from them and names the culprit and the remedy.
"""

from collections.abc import Iterable

from waystation.model.error_codes import ErrorCode
from waystation.model.ids import LeaderEpoch, NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Offset

__all__ = [
    "ClusterAuthorizationError",
    "CompactedError",
    "ConcurrentTransactionsError",
    "CoordinatorLoadingError",
    "CoordinatorNotAvailableError",
    "CorruptBatchError",
    "DuplicateBrokerError",
    "ErrorCode",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "GroupFullError",
    "GroupNotFoundError",
    "GroupSubscribedError",
    "IllegalGenerationError",
    "InconsistentProtocolError",
    "InvalidConfigError",
    "InvalidFilterError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidRegexError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidSessionTimeoutError",
    "InvalidSettingsError",
    "InvalidShareSessionEpochError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "LeaseExpiredError",
    "MalformedFrameError",
    "MemberIdRequiredError",
    "MessageTooLargeError",
    "MetadataFormatError",
    "NonEmptyGroupError",
    "NotCoordinatorError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PeerUnreachableError",
    "PolicyViolationError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RequestTimedOutError",
    "ShareSessionLimitError",
    "ShareSessionNotFoundError",
    "StaleMemberEpochError",
    "StorageError",
    "StoreInUseError",
    "StoreUnavailableError",
    "TopicExistsError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionTooLargeError",
    "TransactionalIdNotFoundError",
    "UnknownLeaderEpochError",
    "UnknownMemberError",
    "UnknownProducerIdError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedCompressionError",
    "UnsupportedVersionError",
    "WaystationError",
    "WrongClusterError",
]


class WaystationError(Exception):
    """The root of the tree; ``code`` is what a Kafka client is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


# --- what a client sent ---------------------------------------------------------------------


class MalformedFrameError(WaystationError):
    """Bytes that are no message of the protocol: lengths that lie, missing or left-over bytes."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRequestError(WaystationError):
    """A well-formed request that contradicts itself or the protocol's rules."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersionError(WaystationError):
    """An API, or a version of one, that this node does not speak."""

    code = ErrorCode.UNSUPPORTED_VERSION


class CorruptBatchError(WaystationError):
    """A record batch whose bytes do not agree with its own header or checksum."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecordError(WaystationError):
    """A batch that is intact but breaks a rule of its topic or of the log."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestampError(InvalidRecordError):
    """A record timestamp further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompressionError(WaystationError):
    """A codec that this version of the request may not carry."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class MessageTooLargeError(WaystationError):
    """A batch larger than ``max.message.bytes`` of its topic."""

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, size_bytes: int, limit_bytes: int, subject: str = "the batch") -> None:
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes
        super().__init__(
            f"{subject} has {size_bytes} bytes, the limit is {limit_bytes}: "
            "send smaller batches or raise max.message.bytes of the topic"
        )


# --- producers ------------------------------------------------------------------------------


class OutOfOrderSequenceError(WaystationError):
    """An idempotent producer's batch that does not follow its previous one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def __init__(
        self, producer: ProducerId, epoch: ProducerEpoch, expected: int, found: int
    ) -> None:
        self.producer, self.epoch, self.expected, self.found = producer, epoch, expected, found
        super().__init__(
            f"producer {producer} epoch {epoch} sent sequence {found} where {expected} follows"
        )


class InvalidProducerEpochError(WaystationError):
    """A producer that a newer one with the same id has fenced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH

    def __init__(self, producer: ProducerId, current: ProducerEpoch, found: ProducerEpoch) -> None:
        self.producer, self.current, self.found = producer, current, found
        super().__init__(f"producer {producer} is at epoch {current}, the batch says {found}")


class UnknownProducerIdError(WaystationError):
    """A producer id whose state the partition does not hold, where it must."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


# --- transactions ----------------------------------------------------------------------------


class ProducerFencedError(WaystationError):
    """A newer instance with the same transactional id has taken over: this one must end."""

    code = ErrorCode.PRODUCER_FENCED


class InvalidProducerIdMappingError(WaystationError):
    """The transactional id is unknown, or belongs to another producer id than the one named."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTxnStateError(WaystationError):
    """The transaction's state does not allow what was asked; nothing has changed."""

    code = ErrorCode.INVALID_TXN_STATE


class ConcurrentTransactionsError(WaystationError):
    """Another transaction of the same transactional id has not ended yet: ask again soon."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionAbortableError(WaystationError):
    """The transaction cannot go on; its producer can, once it has aborted."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class InvalidTransactionTimeoutError(WaystationError):
    """A transaction time-out outside the bounds that the broker allows."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionCoordinatorFencedError(WaystationError):
    """A marker from a coordinator that another one has replaced since."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdNotFoundError(WaystationError):
    """No transaction is known under that transactional id: it never was, or has expired."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class UnstableOffsetCommitError(WaystationError):
    """Offsets that a transaction has committed and not ended yet: ask again once it has."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


# --- partitions -----------------------------------------------------------------------------


class UnknownTopicError(WaystationError):
    """No such topic, or the topic has no such partition, on this node."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(WaystationError):
    """A topic id that no topic of this cluster has; the topic may have been made anew."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class NotLeaderError(WaystationError):
    """The node asked does not lead the partition, so it may not answer for it."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def __init__(
        self, partition: TopicPartition, leader: NodeId | None, epoch: LeaderEpoch
    ) -> None:
        self.partition, self.leader, self.epoch = partition, leader, epoch
        led_by = "no one" if leader is None else f"node {leader}"
        super().__init__(f"{partition} is led by {led_by} since epoch {epoch}")


class FencedLeaderEpochError(WaystationError):
    """The client's leader epoch is older than the partition's: it must refresh its metadata."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(WaystationError):
    """The client's leader epoch is newer than any this node has heard of."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class OffsetOutOfRangeError(WaystationError):
    """A read outside what the log still holds or already has."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: Offset, start: Offset, end: Offset) -> None:
        self.offset, self.start, self.end = offset, start, end
        super().__init__(f"offset {offset} is outside [{start}, {end}]")


class NotEnoughReplicasError(WaystationError):
    """Fewer in-sync replicas than ``min.insync.replicas``: nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS

    def __init__(self, partition: TopicPartition, in_sync: int, needed: int) -> None:
        self.partition, self.in_sync, self.needed = partition, in_sync, needed
        super().__init__(f"{partition} has {in_sync} in-sync replicas, acks=all needs {needed}")


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError):
    """Replicas went while the batch waited for them: it is there, and may commit later."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class StaleBrokerEpochError(WaystationError):
    """A follower asks in the name of an incarnation that has ended."""

    code = ErrorCode.STALE_BROKER_EPOCH


class OffsetNotAvailableError(WaystationError):
    """A new leader does not know yet how much its predecessor committed."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class StorageError(WaystationError):
    """The disk refused, or its directory is offline after it refused before."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFoundError(WaystationError):
    """The node has no such data directory."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class ReplicaNotAvailableError(WaystationError):
    """The node holds no replica of the partition."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class RequestTimedOutError(WaystationError):
    """The time the client gave has passed; the outcome is unknown to it."""

    code = ErrorCode.REQUEST_TIMED_OUT


# --- topics and settings --------------------------------------------------------------------


class InvalidTopicError(WaystationError):
    """A topic name that the rules of naming forbid."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicExistsError(WaystationError):
    """A topic of that name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitionsError(WaystationError):
    """A partition count that cannot be, or that would shrink a topic."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactorError(WaystationError):
    """More replicas than brokers, or fewer than one."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignmentError(WaystationError):
    """A manual assignment that names unknown brokers, leaves gaps or contradicts itself."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class NoReassignmentInProgressError(WaystationError):
    """There is no reassignment to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class ElectionNotNeededError(WaystationError):
    """The partition is led as the election would have it."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailableError(WaystationError):
    """The preferred leader is not there, wants to stop, or is not in sync."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailableError(WaystationError):
    """No replica is there that could lead."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class UnknownBrokerError(WaystationError):
    """No broker of that number is registered or holds anything."""

    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class InvalidConfigError(WaystationError):
    """An unknown option, or a value outside its bounds."""

    code = ErrorCode.INVALID_CONFIG


class InvalidFilterError(WaystationError):
    """An expression that is no filter, and where: ``[at, end)`` of it is marked."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, expression: str, at: int, end: int, problem: str) -> None:
        self.expression, self.at, self.end, self.problem = expression, at, end, problem
        super().__init__(f"{problem}\n{_marked(expression, at, end)}")


class PolicyViolationError(WaystationError):
    """A request that this cluster's operator has switched off."""

    code = ErrorCode.POLICY_VIOLATION


class ClusterAuthorizationError(WaystationError):
    """An operation on the cluster that the caller may not do."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class InvalidSettingsError(InvalidConfigError):
    """Every problem found in a set of options, at once."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


# --- groups -----------------------------------------------------------------------------------


class InvalidGroupIdError(WaystationError):
    """A group id that may not be, such as an empty one."""

    code = ErrorCode.INVALID_GROUP_ID


class CoordinatorNotAvailableError(WaystationError):
    """Nobody coordinates the group yet: its internal partition is being made or has no leader."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadingError(WaystationError):
    """The coordinator still reads what it must remember: ask again soon."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinatorError(WaystationError):
    """Another node coordinates the group, or this one has just lost it."""

    code = ErrorCode.NOT_COORDINATOR


class UnknownMemberError(WaystationError):
    """Nobody of that member id is in the group: it was removed, or never joined."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class IllegalGenerationError(WaystationError):
    """The member speaks of a generation that is over, or has not begun."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgressError(WaystationError):
    """Partitions are being shared out anew: the member must join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InconsistentProtocolError(WaystationError):
    """The member shares no protocol with the others of its group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeoutError(WaystationError):
    """A session time-out outside the bounds that the broker allows."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class MemberIdRequiredError(WaystationError):
    """A new member must join again under ``member_id``, so that a lost reply leaves no ghost."""

    code = ErrorCode.MEMBER_ID_REQUIRED

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        super().__init__(f"join again as member {member_id}")


class GroupFullError(WaystationError):
    """The group has as many members as it may have."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(WaystationError):
    """Another member has taken over the static instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(WaystationError):
    """The static instance id still belongs to a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class FencedMemberEpochError(WaystationError):
    """The member's epoch is not the coordinator's: it must give up all and join again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(WaystationError):
    """A commit or fetch under an epoch that the member has left behind: retry with the new one."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignorError(WaystationError):
    """An assignor that the broker does not have."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegexError(WaystationError):
    """A regular expression that cannot be read."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class NonEmptyGroupError(WaystationError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupNotFoundError(WaystationError):
    """There is no such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupSubscribedError(WaystationError):
    """A member of the group reads the topic, so its offsets may not go."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class OffsetMetadataTooLargeError(WaystationError):
    """The note to an offset is longer than the broker allows."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


# --- queues ------------------------------------------------------------------------------------


class InvalidRecordStateError(WaystationError):
    """What is acknowledged is not held by who says so: its lock is over, or it never had it."""

    code = ErrorCode.INVALID_RECORD_STATE


class FencedStateEpochError(WaystationError):
    """The group has begun anew since: what was delivered before does not count any more."""

    code = ErrorCode.FENCED_STATE_EPOCH


class ShareSessionNotFoundError(WaystationError):
    """There is no such session of a queue's consumer: it was closed, or pushed out."""

    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(WaystationError):
    """The consumer and the broker count the requests of their session differently."""

    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitError(WaystationError):
    """The broker has as many sessions of queues' consumers as it may have."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED


# --- other brokers ----------------------------------------------------------------------------


class PeerUnreachableError(WaystationError):
    """Another broker cannot be reached, or what it answers is no answer."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, node: NodeId, reason: str) -> None:
        self.node, self.reason = node, reason
        super().__init__(f"node {node} cannot be asked: {reason}")


# --- the coordination store -----------------------------------------------------------------


class StoreUnavailableError(WaystationError):
    """The coordination store did not answer: a write may or may not have happened."""

    code = ErrorCode.REQUEST_TIMED_OUT


class StoreInUseError(WaystationError):
    """The coordination store's file belongs to another process that still runs."""


class TransactionTooLargeError(WaystationError):
    """More operations or bytes than every backend takes in one transaction."""


class LeaseExpiredError(WaystationError):
    """The lease was not kept alive in time, or was revoked: its keys are gone."""


class CompactedError(WaystationError):
    """A watch that cannot be continued without a gap: its owner must list again."""

    def __init__(self, from_revision: int) -> None:
        self.from_revision = from_revision
        super().__init__(f"changes since revision {from_revision} are no longer held: list again")


class MetadataFormatError(WaystationError):
    """A stored value that this version cannot read."""

    def __init__(self, key: str, problem: str) -> None:
        self.key, self.problem = key, problem
        super().__init__(f"cannot read {key} of the coordination store: {problem}")


class DuplicateBrokerError(WaystationError):
    """Another broker that still runs has registered under the same id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class WrongClusterError(WaystationError):
    """A data directory and a coordination store that belong to two clusters."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


# --- how facts are shown --------------------------------------------------------------------

_SHOWN_CHARACTERS = 76


def _marked(text: str, at: int, end: int) -> str:
    """The line of ``text`` in which ``at`` is, with carets below ``[at, end)``.

    Of a long line only what is around the place; what is not printable is a blank, so that the
    carets stand where they belong.
    """
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    first = max(start, min(at - _SHOWN_CHARACTERS // 2, stop - _SHOWN_CHARACTERS))
    last = min(stop, first + _SHOWN_CHARACTERS)
    line = "".join(one if one.isprintable() else " " for one in text[first:last])
    before, behind = ("…" if first > start else ""), ("…" if last < stop else "")
    carets = "^" * max(min(end, last) - at, 1)
    return f"  {before}{line}{behind}\n  {' ' * (at - first + len(before))}{carets}"
