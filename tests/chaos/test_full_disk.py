"""A full disk refuses writes with a reason and loses nothing; a broken one takes only its own.

The disk is full in two ways: by a quota inside the broker's own process, which works for every
user on every machine, and where mounting is allowed by a real file system that is too small.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.plain_client import EARLIEST, LATEST, PlainClient, batch_of
from waystation.messages.produce import PartitionProduceResponse
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.header import batches
from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.alone

MB = 1_000_000
ROOM_BYTES = 16 * MB
RECORD_BYTES = 100_000
SOON_S = 15.0
OPTIONS = {
    "segment.bytes": str(MB),
    "log.segment.delete.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "500",
}
FAULTY = "tests.support.faulty_node"
MOUNT = 'mount -t tmpfs -o size=16m tmpfs "$0" && exec "$@"'


@cache
def unsharing() -> tuple[str, ...]:
    """What runs a command in a mount namespace of its own; nothing where that is forbidden."""
    for flags in ("-m", "-Urm"):
        probe = ["unshare", flags, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        if shutil.which("unshare") and not subprocess.run(probe, capture_output=True).returncode:
            return ("unshare", flags)
    return ()


def by_quota(path: Path) -> BrokerProcess:
    (path / "data.quota").write_text(str(ROOM_BYTES))
    return BrokerProcess(path / "data", options=OPTIONS, module=FAULTY)


def by_mount(path: Path) -> BrokerProcess:
    (path / "data").mkdir()
    wrapper = (*unsharing(), "sh", "-c", MOUNT, str(path / "data"))
    return BrokerProcess(path / "data", options=OPTIONS, wrapper=wrapper)


WAYS = [by_quota, by_mount] if unsharing() else [by_quota]


@pytest.mark.parametrize("small_disk", WAYS)
@pytest.mark.parametrize("record_bytes", [RECORD_BYTES, 10_000], ids=["large", "small"])
def test_full_disk_refuses_writes_and_recovers_when_space_is_freed(
    tmp_path: Path, small_disk: Callable[[Path], BrokerProcess], record_bytes: int
) -> None:
    broker = small_disk(tmp_path)
    with broker.start(), PlainClient(broker.bootstrap) as client:
        client.create("ledger")
        client.create("other")
        kept, refusal = write_until_refused(client, record_bytes)

        assert refusal.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal.error_message is not None
        assert str(broker.data_dir) in refusal.error_message
        assert "full" in refusal.error_message
        assert "retention" in refusal.error_message, "no remedy is named"
        assert read(client, 0) == kept, "what was acknowledged cannot be read"

        middle = len(kept) // 2
        assert client.delete_records("ledger", middle) == middle
        more = write_again(client, record_bytes)

        assert client.offset("ledger", EARLIEST) == middle
        found = read(client, middle)
        assert {offset: found[offset] for offset in more} == more
        assert {offset: found[offset] for offset in kept if offset >= middle} == {
            offset: value for offset, value in kept.items() if offset >= middle
        }


def test_full_disk_survives_a_restart(tmp_path: Path) -> None:
    broker = by_quota(tmp_path)
    with broker.start():
        with PlainClient(broker.bootstrap) as client:
            client.create("ledger")
            kept, _ = write_until_refused(client, RECORD_BYTES)
        broker.kill()
        broker.start()
        with PlainClient(broker.bootstrap) as client:
            assert read(client, 0) == kept

            (tmp_path / "data.quota").write_text(str(2 * ROOM_BYTES))
            assert write_again(client, RECORD_BYTES)


def test_a_broken_disk_takes_only_its_own_partitions_offline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    broker = BrokerProcess(good, more_dirs=(bad,), options=OPTIONS, module=FAULTY)
    with broker.start(), PlainClient(broker.bootstrap) as client:
        client.create("ledger", partitions=4)
        on_bad = sorted(int(one.name.rpartition("-")[2]) for one in bad.glob("ledger-*"))
        on_good = sorted({0, 1, 2, 3} - set(on_bad))
        batch = batch_of(b"before")
        for partition in range(4):
            assert client.produce("ledger", batch, partition).error_code == 0
        (tmp_path / "bad.broken").touch()

        refused = [client.produce("ledger", batch, partition) for partition in on_bad]
        taken = [client.produce("ledger", batch, partition) for partition in on_good]

        assert len(on_bad) == len(on_good) == 2, "partitions are not spread over the disks"
        assert {one.error_code for one in refused} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert all(str(bad) in (one.error_message or "") for one in refused)
        assert {one.error_code for one in taken} == {0}
        assert [client.offset("ledger", LATEST, one) for one in on_good] == [2, 2]

        client.create("later", partitions=2)
        assert [client.produce("later", batch, one).error_code for one in (0, 1)] == [0, 0]

        (tmp_path / "bad.broken").unlink()
        broker.stop()
        broker.start()
        with PlainClient(broker.bootstrap) as repaired:
            for partition in on_bad:
                assert repaired.offset("ledger", LATEST, partition) >= 1
                assert repaired.produce("ledger", batch, partition).error_code == 0


def write_until_refused(
    client: PlainClient, record_bytes: int
) -> tuple[dict[int, bytes], PartitionProduceResponse]:
    """What was acknowledged, by offset, and the refusal that came at last."""
    kept: dict[int, bytes] = {}
    for number in range(4 * ROOM_BYTES // record_bytes):
        value = b"%0*d" % (record_bytes, number)
        outcome = client.produce("ledger", batch_of(value))
        if outcome.error_code:
            return kept, outcome
        kept[outcome.base_offset] = value
    raise AssertionError("the disk does not fill")


def write_again(client: PlainClient, record_bytes: int) -> dict[int, bytes]:
    """Freed space can be written to: soon, because files go in the background."""
    deadline = time.monotonic() + SOON_S
    kept: dict[int, bytes] = {}
    while len(kept) < 10:
        value = b"%0*d" % (record_bytes, 10_000_000 + len(kept))
        outcome = client.produce("ledger", batch_of(value))
        if outcome.error_code == 0:
            kept[outcome.base_offset] = value
        else:
            assert time.monotonic() < deadline, outcome
            time.sleep(0.1)
    return kept


def read(client: PlainClient, start: int) -> dict[int, bytes | None]:
    """Everything from ``start`` on, by offset."""
    found: dict[int, bytes | None] = {}
    at, end = start, client.offset("ledger", LATEST)
    while at < end:
        fetched = client.fetch("ledger", at, 8 * MB)
        assert fetched.error_code == 0, fetched
        for position, header in batches(fetched.records):
            for record in records_of(fetched.records, position):
                if record.offset >= start:
                    found[record.offset] = record.value
            at = header.next_offset
    return found
