"""The gateway's benchmarks: figures with verdicts, and a node that stands still is charged."""

from __future__ import annotations

import asyncio
import time

import pytest
from benchmarks.gateway.beside import posting
from benchmarks.gateway.node import create_topic
from benchmarks.gateway.posts import _kinds, _rows
from benchmarks.gateway.queue_calls import _Case, _measured
from benchmarks.gateway.rows import Row, render
from tests.support.http_load import Load, get

from waystation.testing.process import BrokerProcess


def test_a_figure_is_held_to_what_is_promised_of_it() -> None:
    rows = [
        Row("enough", 8_000, "msg/s", at_least=8_000),
        Row("too few", 7_999, "msg/s", at_least=8_000),
        Row("in time", 9.99, "ms", below=10),
        Row("too late", 10.0, "ms", below=10),
        Row("for information", 5.0, "µs"),
    ]

    assert [row.verdict for row in rows] == ["yes", "NO", "yes", "NO", ""]
    assert "at least 8,000" in render(rows)
    assert "less than 10" in render(rows)


async def test_a_node_that_stands_still_is_charged_for_all_that_was_due() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            if not served:
                time.sleep(0.2)  # nobody is answered meanwhile
            served.append(None)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    served: list[None] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    load = Load(f"127.0.0.1:{port}", lambda _: get("/"), connections=2)
    await load.run(500, 200)

    assert load.latencies.count == len(served) == 200
    assert load.latencies.most >= 200
    assert sum(one > 0.05 for one in load.seconds) >= 50, "those that were due meanwhile"
    load.close()
    server.close()


@pytest.fixture
def topics(broker: BrokerProcess) -> BrokerProcess:
    for name, partitions in (("one", 1), ("six", 6), ("posts", 1)):
        create_topic(broker, name, partitions, "memory")
    return broker


def test_posts_are_answered_and_counted(topics: BrokerProcess) -> None:
    for kind in _kinds():
        per_core, cpu_us, per_s = _rows(topics, kind, 200, 4)
        assert per_core.value * cpu_us.value == pytest.approx(kind.messages * 1e6)
        assert per_s.value > 0

    with posting(topics, 200) as told:
        pass
    assert told["p99_ms"] > 0
    assert 0 < told["rate"] <= 210


@pytest.mark.parametrize("case", [_Case(4, 1), _Case(2, 10), _Case(2, 1, is_socket=True)])
def test_calls_of_queues_take_every_message_once(broker: BrokerProcess, case: _Case) -> None:
    cpu_s, took_s, pair_ms = _measured(broker, case, 100)

    assert cpu_s > 0
    assert took_s > 0
    assert case.is_socket or len(pair_ms) >= 100 // case.limit
