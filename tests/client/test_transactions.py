"""A whole transactional producer against a scripted coordinator that is as strict as Kafka's."""

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from random import Random

import pytest
from tests.support.scripted_transactions import TransactionBroker
from tests.support.soak import count

from waystation.client.delivery import Identity
from waystation.client.errors import (
    ClosedError,
    ConnectionLostError,
    DeliveryError,
    OutcomeUnknownError,
)
from waystation.client.options import ProducerOptions
from waystation.client.producer import Producer
from waystation.client.sender import Sender
from waystation.client.standing import Standing
from waystation.client.transaction import Transaction
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import (
    ConcurrentTransactionsError,
    ErrorCode,
    InvalidRequestError,
    InvalidSettingsError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownTopicError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

SEEDS = count(40, 1_000)
FAST: ProducerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "linger_ms": 0,
}


class CrashError(Exception):
    """The application fails in the middle of its transaction."""


async def block(
    producer: Producer, work: Callable[[Transaction], Coroutine[object, object, None]]
) -> None:
    async with producer.transaction() as transaction:
        await work(transaction)


def producer_to(broker: TransactionBroker, **options: object) -> Producer:
    return Producer(
        broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **FAST | {"transactional_id": "tx"} | options,  # type: ignore[arg-type,operator]
    )


@pytest.fixture(params=[1, 2], ids=["classic", "implicit"])
def broker(request: pytest.FixtureRequest) -> TransactionBroker:
    """Two partitions, in a cluster that has the older or the newer way of transactions."""
    return TransactionBroker(leaders=(1, 1), version=request.param)


# --- how it ends ------------------------------------------------------------------------------


async def test_leaving_the_block_commits(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"one", partition=0)
            transaction.submit("orders", b"two", partition=1)

            assert broker.visible == {}
        assert broker.visible == {0: [b"one"], 1: [b"two"]}


async def test_an_exception_aborts_and_goes_on(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"lost", partition=0)
            raise CrashError

        with pytest.raises(CrashError):
            await block(producer, work)
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"kept", partition=0)

    assert broker.ends == ["aborted", "committed"]
    assert broker.visible == {0: [b"kept"]}


async def test_a_block_can_be_taken_back_by_hand(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:
        async with producer.transaction() as transaction:
            transaction.submit("orders", b"never sent", partition=0)
            await transaction.abort()
            with pytest.raises(InvalidTxnStateError, match="over"):
                await transaction.send("orders", b"too late")
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"kept", partition=0)

    assert broker.visible == {0: [b"kept"]}


async def test_many_transactions_follow_each_other(broker: TransactionBroker) -> None:
    async with producer_to(broker, batch_bytes=120) as producer:
        for number in range(20):
            async with producer.transaction() as transaction:
                for part in range(30):
                    transaction.submit("orders", b"%d.%d" % (number, part), partition=0)

    assert broker.visible[0] == [b"%d.%d" % (n, part) for n in range(20) for part in range(30)]
    assert broker.ends == ["committed"] * 20


async def test_an_empty_transaction_asks_nobody(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:
        async with producer.transaction():
            pass
        async with producer.transaction() as transaction:
            await transaction.abort()

    assert not broker.requests(ApiKey.END_TXN)


async def test_the_newer_way_adds_no_partitions_and_the_older_no_epochs(
    broker: TransactionBroker,
) -> None:
    async with producer_to(broker) as producer:
        for _ in range(2):
            async with producer.transaction() as transaction:
                await transaction.send("orders", b"v", partition=0)

    added = len(broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN))
    produced = {version for _, api, version, _ in broker.asked if api is ApiKey.PRODUCE}
    if broker.version < 2:
        assert (added, broker.ids["tx"].epoch, produced) == (2, 0, {11})
    else:
        assert (added, broker.ids["tx"].epoch, produced) == (0, 2, {13})


# --- what goes wrong --------------------------------------------------------------------------


async def test_a_newer_producer_fences_the_older(broker: TransactionBroker) -> None:
    async with producer_to(broker) as old:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"old", partition=0)
            async with producer_to(broker) as new:
                async with new.transaction() as other:
                    await other.send("orders", b"new", partition=0)
                await transaction.send("orders", b"zombie", partition=0)

        with pytest.raises(ProducerFencedError, match="taken over"):
            await block(old, work)
        with pytest.raises(ProducerFencedError):
            await old.transaction().__aenter__()

    assert broker.visible == {0: [b"new"]}


async def test_who_is_fenced_learns_it_from_the_commit_too(broker: TransactionBroker) -> None:
    async with producer_to(broker) as old:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"old", partition=0)
            async with producer_to(broker):
                pass

        with pytest.raises(ProducerFencedError):
            await block(old, work)

    assert broker.visible == {}


async def test_a_transaction_that_was_open_too_long_says_so(broker: TransactionBroker) -> None:
    async with producer_to(broker, transaction_timeout_ms=1) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"late", partition=0)
            await asyncio.sleep(0.002)
            broker.ids["tx"].epoch += 1

        with pytest.raises(ProducerFencedError, match="transaction_timeout_ms"):
            await block(producer, work)


async def test_a_record_that_fails_takes_the_whole_transaction_back(
    broker: TransactionBroker,
) -> None:
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"fine", partition=0)
            broker.refuse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
            with pytest.raises(WaystationError):
                await transaction.send("orders", b"bad", partition=1)
            with pytest.raises(TransactionAbortableError):
                await transaction.send("orders", b"after it", partition=0)

        with pytest.raises(TransactionAbortableError, match="may be run again"):
            await block(producer, work)
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"again", partition=1)

    assert broker.visible == {1: [b"again"]}


async def test_a_dropped_failure_is_found_by_the_end(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            broker.refuse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
            transaction.submit("orders", b"bad", partition=0)

        with pytest.raises(TransactionAbortableError):
            await block(producer, work)
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"good", partition=0)

    assert broker.visible == {0: [b"good"]}


async def test_a_topic_that_does_not_exist_takes_the_transaction_back(
    broker: TransactionBroker,
) -> None:
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            transaction.submit("orders", b"v", partition=0)
            await transaction.send("nowhere", b"v")

        with pytest.raises(UnknownTopicError):
            await block(producer, work)

    assert broker.visible == {}


@pytest.mark.parametrize(
    "api", [ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE]
)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
async def test_what_passes_is_asked_again(
    broker: TransactionBroker, api: ApiKey, code: ErrorCode
) -> None:
    broker.refuse(api, code, code)
    async with producer_to(broker) as producer, producer.transaction() as transaction:
        transaction.submit("orders", b"v", partition=0)

    assert broker.visible == {0: [b"v"]}


async def test_a_commit_that_the_coordinator_cannot_make_is_aborted(
    broker: TransactionBroker,
) -> None:
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"v", partition=0)
            broker.refuse(ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE)

        with pytest.raises(TransactionAbortableError):
            await block(producer, work)
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"again", partition=0)

    assert broker.visible == {0: [b"again"]}


async def test_a_coordinator_that_stays_away_leaves_the_outcome_open(
    broker: TransactionBroker,
) -> None:
    async with producer_to(broker, delivery_timeout_ms=50) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"v", partition=0)
            broker.refuse(ApiKey.END_TXN, *[ErrorCode.NOT_COORDINATOR] * 1_000)

        with pytest.raises(OutcomeUnknownError, match="same transactional_id"):
            await block(producer, work)
        with pytest.raises(OutcomeUnknownError):
            await producer.transaction().__aenter__()


async def test_partitions_are_not_added_behind_the_end() -> None:
    broker = TransactionBroker(leaders=(1, 1), version=1)
    async with producer_to(broker) as producer:
        async with producer.transaction() as transaction:
            broker.refuse(
                ApiKey.ADD_PARTITIONS_TO_TXN, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 1_000
            )
            transaction.submit("orders", b"never sent", partition=0)
            while len(broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN)) < 3:
                await asyncio.sleep(0.001)
            await transaction.abort()
        added = len(broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN))
        await asyncio.sleep(0.02)

        assert len(broker.requests(ApiKey.ADD_PARTITIONS_TO_TXN)) == added
        assert broker.ids["tx"].state == "empty"


async def test_closing_in_the_middle_tells_those_who_wait(broker: TransactionBroker) -> None:
    producer = await producer_to(broker, linger_ms=1_000).start()
    transaction = await producer.transaction().__aenter__()
    waiting = [transaction.submit("orders", b"v", partition=number) for number in (0, 1)]
    await asyncio.sleep(0)
    await producer.close()

    for one in waiting:
        assert isinstance(one.exception(), ClosedError)


async def test_a_cancelled_block_is_aborted(broker: TransactionBroker) -> None:
    async def work(producer: Producer, begun: asyncio.Event) -> None:
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"v", partition=0)
            begun.set()
            await asyncio.sleep(60)

    async with producer_to(broker) as producer:
        begun = asyncio.Event()
        task = asyncio.create_task(work(producer, begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"next", partition=0)

    assert broker.ends == ["aborted", "committed"]
    assert broker.visible == {0: [b"next"]}


async def test_only_one_transaction_at_a_time(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer, producer.transaction() as transaction:
        with pytest.raises(InvalidTxnStateError, match="one at a time"):
            await producer.transaction().__aenter__()
        await transaction.send("orders", b"v", partition=0)

    assert broker.visible == {0: [b"v"]}


async def test_a_transactional_producer_sends_nothing_outside(broker: TransactionBroker) -> None:
    async with producer_to(broker) as producer:
        with pytest.raises(InvalidTxnStateError, match=r"producer\.transaction\(\)"):
            producer.submit("orders", b"v")


async def test_a_plain_producer_has_no_transactions(broker: TransactionBroker) -> None:
    async with producer_to(broker, transactional_id=None) as producer:
        with pytest.raises(InvalidRequestError, match="transactional_id"):
            producer.transaction()


@pytest.mark.parametrize(
    "options", [{"transactional_id": ""}, {"acks": "1"}, {"idempotent": False}]
)
def test_options_that_contradict_transactions_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidSettingsError, match="transactional_id"):
        producer_to(TransactionBroker(), **options)


# --- two phases -------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
async def test_another_process_ends_what_was_prepared(commit: bool) -> None:
    broker = TransactionBroker(leaders=(1, 1))
    async with producer_to(broker) as producer, producer.transaction() as transaction:
        transaction.submit("orders", b"v", partition=0)
        prepared = await transaction.prepare()
    told = pickle.loads(pickle.dumps(prepared))

    assert broker.ids["tx"].state == "prepared"
    assert told == PreparedTransaction("tx", prepared.producer_id, prepared.epoch)

    async with producer_to(broker, transactional_id=None) as other:
        await other.end(told, commit=commit)
        await other.end(told, commit=commit)

    assert broker.visible == ({0: [b"v"]} if commit else {})


async def test_who_prepared_goes_on_once_it_has_ended() -> None:
    broker = TransactionBroker(leaders=(1, 1))
    async with producer_to(broker) as producer:
        async with producer.transaction() as transaction:
            transaction.submit("orders", b"one", partition=0)
            prepared = await producer.prepare()
        with pytest.raises(InvalidTxnStateError, match="prepared"):
            await producer.transaction().__aenter__()
        await producer.end(prepared, commit=True)
        async with producer.transaction() as transaction:
            transaction.submit("orders", b"two", partition=0)

    assert broker.visible == {0: [b"one", b"two"]}


async def test_a_prepared_transaction_keeps_others_from_its_id() -> None:
    broker = TransactionBroker()
    async with producer_to(broker) as producer, producer.transaction() as transaction:
        await transaction.send("orders", b"v")
        await transaction.prepare()
    with pytest.raises(ConcurrentTransactionsError, match="waystation txn"):
        async with producer_to(broker, request_timeout_ms=50):
            pass

    assert broker.ids["tx"].state == "prepared"


async def test_brokers_without_two_phases_say_so() -> None:
    broker = TransactionBroker(version=1)
    async with producer_to(broker) as producer:

        async def work(transaction: Transaction) -> None:
            await transaction.send("orders", b"v")
            await transaction.prepare()

        with pytest.raises(UnsupportedVersionError, match="PREPARE_TXN"):
            await block(producer, work)


# --- any trouble ------------------------------------------------------------------------------

_LOSABLE = (
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.FIND_COORDINATOR,
)


def unreliable(broker: TransactionBroker, chance: Random) -> None:
    """Requests and answers of every kind are lost; records are refused now and then."""

    def wrap(api: ApiKey) -> None:
        handler = broker.handlers[api]

        def troubled(request: Message) -> object:
            match chance.randrange(16):
                case 0:
                    raise ConnectionLostError("before it happened")
                case 1:
                    handler(request)
                    raise ConnectionLostError("after it happened")
                case 2 if api is ApiKey.PRODUCE:
                    broker.refuse(api, ErrorCode.INVALID_RECORD)
            return handler(request)

        broker.handlers[api] = troubled  # type: ignore[assignment]

    for api in _LOSABLE:
        wrap(api)


async def run_through_trouble(broker: TransactionBroker, chance: Random) -> dict[int, list[bytes]]:
    """Transactions that end in every way; what those have sent that ended well."""
    unreliable(broker, chance)
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    async with producer_to(broker, batch_bytes=120) as producer:
        for number in range(15):
            sent: list[tuple[int, bytes]] = []
            try:
                async with producer.transaction() as transaction:
                    for part in range(chance.randrange(12)):
                        where, value = chance.randrange(2), b"%d.%d" % (number, part)
                        transaction.submit("orders", value, partition=where)
                        sent.append((where, value))
                        if chance.random() < 0.3:
                            await asyncio.sleep(0)
                    if chance.random() < 0.2:
                        raise CrashError
            except (CrashError, TransactionAbortableError, DeliveryError):
                continue
            for where, value in sent:
                expected[where].append(value)
    return expected


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_transactions_are_all_or_nothing_through_any_trouble(
    broker: TransactionBroker, seed: int
) -> None:
    """What a block that ended well has sent is there, in order and once; of others nothing is."""
    expected = await run_through_trouble(broker, Random(seed))

    assert {where: broker.visible[where] for where in (0, 1)} == expected


def keep_the_old_epoch(_: Sender, __: Identity) -> None:
    return


def overlook_failures(_: Standing, __: WaystationError, ___: float) -> bool:
    return False


@pytest.mark.parametrize(
    ("owner", "what", "planted"),
    [
        (Sender, "renew", keep_the_old_epoch),
        (Sender, "has_gaps", False),
        (Standing, "failed", overlook_failures),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
async def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, what: str, planted: object
) -> None:
    """Each in one of the first seeds: it shows, or the producer is in its own way."""
    monkeypatch.setattr(owner, what, planted)
    for seed in range(100):
        broker = TransactionBroker(leaders=(1, 1), version=seed % 2 + 1)
        try:
            async with asyncio.timeout(1):
                expected = await run_through_trouble(broker, Random(seed))
        except (TimeoutError, AssertionError, WaystationError):
            return
        if {where: broker.visible[where] for where in (0, 1)} != expected:
            return
    pytest.fail("not found")
