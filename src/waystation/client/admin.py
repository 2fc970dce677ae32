"""The admin: topics, their options, their oldest records.

A method does one thing to one topic, and raises if the broker refuses it.  What changes the
cluster is asked of its controller and asked again only if that was the wrong one; what only
asks is repeated while it fails retriably.  Brokers and replicas are in ``admin_cluster.py``,
groups in ``admin_groups.py``, transactions and producers in ``admin_transactions.py``, queues in
``admin_queues.py``, views in ``admin_views.py``.
"""

from collections.abc import Iterable, Mapping
from random import Random
from types import TracebackType
from typing import Self, TypeVar, Unpack

from waystation.client.admin_cluster import ClusterAdministration
from waystation.client.admin_groups import GroupAdministration
from waystation.client.admin_queues import QueueAdministration
from waystation.client.admin_transactions import TransactionAdministration
from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.connection import Connection
from waystation.client.consumer import Consumer
from waystation.client.dead_letters import DeadLetters
from waystation.client.descriptions import (
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    TopicDescription,
)
from waystation.client.errors import ConnectionLostError, error_of
from waystation.client.fetch import ISOLATION
from waystation.client.find import Finder
from waystation.client.metadata import ClusterView
from waystation.client.offsets import EARLIEST, LATEST, OffsetAndTime, list_offsets
from waystation.client.options import ConnectionOptions, connection_settings
from waystation.client.router import Router
from waystation.client.schedules import Schedules
from waystation.client.transport import Connect, connect_tcp
from waystation.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from waystation.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from waystation.messages.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from waystation.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from waystation.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from waystation.messages.incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock, SystemClock
from waystation.wire.message import Message

__all__ = ["EARLIEST", "LATEST", "Admin"]

R = TypeVar("R", bound=Message)

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_NOT_SAID = -1


class Admin(
    ClusterAdministration, GroupAdministration, TransactionAdministration, QueueAdministration
):
    """Manages a cluster; use it as ``async with Admin(...) as admin``."""

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        connect: Connect = connect_tcp,
        clock: Clock | None = None,
        chance: Random | None = None,
        **options: Unpack[ConnectionOptions],
    ) -> None:
        self._clock = clock or SystemClock()
        self._router = Router(
            bootstrap, connection_settings(options), connect=connect, chance=chance
        )
        self._reader = lambda where: Consumer(
            bootstrap=bootstrap,
            where=where,
            isolation="read_committed",
            connect=connect,
            clock=self._clock,
            **options,
        )

    async def start(self) -> Self:
        """Reach the cluster; ``async with`` does this."""
        await self._router.start()
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._router.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- topics -----------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        assignments: Mapping[int, Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; numbers that are not given are the broker's defaults."""
        topic = CreatableTopic(
            name=name,
            num_partitions=_NOT_SAID if partitions is None else partitions,
            replication_factor=_NOT_SAID if replication_factor is None else replication_factor,
            configs=[
                CreatableTopicConfig(name=option, value=value)
                for option, value in (configs or {}).items()
            ],
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
                for index, nodes in (assignments or {}).items()
            ],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        told = (await self._ask_controller(request, CreateTopicsResponse)).topics[0]
        _raise_if(told.error_code, f"topic {name}", told.error_message)
        return CreatedTopic(
            name, TopicId(told.topic_id), told.num_partitions, told.replication_factor
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        told = (await self._ask_controller(request, DeleteTopicsResponse)).responses[0]
        _raise_if(told.error_code, f"topic {name}", told.error_message)

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic by name; those that the cluster keeps for itself on request."""
        view = await self._metadata(None)
        described = [_described(view, name) for name in sorted(view.topics)]
        return [topic for topic in described if internal or not topic.internal]

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic and who holds its partitions."""
        view = await self._metadata([name])
        _raise_if(view.refused.get(name, ErrorCode.NONE), f"topic {name}")
        return _described(view, name)

    async def create_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions to ``total``; keys may then hash elsewhere."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total)], timeout_ms=self._timeout_ms
        )
        told = (await self._ask_controller(request, CreatePartitionsResponse)).results[0]
        _raise_if(told.error_code, f"topic {topic}", told.error_message)

    # --- records ----------------------------------------------------------------------------

    async def delete_records(
        self, before: Mapping[tuple[str, int], int | None]
    ) -> dict[TopicPartition, Offset]:
        """Delete what comes before an offset, or with ``None`` everything; the new starts."""
        starts: dict[TopicPartition, Offset] = {}
        for where, offset in before.items():
            partition = TopicPartition(*where)
            wanted = HIGH_WATERMARK if offset is None else offset
            starts[partition] = await self._delete_records(partition, wanted)
        return starts

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTime]:
        """The offset at a time in ms, or at ``EARLIEST`` or ``LATEST``; -1 if all are older.

        With ``read_committed`` the latest is where the oldest open transaction begins.
        """
        return await list_offsets(
            self._router,
            {TopicPartition(*where): time for where, time in wanted.items()},
            ISOLATION[isolation],
        )

    def schedules(self, topic: str) -> Schedules:
        """What waits for its time to come to ``topic``: to be listed, cancelled, re-timed."""
        return Schedules(self._router, topic)

    def finder(self, topic: str) -> Finder:
        """Finds the messages of one key in ``topic``, which must have ``index.keys``."""
        return Finder(self._router, topic)

    def dead_letters(self, topic: str) -> DeadLetters:
        """What queues gave up and moved to ``topic``: to be read, and to be sent back."""
        return DeadLetters(self._router, topic, self._reader)

    # --- options ----------------------------------------------------------------------------

    async def describe_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
    ) -> dict[str, ConfigEntry]:
        """The options of a topic, a broker by its number, or a group, and where each comes from."""
        kind, name = _resource(topic, broker, group)
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=kind, resource_name=name)],
            include_documentation=True,
            include_synonyms=True,
        )
        response = await self._ask_about(broker, request, DescribeConfigsResponse)
        told = response.results[0]
        _raise_if(told.error_code, _named(topic, broker, group), told.error_message)
        return {
            one.name: ConfigEntry(
                one.name,
                one.value,
                ConfigSource(max(one.config_source, 0)),
                one.read_only,
                one.is_sensitive,
                one.documentation,
                one.synonyms[0].name if one.synonyms else one.name,
            )
            for one in told.configs
        }

    async def alter_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 - reads as what it does
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some options and return others to their default; the rest stay as they are."""
        kind, name = _resource(topic, broker, group)
        changes = [
            AlterableConfig(name=option, config_operation=SET, value=value)
            for option, value in (set or {}).items()
        ]
        changes += [AlterableConfig(name=option, config_operation=DELETE) for option in unset]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._ask_about(broker, request, IncrementalAlterConfigsResponse)
        told = response.responses[0]
        _raise_if(told.error_code, _named(topic, broker, group), told.error_message)

    # --- behind the scenes ------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self._router.settings.request_timeout_ms

    @property
    def _patience_ms(self) -> int:
        return self._router.settings.metadata_timeout_ms

    async def _metadata(self, names: Iterable[str] | None) -> ClusterView:
        listed = None if names is None else list(names)

        async def attempt() -> ClusterView:
            # Where changes are asked for: whoever has made a topic sees it.
            return await self._router.look_up(listed, self._to_controller)

        return await self._router.retrying(attempt, self._patience_ms)

    async def _ask_any(self, request: Message, expect: type[R]) -> R:
        async def attempt() -> R:
            return await self._router.ask(self._router.to_any(), request, expect)

        return await self._router.retrying(attempt, self._patience_ms)

    async def _ask_about(self, broker: int | None, request: Message, expect: type[R]) -> R:
        """Options of a broker are that broker's business, those of topics anyone's."""
        if broker is None:
            return await self._ask_any(request, expect)
        return await self._router.ask(self._router.to_node(NodeId(broker)), request, expect)

    async def _ask_leader(self, where: TopicPartition, request: Message, expect: type[R]) -> R:
        leader = await self._router.leader_of(where)
        return await self._router.ask(self._router.to_node(leader), request, expect)

    async def _ask_controller(self, request: Message, expect: type[R]) -> R:
        """Ask the controller; a second time if it is someone else by now."""
        response = await self._router.ask(self._to_controller(), request, expect)
        if ErrorCode.NOT_CONTROLLER in _codes_in(response):
            await self._router.refresh()
            response = await self._router.ask(self._to_controller(), request, expect)
        return response

    async def _to_controller(self) -> Connection:
        """The controller; where it cannot be reached anyone, who knows who it is by then."""
        try:
            return await self._router.to_controller()
        except ConnectionLostError:
            return await self._router.retrying(self._router.to_any, self._patience_ms)

    async def _delete_records(self, where: TopicPartition, before: int) -> Offset:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=where.topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=where.partition, offset=before)
                    ],
                )
            ],
            timeout_ms=self._timeout_ms,
        )

        async def attempt() -> Offset:
            response = await self._ask_leader(where, request, DeleteRecordsResponse)
            told = response.topics[0].partitions[0]
            refused = told.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            said = (
                "nothing of a view, or of the cluster's own topics, is deleted" if refused else None
            )
            _raise_if(told.error_code, f"partition {where}", said)
            return Offset(told.low_watermark)

        return await self._router.retrying(attempt, self._patience_ms)


def _raise_if(code: int, subject: str, said: str | None = None) -> None:
    if code:
        raise error_of(code, subject, said)


def _described(view: ClusterView, name: str) -> TopicDescription:
    topic = view.topics[name]
    return TopicDescription(name, topic.id, topic.internal, topic.partitions)


def _resource(topic: str | None, broker: int | None, group: str | None) -> tuple[int, str]:
    if sum(one is not None for one in (topic, broker, group)) != 1:
        raise TypeError("name either a topic, a broker or a group")
    if topic is not None:
        return _TOPIC, topic
    return (_BROKER, str(broker)) if group is None else (_GROUP, group)


def _named(topic: str | None, broker: int | None, group: str | None) -> str:
    if topic is not None:
        return f"topic {topic}"
    return f"broker {broker}" if group is None else f"group {group}"


def _codes_in(response: Message) -> list[int]:
    """The error codes of the topics in an answer of the controller."""
    match response:
        case CreateTopicsResponse():
            return [one.error_code for one in response.topics]
        case DeleteTopicsResponse():
            return [one.error_code for one in response.responses]
        case CreatePartitionsResponse():
            return [one.error_code for one in response.results]
        case _:
            return []
