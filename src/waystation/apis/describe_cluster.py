"""DescribeCluster: the members of the cluster, for administrators."""

from waystation.apis.call import Call
from waystation.apis.metadata import CLUSTER_OPERATIONS
from waystation.broker.broker import Broker
from waystation.messages.describe_cluster import (
    BROKERS,
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NO_NODE


def answer(broker: Broker, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    """Every broker that is alive, and which of them decides."""
    request, image = call.message, broker.image
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="controllers have no endpoints of their own: ask for brokers",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"{request.endpoint_type} is no endpoint type",
        )
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id or "",
        controller_id=NO_NODE if image.controller is None else image.controller.node,
        brokers=[
            DescribeClusterBroker(broker_id=one.id, host=one.host, port=one.port, rack=one.rack)
            for one in broker.answering
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
