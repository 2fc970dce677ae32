"""Queues: create, list, describe, configure, delete.

A queue is a topic and the share group that reads it, of the same name unless told.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.queue_holders import QueueHolders, QueueOf
from waystation.gateway.routes import Call, Params, Reply, Route
from waystation.gateway.topics import (
    Config,
    ConfigChange,
    Count,
    OptionValue,
    TopicName,
    as_text,
    config_of,
)
from waystation.model.errors import ErrorCode, UnknownTopicError, WaystationError

if TYPE_CHECKING:
    from waystation.client.queue_descriptions import QueueDescription
    from waystation.gateway.clients import Clients

__all__ = ["GroupName", "QueueParams", "check_queue", "queue_routes"]

GroupName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=249,
        description="The group that reads the topic; called as the queue, unless given.",
    ),
]
Milliseconds = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class QueueParams(Params, frozen=True):
    """Which queue."""

    queue: TopicName
    group: GroupName | None = None

    @property
    def of(self) -> QueueOf:
        """The topic and its group."""
        return QueueOf(self.queue, self.group or self.queue)


class NewQueue(Params, frozen=True):
    """A queue to create; of one that exists, what is given is changed."""

    name: TopicName
    group: GroupName | None = None
    partitions: Count | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=2**15 - 1)] | None = None
    order_by_key: (
        Annotated[bool, Meta(description="One message of each key at a time, in order.")] | None
    ) = None
    priority: Annotated[bool, Meta(description="Heed the priority of messages.")] | None = None
    lease_ms: (
        Annotated[
            Milliseconds, Meta(description="How long a message is its consumer's, unless told.")
        ]
        | None
    ) = None
    max_deliveries: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    retry_backoff_ms: (
        Annotated[Milliseconds, Meta(description="The wait after the first failed delivery.")]
        | None
    ) = None
    dead_letter_topic: TopicName | None = None
    delays: Annotated[bool, Meta(description="Messages may be sent for later.")] = False
    from_start: Annotated[
        bool, Meta(description="Also what is in the topic already; false: only what comes.")
    ] = True
    config: Annotated[
        dict[str, OptionValue], Meta(description="Further options of the group, by name.")
    ] = msgspec.field(default_factory=dict)
    topic_config: Annotated[
        dict[str, OptionValue], Meta(description="Options of the topic, by name.")
    ] = msgspec.field(default_factory=dict)


class CreatedQueue(msgspec.Struct, frozen=True):
    """A queue that can be used."""

    queue: str
    group: str
    topic_created: bool


class QueueInUse(msgspec.Struct, frozen=True):
    """A group, and the topics of which it has queues."""

    group: str
    state: str
    topics: list[str]


class Queues(msgspec.Struct, frozen=True):
    """Queues that somebody has received from, by the name of their group."""

    queues: list[QueueInUse]


class QueuePartition(msgspec.Struct, frozen=True):
    """How one partition stands; everything before ``start_offset`` is settled."""

    partition: int
    start_offset: int | None
    """Null while nobody has received anything."""
    end_offset: int
    unsettled: int | None
    ready: int | None
    in_flight: int | None
    waiting: int | None


class QueueDetails(msgspec.Struct, frozen=True):
    """How many messages of a queue wait, are out, and were given up."""

    queue: str
    group: str
    state: str
    members: int
    unsettled: int
    """Neither acknowledged nor given up."""
    ready: int | None
    """Of them: can be delivered now."""
    in_flight: int | None
    """Of them: held by consumers."""
    dead_letter_topic: str | None
    dead_letters: int | None
    partitions: list[QueuePartition]


async def check_queue(clients: "Clients", name: str) -> None:
    """A problem, soon, if there is no such queue."""
    try:
        await clients.topic(name)
    except UnknownTopicError:
        raise unknown_queue(name) from None


def unknown_queue(name: str) -> ProblemError:
    """There is none."""
    return refusal(
        404,
        "unknown-queue",
        f"there is no queue {name}, and no topic that could be one",
        field="queue",
        remedy="POST /v1/queues creates one",
    )


async def create_queue(call: Call[None, NewQueue]) -> Reply:
    """Create a queue, or change the policy of one that exists."""
    wanted, admin = call.body, await call.clients.admin()
    is_new = await admin.create_queue(
        wanted.name,
        wanted.partitions,
        group=wanted.group,
        replication_factor=wanted.replication_factor,
        order_by_key=wanted.order_by_key,
        priority=wanted.priority,
        max_deliveries=wanted.max_deliveries,
        lock_ms=wanted.lease_ms,
        retry_backoff_ms=wanted.retry_backoff_ms,
        dead_letter_topic=wanted.dead_letter_topic,
        delays=wanted.delays,
        from_start=wanted.from_start,
        topic_configs=as_text(wanted.topic_config),
        group_configs=as_text(wanted.config),
    )
    made = CreatedQueue(wanted.name, wanted.group or wanted.name, is_new)
    return Reply(msgspec.json.encode(made), 201 if is_new else 200)


async def list_queues(call: Call[None, None]) -> Queues:
    """Every queue that is, or was, in use."""
    admin = await call.clients.admin()
    found = await admin.list_queues()
    return Queues([QueueInUse(one.group_id, one.state, list(one.topics)) for one in found])


async def describe_queue(call: Call[QueueParams, None]) -> QueueDetails:
    """How a queue stands."""
    admin, wanted = await call.clients.admin(), call.parameters
    try:
        return _described(await admin.describe_queue(wanted.queue, group=wanted.group))
    except UnknownTopicError:
        raise unknown_queue(wanted.queue) from None


async def get_queue_config(call: Call[QueueParams, None]) -> Config:
    """The options of the group that are in force."""
    await check_queue(call.clients, call.parameters.queue)
    admin = await call.clients.admin()
    return config_of(await admin.describe_configs(group=call.parameters.of.group))


async def change_queue_config(call: Call[QueueParams, ConfigChange]) -> Config:
    """Change some options of the group; the rest stay as they are."""
    await check_queue(call.clients, call.parameters.queue)
    admin, group = await call.clients.admin(), call.parameters.of.group
    if call.body.set or call.body.unset:
        await admin.alter_configs(group=group, set=as_text(call.body.set), unset=call.body.unset)
    return config_of(await admin.describe_configs(group=group))


def _described(found: "QueueDescription") -> QueueDetails:
    return QueueDetails(
        found.name,
        found.group_id,
        found.state,
        found.members,
        found.unsettled,
        found.ready,
        found.in_flight,
        found.dead_letter_topic,
        found.dead_letters,
        [
            QueuePartition(
                one.partition,
                one.start,
                one.end,
                one.unsettled,
                one.ready,
                one.in_flight,
                one.waiting,
            )
            for one in found.partitions
        ],
    )


def queue_routes(holders: QueueHolders) -> list[Route]:
    """The calls that are about a queue as a whole."""

    async def delete_queue(call: Call[QueueParams, None]) -> None:
        """Forget what was settled; the topic and its messages stay."""
        await holders.leave(call.parameters.of)
        admin = await call.clients.admin()
        try:
            await admin.delete_queue(call.parameters.queue, group=call.parameters.group)
        except WaystationError as error:
            if error.code != ErrorCode.NON_EMPTY_GROUP:
                raise
            raise refusal(
                409,
                "non-empty-group",
                str(error),
                field="queue",
                remedy="stop its consumers; those over HTTP are gone 10 s after their last call",
            ) from None

    return [
        Route(
            method="POST",
            path="/v1/queues",
            summary="Create a queue, or change one",
            tag="queues",
            handler=create_queue,
            body=NewQueue,
            answer=CreatedQueue,
            status=201,
            others={200: CreatedQueue},
            errors=(403, 409, 504),
        ),
        Route(
            method="GET",
            path="/v1/queues",
            summary="List the queues in use",
            tag="queues",
            handler=list_queues,
            answer=Queues,
            errors=(504,),
        ),
        Route(
            method="GET",
            path="/v1/queues/{queue}",
            summary="How many messages wait, are out, and are dead",
            tag="queues",
            handler=describe_queue,
            parameters=QueueParams,
            answer=QueueDetails,
            errors=(504,),
        ),
        Route(
            method="DELETE",
            path="/v1/queues/{queue}",
            summary="Forget what was settled; the topic stays",
            tag="queues",
            handler=delete_queue,
            parameters=QueueParams,
            status=204,
            errors=(409, 504),
        ),
        Route(
            method="GET",
            path="/v1/queues/{queue}/config",
            summary="The options of a queue",
            tag="queues",
            handler=get_queue_config,
            parameters=QueueParams,
            answer=Config,
            errors=(504,),
        ),
        Route(
            method="PATCH",
            path="/v1/queues/{queue}/config",
            summary="Change some options of a queue",
            tag="queues",
            handler=change_queue_config,
            parameters=QueueParams,
            body=ConfigChange,
            answer=Config,
            errors=(403, 504),
        ),
    ]
