"""Markers for partitions that other brokers lead.

Each is tried once, by WriteTxnMarkers; whoever wanted it written hears whether it is committed
there, and tries again if it is not: at the same broker or, after an election, at another.  A
question without an answer counts as not written, so that a marker may be written twice: the
second one ends nothing.

What is tried again has a connection of its own.  A partition that cannot commit, for want of
replicas, then holds up those markers only that have failed before.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waystation.broker.gathering import Gathering
from waystation.broker.peers import Peers
from waystation.client.errors import error_of
from waystation.messages.write_txn_markers import (
    EPOCH_PER_TRANSACTION,
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.model.errors import PeerUnreachableError, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.records.control import Marker

Told = Callable[[WaystationError | None], None]

_FIRST, _AGAIN = "markers", "markers-again"


class _Order(NamedTuple):
    """A marker for one partition, and who hears of it."""

    name: TopicPartition
    marker: Marker
    told: Told


class FarMarkers:
    """The markers on their way to other brokers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._gathering: Gathering[tuple[NodeId, str], _Order] = Gathering(
            self._send, "far-markers"
        )

    def write(
        self, node: NodeId, name: TopicPartition, marker: Marker, told: Told, *, again: bool
    ) -> None:
        """Have it written by the partition's leader; ``told`` hears of it once, later."""
        purpose = _AGAIN if again else _FIRST
        self._gathering.add((node, purpose), _Order(name, marker, told))

    async def aclose(self) -> None:
        """Write nothing more; nobody hears of it."""
        await self._gathering.aclose()

    async def _send(self, receiver: tuple[NodeId, str], orders: list[_Order]) -> None:
        node, purpose = receiver
        by_marker: dict[Marker, dict[TopicPartition, None]] = {}
        for order in orders:
            by_marker.setdefault(order.marker, {})[order.name] = None
        request = WriteTxnMarkersRequest(
            markers=[_writable(marker, names) for marker, names in by_marker.items()]
        )
        try:
            answer = await self._peers.ask(node, request, WriteTxnMarkersResponse, purpose=purpose)
        except PeerUnreachableError as error:
            for order in orders:
                order.told(error)
            return
        codes = dict(zip(by_marker, map(_codes, answer.markers), strict=False))
        for order in orders:
            order.told(_outcome(node, order, codes.get(order.marker, {})))


def _writable(marker: Marker, names: Mapping[TopicPartition, None]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in topics.items()
        ],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=EPOCH_PER_TRANSACTION if marker.bumped else 0,
    )


def _codes(result: WritableTxnMarkerResult) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, part.partition_index): part.error_code
        for topic in result.topics
        for part in topic.partitions
    }


def _outcome(
    node: NodeId, order: _Order, codes: Mapping[TopicPartition, int]
) -> WaystationError | None:
    code = codes.get(order.name)
    if code is None:
        return PeerUnreachableError(node, f"it says nothing of {order.name}")
    return error_of(code, f"node {node}: {order.name}") if code else None
