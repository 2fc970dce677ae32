"""A topic keeps what is not archived, through kill -9 and power failures, and no longer."""

import random
import re
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.test_retention import OPTIONS, await_true, is_gone, read_all
from tests.support.figures import disk_usage, figure
from tests.support.plain_client import EARLIEST, LATEST, PlainClient, batch_of
from tests.support.soak import count
from waystation.messages.find_coordinator import FindCoordinatorRequest
from waystation.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]

TOPIC, GROUP = "orders", "archive-lake"
KB = 1_000
ROUNDS = count(2, 20)
RECORDS, RECORD_BYTES = 10, 1_000
SMALL = OPTIONS | {"segment.bytes": str(50 * KB), "offsets.topic.num.partitions": "2"}
RING = {"retention_bytes": "0", "retention_after_archive": GROUP}


class Archivist(PlainClient):
    """Commits positions as a job does that is no member of its group."""

    def coordinator(self) -> None:
        """Wait until there is one."""
        request = FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP])
        await_true(lambda: self.ask(request, 6).coordinators[0].error_code == 0)
        await_true(lambda: self.position() is not None)

    def commit(self, offset: int) -> None:
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[one])]
        told = self.ask(OffsetCommitRequest(group_id=GROUP, topics=topics), 8)
        assert told.topics[0].partitions[0].error_code == 0, told

    def position(self) -> int | None:
        """-1 where there is none, ``None`` while nobody can tell."""
        asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])]
        (told,) = self.ask(OffsetFetchRequest(groups=groups), 8).groups
        return None if told.error_code else int(told.topics[0].partitions[0].committed_offset)

    def write(self) -> int:
        """Append one batch; where the log ends then."""
        told = self.produce(TOPIC, batch_of(*[b"." * RECORD_BYTES] * RECORDS))
        assert told.error_code == 0, told
        return int(told.base_offset) + RECORDS

    @property
    def bounds(self) -> tuple[int, int]:
        return self.offset(TOPIC, EARLIEST), self.offset(TOPIC, LATEST)


def test_retention_waits_for_the_archive_and_an_operator_does_not(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", options=SMALL, http="127.0.0.1:0")
    with process.start() as broker, Archivist(broker.bootstrap) as client:
        client.create(TOPIC, **RING)
        client.create("free", retention_bytes="0")
        end = max(client.write() for _ in range(30))
        for _ in range(30):
            client.produce("free", batch_of(*[b"." * RECORD_BYTES] * RECORDS))
        await_true(lambda: client.offset("free", EARLIEST) > 0)
        await_true(lambda: held_bytes(broker) > 0)
        assert client.bounds == (0, end)
        full_bytes = held_bytes(broker)
        assert "retention.held" in broker.log_path.read_text()

        client.coordinator()
        client.commit(end // 2)
        await_true(lambda: client.offset(TOPIC, EARLIEST) > end // 3)
        await_true(lambda: 0 < held_bytes(broker) < full_bytes)
        assert client.offset(TOPIC, EARLIEST) <= end // 2
        assert sorted(read_all(client, TOPIC, end // 2)) == list(range(end // 2, end))

        assert client.delete_records(TOPIC, end - 5) == end - 5
        assert is_gone(client, TOPIC, end - 6)
        await_true(lambda: disk_usage(broker.data_dir / f"{TOPIC}-0") < 200 * KB)
        await_true(lambda: held_bytes(broker) == 0)


@pytest.mark.parametrize("volatile", [False, True], ids=["page-cache-survives", "power-fails"])
def test_kill_9_deletes_nothing_that_is_not_archived(tmp_path: Path, volatile: bool) -> None:
    chance = random.Random(ROUNDS)
    broker = BrokerProcess(tmp_path / "data", options=SMALL, volatile=volatile)
    with broker.start():
        with Archivist(broker.bootstrap) as client:
            client.create(TOPIC, **RING)
            client.coordinator()
        start = 0
        for _ in range(ROUNDS):
            start = die_at_work(broker, chance)

        assert broker.stop() == 0
    figure(f"{ROUNDS} deaths under retention that waits for an archive: log start {start}")
    assert start > 0, "nothing was ever deleted"


def die_at_work(broker: BrokerProcess, chance: random.Random) -> int:
    """Write and archive until kill -9, start again, and look at what is left; the log's start."""
    with ThreadPoolExecutor() as pool:
        archived = pool.submit(archive, broker.bootstrap)
        # Real time on a real machine: the moment of death is what the test varies.
        time.sleep(chance.uniform(0.8, 1.6))
        broker.kill()
        acknowledged, position = archived.result()
    broker.start()
    with Archivist(broker.bootstrap) as client:
        # From the first moment on: also while the coordinator loads.
        start, end = client.bounds
        client.coordinator()
        committed = client.position()
        assert committed is not None
        assert committed >= position, "an acknowledged position is gone"
        assert start <= committed, "deleted on the word of a position that was not committed"
        assert end >= acknowledged
        time.sleep(0.3)  # retention has gone round by now, and may have deleted what it may
        start = client.offset(TOPIC, EARLIEST)
        assert start <= committed
        assert sorted(read_all(client, TOPIC, committed)) == list(range(committed, end))
    return start


def archive(bootstrap: str) -> tuple[int, int]:
    """Write and commit what is half as far until the broker dies; what was acknowledged."""
    end = position = 0
    try:
        with Archivist(bootstrap) as client:
            position = max(0, client.position() or 0)
            while True:
                end = client.write()
                client.commit(max(position, end - 20 * RECORDS))
                position = max(position, end - 20 * RECORDS)
    except (OSError, EOFError):
        return end, position


def held_bytes(broker: BrokerProcess) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=20) as response:
        text = response.read().decode()
    found = re.search(
        rf'^waystation_retention_held_bytes{{topic="{TOPIC}"}} (\S+)$', text, re.MULTILINE
    )
    return float(found[1]) if found else 0.0
