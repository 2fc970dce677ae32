"""Every error of the gateway, as ``application/problem+json`` (RFC 9457).

A problem names what was wrong, the field it was found in, and the remedy.  Errors of the queue
are translated here, once, by their Kafka code; what is not in the table is either worth another
try, 503, or a bug, 500.
"""

from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from waystation.client.errors import NoSuchPartitionError
from waystation.client.once import IdempotencyConflictError
from waystation.model.error_codes import RETRIABLE
from waystation.model.errors import ErrorCode, WaystationError

__all__ = ["PROBLEM_JSON", "BlamedError", "Problem", "ProblemError", "problem_of", "refusal"]

PROBLEM_JSON: Final = b"application/problem+json"
_TYPE: Final = "urn:waystation:problem:"


class Problem(msgspec.Struct, omit_defaults=True, frozen=True):
    """Why a call was not answered as it was meant to be."""

    type: str
    """Names the kind of the problem; stays the same from version to version."""
    title: str
    status: int
    detail: str
    """What was wrong with this very call."""
    field: str | None = None
    """The field of the body, or the parameter, that is wrong."""
    remedy: str | None = None
    """What to do about it."""


class ProblemError(Exception):
    """Ends a call with a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


class BlamedError(WaystationError):
    """An error of the queue, and the field that is to blame, which only the caller knows."""

    def __init__(self, error: WaystationError, field: str, remedy: str) -> None:
        self.code, self.field, self.remedy = error.code, field, remedy
        super().__init__(str(error))


def refusal(
    status: int, kind: str, detail: str, *, field: str | None = None, remedy: str | None = None
) -> ProblemError:
    """The error to raise; ``kind`` is a few words with dashes, such as ``unknown-topic``."""
    return ProblemError(Problem(_TYPE + kind, _title(kind), status, detail, field, remedy))


def problem_of(error: WaystationError) -> Problem:
    """What an error of the queue is over HTTP."""
    code = error.code
    if isinstance(error, IdempotencyConflictError):
        return refusal(422, "idempotency-conflict", str(error), **_ANOTHER_KEY).problem
    meaning = _NO_PARTITION if isinstance(error, NoSuchPartitionError) else _MEANINGS.get(code)
    if meaning is not None and isinstance(error, BlamedError):
        meaning = _Meaning(meaning.status, error.remedy, error.field)
    if meaning is None:
        again = code in RETRIABLE
        meaning = _Meaning(503, "try again a little later") if again else _Meaning(500, _LOOK)
    kind = code.name.lower().removesuffix("_exception").replace("_", "-")
    return Problem(
        _TYPE + kind, _title(kind), meaning.status, str(error), meaning.field, meaning.remedy
    )


def _title(kind: str) -> str:
    words = kind.replace("-", " ")
    return words[:1].upper() + words[1:]


class _Meaning(NamedTuple):
    status: int
    remedy: str
    field: str | None = None


_LOOK: Final = "look into the log of the node, and report what you find there"
_CORRECT: Final = "correct the request as the detail says"
_LATER: Final = "try again a little later; nothing is wrong with the request"
_BAD: Final = HTTPStatus.BAD_REQUEST
_AWAY: Final = HTTPStatus.SERVICE_UNAVAILABLE

_ANOTHER_KEY: Final = {
    "field": "idempotency_key",
    "remedy": "repeat the message as it was, or give this one a key of its own",
}
_NO_PARTITION: Final = _Meaning(
    404, "GET /v1/topics/{topic} shows the partitions there are", "partition"
)
_MEANINGS: Final[dict[ErrorCode, _Meaning]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _Meaning(
        404, "GET /v1/topics lists the topics there are; POST /v1/topics creates one", "topic"
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: _Meaning(404, "the topic was deleted: create it again", "topic"),
    ErrorCode.GROUP_ID_NOT_FOUND: _Meaning(
        404, "GET /v1/groups lists the groups there are", "group"
    ),
    ErrorCode.RESOURCE_NOT_FOUND: _Meaning(404, "check the name, or create it first"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: _Meaning(404, "begin another transaction", "transaction"),
    ErrorCode.OFFSET_OUT_OF_RANGE: _Meaning(
        416, "leave offset away to read from the oldest message on", "offset"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: _Meaning(409, "choose another name, or delete it", "name"),
    ErrorCode.NON_EMPTY_GROUP: _Meaning(409, "stop the members of the group first", "group"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _Meaning(409, "stop the members that read it", "group"),
    ErrorCode.DUPLICATE_RESOURCE: _Meaning(409, "choose another name, or delete it first"),
    ErrorCode.INVALID_TXN_STATE: _Meaning(409, "begin another transaction"),
    ErrorCode.INVALID_PRODUCER_EPOCH: _Meaning(409, "begin another transaction", "transaction"),
    ErrorCode.PRODUCER_FENCED: _Meaning(409, "begin another transaction", "transaction"),
    ErrorCode.TRANSACTION_ABORTABLE: _Meaning(409, "begin another transaction", "transaction"),
    ErrorCode.UNKNOWN_MEMBER_ID: _Meaning(
        409, "give member_id and generation of a member, or stop the members", "member_id"
    ),
    ErrorCode.ILLEGAL_GENERATION: _Meaning(
        409, "give the generation that the member is in", "generation"
    ),
    ErrorCode.STALE_MEMBER_EPOCH: _Meaning(
        409, "give the epoch that the member is in", "generation"
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: _Meaning(409, "let the member join again", "generation"),
    ErrorCode.FENCED_INSTANCE_ID: _Meaning(409, "let the member join again", "member_id"),
    ErrorCode.INVALID_RECORD_STATE: _Meaning(409, "receive the message again"),
    ErrorCode.CONCURRENT_TRANSACTIONS: _Meaning(409, "wait for the other transaction to end"),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: _Meaning(409, "wait for the move to end"),
    ErrorCode.MESSAGE_TOO_LARGE: _Meaning(
        413, "send smaller messages, or raise max.message.bytes of the topic", "value"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: _Meaning(
        413, "send smaller messages, or raise segment.bytes of the topic", "value"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: _Meaning(
        _BAD, "another topic: of views and of the cluster's own not all can be done", "topic"
    ),
    ErrorCode.INVALID_GROUP_ID: _Meaning(_BAD, "give the group another name", "group"),
    ErrorCode.INVALID_PARTITIONS: _Meaning(_BAD, _CORRECT, "partitions"),
    ErrorCode.INVALID_REPLICATION_FACTOR: _Meaning(
        _BAD, "at most as many as the cluster has brokers", "replication_factor"
    ),
    ErrorCode.INVALID_CONFIG: _Meaning(
        _BAD, "GET /v1/topics/{topic}/config explains every option", "config"
    ),
    ErrorCode.INVALID_TIMESTAMP: _Meaning(
        _BAD, "leave timestamp_ms away to have the clock's", "timestamp_ms"
    ),
    ErrorCode.INVALID_REQUEST: _Meaning(_BAD, _CORRECT),
    ErrorCode.INVALID_RECORD: _Meaning(_BAD, _CORRECT),
    ErrorCode.INVALID_REGULAR_EXPRESSION: _Meaning(_BAD, _CORRECT),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _Meaning(_BAD, _CORRECT),
    ErrorCode.UNSUPPORTED_VERSION: _Meaning(_BAD, _CORRECT),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _Meaning(_BAD, _CORRECT),
    ErrorCode.POLICY_VIOLATION: _Meaning(_BAD, _CORRECT),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: _Meaning(
        _BAD, "a shorter one; transaction.max.timeout.ms of the brokers limits it", "timeout_ms"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _Meaning(_BAD, "say less", "metadata"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _Meaning(403, "ask its operator", "topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _Meaning(403, "ask its operator", "group"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _Meaning(403, "ask the cluster's operator"),
    ErrorCode.TOPIC_DELETION_DISABLED: _Meaning(403, "ask the cluster's operator", "topic"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _Meaning(429, _LATER),
    ErrorCode.REQUEST_TIMED_OUT: _Meaning(
        504, "whether it was done is not known: look, or try again"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: _Meaning(_AWAY, "start the missing brokers, then try again"),
    ErrorCode.BROKER_NOT_AVAILABLE: _Meaning(_AWAY, _LATER),
    ErrorCode.NETWORK_EXCEPTION: _Meaning(_AWAY, _LATER),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _Meaning(_AWAY, _LATER),
    ErrorCode.KAFKA_STORAGE_ERROR: _Meaning(_AWAY, "look at the disk of the partition's broker"),
}
