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


class Timers:
    """Timers that go off when the test says so."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        self.set.append((seconds, work))

    def go_off(self) -> None:
        due, self.set = self.set, []
        for _, work in due:
            work()


def test_a_log_that_rests_is_synced_once_for_all_that_came_meanwhile(
    loop: Loop, disk: SimulatedDisk
) -> None:
    timers, log = Timers(), new_log(disk)[1]
    flusher = Flusher(1, loop.posted.put, None, timers.later)
    append_values(log, b"a")
    flusher.request(log, loop.done, 0.01)
    loop.run_one()
    assert (loop.told, [seconds for seconds, _ in timers.set]) == ([1], [0.01])

    for value in (b"b", b"c", b"d"):
        append_values(log, value)
        flusher.request(log, loop.done, 0.01)
    assert loop.told == [1], "a log was synced before its rest was over"
    timers.go_off()
    loop.run_one()

    assert loop.told == [1, 4]
    timers.go_off()
    assert not timers.set, "a log rests again although nobody wanted it synced"
    append_values(log, b"e")
    flusher.request(log, loop.done, 0.01)
    loop.run_one()
    assert loop.told == [1, 4, 5], "a log that has rested waits for nothing"
    flusher.close()


def test_who_is_in_a_hurry_ends_the_rest(loop: Loop, disk: SimulatedDisk) -> None:
    timers, log = Timers(), new_log(disk)[1]
    flusher = Flusher(1, loop.posted.put, None, timers.later)
    append_values(log, b"a")
    flusher.request(log, loop.done, 0.01)
    loop.run_one()
    append_values(log, b"b")
    flusher.request(log, loop.done)
    loop.run_one()

    assert loop.told == [1, 2]
    timers.go_off()
    flusher.close()
    assert loop.told == [1, 2]


def test_what_waits_for_the_end_of_a_rest_is_synced_before_the_flusher_closes(
    loop: Loop, disk: SimulatedDisk
) -> None:
    timers, log = Timers(), new_log(disk)[1]
    flusher = Flusher(1, loop.posted.put, None, timers.later)
    append_values(log, b"a")
    flusher.request(log, loop.done, 0.01)
    loop.run_one()
    append_values(log, b"b")
    flusher.request(log, loop.done, 0.01)
    flusher.close()

    assert (loop.told, log.flushed_end) == ([1, 2], 2)


def test_a_log_that_is_deleted_while_it_rests_is_left_alone(
    loop: Loop, disk: SimulatedDisk
) -> None:
    timers, (directory, log) = Timers(), new_log(disk)
    flusher = Flusher(1, loop.posted.put, None, timers.later)
    append_values(log, b"a")
    flusher.request(log, loop.done, 0.01)
    loop.run_one()
    append_values(log, b"b")
    flusher.request(log, loop.done, 0.01)
    directory.delete_log(log)
    timers.go_off()
    flusher.close()

    assert (loop.told, directory.offline) == ([1], None)
