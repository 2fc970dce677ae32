"""A log on its way between data directories: whenever power is lost, one whole log is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.building import (
    NAME,
    NOW,
    SMALL,
    TOPIC_ID,
    append,
    append_values,
    batch_of,
    end,
    flush,
    open_directory,
    values_of,
)
from tests.support.soak import count
from waystation.model.errors import StorageError
from waystation.model.ids import ProducerId
from waystation.model.offsets import Offset
from waystation.storage import names, relocation
from waystation.storage.directory import DataDirectory
from waystation.storage.log import Log
from waystation.testing.disk import SimulatedDisk
from waystation.testing.simulated_disk import PowerLossError

HERE, THERE = Path("/data/here"), Path("/data/there")
Patch = pytest.MonkeyPatch


class World:
    """Two data directories on one disk, and what was promised of one log."""

    def __init__(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.disk.make_directory(HERE.parent)
        self.disk.sync_directory(HERE.parent.parent)
        self.directories = [open_directory(self.disk, path) for path in (HERE, THERE)]
        self.log = self.directories[0].create_log(NAME, TOPIC_ID, SMALL)
        self.safe: list[bytes] = []

    def write(self, *values: bytes) -> None:
        append_values(self.log, *values)
        flush(self.log)
        self.safe += values

    def move(self) -> None:
        """To the other directory, with something written on the way."""
        source = self.log.directory
        target = next(one for one in self.directories if one is not source)
        future = relocation.begin(self.log, relocation.first_batch(self.log), target)
        start = max(future.log_end, self.log.log_start)
        found = self.log.read(start, 400, self.log.log_end)
        assert found.region is not None
        relocation.copy(future, found.region.read(), NOW)
        relocation.settle(future)
        self.write(b"meanwhile")
        moved = relocation.switch(self.log, future, target, NOW)
        old, self.log = self.log, moved
        source.disown(old)
        source.delete_log(old)

    def resume(self) -> bool:
        """Finish the move that a restart has found; whether with what was copied before."""
        target = next(one for one in self.directories if one is not self.log.directory)
        (found,) = (one.path for one in target.unfinished)
        assert found is not None
        future = relocation.reopen(self.log, found, target)
        went_on = relocation.continues(self.log, future)
        if not went_on:
            relocation.discard(future)
            future = relocation.begin(self.log, relocation.first_batch(self.log), target)
        old, self.log = self.log, relocation.switch(self.log, future, target, NOW)
        old.directory.disown(old)
        old.directory.delete_log(old)
        return went_on

    def restart(self) -> Log:
        """After a crash: the one log there is, as holdings find it."""
        for directory in self.directories:
            directory.unlock()
        self.directories = [open_directory(self.disk, path) for path in (HERE, THERE)]
        found = [log for one in self.directories for log in one.open_logs(lambda _: SMALL)]
        assert all(one.offline is None for one in self.directories), self.directories[0].offline
        assert found, "the log is gone"
        kept = relocation.winner(found)
        for log in found:
            if log is not kept:
                log.directory.delete_log(log)
        self.log = kept
        return kept


def world_of(seed: int) -> World:
    world = World(seed)
    world.write(*(b"value %d" % number for number in range(20)))
    return world


def test_a_log_goes_on_elsewhere_with_all_it_knows() -> None:
    world = world_of(0)
    log = world.log
    append(log, batch_of(b"once", producer=5, sequence=0))
    append(log, batch_of(b"open", producer=6, sequence=0, transactional=True))
    append(log, batch_of(b"gone", producer=7, sequence=0, transactional=True))
    end(log, 7, commit=False)
    flush(log)
    log.advance_log_start(Offset(3))
    before = values_of(log), log.log_start, log.log_end, log.epochs.entries
    aborted = log.aborted(Offset(0), log.log_end)
    world.safe = []

    world.move()

    moved = world.log
    assert moved.directory.path == THERE
    assert values_of(moved)[: len(before[0])] == before[0]
    assert (moved.log_start, moved.log_end, moved.epochs.entries) == (
        before[1],
        before[2] + 1,
        before[3],
    )
    assert append(moved, batch_of(b"once", producer=5, sequence=0)).duplicate
    assert [one.producer_id for one in moved.producers.open_transactions()] == [ProducerId(6)]
    assert [one[:3] for one in moved.aborted(Offset(0), moved.log_end)] == [
        one[:3] for one in aborted
    ]
    entries = [entry.name for entry in world.disk.entries(HERE)]
    assert not [name for name in entries if name.startswith("orders")]


def test_it_comes_and_goes_as_often_as_one_likes() -> None:
    world = world_of(1)
    for number in range(5):
        world.move()
        world.write(b"round %d" % number)
        assert relocation.generation_of(world.log) == number + 1
    for directory in world.directories:
        directory.close({})

    assert values_of(world.restart()) == world.safe


def test_a_batch_that_begins_before_the_log_does_comes_whole() -> None:
    world = World(2)
    append(world.log, batch_of(b"a", b"b", b"c"))
    append(world.log, batch_of(b"d"))
    flush(world.log)
    world.log.advance_log_start(Offset(2))
    world.move()

    assert world.log.log_start == 2
    assert values_of(world.log) == [b"c", b"d", b"meanwhile"]


def test_an_empty_log_moves_too() -> None:
    world = World(3)
    future = relocation.begin(world.log, Offset(0), world.directories[1])
    moved = relocation.switch(world.log, future, world.directories[1], NOW)

    assert (moved.log_start, moved.log_end) == (0, 0)


def test_what_was_given_up_leaves_nothing() -> None:
    world = world_of(4)
    future = relocation.begin(world.log, Offset(0), world.directories[1])
    relocation.discard(future)

    assert not [one.name for one in world.disk.entries(THERE) if one.name.startswith("orders")]
    assert values_of(world.restart()) == world.safe


def copied(world: World, end: int = 400) -> Log:
    """A copy of the log's beginning, on its way and synced."""
    future = relocation.begin(world.log, Offset(0), world.directories[1])
    found = world.log.read(Offset(0), end, world.log.log_end)
    assert found.region is not None
    relocation.copy(future, found.region.read(), NOW)
    relocation.settle(future)
    return future


def test_a_start_goes_on_with_a_copy() -> None:
    world = world_of(5)
    future = copied(world)
    assert 0 < future.log_end < world.log.log_end
    world.disk.crash()

    assert values_of(world.restart()) == world.safe
    assert world.resume()
    assert values_of(world.log) == world.safe
    assert world.log.directory.path == THERE
    world.disk.crash()
    assert values_of(world.restart()) == world.safe


def test_a_copy_is_left_to_the_next_life_by_a_clean_stop() -> None:
    world = world_of(8)
    relocation.leave(copied(world))
    for directory in world.directories:
        directory.close({})
    world.restart()

    assert world.resume()
    assert values_of(world.log) == world.safe


def test_a_copy_that_was_just_begun_is_removed() -> None:
    world = world_of(9)
    future = relocation.begin(world.log, Offset(0), world.directories[1])
    world.disk.unlink(future.path / names.PARTITION_METADATA)
    world.disk.sync_directory(future.path)
    world.restart()

    assert not [one.name for one in world.disk.entries(THERE) if "orders" in one.name]
    assert world.directories[1].unfinished == []


def the_log_was_cut(world: World) -> None:
    """The copy has what a leader took back, and other records stand in its place."""
    end = copied(world).log_end
    world.log.truncate_to(Offset(end - 2))
    del world.safe[end - 2 :]
    for number in range(6):
        append(world.log, batch_of(b"other %d" % number), epoch=1)
        world.safe.append(b"other %d" % number)
    flush(world.log)


def the_log_lost_its_tail(world: World) -> None:
    end = copied(world, 4_000).log_end
    world.log.truncate_to(Offset(end - 3))
    del world.safe[end - 3 :]


def the_log_begins_later(world: World) -> None:
    end = copied(world).log_end
    world.log.advance_log_start(Offset(end + 2))
    world.directories[0].plan_log_starts()()
    del world.safe[: end + 2]


OUTDATED = [the_log_was_cut, the_log_lost_its_tail, the_log_begins_later]


def outdated(happens: Callable[[World], None]) -> None:
    world = world_of(10)
    happens(world)
    world.disk.crash()
    world.restart()

    assert not world.resume()
    assert values_of(world.log) == world.safe


@pytest.mark.parametrize("happens", OUTDATED)
def test_a_copy_of_what_is_no_longer_so_is_begun_anew(happens: Callable[[World], None]) -> None:
    outdated(happens)


@pytest.mark.parametrize("happens", OUTDATED)
def test_a_copy_that_is_believed_unseen_is_caught(
    monkeypatch: Patch, happens: Callable[[World], None]
) -> None:
    monkeypatch.setattr(relocation, "continues", lambda log, future: True)

    with pytest.raises((AssertionError, StorageError)):
        outdated(happens)


def resumed(seed: int, after: int) -> bool:
    """Lose power at one point of a move, go on with it; false if the move was over before."""
    world = world_of(seed)
    world.disk.lose_power(after)
    try:
        world.move()
        over = True
    except PowerLossError:
        over = False
    world.disk.crash()
    world.restart()
    if any(one.unfinished for one in world.directories):
        world.resume()
        assert world.log.directory.path == THERE
    assert values_of(world.log)[: len(world.safe)] == world.safe, f"seed {seed}, {after} steps"
    world.write(b"after")
    world.disk.crash()
    assert values_of(world.restart())[-1] == b"after"
    return not over


@pytest.mark.parametrize("seed", range(count(1, 40)))
def test_what_power_interrupts_goes_on(seed: int) -> None:
    points = 0
    while resumed(seed, points):
        points += 1

    assert points > 30, "the move has few steps"


def test_a_disk_that_refuses_leaves_the_log_where_it_is() -> None:
    world = world_of(6)
    target = world.directories[1]
    future = relocation.begin(world.log, Offset(0), target)
    target.disk.make_directory(THERE / str(NAME))
    target.disk.replace(THERE / str(NAME) / "in the way", b"x")
    world.disk.fail_sync()

    with pytest.raises((StorageError, OSError)):
        relocation.switch(world.log, future, target, NOW)
    assert values_of(world.log) == world.safe
    assert NAME not in target.logs


def lived(seed: int, after: int) -> bool:
    """Lose power at one point of a move; false if the move was over before."""
    world = world_of(seed)
    world.disk.lose_power(after)
    try:
        world.move()
        over = True
    except PowerLossError:
        over = False
    world.disk.crash()
    found = values_of(world.restart())
    assert found[: len(world.safe)] == world.safe, f"seed {seed}, power lost after {after}"
    # It is whole, too: it can be written to, moved and found again.
    world.write(b"after")
    world.move()
    world.disk.crash()
    assert values_of(world.restart())[-2:] == [b"after", b"meanwhile"]
    return not over


@pytest.mark.parametrize("seed", range(count(3, 60)))
def test_power_may_be_lost_at_any_moment(seed: int) -> None:
    points = 0
    while lived(seed, points):
        points += 1

    assert points > 30, "the move has few steps"


def nothing_is_synced(monkeypatch: Patch) -> None:
    monkeypatch.setattr(relocation, "settle", lambda future: None)


def its_name_is_not_synced(monkeypatch: Patch) -> None:
    honest = SimulatedDisk.sync_directory

    def sync_directory(disk: SimulatedDisk, path: Path) -> None:
        if path != THERE:
            honest(disk, path)

    monkeypatch.setattr(SimulatedDisk, "sync_directory", sync_directory)


def the_old_one_goes_first(monkeypatch: Patch) -> None:
    honest = relocation.switch

    def switch(log: Log, future: Log, target: DataDirectory, now: int) -> Log:
        future_end = future.log_end
        while future_end < log.log_end:
            found = log.read(future_end, 1 << 20, log.log_end)
            assert found.region is not None
            relocation.copy(future, found.region.read(), NOW)
            future_end = future.log_end
        log.directory.disk.remove_tree(log.path)
        log.directory.disk.sync_directory(log.directory.path)
        return honest(log, future, target, NOW)

    monkeypatch.setattr(relocation, "switch", switch)


def live_through_many() -> None:
    for seed in range(20):
        points = 0
        while lived(seed, points):
            points += 1


@pytest.mark.parametrize(
    "plant", [nothing_is_synced, its_name_is_not_synced, the_old_one_goes_first]
)
def test_a_planted_bug_is_caught(monkeypatch: Patch, plant: Callable[[Patch], None]) -> None:
    plant(monkeypatch)

    with pytest.raises((AssertionError, StorageError, FileNotFoundError, IndexError)):
        live_through_many()


def test_names_of_copies_are_never_taken_for_logs() -> None:
    name = names.future_directory_name(NAME, TOPIC_ID)

    assert not names.is_needless_directory(name)
    assert names.parse_directory_name(name) is None
    assert names.parse_future_directory_name(name) == NAME.partition
    assert names.parse_future_directory_name(str(NAME)) is None
