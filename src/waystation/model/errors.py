"""Everything that can go wrong, each with a code for the client and facts for the operator.

An error is raised where its facts are known and translated once, in ``apis/``.  The facts
are attributes; the sentence is built from them and names the culprit and the remedy.

Everything is imported from here; what is about clusters is in ``cluster_errors.py``, what is about
groups in ``group_errors.py``.
"""

from collections.abc import Iterable

from waystation.model.cluster_errors import (
    CompactedError,
    DuplicateBrokerError,
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    IsViewError,
    LeaseExpiredError,
    MetadataFormatError,
    NoReassignmentInProgressError,
    PeerUnreachableError,
    PreferredLeaderNotAvailableError,
    StaleBrokerEpochError,
    StoreInUseError,
    StoreUnavailableError,
    TransactionTooLargeError,
    UnknownBrokerError,
    WrongClusterError,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.error_root import WaystationError
from waystation.model.group_errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    FencedStateEpochError,
    GroupFullError,
    GroupNotFoundError,
    GroupSubscribedError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidGroupIdError,
    InvalidRecordStateError,
    InvalidRegexError,
    InvalidSessionTimeoutError,
    InvalidShareSessionEpochError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    ShareSessionLimitError,
    ShareSessionNotFoundError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
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
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
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
    "IsViewError",
    "LeaseExpiredError",
    "LogDirNotFoundError",
    "MalformedFrameError",
    "MemberIdRequiredError",
    "MessageTooLargeError",
    "MetadataFormatError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetMetadataTooLargeError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PeerUnreachableError",
    "PolicyViolationError",
    "PreferredLeaderNotAvailableError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "ShareSessionLimitError",
    "ShareSessionNotFoundError",
    "StaleBrokerEpochError",
    "StaleMemberEpochError",
    "StorageError",
    "StoreInUseError",
    "StoreUnavailableError",
    "TopicExistsError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionTooLargeError",
    "TransactionalIdNotFoundError",
    "UnknownBrokerError",
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
