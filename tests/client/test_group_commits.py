"""When and how far a consumer in a group commits; its scripted coordinator refuses and forgets."""

import asyncio
from contextlib import suppress

import pytest
from tests.support.grouped import FIRST, consumer_of, fill, read, until
from tests.support.scripted_group import GroupBroker

from waystation.model.errors import (
    ErrorCode,
    IllegalGenerationError,
)
from waystation.wire.versions import ApiKey


class CrashError(Exception):
    """The application fails while it processes."""


@pytest.fixture
def broker() -> GroupBroker:
    """One partition with ten messages."""
    made = GroupBroker()
    fill(made, 0, 10)
    return made


# --- at least once ----------------------------------------------------------------------------


async def test_what_is_in_hand_when_the_application_fails_comes_again(broker: GroupBroker) -> None:
    with suppress(CrashError):
        async with consumer_of(broker) as consumer:
            await read(consumer, 4)
            await read(consumer, 3)
            raise CrashError("while processing the last three")

    assert broker.committed == {0: 4}


async def test_what_was_processed_is_committed_every_now_and_then(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_commit_interval_ms=10) as consumer:
        await read(consumer, 4)
        await asyncio.sleep(0.03)
        assert broker.committed == {0: 0}, "committed what is in hand"

        assert await consumer.poll(timeout_ms=5_000)
        await until(lambda: broker.committed == {0: 4})


async def test_an_interval_of_zero_commits_at_every_poll(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_commit_interval_ms=0) as consumer:
        await read(consumer, 4)
        await read(consumer, 4)

        assert broker.committed == {0: 4}


async def test_without_auto_commit_only_the_application_commits(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_commit=False, auto_commit_interval_ms=1) as consumer:
        await read(consumer, 4)
        await read(consumer, 4)
        assert broker.committed == {}
        await consumer.commit({FIRST: 3})

        assert (await consumer.committed())[FIRST] == (3, "", -1)
    assert broker.committed == {0: 3}


async def test_the_loop_form_commits_what_it_is_past(broker: GroupBroker) -> None:
    with suppress(CrashError):
        async with consumer_of(broker) as consumer:
            async for message in consumer:
                if message.offset == 6:
                    raise CrashError("while processing this one")

    assert broker.committed == {0: 6}


async def test_a_commit_waits_for_a_rebalance_to_end(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_commit=False) as consumer:
        await read(consumer, 4)
        broker.refuse(ApiKey.OFFSET_COMMIT, *[ErrorCode.REBALANCE_IN_PROGRESS] * 3)
        await consumer.commit()

    assert broker.committed == {0: 4}


async def test_a_commit_of_a_generation_that_is_over_is_raised(broker: GroupBroker) -> None:
    async with consumer_of(broker, auto_commit=False, heartbeat_interval_ms=900) as consumer:
        await read(consumer, 4)
        broker.generation += 1
        with pytest.raises(IllegalGenerationError, match=r"poll\(\)"):
            await consumer.commit()


# --- at most once -----------------------------------------------------------------------------


async def test_at_most_once_commits_before_it_hands_out(broker: GroupBroker) -> None:
    with suppress(CrashError):
        async with consumer_of(broker, delivery="at-most-once") as consumer:
            messages = await read(consumer, 4)
            assert broker.committed == {0: 4}
            raise CrashError("while processing them")

    assert [one.offset for one in messages] == [0, 1, 2, 3]
    assert broker.committed == {0: 4}


async def test_what_could_not_be_committed_is_not_handed_out(broker: GroupBroker) -> None:
    broker.refuse(ApiKey.OFFSET_COMMIT, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    async with consumer_of(broker, delivery="at-most-once") as consumer:
        messages = await read(consumer, 10)

        assert [one.offset for one in messages] == list(range(10))
        assert broker.committed == {0: 10}

        broker.refuse(ApiKey.OFFSET_COMMIT, *[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 9)
        fill(broker, 0, 3)
        with pytest.raises(Exception, match="may not be used by you"):
            await consumer.poll(timeout_ms=5_000)
        assert consumer.position(FIRST) == 10


async def test_the_loop_form_gives_back_what_it_did_not_hand_out(broker: GroupBroker) -> None:
    async with consumer_of(broker, delivery="at-most-once") as consumer:
        async for message in consumer:
            assert broker.committed[0] > message.offset
            if message.offset == 3:
                break
        assert consumer.position(FIRST) == 4

    assert broker.committed == {0: 4}
    assert broker.count(ApiKey.OFFSET_COMMIT) == 2


async def test_at_most_once_survives_a_removal_without_repeating(broker: GroupBroker) -> None:
    async with consumer_of(broker, delivery="at-most-once") as consumer:
        first = await read(consumer, 4)
        broker.refuse(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
        broker.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        rest = await read(consumer, 6)

    assert [one.offset for one in first + rest] == list(range(10))
