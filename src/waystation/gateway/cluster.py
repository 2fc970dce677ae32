"""The cluster: its brokers and who of them is in charge."""

import msgspec

from waystation.gateway.routes import Call, Route
from waystation.version import VERSION

__all__ = ["CLUSTER"]


class Broker(msgspec.Struct, frozen=True):
    """A broker and where its Kafka port is."""

    node: int
    host: str
    port: int
    rack: str | None


class Cluster(msgspec.Struct, frozen=True):
    """The members of a cluster."""

    cluster_id: str
    controller: int | None
    brokers: list[Broker]
    version: str
    """Of the node that answered."""


async def describe_cluster(call: Call[None, None]) -> Cluster:
    """The cluster as its members see it."""
    admin = await call.clients.admin()
    found = await admin.describe_cluster()
    return Cluster(
        found.cluster_id,
        found.controller if found.controller >= 0 else None,
        [
            Broker(one.node, one.address.host, one.address.port, one.rack)
            for one in sorted(found.brokers)
        ],
        VERSION,
    )


CLUSTER = [
    Route(
        method="GET",
        path="/v1/cluster",
        summary="The brokers of the cluster",
        tag="cluster",
        handler=describe_cluster,
        answer=Cluster,
    ),
]
