"""What can go wrong between brokers, and between them and the coordination store.

``errors.py`` has the rest of the tree, and these as well for whoever imports them.
"""

from waystation.model.error_codes import ErrorCode
from waystation.model.error_root import WaystationError
from waystation.model.ids import NodeId

# --- who holds and leads what ----------------------------------------------------------------


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


class IsViewError(WaystationError):
    """What was asked can be done to a topic, and this is a view of one."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION

    def __init__(self, view: str, on: str) -> None:
        self.view, self.on = view, on
        super().__init__(f"{view} is a view, which can only be read: do it to its topic, {on}")


# --- other brokers ---------------------------------------------------------------------------


class PeerUnreachableError(WaystationError):
    """Another broker cannot be reached, or what it answers is no answer."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, node: NodeId, reason: str) -> None:
        self.node, self.reason = node, reason
        super().__init__(f"node {node} cannot be asked: {reason}")


class StaleBrokerEpochError(WaystationError):
    """A follower asks in the name of an incarnation that has ended."""

    code = ErrorCode.STALE_BROKER_EPOCH


class DuplicateBrokerError(WaystationError):
    """Another broker that still runs has registered under the same id."""

    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class WrongClusterError(WaystationError):
    """A data directory and a coordination store that belong to two clusters."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


# --- the coordination store ------------------------------------------------------------------


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
