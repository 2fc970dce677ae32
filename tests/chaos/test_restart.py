"""A restart costs what may be torn, not what is stored.

After a clean shutdown nothing of the logs is read; after kill -9 no more than was written since
the last checkpoint.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.figures import bytes_read, disk_usage, figure, megabytes, stopwatch
from tests.support.plain_client import LATEST, PlainClient, batch_of
from tests.support.soak import count
from waystation.testing.process import BrokerProcess

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1_800)]

LOG_BYTES = count(300, 10_000) * 1_000_000
PARTITIONS = 4
READY_WITHIN_S = 2.0
# A start reads Python's own files, the store and the active segments' indexes.
START_READS_BYTES = 15_000_000

BATCH = batch_of(*[b"%099d" % number for number in range(9_000)])
RECORDS = 9_000
REPAIRS = ("log.cut", "segment.cut", "index.rebuilt", "index.missing", "snapshot.damaged")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with much in its logs."""
    process = BrokerProcess(tmp_path / "data", options={"segment.bytes": str(256 << 20)})
    with process.start(), PlainClient(process.bootstrap) as client:
        client.create("archive", PARTITIONS)
        for number in range(LOG_BYTES // len(BATCH)):
            outcome = client.produce("archive", BATCH, number % PARTITIONS)
            assert outcome.error_code == 0, outcome
        yield process


def test_restart_after_kill_9_is_quick_with_much_log(broker: BrokerProcess) -> None:
    ends = log_ends(broker)
    stored_bytes = disk_usage(broker.data_dir)
    broker.kill()

    with stopwatch() as ready:
        broker.start()

    read_bytes = bytes_read(broker.pid)
    figure(
        f"ready {ready.seconds:.2f} s after kill -9 with {megabytes(stored_bytes)} of log; "
        f"{megabytes(read_bytes)} read"
    )
    assert ready.seconds < READY_WITHIN_S
    assert log_ends(broker) == ends


def test_clean_shutdown_leaves_nothing_to_scan(broker: BrokerProcess) -> None:
    ends = log_ends(broker)
    stored_bytes = disk_usage(broker.data_dir)
    with stopwatch() as stopped:
        assert broker.stop() == 0
    said_before = len(broker.log_path.read_text())

    with stopwatch() as ready:
        broker.start()

    read_bytes = bytes_read(broker.pid)
    figure(
        f"ready {ready.seconds:.2f} s after a clean shutdown of {stopped.seconds:.2f} s with "
        f"{megabytes(stored_bytes)} of log; {megabytes(read_bytes)} read"
    )
    assert read_bytes < START_READS_BYTES, "something of the logs was scanned"
    assert ready.seconds < READY_WITHIN_S
    assert log_ends(broker) == ends
    said = broker.log_path.read_text()[said_before:]
    assert not [event for event in REPAIRS if event in said]


def log_ends(broker: BrokerProcess) -> list[int]:
    with PlainClient(broker.bootstrap) as client:
        return [client.offset("archive", LATEST, one) for one in range(PARTITIONS)]
