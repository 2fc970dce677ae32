"""What a client raises: the broker's answer, or its own trouble in reaching one.

Every sentence names its subject and, where there is one, the remedy.  Codes that have a class
of their own in ``model.errors`` are raised as that class; the rest as ``BrokerError``, which
carries the code.
"""

from collections.abc import Mapping

from waystation.model.error_codes import RETRIABLE
from waystation.model.errors import (
    ClusterAuthorizationError,
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    CorruptBatchError,
    ErrorCode,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupFullError,
    GroupNotFoundError,
    GroupSubscribedError,
    IllegalGenerationError,
    InconsistentProtocolError,
    InvalidConfigError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    MessageTooLargeError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ProducerFencedError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    StorageError,
    TopicExistsError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnknownMemberError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnreleasedInstanceIdError,
    UnstableOffsetCommitError,
    UnsupportedAssignorError,
    UnsupportedCompressionError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import NO_OFFSET, Offset

__all__ = [
    "BrokerError",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClosedError",
    "ConnectionLostError",
    "DeliveryError",
    "MessageRefusedError",
    "NoCommittedOffsetError",
    "NoSuchPartitionError",
    "OutcomeUnknownError",
    "PositionOutOfRangeError",
    "TopicMadeAnewError",
    "code_of",
    "error_of",
    "is_retriable",
]


class BrokerError(WaystationError):
    """An error of the broker that has no class of its own; ``code`` says which."""

    def __init__(self, code: ErrorCode, sentence: str) -> None:
        self.code = code
        super().__init__(sentence)


class MessageRefusedError(MessageTooLargeError):
    """A message or batch over a limit; -1 stands for a size that the broker did not say."""

    def __init__(self, sentence: str, size_bytes: int = -1, limit_bytes: int = -1) -> None:
        self.size_bytes, self.limit_bytes = size_bytes, limit_bytes
        WaystationError.__init__(self, sentence)


class NoSuchPartitionError(UnknownTopicError):
    """The topic is there, but has fewer partitions than that."""

    def __init__(self, partition: TopicPartition, partitions: int) -> None:
        self.partition, self.partitions = partition, partitions
        super().__init__(
            f"topic {partition.topic} has no partition {partition.partition}: "
            f"its partitions are 0 to {partitions - 1}"
        )


class TopicMadeAnewError(WaystationError):
    """While a record was on its way its topic was deleted and made anew, with fewer partitions."""

    code = ErrorCode.LEADER_NOT_AVAILABLE

    def __init__(self, partition: TopicPartition, partitions: int) -> None:
        self.partition, self.partitions = partition, partitions
        super().__init__(
            f"topic {partition.topic} was deleted and made anew, without partition "
            f"{partition.partition}: its partitions are 0 to {partitions - 1}. Send it again"
        )


class PositionOutOfRangeError(OffsetOutOfRangeError):
    """A consumer's position that the partition does not hold, or not any more."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, start: Offset, end: Offset
    ) -> None:
        self.partition = partition
        self.offset, self.start, self.end = offset, start, end
        held = f", which holds [{start}, {end})" if 0 <= start <= end else ""
        WaystationError.__init__(
            self,
            f"offset {offset} is not in partition {partition}{held}: seek to another, or let "
            "auto_offset_reset choose",
        )


class NoCommittedOffsetError(OffsetOutOfRangeError):
    """A partition of which the group has committed nothing, where it may not choose a place."""

    def __init__(self, group_id: str, partition: TopicPartition) -> None:
        self.group_id, self.partition = group_id, partition
        self.offset = self.start = self.end = NO_OFFSET
        WaystationError.__init__(
            self,
            f"group {group_id} has committed no offset of partition {partition}, and "
            "auto_offset_reset is 'error': seek to one, reset the group with `waystation group "
            "reset`, or let auto_offset_reset choose",
        )


class ConnectionLostError(WaystationError):
    """The connection ended before the answer came; what was asked may have happened."""

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerUnreachableError(WaystationError):
    """No broker could be reached; ``causes`` says why for each address tried."""

    code = ErrorCode.BROKER_NOT_AVAILABLE

    def __init__(self, causes: Mapping[str, str]) -> None:
        self.causes = dict(causes)
        tried = "; ".join(f"{address}: {cause}" for address, cause in causes.items())
        super().__init__(
            f"no broker answers ({tried}): is one running there? Start one with "
            "`waystation serve`, or give another address"
        )


class ClosedError(WaystationError):
    """A producer, consumer or admin was used after it was closed, or before it was started."""

    code = ErrorCode.INVALID_REQUEST


class BufferFullError(WaystationError):
    """``submit`` found no room; nothing was taken."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self, buffer_bytes: int) -> None:
        self.buffer_bytes = buffer_bytes
        super().__init__(
            f"the producer's buffer of {buffer_bytes} bytes is full: await drain() between "
            "submits, use send(), or raise buffer_bytes"
        )


class DeliveryError(WaystationError):
    """Records handed to ``submit`` could not be delivered; the first reason stands for all."""

    def __init__(self, failed: int, first: WaystationError) -> None:
        self.failed, self.first, self.code = failed, first, first.code
        records = "1 record was" if failed == 1 else f"{failed} records were"
        super().__init__(f"{records} not delivered; first reason: {first}")


class OutcomeUnknownError(RequestTimedOutError):
    """Whether a transaction was committed is not known; its producer can do nothing more."""

    def __init__(self, transactional_id: str, why: str) -> None:
        self.transactional_id = transactional_id
        super().__init__(
            f"what became of the transaction of transactional id {transactional_id} is not known "
            f"({why}): start a new producer with the same transactional_id, which waits until it "
            "has ended, and look at what was committed"
        )


_CLASSES: dict[ErrorCode, type[WaystationError]] = {
    cls.code: cls
    for cls in (
        ClusterAuthorizationError,
        ConcurrentTransactionsError,
        CoordinatorLoadingError,
        CoordinatorNotAvailableError,
        CorruptBatchError,
        FencedInstanceIdError,
        FencedMemberEpochError,
        GroupFullError,
        GroupNotFoundError,
        GroupSubscribedError,
        IllegalGenerationError,
        InconsistentProtocolError,
        InvalidConfigError,
        InvalidGroupIdError,
        InvalidPartitionsError,
        InvalidProducerIdMappingError,
        InvalidRecordError,
        InvalidReplicationFactorError,
        InvalidRequestError,
        InvalidSessionTimeoutError,
        InvalidTimestampError,
        InvalidTopicError,
        InvalidTransactionTimeoutError,
        InvalidTxnStateError,
        MessageRefusedError,
        NonEmptyGroupError,
        NotCoordinatorError,
        OffsetMetadataTooLargeError,
        PolicyViolationError,
        ProducerFencedError,
        RebalanceInProgressError,
        RequestTimedOutError,
        StaleMemberEpochError,
        StorageError,
        TopicExistsError,
        TransactionAbortableError,
        TransactionCoordinatorFencedError,
        TransactionalIdNotFoundError,
        UnknownMemberError,
        UnknownProducerIdError,
        UnknownTopicError,
        UnknownTopicIdError,
        UnreleasedInstanceIdError,
        UnstableOffsetCommitError,
        UnsupportedAssignorError,
        UnsupportedCompressionError,
        UnsupportedVersionError,
    )
}

_REMOVED = (
    "does not count this consumer among its members any more: it was silent, or away from poll(), "
    "for too long; others have its partitions, and what it did not commit comes again"
)

_SAYINGS: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "does not exist: check the name, or create it with `waystation topic create`"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "may not be called that: letters, digits, '.', '_' and '-' only, at most 249 of them"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "exists already: choose another name, or delete it first",
    ErrorCode.LEADER_NOT_AVAILABLE: "has no leader at the moment: is its broker running?",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "refused the batch as too large: send smaller messages, or raise max.message.bytes "
        "of the topic"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "refused the batch as larger than a segment: send smaller messages, or raise "
        "segment.bytes of the topic"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "has fewer replicas in sync than min.insync.replicas: start the missing brokers, or "
        "produce with acks=1"
    ),
    ErrorCode.REQUEST_TIMED_OUT: "did not finish in time: the outcome is unknown",
    ErrorCode.KAFKA_STORAGE_ERROR: "is offline: look at its broker's disk and log",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "may not be used by you: ask its operator",
    ErrorCode.OFFSET_OUT_OF_RANGE: "does not hold that offset",
    ErrorCode.CORRUPT_MESSAGE: "found the batch corrupt on arrival",
    ErrorCode.INVALID_GROUP_ID: "may not be called that: give the group a name",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "may not be used by you: ask its operator",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist: `waystation group list` shows those that do",
    ErrorCode.NON_EMPTY_GROUP: "still has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "reads that topic: stop its members first",
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "has as many members as the broker allows: stop one, or raise group.max.size there"
    ),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "shares no assignor with this consumer, or has another kind of members: give assignors= "
        "one that the others have"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "may not have that session_timeout_ms: the broker's bounds are "
        "group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "has a newer member with the same group_instance_id: give each consumer one of its own"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "has another member with the same group_instance_id: stop it first"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "was offered no assignor of that name: try uniform or range",
    ErrorCode.UNKNOWN_MEMBER_ID: _REMOVED,
    ErrorCode.ILLEGAL_GENERATION: _REMOVED,
    ErrorCode.FENCED_MEMBER_EPOCH: _REMOVED,
    ErrorCode.REBALANCE_IN_PROGRESS: "is sharing partitions out anew: poll, then commit again",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "refused a note as too long: the broker's limit is offset.metadata.max.bytes"
    ),
    ErrorCode.PRODUCER_FENCED: (
        "was taken over by a newer producer with the same transactional id: this one must end"
    ),
    ErrorCode.INVALID_TXN_STATE: "is not in a state that allows this: nothing has changed",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "does not belong to that producer id, or has been forgotten: start the producer anew"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "may not have that transaction_timeout_ms: the broker's limit is transaction.max.timeout.ms"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: (
        "has a transaction that has not ended yet: wait for it, or look at it with "
        "`waystation txn describe`"
    ),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "has heard of a newer coordinator since: this marker comes too late"
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "is not known: `waystation txn list` shows those that are"
    ),
    ErrorCode.TRANSACTION_ABORTABLE: "cannot go on with its transaction: abort it, then try again",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "has offsets of a transaction that has not ended: ask again once it has"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "has no coordinator at the moment: is its broker running?",
}

# Brokers say less about these than we can.
_BETTER_SAID = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_ALREADY_EXISTS)


def error_of(code: int, subject: str, said: str | None = None) -> WaystationError:
    """The error to raise for ``code``; ``said`` is the broker's own message, if it sent one."""
    known = code_of(code)
    saying = _SAYINGS.get(known, f"failed with {known.name}")
    sentence = f"{subject}: {said}" if said and known not in _BETTER_SAID else f"{subject} {saying}"
    cls = _CLASSES.get(known)
    return BrokerError(known, sentence) if cls is None else cls(sentence)


def is_retriable(error: WaystationError) -> bool:
    """Whether the same request may succeed later without anyone changing it."""
    if isinstance(error, NoSuchPartitionError):
        return False
    return error.code in RETRIABLE or isinstance(error, BrokerUnreachableError)


def code_of(code: int) -> ErrorCode:
    """The code by its number; one that is newer than this client is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
