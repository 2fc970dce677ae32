"""ClusterStatus: what an operator asks first, in one answer (``docs/protocol/cluster.md``)."""

from collections.abc import Sequence
from typing import TypeVar

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.cluster.health import Holding, Journey, Trouble, Unclean, health
from waystation.cluster.image import ClusterImage
from waystation.messages.cluster_status import (
    ALL,
    NOBODY,
    ClusterStatusBroker,
    ClusterStatusFeature,
    ClusterStatusPartition,
    ClusterStatusReassignment,
    ClusterStatusRequest,
    ClusterStatusResponse,
    ClusterStatusStuck,
    ClusterStatusUnclean,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NodeId

T = TypeVar("T")


def answer(broker: Broker, call: Call[ClusterStatusRequest]) -> ClusterStatusResponse:
    """The cluster by the image that this broker has acted on."""
    limit, image = call.message.limit, broker.image
    if limit < ALL:
        return ClusterStatusResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"a limit of {limit}: must be at least 0, or -1 for none",
        )
    share = broker.settings.replicas_share_machine
    found = health(image, broker.configs.policy_of(image), share_machines=share)
    office = image.controller
    return ClusterStatusResponse(
        cluster_id=image.cluster_id or "",
        answered_by=broker.node,
        revision=image.revision,
        controller_id=NOBODY if office is None else office.node,
        controller_epoch=NOBODY if office is None else office.epoch,
        topic_count=found.topics,
        partition_count=found.partitions,
        leaderless_count=sum(one.leaderless for one in found.troubles),
        under_replicated_count=sum(one.under_replicated for one in found.troubles),
        under_min_in_sync_count=sum(one.under_min_insync for one in found.troubles),
        not_preferred_count=found.not_preferred,
        reassignment_count=len(found.journeys),
        stuck_count=len(found.stuck),
        unclean_count=len(found.unclean),
        brokers=[_broker(image, node, held) for node, held in found.holdings.items()],
        partitions=[_partition(one) for one in _cut(found.troubles, limit)],
        reassignments=[_reassignment(one) for one in _cut(found.journeys, limit)],
        stuck=[
            ClusterStatusStuck(
                topic=one.partition.topic, partition=one.partition.partition, broker_id=one.node
            )
            for one in _cut(found.stuck, limit)
        ],
        unclean=[_unclean(one) for one in _cut(found.unclean, limit)],
        store_silent_ms=int(broker.store_silent_s * 1_000),
    )


def _cut(every: Sequence[T], limit: int) -> Sequence[T]:
    return every if limit == ALL else every[:limit]


def _broker(image: ClusterImage, node: NodeId, held: Holding) -> ClusterStatusBroker:
    told = ClusterStatusBroker(
        broker_id=node,
        draining=node in image.drains,
        replicas=held.replicas,
        leaders=held.leaders,
        preferred_leaders=held.preferred,
    )
    registered = image.brokers.get(node)
    if registered is not None:
        told.alive, told.clean = True, registered.clean
        told.leaving = image.is_leaving(node)
        told.epoch = registered.epoch
        told.host, told.port = registered.host, registered.port
        told.rack, told.machine = registered.rack, registered.machine
        told.features = [
            ClusterStatusFeature(name=name, version=version)
            for name, version in sorted(registered.features.items())
        ]
    return told


def _partition(one: Trouble) -> ClusterStatusPartition:
    state = one.state
    return ClusterStatusPartition(
        topic=one.partition.topic,
        partition=one.partition.partition,
        leader=NOBODY if one.leaderless or state.leader is None else state.leader,
        leader_epoch=state.leader_epoch,
        replicas=list(state.replicas),
        in_sync=list(state.in_sync),
        eligible=list(state.eligible),
        min_in_sync=one.min_insync,
        leaderless=one.leaderless,
        under_replicated=one.under_replicated,
        under_min_in_sync=one.under_min_insync,
    )


def _reassignment(one: Journey) -> ClusterStatusReassignment:
    moving = one.moving
    return ClusterStatusReassignment(
        topic=moving.partition.topic,
        partition=moving.partition.partition,
        replicas=list(moving.replicas),
        target=list(moving.target),
        adding=list(moving.adding),
        removing=list(moving.removing),
        begun=one.begun,
        waiting_for=list(one.waiting_for),
        missing=list(one.missing),
    )


def _unclean(one: Unclean) -> ClusterStatusUnclean:
    return ClusterStatusUnclean(
        topic=one.partition.topic,
        partition=one.partition.partition,
        leader=NOBODY if one.state.leader is None else one.state.leader,
        leader_epoch=one.state.leader_epoch,
        unclean_epoch=one.state.unclean_epoch,
    )
