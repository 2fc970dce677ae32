"""DescribeCluster: who belongs to the cluster, for administrators."""

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, boolean, field, int8, int16, int32, string
from waystation.wire.versions import ApiKey

BROKERS = 1
CONTROLLERS = 2
"""Endpoint types; controllers have no endpoints of their own here."""
NOT_ASKED = -(1 << 31)
"""Authorized operations that the client did not ask for."""


class DescribeClusterRequest(Message, api=ApiKey.DESCRIBE_CLUSTER):
    """Asks for the members; fenced brokers are shown on request only."""

    include_cluster_authorized_operations: bool = field(boolean)
    endpoint_type: int = field(int8, "1+", default=BROKERS)
    include_fenced_brokers: bool = field(boolean, "2+")


class DescribeClusterBroker(Struct):
    """Where a broker can be reached."""

    broker_id: int = field(int32)
    host: str = field(string)
    port: int = field(int32)
    rack: str | None = field(string, nullable="0+")
    is_fenced: bool = field(boolean, "2+")


class DescribeClusterResponse(Message, api=ApiKey.DESCRIBE_CLUSTER):
    """The members and who of them is in charge."""

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    endpoint_type: int = field(int8, "1+", default=BROKERS)
    cluster_id: str = field(string)
    controller_id: int = field(int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(int32, default=NOT_ASKED)
