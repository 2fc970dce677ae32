"""The documents' average load on one small node: 11,574 messages of 1 KB a second.

Published within 10 ms and delivered within 100 ms, 99 times of 100.  A second in which the
machine was busy with something else says little about the broker, so every second is judged by
itself and the middle one counts.  Disks are shared with whatever else runs: there half of the
messages count, and 99 of 100 only in the soak, which has the machine to itself.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from tests.support.figures import figure, stopwatch
from tests.support.plain_client import LATEST, PlainClient, batch_of
from tests.support.soak import count

from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.alone

MESSAGES_PER_S = 11_574
PARTITIONS = 3
TOTAL = MESSAGES_PER_S * count(6, 60)
# The first second goes to connections, the first batches and imports.
WARM_UP = MESSAGES_PER_S

PUBLISHED_WITHIN_MS = 10
DELIVERED_WITHIN_MS = 100
PERCENT = {"memory": 99, "disk": count(50, 99)}


def start(side: str, bootstrap: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.documents.steady_load", side, bootstrap, "average"]
    return subprocess.Popen([*command, str(number), str(TOTAL)], stdout=subprocess.PIPE, text=True)


def latencies(process: subprocess.Popen[str]) -> list[float]:
    told, _ = process.communicate()
    assert process.returncode == 0
    found: list[float] = json.loads(told)
    assert len(found) == TOTAL
    return found[WARM_UP:]


def percentile_of_the_middle_second(found: list[float], percent: int) -> float:
    starts = range(0, len(found), MESSAGES_PER_S)
    seconds = [sorted(found[start : start + MESSAGES_PER_S]) for start in starts]
    return median(second[len(second) * percent // 100] for second in seconds)


@pytest.mark.parametrize("durability", PERCENT)
def test_the_average_load_is_published_and_delivered_in_time(
    tmp_path: Path, durability: str
) -> None:
    with BrokerProcess(tmp_path / "data", options={"durability": durability}).start() as broker:
        with PlainClient(broker.bootstrap) as client:
            client.create("average", PARTITIONS)
        receiver = start("receive", broker.bootstrap, PARTITIONS)
        sender = start("send", broker.bootstrap, MESSAGES_PER_S)
        published, delivered = latencies(sender), latencies(receiver)

    for name, found in (("published", published), ("delivered", delivered)):
        p50, p99 = (percentile_of_the_middle_second(found, percent) for percent in (50, 99))
        figure(
            f"{MESSAGES_PER_S} msg/s of 1 KB, durability={durability}, middle second: "
            f"{name} within {p50:.1f} ms (p50), {p99:.1f} ms (p99)"
        )
    percent = PERCENT[durability]
    assert percentile_of_the_middle_second(published, percent) < PUBLISHED_WITHIN_MS
    assert percentile_of_the_middle_second(delivered, percent) < DELIVERED_WITHIN_MS


def test_one_broker_takes_a_million_messages_a_second(tmp_path: Path) -> None:
    batch = batch_of(*[b"%0100d" % number for number in range(8_000)])
    rounds = count(200, 5_000)
    with (
        BrokerProcess(tmp_path / "data", options={"durability": "memory"}).start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("flood", 1)
        with stopwatch() as took:
            for _ in range(rounds):
                assert client.produce("flood", batch).error_code == 0
        stored = client.offset("flood", LATEST, 0)

    rate = stored / took.seconds
    figure(f"{rate / 1e6:.1f}M msg/s of 100 B from one client that waits for every batch of 8,000")
    assert stored == rounds * 8_000
    assert rate > 1_000_000
