"""Group commit: one sync at a time per log, one outcome for all who wait."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.storage.building import append_values, new_log
from waystation.model.errors import StorageError
from waystation.model.offsets import Offset
from waystation.storage.flusher import Flusher
from waystation.storage.log import Log
from waystation.storage.tickets import FlushTicket
from waystation.testing.disk import SimulatedDisk


class Loop:
    """Runs what the flusher's threads post, on this thread."""

    def __init__(self) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.told: list[Offset | StorageError] = []

    def done(self, _log: Log, outcome: Offset | StorageError) -> None:
        self.told.append(outcome)

    def run_one(self) -> None:
        self.posted.get(timeout=10)()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def flusher(loop: Loop) -> Iterator[Flusher]:
    made = Flusher(2, loop.posted.put)
    yield made
    made.close()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_a_sync_tells_how_far_the_log_is_safe(
    flusher: Flusher, loop: Loop, disk: SimulatedDisk
) -> None:
    log = new_log(disk)[1]
    append_values(log, b"a", b"b")

    flusher.request(log, loop.done)
    loop.run_one()

    assert loop.told == [2]
    assert log.flushed_end == 2


def test_a_log_with_nothing_to_sync_is_told_at_once(
    flusher: Flusher, loop: Loop, disk: SimulatedDisk
) -> None:
    flusher.request(new_log(disk)[1], loop.done)

    assert loop.told == [0]


def test_requests_during_a_sync_share_the_next_one(
    flusher: Flusher, loop: Loop, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, syncs = new_log(disk)[1], []
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)
    honest = FlushTicket.sync

    def sync(ticket: FlushTicket) -> None:
        honest(ticket)
        syncs.append(ticket.end)
        begun.release()
        go_on.acquire()

    monkeypatch.setattr(FlushTicket, "sync", sync)
    append_values(log, b"a")
    flusher.request(log, loop.done)
    begun.acquire()
    for value in (b"b", b"c", b"d"):
        append_values(log, value)
        flusher.request(log, loop.done)
    go_on.release(2)
    loop.run_one()
    loop.run_one()

    assert syncs == [1, 4]
    assert loop.told == [1, 4]


def test_a_failed_sync_is_told_once_and_takes_the_directory_offline(
    flusher: Flusher, loop: Loop, disk: SimulatedDisk
) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    disk.fail_sync()

    flusher.request(log, loop.done)
    loop.run_one()

    assert isinstance(loop.told[0], StorageError)
    assert directory.offline is not None
    assert log.flushed_end == 0
    syncs = disk.syncs
    flusher.request(log, loop.done)
    assert isinstance(loop.told[1], StorageError)
    assert disk.syncs == syncs, "a failed sync was tried again"


def test_a_log_deleted_during_its_sync_harms_no_other(
    flusher: Flusher, loop: Loop, disk: SimulatedDisk
) -> None:
    directory, log = new_log(disk)
    append_values(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    directory.delete_log(log)

    with pytest.raises(FileNotFoundError):
        ticket.sync()
    log.fail(StorageError("gone"))

    assert directory.offline is None


def test_how_long_each_sync_took_is_noted(loop: Loop, disk: SimulatedDisk) -> None:
    class Stopwatch:
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def observe(self, seconds: float, /) -> None:
            self.seconds.append(seconds)

    stopwatch = Stopwatch()
    flusher = Flusher(1, loop.posted.put, stopwatch)
    log = new_log(disk)[1]
    append_values(log, b"a")
    flusher.request(log, loop.done)
    loop.run_one()
    flusher.close()

    assert len(stopwatch.seconds) == 1
    assert 0 <= stopwatch.seconds[0] < 10
