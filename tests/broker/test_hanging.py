"""What no coordinator knows of is ended, and nothing else is."""

import asyncio
from pathlib import Path

from tests.broker.test_coordinators import make_topic, running
from tests.broker.test_markers import ORDERS, PRODUCER, begin
from waystation.broker.broker import Broker
from waystation.cluster.configs import Alteration, Operation, alter_broker
from waystation.model.ids import ProducerEpoch
from waystation.transactions.commands import Add, End, Init, Initialised, Prepare
from waystation.transactions.machine import Transactions

OPTIONS = {"transaction_state_log_num_partitions": "3", "transaction_max_timeout_ms": "100"}


async def until_stable(broker: Broker) -> None:
    partition = broker.replicas.get(*ORDERS)
    async with asyncio.timeout(10):
        while partition.last_stable < partition.log_end:
            await asyncio.sleep(0.01)


async def test_a_transaction_that_nobody_coordinates_is_aborted_in_time(tmp_path: Path) -> None:
    async with running(tmp_path, **OPTIONS) as broker:
        await make_topic(broker, "orders")
        partition = begin(broker)
        await until_stable(broker)

        (ended,) = partition.log.aborted(0, partition.log_end)
        assert ended.producer_id == PRODUCER


async def test_it_is_found_after_a_restart_too(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await make_topic(broker, "orders")
        begin(broker)
    async with running(tmp_path, **OPTIONS) as broker:
        assert broker.replicas.get(*ORDERS).open_transactions()

        await until_stable(broker)


async def test_one_that_is_young_is_let_be(tmp_path: Path) -> None:
    async with running(tmp_path, transaction_max_timeout_ms="60000") as broker:
        await make_topic(broker, "orders")
        partition = begin(broker)
        broker.hanging.look()

        assert partition.in_transaction(PRODUCER, ProducerEpoch(0))


async def shorten(broker: Broker) -> None:
    """Let no transaction take longer than a moment from now on."""
    alteration = Alteration("transaction.max.timeout.ms", Operation.SET, "1")
    options = broker.configs.broker_options
    await broker.topics.configure(
        lambda image: alter_broker(image, str(broker.node), [alteration], options)
    )
    await asyncio.sleep(0.05)


async def test_what_a_coordinator_knows_of_is_its_own_affair(tmp_path: Path) -> None:
    """A transaction that is prepared may take for ever."""
    async with running(tmp_path, transaction_state_log_num_partitions="3") as broker:
        await make_topic(broker, "orders")
        await broker.transactions.find("payments")
        async with asyncio.timeout(10):
            while broker.transactions.loading:
                await asyncio.sleep(0.005)
        host = broker.transactions.host_of("payments")
        machine: Transactions = host.machine
        init = Init("payments", 60_000, fresh=PRODUCER)
        found: Initialised = await host.ask(lambda now, to: machine.init(now, init, to))
        writer = "payments", PRODUCER, found.epoch
        add = Add(*writer, frozenset((ORDERS,)), implicit=True)
        await host.ask(lambda now, to: machine.add(now, add, to))
        await host.ask(lambda now, to: machine.prepare(now, Prepare(*writer), to))
        partition = begin(broker, found.epoch)
        await shorten(broker)
        broker.hanging.look()

        assert partition.log_end == 1

        await host.ask(lambda now, to: machine.end(now, End(*writer, True), to))
        await until_stable(broker)


async def test_nothing_is_ended_while_a_coordinator_loads(tmp_path: Path) -> None:
    async with running(tmp_path, **{**OPTIONS, "transaction_max_timeout_ms": "1"}) as broker:
        await make_topic(broker, "orders")
        async with broker.transactions._loading:  # nothing more is loaded meanwhile
            await broker.transactions.find("payments")
            assert broker.transactions.loading
            partition = begin(broker)
            await asyncio.sleep(0.05)
            broker.hanging.look()

            assert partition.log_end == 1
        await until_stable(broker)
