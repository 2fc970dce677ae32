"""Read, process, write: a whole consumer and producer against a strict coordinator.

Partition 0 is read, partition 1 written.  An unreliable one is in
``test_exactly_once_troubles.py``.
"""

import asyncio
from contextlib import suppress

import pytest
from tests.client.exact_copying import (
    MESSAGES,
    SOURCE,
    CrashError,
    block,
    consumer_of,
    copies,
    copy,
    filled,
    producer_to,
)
from tests.support.scripted_transactions import TransactionBroker

from waystation.client.consumer import Consumer
from waystation.client.errors import ConnectionLostError, OutcomeUnknownError
from waystation.client.exactly_once import ReadProcessWrite
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import (
    ErrorCode,
    InvalidGroupIdError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidSettingsError,
    ProducerFencedError,
    TransactionAbortableError,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey


@pytest.fixture(params=[1, 2], ids=["classic", "implicit"])
def broker(request: pytest.FixtureRequest) -> TransactionBroker:
    """Messages to read, in a cluster that has the older or the newer way of transactions."""
    return filled(TransactionBroker(leaders=(1, 1), version=request.param))


# --- everyday ---------------------------------------------------------------------------------


async def test_results_and_offsets_count_together(broker: TransactionBroker) -> None:
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer)

    assert broker.visible[1] == copies(0, MESSAGES)
    assert broker.committed == {0: MESSAGES}
    assert not broker.requests(ApiKey.OFFSET_COMMIT)


async def test_a_group_goes_on_where_its_transactions_have_got_to(
    broker: TransactionBroker,
) -> None:
    broker.committed = {0: 30}
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer)

    assert broker.visible[1] == copies(30, MESSAGES)


async def test_a_member_commits_in_its_generation(broker: TransactionBroker) -> None:
    async def only_read(transaction: ReadProcessWrite) -> None:
        async for _ in transaction:
            pass

    async with consumer_of(broker, "orders") as consumer, producer_to(broker) as producer:
        while broker.committed != {0: MESSAGES}:
            await block(consumer, producer, only_read)

    assert broker.generation == 1
    (told,) = broker.requests(ApiKey.TXN_OFFSET_COMMIT)
    assert (told.generation_id, told.member_id) == (1, "member-1")  # type: ignore[attr-defined]


async def test_a_block_without_messages_ends_and_asks_nobody(broker: TransactionBroker) -> None:
    broker.committed = {0: MESSAGES}
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer)

    assert not broker.requests(ApiKey.END_TXN)


async def test_messages_that_were_not_taken_belong_to_the_next_block(
    broker: TransactionBroker,
) -> None:
    async def take_three(transaction: ReadProcessWrite) -> None:
        taken = 0
        async for message in transaction:
            transaction.submit("orders", b"copy of %s" % (message.value or b""), partition=1)
            taken += 1
            if taken == 3:
                break

    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        for number in range(1, 4):
            await block(consumer, producer, take_three)

            assert broker.committed == {0: 3 * number}
    assert broker.visible[1] == copies(0, 9)


async def test_a_slow_block_ends_well_before_the_broker_would_abort_it(
    broker: TransactionBroker,
) -> None:
    async def slow(transaction: ReadProcessWrite) -> None:
        async for message in transaction:
            await transaction.send("orders", b"copy of %s" % (message.value or b""), partition=1)
            await asyncio.sleep(0.02)

    async with (
        consumer_of(broker) as consumer,
        producer_to(broker, transaction_timeout_ms=150) as producer,
    ):
        await consumer.assign([SOURCE])
        await block(consumer, producer, slow)

    assert 0 < len(broker.visible[1]) <= 4
    assert broker.committed == {0: len(broker.visible[1])}


# --- what goes wrong --------------------------------------------------------------------------


async def test_what_the_application_raises_is_raised_and_its_messages_come_again(
    broker: TransactionBroker,
) -> None:
    async def crash(transaction: ReadProcessWrite) -> None:
        async for message in transaction:
            transaction.submit("orders", b"half of %s" % (message.value or b""), partition=1)
            if message.offset == 17:
                raise CrashError

    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        with pytest.raises(CrashError):
            await block(consumer, producer, crash)

        assert broker.committed == {}

        await block(consumer, producer)

    assert broker.visible[1] == copies(0, MESSAGES)


async def test_a_block_taken_back_by_hand_comes_again(broker: TransactionBroker) -> None:
    async def think_better_of_it(transaction: ReadProcessWrite) -> None:
        await copy(transaction)
        await transaction.abort()

    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer, think_better_of_it)
        await block(consumer, producer)

    assert broker.ends[-2:] == ["aborted", "committed"]
    assert broker.visible[1] == copies(0, MESSAGES)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
async def test_what_passes_by_itself_is_repeated_and_not_raised(
    broker: TransactionBroker, code: ErrorCode
) -> None:
    broker.refuse(ApiKey.TXN_OFFSET_COMMIT, code)
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer)

        assert broker.visible == {}

        await block(consumer, producer)

    assert broker.visible[1] == copies(0, MESSAGES)
    assert broker.committed == {0: MESSAGES}


async def test_what_would_never_pass_is_raised(broker: TransactionBroker) -> None:
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        broker.refuse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
        with pytest.raises(TransactionAbortableError) as caught:
            await block(consumer, producer)

        assert isinstance(caught.value.__cause__, InvalidRecordError)


async def test_messages_of_a_member_that_the_group_has_lost_are_not_committed(
    broker: TransactionBroker,
) -> None:
    async def be_lost(transaction: ReadProcessWrite) -> None:
        async for message in transaction:
            if message.offset == 3:
                broker.refuse(ApiKey.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
                while broker.count(ApiKey.HEARTBEAT) < beaten + 3:
                    await asyncio.sleep(0.002)

    async def only_read(transaction: ReadProcessWrite) -> None:
        async for _ in transaction:
            pass

    async with consumer_of(broker, "orders") as consumer, producer_to(broker) as producer:
        while not consumer.assignment:
            await asyncio.sleep(0.001)
        beaten = broker.count(ApiKey.HEARTBEAT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):  # it does not beat again before its block has ended
                await block(consumer, producer, be_lost)

        assert broker.committed == {}

        while broker.committed != {0: MESSAGES}:
            await block(consumer, producer, only_read)

    assert broker.generation > 1


async def test_after_an_unknown_outcome_reading_goes_on_where_the_group_is(
    broker: TransactionBroker,
) -> None:
    end = broker.handlers[ApiKey.END_TXN]

    def committed_but_nobody_hears(request: Message) -> object:
        end(request)
        raise ConnectionLostError("after it happened")

    async with consumer_of(broker) as consumer:
        await consumer.assign([SOURCE])
        async with producer_to(broker, delivery_timeout_ms=30) as producer:
            broker.handlers[ApiKey.END_TXN] = committed_but_nobody_hears  # type: ignore[assignment]
            with pytest.raises(OutcomeUnknownError):
                await block(consumer, producer)
        broker.handlers[ApiKey.END_TXN] = end
        async with producer_to(broker) as producer:
            await block(consumer, producer)

    assert broker.visible[1] == copies(0, MESSAGES)


async def test_a_second_instance_ends_the_first(broker: TransactionBroker) -> None:
    async def be_overtaken(transaction: ReadProcessWrite) -> None:
        await copy(transaction)
        async with producer_to(broker):
            pass

    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        with pytest.raises(ProducerFencedError):
            await block(consumer, producer, be_overtaken)

    assert broker.visible == {}
    assert broker.committed == {}


async def test_a_prepared_block_is_read_behind_once_it_has_ended() -> None:
    broker = filled(TransactionBroker(leaders=(1, 1)))

    async def copy_and_prepare(transaction: ReadProcessWrite) -> None:
        await copy(transaction)
        decided.append(await transaction.prepare())

    decided: list[PreparedTransaction] = []
    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer, copy_and_prepare)

        assert broker.committed == {}

        await producer.end(decided[0], commit=False)
        await block(consumer, producer, copy_and_prepare)
        await producer.end(decided[1], commit=True)
        await block(consumer, producer, copy)

    assert broker.visible[1] == copies(0, MESSAGES)


async def test_what_was_given_up_in_the_middle_of_a_block_is_not_committed(
    broker: TransactionBroker,
) -> None:
    async def copy_and_turn_away(transaction: ReadProcessWrite) -> None:
        await copy(transaction)
        await consumer.assign([])

    async with consumer_of(broker) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        await block(consumer, producer, copy_and_turn_away)

        assert not broker.visible

        await consumer.assign([SOURCE])
        await block(consumer, producer)

    assert broker.visible[1] == copies(0, MESSAGES)
    assert broker.committed == {0: MESSAGES}


async def test_offsets_whose_commit_was_interrupted_keep_the_block_from_committing(
    broker: TransactionBroker,
) -> None:
    async with (
        consumer_of(broker, delivery="at-least-once", auto_commit=False) as consumer,
        producer_to(broker) as producer,
    ):
        await consumer.assign([SOURCE])
        messages = await consumer.poll(max_messages=MESSAGES)
        broker.handlers[ApiKey.TXN_OFFSET_COMMIT] = lambda _: None

        async def careless() -> None:
            async with producer.transaction() as transaction:
                transaction.submit("orders", b"result", partition=1)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await transaction.commit_offsets(consumer)

        with pytest.raises(TransactionAbortableError, match="interrupted"):
            await careless()

    assert messages
    assert broker.ends == ["aborted"]
    assert not broker.visible


# --- what is not allowed ----------------------------------------------------------------------


async def test_an_exact_consumer_reads_and_commits_in_transactions_only(
    broker: TransactionBroker,
) -> None:
    async with consumer_of(broker) as consumer:
        with pytest.raises(InvalidRequestError, match=r"consumer\.transaction"):
            await consumer.poll()
        with pytest.raises(InvalidRequestError, match=r"consumer\.transaction"):
            await consumer.commit()
        with pytest.raises(InvalidRequestError, match=r"consumer\.transaction"):
            consumer.__aiter__()
        with pytest.raises(InvalidRequestError, match=r"consumer\.transaction"):
            consumer.offsets_to_commit()


@pytest.mark.parametrize(
    "options", [{"auto_commit": True}, {"isolation": "read_uncommitted"}], ids=str
)
def test_options_that_are_not_exact_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidSettingsError, match="exactly-once"):
        consumer_of(TransactionBroker(), **options)


def test_exactly_once_needs_a_group() -> None:
    with pytest.raises(InvalidGroupIdError, match="group_id"):
        Consumer(None, ["orders"], delivery="exactly-once")


async def test_other_consumers_have_no_blocks(broker: TransactionBroker) -> None:
    async with (
        consumer_of(broker, delivery="at-least-once") as consumer,
        producer_to(broker) as producer,
    ):
        with pytest.raises(InvalidRequestError, match="exactly-once"):
            consumer.transaction(producer)


# --- by hand ----------------------------------------------------------------------------------


async def test_a_polling_consumer_commits_in_a_transaction_too(broker: TransactionBroker) -> None:
    options = {"delivery": "at-least-once", "auto_commit": False}
    async with consumer_of(broker, **options) as consumer, producer_to(broker) as producer:
        await consumer.assign([SOURCE])
        async with producer.transaction() as transaction:
            for message in await consumer.poll(max_messages=10):
                transaction.submit("orders", b"copy of %s" % (message.value or b""), partition=1)
            await transaction.commit_offsets(consumer)

            assert broker.committed == {}

        assert broker.committed == {0: len(broker.visible[1])}

        async with producer.transaction() as transaction:
            await transaction.commit_offsets(consumer, {SOURCE: 23})

        assert broker.committed == {0: 23}


async def test_a_consumer_that_commits_by_itself_cannot_join_a_transaction(
    broker: TransactionBroker,
) -> None:
    async with (
        consumer_of(broker, delivery="at-least-once") as consumer,
        producer_to(broker) as producer,
        producer.transaction() as transaction,
    ):
        with pytest.raises(InvalidRequestError, match="auto_commit=False"):
            await transaction.commit_offsets(consumer)
