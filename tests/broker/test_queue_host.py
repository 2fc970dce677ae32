"""A queue's host: what it does when its coordinator is slow, away, or of another opinion."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.partition.building import ELSEWHERE, HERE, MEMORY, NOW, World, batch_of, led
from tests.support.memory_persister import MemoryPersister
from waystation.broker.queue_host import QueueHost
from waystation.broker.queue_reading import Wish
from waystation.broker.queues import Queues
from waystation.broker.replicas import Replicas
from waystation.model.errors import (
    FencedStateEpochError,
    InvalidRequestError,
    NotLeaderError,
    WaystationError,
)
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.partition.partition import Partition
from waystation.runtime.clock import ManualClock
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Initialize, Read
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.state_records import QueueId
from waystation.sharing.states import ACCEPT, RELEASE, Acknowledgement

ALL = -1


class Stage:
    """One partition that is led here, its queues, and the hands that move time."""

    def __init__(self, path: Path, **group: Any) -> None:
        self.world = World(path)
        self.partition: Partition = self.world.partition(MEMORY)
        self.partition.follow_store(led())
        self.replicas = Replicas()
        self.replicas.add(self.partition)
        self.persister = MemoryPersister()
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.settings = QueueSettings(**group)
        self.queues = Queues(
            self.replicas,
            self.persister,
            lambda _group_id: self.settings,
            ShareSettings,
            clock=self.clock,
            timers=self.timers,
            defer=lambda run: self.world.deferred.append(run),
            registry=self.world.registry,
        )
        self.queue_id = QueueId("q", self.partition.topic_id, 0)

    def begin(self, start: int = 0, state_epoch: int = 1) -> None:
        """As the group's coordinator does."""
        command = Initialize(self.queue_id, state_epoch, Offset(start))
        self.persister.initialize(command, lambda _: None)

    def produce(self, *values: bytes) -> None:
        self.partition.append(batch_of(*values), ALL, NOW)
        self.turn()

    def host(self) -> QueueHost:
        found = self.queues.host_of(*self.queue_id)
        found.readers["ann"] = None
        return found

    def give(self, member: str = "ann", records: int = 100) -> list[tuple[int, int, int]]:
        return [tuple(one) for one in self.host().give(member, Wish(records, 1 << 20)).acquired]

    def say(self, first: int, end: int, kind: int = ACCEPT, member: str = "ann") -> list[object]:
        """What a consumer is told, as soon as it is."""
        told: list[object] = []
        meant = [Acknowledgement(Offset(first), Offset(end), kind)]
        self.host().acknowledge(member, meant, told.append)
        return told

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and the loop turn."""
        self.clock.advance(seconds)
        self.timers.run_due()
        self.world.turn()


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path / "data")
    made.begin()
    return made


def counted(stage: Stage, name: str) -> float:
    (family,) = [one for one in stage.world.registry.snapshot() if one.name == name]
    return sum(sample.value for sample in family.samples)


async def test_nothing_is_given_before_the_queue_is_loaded(stage: Stage) -> None:
    stage.produce(b"0")
    stage.persister.hold()
    woken: list[str] = []
    stage.host().wait(lambda: woken.append("ann"))

    assert stage.give() == []
    assert woken == []
    stage.persister.answer()
    stage.turn()

    assert woken == ["ann"]
    assert stage.give() == [(0, 1, 1)]


async def test_an_acknowledgement_is_answered_when_it_is_stored(stage: Stage) -> None:
    stage.produce(b"0", b"1")
    stage.give()
    stage.persister.hold()

    first, second = stage.say(0, 1), stage.say(1, 2)

    assert (first, second) == ([], [])
    assert len(stage.persister.writes) == 1, "one write is under way at a time"
    stage.persister.answer()
    assert (first, second) == ([None], [None])
    assert len(stage.persister.writes) == 2


async def test_a_write_that_may_be_lost_is_repeated(stage: Stage) -> None:
    stage.produce(b"0")
    stage.give()
    stage.persister.be_away(3)

    told = stage.say(0, 1)

    for _ in range(10):
        assert told == []
        stage.turn(0.02)
        if told:
            break
    stage.turn(1.0)
    assert told == [None]
    assert len(stage.persister.writes) == 4


async def test_nothing_more_is_given_while_nothing_can_be_stored(stage: Stage) -> None:
    stage.produce(b"0")
    stage.produce(b"1")
    assert stage.give(records=1) == [(0, 1, 1)]
    stage.persister.be_away(3)
    woken: list[str] = []
    stage.host().wait(lambda: woken.append("ann"))

    told = stage.say(0, 1)
    stage.turn()

    assert (told, woken, stage.give()) == ([], [], [])
    for _ in range(20):
        stage.turn(0.05)
    assert told == [None]
    assert woken == ["ann"]
    assert stage.give() == [(1, 2, 1)]


async def test_a_load_that_fails_is_repeated(stage: Stage) -> None:
    stage.produce(b"0")
    stage.persister.be_away(2)
    assert stage.give() == []

    stage.turn(0.06)
    stage.turn(0.2)

    assert stage.give() == [(0, 1, 1)]


async def test_a_queue_that_nobody_began_is_told_of(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "data")

    host = stage.host()

    assert host.closed
    assert isinstance(host.error, InvalidRequestError)
    assert len(stage.queues) == 0


async def test_a_group_that_began_anew_is_loaded_again(stage: Stage) -> None:
    stage.produce(b"0", b"1", b"2")
    stage.give(records=3)
    stage.begin(2, state_epoch=2)

    (told,) = stage.say(0, 1)

    assert isinstance(told, FencedStateEpochError)
    assert stage.give() == [(2, 3, 1)]


async def test_a_leader_that_was_replaced_gives_nothing_and_confirms_nothing(stage: Stage) -> None:
    stage.produce(b"0", b"1")
    stage.give()
    stage.persister.hold()
    told = stage.say(0, 1)
    host = stage.host()

    stage.partition.follow_store(led(ELSEWHERE, 1))
    stage.turn()

    assert host.closed
    assert isinstance(told[0], NotLeaderError)
    stage.persister.answer()
    assert len(told) == 1
    with pytest.raises(NotLeaderError):
        stage.host()


async def test_a_leader_that_has_not_heard_of_its_successor_is_fenced(stage: Stage) -> None:
    stage.produce(b"0", b"1")
    stage.give(records=1)
    other = Read(stage.queue_id, stage.partition.leadership.epoch + 1)  # type: ignore[arg-type]
    stage.persister.read(other, lambda _: None)

    (told,) = stage.say(0, 1)

    assert isinstance(told, NotLeaderError)
    again = stage.host()
    assert again.closed
    assert isinstance(again.error, NotLeaderError)


async def test_a_new_term_loads_the_queue_again(stage: Stage) -> None:
    stage.produce(b"0", b"1")
    stage.give()
    stage.say(0, 1)
    first = stage.host()

    stage.partition.follow_store(led(HERE, 1))
    stage.turn()

    assert first.closed
    assert stage.give("bob") == [(1, 2, 1)]


async def test_where_a_queue_begins_is_stored_before_anything_is_given(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "data", share_auto_offset_reset="earliest")
    stage.begin(NO_OFFSET)
    stage.produce(b"0")
    stage.persister.hold()
    stage.host()
    give_state, stage.persister.held = (stage.persister.held or [])[0], []
    give_state()

    assert stage.give() == []
    stage.persister.answer()
    assert stage.give() == [(0, 1, 1)]


async def test_locks_end_and_the_next_who_waits_is_told(stage: Stage) -> None:
    stage.produce(b"0")
    stage.give()
    woken: list[str] = []
    stage.host().wait(lambda: woken.append("bob"))

    stage.turn(29.9)
    assert woken == []
    stage.turn(0.2)
    stage.turn()

    assert woken == ["bob"]
    assert stage.give("bob") == [(0, 1, 2)]
    assert counted(stage, "waystation_queue_lock_timeouts_total") == 1


async def test_those_who_wait_are_told_in_turn_and_only_while_there_is_something(
    stage: Stage,
) -> None:
    host, woken = stage.host(), list[str]()

    def consumer(name: str) -> None:
        def told() -> None:
            woken.append(name)
            assert stage.give(name, records=1)
            host.stop_waiting(told)

        host.wait(told)

    for name in ("ann", "bob", "cat"):
        consumer(name)
    stage.produce(b"0")
    stage.produce(b"1")

    assert woken == ["ann", "bob"]


async def test_a_queue_that_nobody_reads_is_forgotten_when_it_is_stored(stage: Stage) -> None:
    stage.produce(b"0")
    stage.give()
    stage.persister.hold()

    stage.host().leave("ann")

    assert len(stage.queues) == 1
    stage.persister.answer()
    assert len(stage.queues) == 0
    assert stage.give("bob") == [(0, 1, 2)]


async def test_another_order_means_another_queue(stage: Stage) -> None:
    first = stage.host()
    stage.settings = QueueSettings(share_order="key")

    stage.queues.look_again()

    assert first.closed
    assert stage.host() is not first


async def test_what_happens_is_counted(stage: Stage) -> None:
    stage.produce(*[b"x"] * 10)
    stage.give()
    assert counted(stage, "waystation_queue_in_flight") == 10
    stage.say(0, 4)
    stage.say(4, 6, RELEASE)
    stage.give()
    stage.host().leave("ann")

    for name, number in [
        ("acquired", 12),
        ("acknowledged", 4),
        ("released", 8),
        ("rejected", 0),
    ]:
        assert counted(stage, f"waystation_queue_{name}_total") == number, name


class Desk:
    """Hears of queues that may have dead letters."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.gone_hosts: Sequence[QueueHost] = ()

    def changed(self, host: QueueHost) -> None:
        assert host.leader is not None
        self.heard.append(len(host.leader.dead_letters(10)))

    def gone(self, host: QueueHost) -> None:
        self.gone_hosts = [*self.gone_hosts, host]


async def test_whoever_moves_dead_letters_hears_when_they_are_stored(tmp_path: Path) -> None:
    desk = Desk()
    stage = Stage(tmp_path / "data", dead_letter_topic="dead", max_deliveries=1)
    stage.queues = Queues(
        stage.replicas,
        stage.persister,
        lambda _group_id: stage.settings,
        ShareSettings,
        clock=stage.clock,
        timers=stage.timers,
        defer=lambda run: stage.world.deferred.append(run),
        registry=stage.world.registry,
        dead_letters=desk,
    )
    stage.begin()
    stage.produce(b"0", b"1")
    stage.give()

    stage.say(0, 1, RELEASE)

    assert desk.heard == [0, 1]
    host = stage.host()
    assert host.leader is not None
    host.leader.queue.moved(Offset(0), Offset(1))
    host.write_due()
    assert desk.heard == [0, 1, 0]
    stage.queues.close()
    assert desk.gone_hosts == [host]


async def test_a_broken_log_is_an_error_of_its_partition(stage: Stage) -> None:
    stage.produce(b"0")
    stage.host()
    stage.partition.log.directory.offline = "gone"  # type: ignore[misc]

    with pytest.raises(WaystationError):
        stage.give()
