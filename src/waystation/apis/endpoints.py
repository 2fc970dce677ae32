"""Where the leaders are that a refusal names: clients go there without asking (KIP-951)."""

from collections.abc import Collection
from typing import NamedTuple

from waystation.cluster.image import ClusterImage
from waystation.model.ids import NodeId


class Endpoint(NamedTuple):
    """A broker, and where clients reach it."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


def endpoints_of(image: ClusterImage, nodes: Collection[int]) -> list[Endpoint]:
    """Those of ``nodes`` that live, each once."""
    found = (image.brokers.get(NodeId(node)) for node in sorted({*nodes}))
    return [Endpoint(one.id, one.host, one.port, one.rack) for one in found if one is not None]
