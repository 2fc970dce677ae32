"""What a task does with its rows, without Spark around it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.sink_queries import held, unended
from tests.spark.topics import create, delete
from waystation.client.errors import BrokerUnreachableError
from waystation.model.errors import UnknownTopicError
from waystation.spark.errors import BadOptionError
from waystation.spark.sink_cluster import open_sink
from waystation.spark.sink_errors import SinkTakenOverError
from waystation.spark.sink_options import WriteOptions, parse_write_options
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import TaskMessage
from waystation.spark.sink_writing import Part, write_at_least_once, write_exactly_once
from waystation.testing.process import BrokerProcess

NOBODY = "127.0.0.1:1"


def options(bootstrap: str, topic: str, **more: str) -> WriteOptions:
    return parse_write_options(
        {"bootstrap.servers": bootstrap, "topic": topic, **more}, stream=True
    )


def part(sink: str, batch: int, run: str = "run", task: int = 0) -> Part:
    return Part(Attempt(sink, "query", run, batch), Task(task))


def numbers(first: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([str(number) for number in range(first, end)])})


def commit(bootstrap: str, *messages: TaskMessage | None) -> None:
    async def committing() -> None:
        async with open_sink(bootstrap) as steps:
            await steps.commit(messages)

    asyncio.run(committing())


def values(bootstrap: str, topic: str) -> list[int]:
    return sorted(int(one.value or b"") for one in held(bootstrap, topic))


def test_a_task_without_rows_asks_nobody() -> None:
    assert write_at_least_once(options(NOBODY, "t"), [numbers(0, 0)]) == 0
    assert write_exactly_once(options(NOBODY, "t"), part("s", 0), []) is None


def test_rows_are_seen_when_the_driver_has_decided_and_once(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    where = options(bootstrap, topic)

    first = write_exactly_once(where, part(topic, 0), [numbers(0, 50), numbers(50, 80)])
    second = write_exactly_once(where, part(topic, 0, task=1), [numbers(80, 100)])
    assert values(bootstrap, topic) == []
    commit(bootstrap, first, None, second)
    again = write_exactly_once(where, part(topic, 0, "later"), [numbers(0, 50), numbers(50, 80)])

    assert first is not None
    assert again is not None
    assert (first.rows, again.rows, again.prepared) == (80, 80, None)
    assert values(bootstrap, topic) == [*range(100)]
    assert unended(bootstrap, topic) == []


def test_a_task_that_fails_leaves_nothing_open(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)

    def failing() -> Iterator[pa.RecordBatch]:
        yield numbers(0, 50)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_exactly_once(options(bootstrap, topic), part(topic, 0), failing())

    assert unended(bootstrap, topic) == []


def test_a_run_that_was_taken_over_writes_nothing_more(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    where = options(bootstrap, topic)
    old = write_exactly_once(where, part(topic, 0, "old"), [numbers(0, 10)])
    new = write_exactly_once(where, part(topic, 0, "new"), [numbers(0, 10)])

    with pytest.raises(SinkTakenOverError):
        commit(bootstrap, old)
    with pytest.raises(SinkTakenOverError):
        write_exactly_once(where, part(topic, 1, "old"), [numbers(10, 20)])
    commit(bootstrap, new)

    assert values(bootstrap, topic) == [*range(10)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_deleted_while_it_is_written_is_an_error(
    bootstrap: str, topic: str, guarantee: str, is_made_anew: bool
) -> None:
    create(bootstrap, topic, 3)
    where = options(bootstrap, topic, deliveryGuarantee=guarantee)

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(0, 10_000)
        delete(bootstrap, topic)
        if is_made_anew:
            create(bootstrap, topic, 3)
        yield numbers(10_000, 20_000)

    def write() -> object:
        if where.exactly_once:
            return write_exactly_once(where, part(topic, 0), batches())
        return write_at_least_once(where, batches())

    with pytest.raises(UnknownTopicError, match="was deleted while it was written to"):
        write()

    if not is_made_anew:
        create(bootstrap, topic)  # nobody else has
    elif where.exactly_once:
        assert values(bootstrap, topic) == []


def test_a_time_out_that_brokers_refuse_is_told_by_its_name(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)

    with pytest.raises(BadOptionError, match="transactionTimeout is 86400000 ms, and the brokers"):
        write_exactly_once(
            options(bootstrap, topic, transactionTimeout="1d"), part(topic, 0), [numbers(0, 1)]
        )


def test_a_broker_that_is_away_is_waited_for(topic: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        create(broker.bootstrap, topic)
        where = options(broker.bootstrap, topic, deliveryGuarantee="at-least-once")
        broker.kill()
        restart = threading.Timer(1.0, broker.start)
        restart.start()

        assert write_at_least_once(where, [numbers(0, 10)]) == 10
        restart.join()


def test_a_broker_that_stays_away_is_an_error_in_the_end() -> None:
    impatient = {"deliveryGuarantee": "at-least-once", "kafka.max.block.ms": "400"}
    began_at = time.monotonic()

    with pytest.raises(BrokerUnreachableError, match="no broker answers"):
        write_at_least_once(options(NOBODY, "t", **impatient), [numbers(0, 1)])

    assert time.monotonic() - began_at < 20
