"""Retention and truncation free disk and move the log's start, and kill -9 undoes neither."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.figures import disk_usage, figure, megabytes
from tests.support.plain_client import EARLIEST, LATEST, PlainClient, batch_of
from tests.support.soak import count
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.header import batches
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(900)]

MB = 1_000_000
HOUR_MS = 3_600_000
ROUNDS = count(4, 50)
OPTIONS = {
    "segment.bytes": str(MB),
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    # Files go once the log's start and what was in them are written down.
    "log.flush.offset.checkpoint.interval.ms": "500",
}
RECORDS, RECORD_BYTES = 10, 10_000
SOON_S = 15.0


def test_retention_by_size_frees_disk(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", options=OPTIONS).start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("ring", retention_bytes=str(5 * MB))
        end = fill(client, "ring", 30 * MB)
        await_true(lambda: disk_usage(broker.data_dir / "ring-0") < 7 * MB)
        kept_bytes = disk_usage(broker.data_dir / "ring-0")
        start = client.offset("ring", EARLIEST)

        assert start > 0
        assert client.offset("ring", LATEST) == end
        assert sorted(read_all(client, "ring", start)) == list(range(start, end))
        assert kept_bytes >= 5 * MB, "more went than had to"
        assert is_gone(client, "ring", start - 1)
    figure(f"retention.bytes of 5 MB keeps {megabytes(kept_bytes)} of 30 MB on disk")


def test_retention_by_time_frees_disk(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", options=OPTIONS).start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("news", retention_ms=str(HOUR_MS))
        yesterday = int(time.time() * 1_000) - 24 * HOUR_MS
        old_end = fill(client, "news", 10 * MB, timestamp=yesterday)
        end = fill(client, "news", 3 * MB)
        await_true(lambda: disk_usage(broker.data_dir / "news-0") < 5 * MB)
        start = client.offset("news", EARLIEST)
        found = read_all(client, "news", start)

    assert 0 < start <= old_end
    assert [one for one in range(old_end, end) if one not in found] == []


def test_truncation_frees_disk_and_survives_kill_9(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", options=OPTIONS).start() as broker,
        PlainClient(broker.bootstrap) as client,
    ):
        client.create("ledger")
        end = fill(client, "ledger", 10 * MB)
        before_bytes = disk_usage(broker.data_dir / "ledger-0")

        assert client.delete_records("ledger", end - 105) == end - 105
        assert client.offset("ledger", EARLIEST) == end - 105
        assert is_gone(client, "ledger", end - 106)
        await_true(lambda: disk_usage(broker.data_dir / "ledger-0") < before_bytes // 3)

        broker.kill()
        broker.start()
        with PlainClient(broker.bootstrap) as after:
            assert after.offset("ledger", EARLIEST) == end - 105
            assert is_gone(after, "ledger", end - 106)
            assert sorted(read_all(after, "ledger", end - 105)) == list(range(end - 105, end))


@pytest.mark.parametrize("volatile", [False, True], ids=["page-cache-survives", "power-fails"])
def test_kill_9_brings_nothing_deleted_back_and_takes_nothing_later(
    tmp_path: Path, volatile: bool
) -> None:
    chance = random.Random(ROUNDS)
    options = OPTIONS | {"retention.bytes": str(4 * MB)}
    broker = BrokerProcess(tmp_path / "data", options=options, volatile=volatile)
    with broker.start():
        with PlainClient(broker.bootstrap) as client:
            client.create("ring")
        history = History(broker.bootstrap)
        for _ in range(ROUNDS):
            die_at_work(broker, history, chance)

        assert broker.stop() == 0

    deaths = "power failures" if volatile else "kills"
    figure(
        f"{ROUNDS} {deaths} under retention and truncation: {len(history.acknowledged)} batches "
        f"acknowledged, log start {history.start}"
    )
    assert history.start > 0


def die_at_work(broker: BrokerProcess, history: "History", chance: random.Random) -> None:
    """Write and truncate until kill -9, start again, and look at what is left."""
    with ThreadPoolExecutor() as pool:
        at_work = [pool.submit(history.write), pool.submit(history.truncate, chance.random())]
        # Real time on a real machine: the moment of death is what the test varies.
        time.sleep(chance.uniform(0.2, 1.2))
        first_file = first_base(broker.data_dir / "ring-0")
        broker.kill()
        for one in at_work:
            one.result()
    broker.start()
    history.check(first_file)


class History:
    """What the broker acknowledged, to be held against what it has after its death."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.start = 0
        self._bootstrap = bootstrap
        self._number = 0

    def write(self) -> None:
        """Append until the broker dies."""
        try:
            with PlainClient(self._bootstrap) as client:
                while True:
                    self._number += 1
                    value = b"%0*d" % (RECORD_BYTES, self._number)
                    outcome = client.produce("ring", batch_of(*[value] * RECORDS))
                    assert outcome.error_code == 0, outcome
                    self.acknowledged[outcome.base_offset] = value
        except (OSError, EOFError):
            return

    def truncate(self, share: float) -> None:
        """Delete some of what there is, again and again, until the broker dies."""
        try:
            with PlainClient(self._bootstrap) as client:
                while True:
                    start, end = client.offset("ring", EARLIEST), client.offset("ring", LATEST)
                    # Retention may be faster: then the start is past what was asked for.
                    target = start + int((end - start) * share * 0.2)
                    self.start = max(self.start, client.delete_records("ring", target))
                    time.sleep(0.05)
        except (OSError, EOFError):
            return

    def check(self, first_file: int) -> None:
        """The start is where it was or later, and everything after it is intact."""
        with PlainClient(self._bootstrap) as client:
            start = client.offset("ring", EARLIEST)
            assert start >= self.start, f"the log began at {self.start}, now at {start}"
            assert start >= first_file, "a file came back"
            assert start == 0 or is_gone(client, "ring", start - 1)
            found = read_all(client, "ring", start)
        lost = [
            offset
            for base, value in self.acknowledged.items()
            for offset in range(max(base, start), base + RECORDS)
            if found.get(offset) != value
        ]
        assert lost == []
        self.start = start


def fill(client: PlainClient, topic: str, nbytes: int, timestamp: int | None = None) -> int:
    """Append about so many bytes; the log's end."""
    end = 0
    for _ in range(nbytes // (RECORDS * RECORD_BYTES)):
        values = [b"." * RECORD_BYTES] * RECORDS
        outcome = client.produce(topic, batch_of(*values, timestamp=timestamp))
        assert outcome.error_code == 0, outcome
        end = outcome.base_offset + RECORDS
    return end


def read_all(client: PlainClient, topic: str, start: int) -> dict[int, bytes | None]:
    """Everything from ``start`` on, by offset."""
    found: dict[int, bytes | None] = {}
    end, at = client.offset(topic, LATEST), start
    while at < end:
        fetched = client.fetch(topic, at, 8 * MB)
        assert fetched.error_code == 0, fetched
        for position, header in batches(fetched.records):
            for record in records_of(fetched.records, position):
                if record.offset >= start:
                    found[record.offset] = record.value
            at = header.next_offset
    return found


def is_gone(client: PlainClient, topic: str, offset: int) -> bool:
    return bool(client.fetch(topic, offset, MB).error_code == ErrorCode.OFFSET_OUT_OF_RANGE)


def first_base(path: Path) -> int:
    return min(int(file.stem) for file in path.glob("*.log"))


def await_true(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, f"not so after {SOON_S} s"
        time.sleep(0.05)
