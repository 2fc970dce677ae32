"""kill -9 under load: what was acknowledged is there, once, in order."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.soak import count
from tests.support.workload import Writer, check_history, read_all
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

PARTITIONS = 4
ROUNDS = count(4, 50)


@pytest.mark.parametrize("volatile", [False, True], ids=["page-cache-survives", "power-fails"])
def test_everything_acknowledged_survives_kill_9(tmp_path: Path, volatile: bool) -> None:
    chance = random.Random(ROUNDS)
    broker = BrokerProcess(
        tmp_path / "data", volatile=volatile, options={"segment.bytes": str(4 << 20)}
    ).start()
    create(broker.bootstrap, "ledger")
    writers = [
        Writer(f"w{n}", broker.bootstrap, "ledger", idempotent=n != 0, partitions=PARTITIONS)
        for n in range(3)
    ]
    for writer in writers:
        writer.start()

    for _ in range(ROUNDS):
        # Real time on a real machine: the moment of death is what the test varies.
        time.sleep(chance.uniform(0.2, 1.5))
        broker.kill()
        broker.start()
    for writer in writers:
        writer.finish()

    assert [writer.failed for writer in writers] == [[], [], []]
    acknowledged = check_history(writers, read_all(broker.bootstrap, "ledger", PARTITIONS))
    assert acknowledged > 100 * ROUNDS, "hardly anything was acknowledged"
    assert broker.stop() == 0


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
