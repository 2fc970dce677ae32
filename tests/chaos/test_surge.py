"""Ten times the usual load, and a thousand clients at once: nothing is lost, memory is bounded."""

import asyncio
import json
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.figures import allow_many_descriptors, figure, megabytes, stopwatch
from tests.support.plain_client import (
    LATEST,
    PRODUCE_VERSION,
    PlainClient,
    answered,
    batch_of,
    framed,
    produce_request,
)
from tests.support.soak import count
from waystation.messages.api_versions import ApiVersionsRequest
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]

STEADY_RATE = count(1_500, 12_000)
SURGE_S = count(5, 60)
BEFORE_S, AFTER_S = 3.5, 7.0
# A producer's first second goes to finding the broker and getting its id.
SETTLED_AFTER_S = 1.5
SURGING, TIMES = 3, 10
PARTITIONS = 4
RSS_LIMIT_BYTES = 300_000_000
BACK_WITHIN_S = 5.0
# Back to normal: like before the surge, as far as a busy machine lets one tell.
NORMAL_FACTOR, NORMAL_S = 4.0, 0.1

CONNECTIONS = 1_000
CONNECTIONS_RSS_LIMIT_BYTES = 150_000_000
# What a shell gives a process, far below what the broker needs: it raises the limit itself.
FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -S -n 1024; exec "$@"', "sh")


def test_surge_of_ten_times_the_load_passes(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data").start() as broker:
        with PlainClient(broker.bootstrap) as client:
            client.create("traffic", PARTITIONS)
        rss = RssPeak(broker)
        steady = pacer(broker, "steady", STEADY_RATE, BEFORE_S + SURGE_S + AFTER_S)
        # Real time on a real machine: before, during and after are what the test compares.
        time.sleep(BEFORE_S)
        rate = STEADY_RATE * (TIMES - 1) / SURGING
        surging = [pacer(broker, f"surge{n}", rate, SURGE_S) for n in range(SURGING)]
        surges = [outcome(one) for one in surging]
        usual = outcome(steady)
        rss.stop()

        check_all_there(broker, [usual, *surges])

    report(usual, surges, rss.peak_bytes)
    began, ended = min(one["began"] for one in surges), max(one["ended"] for one in surges)
    before = p99(usual, usual["began"] + SETTLED_AFTER_S, began)
    assert p99(usual, ended + BACK_WITHIN_S, ended + AFTER_S) < limit_after(before)
    assert rss.peak_bytes < RSS_LIMIT_BYTES


def test_a_thousand_connections_at_once_are_answered(tmp_path: Path) -> None:
    allow_many_descriptors()
    with BrokerProcess(tmp_path / "data", wrapper=FEW_DESCRIPTORS).start() as broker:
        with PlainClient(broker.bootstrap) as client:
            client.create("crowd", PARTITIONS)
        rss = RssPeak(broker)
        with stopwatch() as took:
            offsets = asyncio.run(crowd(broker.bootstrap))
        rss.stop()

        with PlainClient(broker.bootstrap) as client:
            ends = [client.offset("crowd", LATEST, one) for one in range(PARTITIONS)]

    assert sum(ends) == CONNECTIONS
    assert len(set(offsets)) == CONNECTIONS, "two batches were given one offset"
    figure(
        f"{CONNECTIONS} connections at once: all answered in {took.seconds:.2f} s, "
        f"RSS {megabytes(rss.peak_bytes)}"
    )
    assert rss.peak_bytes < CONNECTIONS_RSS_LIMIT_BYTES


# --- the surge ---------------------------------------------------------------------------


def pacer(broker: BrokerProcess, name: str, rate: float, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.pacer", "--bootstrap", broker.bootstrap]
    command += ["--topic", "traffic", "--name", name, "--rate", str(rate)]
    command += ["--seconds", str(seconds), "--sample", str(count(1, 10))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    told, _ = process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(told)
    assert found["failed"] == []
    assert found["unknown"] == 0
    assert found["delivered"] == found["sent"]
    return found


class RssPeak(threading.Thread):
    """Watches a broker's memory until it is stopped."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._broker = broker
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            self.peak_bytes = max(self.peak_bytes, self._broker.rss_bytes())

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def p99(told: dict[str, Any], since: float, until: float) -> float:
    """Of the latencies of messages that were due in ``[since, until)``."""
    found = sorted(late for due, late in told["latencies"] if since <= due < until)
    assert found, "no message was due then"
    return float(found[len(found) * 99 // 100])


def limit_after(before_s: float) -> float:
    return max(NORMAL_FACTOR * before_s, NORMAL_S)


def report(usual: dict[str, Any], surges: list[dict[str, Any]], peak_bytes: int) -> None:
    began, ended = min(one["began"] for one in surges), max(one["ended"] for one in surges)
    before = p99(usual, usual["began"] + SETTLED_AFTER_S, began)
    late = [due for due, took in usual["latencies"] if due > ended and took > limit_after(before)]
    rate = sum(one["sent"] for one in surges) / (ended - began)
    figure(
        f"surge of {rate + STEADY_RATE:.0f} msg/s for {ended - began:.0f} s over {STEADY_RATE} "
        f"msg/s: p99 {before * 1e3:.1f} ms before, {p99(usual, began, ended) * 1e3:.0f} ms "
        f"during, {p99(usual, ended + BACK_WITHIN_S, ended + AFTER_S) * 1e3:.1f} ms after, "
        f"normal {max([*late, ended]) - ended:.1f} s after its end, RSS {megabytes(peak_bytes)}"
    )


def check_all_there(broker: BrokerProcess, told: list[dict[str, Any]]) -> None:
    """Every message of every producer is there exactly once."""
    seen = {one["name"]: bytearray(one["sent"]) for one in told}
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
        }
    )
    for partition in range(PARTITIONS):
        start, end = reader.get_watermark_offsets(TopicPartition("traffic", partition), 30)
        reader.assign([TopicPartition("traffic", partition, start)])
        while start < end:
            for message in reader.consume(min(end - start, 10_000), 60):
                assert message.error() is None, message.error()
                name, number, _ = message.value().split(b":")
                seen[name.decode()][int(number)] += 1
                start = message.offset() + 1
    reader.close()
    for name, counts in seen.items():
        assert counts == b"\1" * len(counts), f"{name}: {counts.count(0)} are missing"


# --- the crowd ---------------------------------------------------------------------------


async def crowd(bootstrap: str) -> list[tuple[int, int]]:
    """Where each of many clients, all there at the same time, put its record."""
    everyone_is_here = asyncio.Barrier(CONNECTIONS)
    return await asyncio.gather(
        *(visit(bootstrap, number, everyone_is_here) for number in range(CONNECTIONS))
    )


async def visit(bootstrap: str, number: int, everyone_is_here: asyncio.Barrier) -> tuple[int, int]:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    versions = await ask(reader, writer, ApiVersionsRequest(), 0)
    assert versions.error_code == 0
    await everyone_is_here.wait()
    partition = number % PARTITIONS
    request = produce_request("crowd", batch_of(b"%d" % number), partition)
    reply = await ask(reader, writer, request, PRODUCE_VERSION)
    told = reply.responses[0].partition_responses[0]
    assert told.error_code == 0, told
    await everyone_is_here.wait()
    writer.close()
    return partition, told.base_offset


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Any, version: int
) -> Any:
    writer.write(framed(request, version))
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return answered(request, version, await reader.readexactly(length))
