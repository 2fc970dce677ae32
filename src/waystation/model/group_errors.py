"""What can go wrong with groups, their members and their queues.

``errors.py`` has the rest of the tree, and these as well for whoever imports them.
"""

from waystation.model.error_codes import ErrorCode
from waystation.model.error_root import WaystationError

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
