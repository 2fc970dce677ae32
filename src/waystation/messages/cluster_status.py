"""ClusterStatus: everything an operator asks first, in one answer from any broker.

An API of our own, versioned as Kafka's are; what it promises is in ``docs/protocol/cluster.md``.
What lies on whose disks is asked of each broker, by DescribeLogDirs.
"""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int16, int32, int64, string, tagged
from waystation.wire.versions import ApiKey

ALL = -1
"""No limit to how many partitions are listed."""
NOBODY = -1
"""No broker; no epoch."""


class ClusterStatusRequest(Message, api=ApiKey.CLUSTER_STATUS):
    """Asks for the state of the cluster; each list has ``limit`` entries at most."""

    limit: int = field(int32, default=ALL)


class ClusterStatusFeature(Struct):
    """A version of a format that a broker can write."""

    name: str = field(string)
    version: int = field(int32)


class ClusterStatusBroker(Struct):
    """A broker that is alive, or that others remember because it holds replicas.

    Of one that is not alive, only its number and what it holds are known.
    """

    broker_id: int = field(int32)
    alive: bool = field(boolean)
    epoch: int = field(int64, default=NOBODY)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")
    machine: str | None = field(string, nullable="0+")
    features: list[ClusterStatusFeature] = field(array(ClusterStatusFeature))
    clean: bool = field(boolean)
    leaving: bool = field(boolean)
    draining: bool = field(boolean)
    replicas: int = field(int32)
    leaders: int = field(int32)
    preferred_leaders: int = field(int32)


class ClusterStatusPartition(Struct):
    """A partition that is not as it should be, and in which ways."""

    topic: str = field(string)
    partition: int = field(int32)
    leader: int = field(int32, default=NOBODY)
    leader_epoch: int = field(int32, default=NOBODY)
    replicas: list[int] = field(array(int32))
    in_sync: list[int] = field(array(int32))
    eligible: list[int] = field(array(int32))
    min_in_sync: int = field(int32)
    leaderless: bool = field(boolean)
    under_replicated: bool = field(boolean)
    under_min_in_sync: bool = field(boolean)


class ClusterStatusReassignment(Struct):
    """A partition on its way to other replicas.

    It waits for ``waiting_for`` to be in sync; those of them that are ``missing`` do not live,
    so it is stuck until they come back or it is cancelled.
    """

    topic: str = field(string)
    partition: int = field(int32)
    replicas: list[int] = field(array(int32))
    target: list[int] = field(array(int32))
    adding: list[int] = field(array(int32))
    removing: list[int] = field(array(int32))
    begun: bool = field(boolean)
    waiting_for: list[int] = field(array(int32))
    missing: list[int] = field(array(int32))


class ClusterStatusStuck(Struct):
    """A replica on a drained broker that no other broker can take."""

    topic: str = field(string)
    partition: int = field(int32)
    broker_id: int = field(int32)


class ClusterStatusUnclean(Struct):
    """A partition that was once led by one who may have lacked committed records."""

    topic: str = field(string)
    partition: int = field(int32)
    leader: int = field(int32, default=NOBODY)
    leader_epoch: int = field(int32)
    unclean_epoch: int = field(int32)


class ClusterStatusResponse(Message, api=ApiKey.CLUSTER_STATUS):
    """The cluster as the broker that answers sees it; numbers are whole, lists may be cut."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    cluster_id: str = field(string)
    answered_by: int = field(int32)
    revision: int = field(int64)
    controller_id: int = field(int32, default=NOBODY)
    controller_epoch: int = field(int64, default=NOBODY)
    topic_count: int = field(int32)
    partition_count: int = field(int32)
    leaderless_count: int = field(int32)
    under_replicated_count: int = field(int32)
    under_min_in_sync_count: int = field(int32)
    not_preferred_count: int = field(int32)
    reassignment_count: int = field(int32)
    stuck_count: int = field(int32)
    unclean_count: int = field(int32)
    brokers: list[ClusterStatusBroker] = field(array(ClusterStatusBroker))
    partitions: list[ClusterStatusPartition] = field(array(ClusterStatusPartition))
    reassignments: list[ClusterStatusReassignment] = field(array(ClusterStatusReassignment))
    stuck: list[ClusterStatusStuck] = field(array(ClusterStatusStuck))
    unclean: list[ClusterStatusUnclean] = field(array(ClusterStatusUnclean))
    store_silent_ms: int = tagged(0, int64, "0+")
