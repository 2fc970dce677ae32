"""A whole consumer in a group whose scripted coordinator moves, refuses and forgets."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.support.grouped import FIRST, PROTOCOLS, SECOND, consumer_of, fill, read, until
from tests.support.scripted_broker import Answer
from tests.support.scripted_group import GroupBroker

from waystation.client.consumer import Consumer
from waystation.client.errors import ConnectionLostError, NoCommittedOffsetError
from waystation.model.errors import (
    ErrorCode,
    FencedInstanceIdError,
    GroupFullError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSettingsError,
    UnknownMemberError,
    UnsupportedVersionError,
)
from waystation.model.ids import TopicPartition
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey, Versions


@pytest.fixture
def broker() -> GroupBroker:
    """One partition with ten messages."""
    made = GroupBroker()
    fill(made, 0, 10)
    return made


# --- joining ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_reads_commits_and_leaves(broker: GroupBroker, protocol: str) -> None:
    async with consumer_of(broker, group_protocol=protocol) as consumer:
        messages = await read(consumer, 10)

        assert [one.offset for one in messages] == list(range(10))
        assert consumer.assignment == (FIRST,)
    assert broker.committed == {0: 10}
    assert broker.told[-1].startswith("left")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_goes_on_where_the_group_has_got_to(
    broker: GroupBroker, protocol: str
) -> None:
    broker.committed = {0: 7}
    async with consumer_of(broker, group_protocol=protocol) as consumer:
        assert [one.offset for one in await read(consumer, 3)] == [7, 8, 9]
        assert consumer.position(FIRST) == 10


@pytest.mark.parametrize(
    ("api", "oldest", "newest"),
    [
        (ApiKey.FIND_COORDINATOR, 0, 6),
        (ApiKey.JOIN_GROUP, 0, 9),
        (ApiKey.SYNC_GROUP, 0, 5),
        (ApiKey.HEARTBEAT, 0, 4),
        (ApiKey.LEAVE_GROUP, 3, 5),
        (ApiKey.OFFSET_COMMIT, 2, 10),
        (ApiKey.OFFSET_FETCH, 1, 10),
    ],
)
async def test_every_version_works(
    broker: GroupBroker, api: ApiKey, oldest: int, newest: int
) -> None:
    for version in range(oldest, newest + 1):
        broker.versions[api] = Versions(oldest, version)
        broker.committed, broker.asked = {}, []
        async with consumer_of(broker) as consumer:
            await read(consumer, 10)
            await until(lambda: broker.count(ApiKey.HEARTBEAT) > 1)

        assert broker.committed == {0: 10}
        assert {asked for _, key, asked, _ in broker.asked if key is api} == {version}


async def test_a_coordinator_that_is_not_there_yet_is_waited_for(broker: GroupBroker) -> None:
    broker.refuse(ApiKey.FIND_COORDINATOR, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3)
    broker.refuse(ApiKey.JOIN_GROUP, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    broker.refuse(ApiKey.OFFSET_FETCH, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    async with consumer_of(broker) as consumer:
        assert len(await read(consumer, 10)) == 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_coordinator_that_moves_is_found_again(broker: GroupBroker, protocol: str) -> None:
    async with consumer_of(broker, group_protocol=protocol) as consumer:
        await read(consumer, 5)
        broker.coordinator = 2
        broker.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR)
        await consumer.commit()

        assert broker.committed == {0: 5}
        commits = [node for node, api, _, _ in broker.asked if api is ApiKey.OFFSET_COMMIT]
        assert commits[-1] == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_lost_connections_cost_time_and_nothing_else(
    broker: GroupBroker, protocol: str
) -> None:
    chance = Random(7)
    for api in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT):
        handler = broker.handlers[api]

        def trouble(request: Message, handler: Callable[[Message], Answer] = handler) -> Answer:
            if chance.random() < 0.4:
                raise ConnectionLostError("gone")
            return handler(request)

        broker.handlers[api] = trouble
    async with consumer_of(broker, group_protocol=protocol) as consumer:
        messages = await read(consumer, 10)
        await consumer.commit()

    assert [one.offset for one in messages] == list(range(10))
    assert broker.committed == {0: 10}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupFullError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
    ],
)
async def test_what_only_people_can_mend_is_raised_by_every_poll(
    broker: GroupBroker, code: ErrorCode, error: type[Exception]
) -> None:
    broker.refuse(ApiKey.JOIN_GROUP, code)
    async with consumer_of(broker) as consumer:
        for _ in range(2):
            with pytest.raises(error, match="group billing"):
                await consumer.poll(timeout_ms=5_000)


async def test_a_broker_without_groups_says_so(broker: GroupBroker) -> None:
    del broker.versions[ApiKey.FIND_COORDINATOR]
    async with consumer_of(broker) as consumer:
        with pytest.raises(UnsupportedVersionError, match="FIND_COORDINATOR"):
            await consumer.poll(timeout_ms=5_000)


# --- rebalances -------------------------------------------------------------------------------


async def test_an_eager_member_gives_everything_up_before_it_joins_again(
    broker: GroupBroker,
) -> None:
    told: list[str] = broker.told
    async with consumer_of(
        broker,
        on_assigned=lambda got: told.append(f"assigned {len(got)}"),
        on_revoked=lambda gone: told.append(f"revoked {len(gone)}"),
    ) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: broker.count(ApiKey.HEARTBEAT) > 2)
        assert [one.offset for one in await read(consumer, 6)] == [4, 5, 6, 7, 8, 9]

    assert told == [
        "joined 1",
        "assigned 1",
        "committed 0:4",
        "revoked 1",
        "joined 2",
        "assigned 1",
        "committed 0:10",
        "revoked 1",
        "left member-1",
    ]


async def test_a_cooperative_member_goes_on_reading(broker: GroupBroker) -> None:
    told: list[str] = broker.told
    async with consumer_of(
        broker,
        assignors="cooperative-sticky",
        on_assigned=lambda got: told.append(f"assigned {len(got)}"),
        on_revoked=lambda gone: told.append(f"revoked {len(gone)}"),
    ) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: broker.generation == 2)
        assert consumer.assignment == (FIRST,)
        await read(consumer, 6)

    assert told == [
        "joined 1",
        "assigned 1",
        "joined 2",
        "assigned 0",
        "committed 0:10",
        "revoked 1",
        "left member-1",
    ]


async def test_partitions_do_not_move_while_messages_are_in_hand(broker: GroupBroker) -> None:
    async with consumer_of(broker) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.HEARTBEAT, *[ErrorCode.REBALANCE_IN_PROGRESS] * 5)
        beats = broker.count(ApiKey.HEARTBEAT)
        await until(lambda: broker.count(ApiKey.HEARTBEAT) > beats + 8)

        assert broker.generation == 1, "joined while the application was busy"
        assert consumer.assignment == (FIRST,)

        await read(consumer, 1)
        assert broker.generation == 2


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_a_member_that_was_removed_loses_all_and_joins_anew(
    broker: GroupBroker, code: ErrorCode
) -> None:
    lost: list[list[TopicPartition]] = []
    async with consumer_of(broker, on_lost=lost.append) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.HEARTBEAT, code)
        await until(lambda: consumer._group.holds_back)  # type: ignore[union-attr]
        with pytest.raises(UnknownMemberError, match="billing"):
            await consumer.commit()
        again = await read(consumer, 10)

        assert [one.offset for one in again] == list(range(10)), (
            "what was not committed comes again"
        )
    assert lost == [[FIRST]]
    assert broker.members_made == (2 if code is ErrorCode.UNKNOWN_MEMBER_ID else 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
async def test_a_fenced_member_of_the_server_side_protocol_joins_anew(
    broker: GroupBroker, code: ErrorCode
) -> None:
    lost: list[list[TopicPartition]] = []
    async with consumer_of(broker, group_protocol="consumer", on_lost=lost.append) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.CONSUMER_GROUP_HEARTBEAT, code)
        await until(lambda: consumer._group.holds_back)  # type: ignore[union-attr]

        assert [one.offset for one in await read(consumer, 10)] == list(range(10))
    assert lost == [[FIRST]]


async def test_the_server_moves_single_partitions() -> None:
    broker = GroupBroker(leaders=(1, 1))
    fill(broker, 0, 5)
    fill(broker, 1, 5)
    told: list[str] = broker.told
    async with consumer_of(
        broker,
        group_protocol="consumer",
        on_assigned=lambda got: told.append(f"assigned {[n for _, n in got]}"),
        on_revoked=lambda gone: told.append(f"revoked {[n for _, n in gone]}"),
    ) as consumer:
        await read(consumer, 10)
        broker.target = [1]
        waiting = asyncio.ensure_future(consumer.poll(timeout_ms=5_000))
        await until(lambda: consumer.assignment == (SECOND,))
        broker.target = [0, 1]
        await until(lambda: len(consumer.assignment) == 2)
        waiting.cancel()

        assert consumer.position(FIRST) == consumer.position(SECOND) == 5
    assert told[:3] == ["epoch 1", "assigned [0, 1]", "epoch 2"]
    assert {"committed 0:5", "revoked [0]", "epoch 3", "assigned [0]"} <= set(told)
    assert told.index("committed 0:5") < told.index("revoked [0]") < told.index("epoch 3")


async def test_new_partitions_are_shared_out_too() -> None:
    broker = GroupBroker()
    async with consumer_of(broker, metadata_max_age_ms=100) as consumer:
        await until(lambda: consumer.assignment == (FIRST,))
        broker.partitions.append(type(broker.partitions[0])())
        fill(broker, 1, 3)
        broker.leaders = [1, 1]

        assert [one.partition for one in await read(consumer, 3)] == [1, 1, 1]


async def test_a_listener_may_commit_and_seek_and_its_errors_come_from_poll(
    broker: GroupBroker,
) -> None:
    calls = []

    async def rewind(partitions: list[TopicPartition]) -> None:
        calls.append(partitions)
        for where in partitions:
            consumer.seek(where, 8)
        if len(calls) > 1:
            raise RuntimeError("no more")

    def revoked(partitions: list[TopicPartition]) -> Awaitable[None]:
        return consumer.commit({partitions[0]: 5})

    async with consumer_of(
        broker, auto_commit=False, on_assigned=rewind, on_revoked=revoked
    ) as consumer:
        assert [one.offset for one in await read(consumer, 2)] == [8, 9]
        broker.refuse(ApiKey.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
        with pytest.raises(RuntimeError, match="no more"):
            await consumer.poll(timeout_ms=5_000)

        assert broker.committed == {0: 5}
        assert [one.offset for one in await read(consumer, 2)] == [8, 9]


# --- staying away -----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_consumer_that_is_not_polled_leaves_until_it_is(
    broker: GroupBroker, protocol: str
) -> None:
    lost: list[list[TopicPartition]] = []
    async with consumer_of(
        broker, group_protocol=protocol, max_poll_interval_ms=50, on_lost=lost.append
    ) as consumer:
        await read(consumer, 4)
        await until(lambda: broker.told[-1].startswith("left"))
        generation = broker.generation
        await asyncio.sleep(0.03)

        assert broker.generation == generation, "joined again without being polled"
        assert [one.offset for one in await read(consumer, 10)] == list(range(10))
    assert lost == [[FIRST]]


async def test_waiting_for_messages_is_not_staying_away() -> None:
    broker = GroupBroker()
    async with consumer_of(broker, max_poll_interval_ms=40) as consumer:
        assert await consumer.poll(timeout_ms=120) == []

        assert "left member-1" not in broker.told


async def test_who_leaves_while_its_epoch_changes_commits_in_the_new_one(
    broker: GroupBroker,
) -> None:
    """The coordinator has decided on a heartbeat that it answers only later."""
    loop = asyncio.get_running_loop()
    answered: list[Answer] = []

    def beat(request: Message) -> Answer:
        told = broker.consumer_heartbeat(request)
        if len(broker.told) < 2 or answered:
            return told
        broker.generation += 1
        told.member_epoch = broker.generation  # type: ignore[attr-defined]
        answer: asyncio.Future[Message] = loop.create_future()
        loop.call_later(0.05, answer.set_result, told)
        answered.append(answer)
        return answer

    def commit(request: Message) -> Answer:
        if request.generation_id_or_member_epoch != broker.generation:  # type: ignore[attr-defined]
            broker.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH)
        return broker.commit(request)

    broker.handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT] = beat
    broker.handlers[ApiKey.OFFSET_COMMIT] = commit
    options = {"group_protocol": "consumer", "auto_commit_interval_ms": 60_000}
    async with consumer_of(broker, **options) as consumer:
        await read(consumer, 10)
        broker.told.append("read")
        await until(lambda: bool(answered))
        began = loop.time()

    assert broker.committed == {0: 10}
    assert loop.time() - began < 2


async def test_a_static_member_does_not_leave(broker: GroupBroker) -> None:
    async with consumer_of(broker, group_instance_id="till-1") as consumer:
        await read(consumer, 10)

    assert not any(line.startswith("left") for line in broker.told)
    (_, _, _, joined) = next(one for one in broker.asked if one[1] is ApiKey.JOIN_GROUP)
    assert joined.group_instance_id == "till-1"  # type: ignore[attr-defined]


async def test_a_static_member_of_the_server_side_protocol_says_that_it_may_be_back(
    broker: GroupBroker,
) -> None:
    options = {"group_instance_id": "till-1", "group_protocol": "consumer"}
    async with consumer_of(broker, **options) as consumer:
        await read(consumer, 10)

    assert broker.told[-1] == "left -2"


# --- the end ----------------------------------------------------------------------------------


async def test_a_coordinator_that_does_not_answer_cannot_hold_up_the_end(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.client.group.PATIENCE_AT_THE_END_MS", 50)
    async with consumer_of(broker) as consumer:
        await read(consumer, 4)
        for api in (ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP, ApiKey.HEARTBEAT):
            broker.handlers[api] = lambda _: None
        async with asyncio.timeout(5):
            await consumer.close()

    assert broker.committed == {}


# --- places -----------------------------------------------------------------------------------


async def test_no_committed_offset_is_an_error_if_told_so(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_offset_reset="error") as consumer:
        for _ in range(2):
            with pytest.raises(NoCommittedOffsetError, match=r"billing .*orders-0.*seek"):
                await consumer.poll(timeout_ms=5_000)
        consumer.seek(FIRST, 8)

        assert [one.offset for one in await read(consumer, 2)] == [8, 9]


@pytest.mark.parametrize(("start", "first"), [("latest", 10), ({FIRST: 6}, 6), (None, 0)])
async def test_a_new_group_begins_where_it_is_told(
    broker: GroupBroker, start: object, first: int
) -> None:
    async with consumer_of(broker, start=start) as consumer:
        await until(lambda: FIRST in consumer.assignment and consumer.position(FIRST) >= 0)

        assert consumer.position(FIRST) == first
    assert broker.committed == {0: first}, "where it began is where it goes on"


async def test_partitions_can_be_taken_by_hand(broker: GroupBroker) -> None:
    broker.committed = {0: 6}
    async with consumer_of(broker) as consumer:
        await until(lambda: consumer.assignment == (FIRST,))
        await consumer.assign([FIRST])
        assert [one.offset for one in await read(consumer, 2)] == [6, 7]
        await consumer.commit()

        assert broker.committed == {0: 8}
        assert "left member-1" in broker.told
        (request,) = broker.requests(ApiKey.OFFSET_COMMIT)
        assert request.generation_id_or_member_epoch == -1  # type: ignore[attr-defined]

        await consumer.subscribe("orders")
        assert [one.offset for one in await read(consumer, 2)] == [8, 9]
    assert broker.generation == 2


async def test_subscribing_to_nothing_leaves_the_group(broker: GroupBroker) -> None:
    async with consumer_of(broker) as consumer:
        await read(consumer, 4)
        await consumer.subscribe([])

        assert consumer.assignment == ()
        assert broker.told[-2:] == ["committed 0:4", "left member-1"]


async def test_only_what_is_read_can_be_committed(broker: GroupBroker) -> None:
    async with consumer_of(broker) as consumer:
        await read(consumer, 1)
        with pytest.raises(InvalidRequestError, match="orders-1"):
            await consumer.commit({SECOND: 3})


async def test_who_has_no_group_cannot_commit(broker: GroupBroker) -> None:
    async with Consumer(
        topics="orders", bootstrap=broker.bootstrap, connect=broker.connect
    ) as consumer:
        with pytest.raises(InvalidRequestError, match="group_id"):
            await consumer.commit()


def test_the_wrong_options_are_refused() -> None:
    with pytest.raises(InvalidGroupIdError, match="name"):
        Consumer("", "orders")
    with pytest.raises(InvalidSettingsError, match="at-least-once, at-most-once"):
        Consumer("billing", "orders", delivery="sometimes")
    with pytest.raises(InvalidSettingsError, match="session_timeout_ms"):
        Consumer("billing", "orders", heartbeat_interval_ms=50_000)
    with pytest.raises(InvalidSettingsError, match="cooperative-sticky"):
        Consumer("billing", "orders", assignors=["fair"])
    with pytest.raises(InvalidSettingsError, match="assignors is empty"):
        Consumer("billing", "orders", assignors=[])
