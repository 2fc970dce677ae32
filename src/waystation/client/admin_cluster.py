"""What an admin does with a cluster of several brokers: look, elect, move, drain.

Answers about many partitions are given for each of them: one that is refused spoils no other.
All of it may be asked of any broker and asked twice, so it is repeated while nobody answers.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from waystation.client.bootstrap import Address
from waystation.client.cluster_descriptions import (
    ClusterStatus,
    Drained,
    Outcomes,
    Reassignment,
    nodes,
    status_of,
)
from waystation.client.descriptions import ClusterDescription, LogDir
from waystation.client.errors import code_of, error_of
from waystation.client.metadata import BrokerView
from waystation.client.router import Router
from waystation.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from waystation.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from waystation.messages.cluster_status import ALL, ClusterStatusRequest, ClusterStatusResponse
from waystation.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from waystation.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from waystation.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from waystation.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from waystation.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.wire.message import Message

__all__ = ["ClusterAdministration"]

R = TypeVar("R", bound=Message)
Named = tuple[str, int]


class ClusterAdministration:
    """The part of an admin that is about brokers and who holds what."""

    _router: Router

    async def describe_cluster(self) -> ClusterDescription:
        """Who belongs to the cluster."""
        told = await self._of_any(DescribeClusterRequest(), DescribeClusterResponse)
        _raise_if(told.error_code, "the cluster", told.error_message)
        brokers = tuple(
            BrokerView(NodeId(one.broker_id), Address(one.host, one.port), one.rack)
            for one in told.brokers
        )
        return ClusterDescription(told.cluster_id, NodeId(told.controller_id), brokers)

    async def describe_log_dirs(self, broker: int | None = None) -> list[LogDir]:
        """The data directories of one broker, or of all that are alive."""
        asked = [NodeId(broker)] if broker is not None else sorted(self._router.view.brokers)
        return [one for node in asked for one in await self._log_dirs(node)]

    async def cluster_status(
        self, *, limit: int | None = None, disks: bool = True
    ) -> ClusterStatus:
        """How the cluster is, as one of its brokers sees it, with each broker's ``disks``.

        ``limit`` cuts the lists of partitions, not the numbers.
        """
        request = ClusterStatusRequest(limit=ALL if limit is None else limit)
        told = await self._of_any(request, ClusterStatusResponse)
        _raise_if(told.error_code, "the cluster", told.error_message)
        alive = [NodeId(one.broker_id) for one in told.brokers if one.alive and disks]
        answers = await asyncio.gather(*map(self._log_dirs, alive), return_exceptions=True)
        found = dict(zip(alive, answers, strict=True))
        return status_of(
            told, {node: tuple(one) for node, one in found.items() if isinstance(one, list)}
        )

    # --- leaders ----------------------------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[Named] | None = None, *, unclean: bool = False
    ) -> Outcomes:
        """Let preferred leaders lead again; of some partitions, or of all that need it.

        ``unclean`` gives partitions without a leader one who may lack committed records: what
        it lacks is lost.
        """
        asked = None
        if partitions is not None:
            asked = [
                TopicPartitions(topic=topic, partitions=some)
                for topic, some in _by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=asked,
            timeout_ms=self._router.settings.request_timeout_ms,
        )
        told = await self._of_any(request, ElectLeadersResponse)
        _raise_if(told.error_code, "the election")
        return {
            TopicPartition(topic.topic, one.partition_id): _error(
                one.error_code, f"partition {topic.topic}-{one.partition_id}", one.error_message
            )
            for topic in told.replica_election_results
            for one in topic.partition_result
        }

    # --- replicas ---------------------------------------------------------------------------

    async def alter_reassignments(
        self,
        targets: Mapping[Named, Iterable[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Outcomes:
        """Give partitions other replicas, the preferred leader first; ``None`` cancels.

        The moves are under way, not done, when this returns.
        """
        topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
        for (topic, number), replicas in targets.items():
            wanted = None if replicas is None else list(replicas)
            topics[topic].append(ReassignablePartition(partition_index=number, replicas=wanted))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._router.settings.request_timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=[ReassignableTopic(name=name, partitions=some) for name, some in topics.items()],
        )
        told = await self._of_any(request, AlterPartitionReassignmentsResponse)
        _raise_if(told.error_code, "the reassignment", told.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): _error(
                one.error_code, f"partition {topic.name}-{one.partition_index}", one.error_message
            )
            for topic in told.responses
            for one in topic.partitions
        }

    async def list_reassignments(
        self, partitions: Iterable[Named] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The partitions that are being reassigned, of these or of all."""
        asked = None
        if partitions is not None:
            asked = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=some)
                for topic, some in _by_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._router.settings.request_timeout_ms, topics=asked
        )
        told = await self._of_any(request, ListPartitionReassignmentsResponse)
        _raise_if(told.error_code, "the reassignments", told.error_message)
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                nodes(one.replicas), nodes(one.adding_replicas), nodes(one.removing_replicas)
            )
            for topic in told.topics
            for one in topic.partitions
        }

    async def alter_replica_log_dirs(self, broker: int, moves: Mapping[Named, str]) -> Outcomes:
        """Move replicas of one broker to other data directories of it, named by their path.

        The moves are under way, not done, when this returns.
        """
        paths: dict[str, list[Named]] = defaultdict(list)
        for named, path in moves.items():
            paths[path].append(named)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                        for topic, numbers in _by_topic(some).items()
                    ],
                )
                for path, some in paths.items()
            ]
        )
        told = await self._of_node(NodeId(broker), request, AlterReplicaLogDirsResponse)
        return {
            TopicPartition(topic.topic_name, one.partition_index): _error(
                one.error_code, f"partition {topic.topic_name}-{one.partition_index}"
            )
            for topic in told.results
            for one in topic.partitions
        }

    # --- brokers ----------------------------------------------------------------------------

    async def drain_broker(self, broker: int) -> Drained:
        """Let others hold what ``broker`` holds, for as long as that is not taken back.

        What it still has is told; call it again, or ask for the status, to see it go on.
        """
        return await self._drain(broker, wanted=True)

    async def undrain_broker(self, broker: int) -> Drained:
        """Let ``broker`` hold replicas again; moves under way are finished all the same."""
        return await self._drain(broker, wanted=False)

    # --- behind the scenes ------------------------------------------------------------------

    async def _drain(self, broker: int, *, wanted: bool) -> Drained:
        request = DrainBrokerRequest(broker_id=broker, drain=wanted)
        told = await self._of_any(request, DrainBrokerResponse)
        _raise_if(told.error_code, f"broker {broker}", told.error_message)
        return Drained(told.replicas, told.leaders, told.stuck)

    async def _log_dirs(self, node: NodeId) -> list[LogDir]:
        told = await self._of_node(node, DescribeLogDirsRequest(), DescribeLogDirsResponse)
        _raise_if(told.error_code, f"node {node}")
        return [_log_dir(node, one) for one in told.results]

    async def _of_node(self, node: NodeId, request: Message, expect: type[R]) -> R:
        return await self._router.ask(self._router.to_node(node), request, expect)

    async def _of_any(self, request: Message, expect: type[R]) -> R:
        async def attempt() -> R:
            return await self._router.ask(self._router.to_any(), request, expect)

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)


def _by_topic(partitions: Iterable[Named]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    return topics


def _log_dir(node: NodeId, told: DescribeLogDirsResult) -> LogDir:
    sizes = {
        (TopicPartition(topic.name, one.partition_index), one.is_future_key): one.partition_size
        for topic in told.topics
        for one in topic.partitions
    }
    return LogDir(
        node,
        told.log_dir,
        code_of(told.error_code),
        told.total_bytes,
        told.usable_bytes,
        {where: size for (where, coming), size in sizes.items() if not coming},
        {where: size for (where, coming), size in sizes.items() if coming},
    )


def _error(code: int, subject: str, said: str | None = None) -> WaystationError | None:
    return error_of(code, subject, said) if code else None


def _raise_if(code: int, subject: str, said: str | None = None) -> None:
    if code:
        raise error_of(code, subject, said)
