"""A host answers what is committed, in order, once, and throws away what it cannot trust."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.runtime.tally import ScriptedLog, Tally
from waystation.model.errors import NotCoordinatorError, NotLeaderError, StorageError
from waystation.model.ids import LeaderEpoch, TopicPartition
from waystation.model.machines import Outcome, Reply
from waystation.model.offsets import Millis
from waystation.runtime.clock import ManualClock
from waystation.runtime.host import Host
from waystation.runtime.replay import replay, sliced
from waystation.runtime.timers import Timers
from waystation.testing.virtual_time import virtual_loop

FULL = StorageError("the disk is full")


class Stage:
    """A host with everything around it in the test's hands."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock, virtual_loop())
        self.machine, self.log = Tally(), ScriptedLog()
        self.failures: list[Exception] = []
        self.answers: list[tuple[str, Any]] = []
        self.host = Host(
            self.machine,
            self.log,
            clock=self.clock,
            timers=self.timers,
            failed=self.failures.append,
        )
        self.host.start()

    def waiter(self, name: str) -> Callable[[object], None]:
        return lambda answer: self.answers.append((name, answer))

    def add(self, number: int, name: str = "adder") -> None:
        to = self.waiter(name)
        self.host.submit(lambda now: self.machine.add(now, number, to), to)

    def read(self, name: str = "reader") -> None:
        to = self.waiter(name)
        self.host.submit(lambda now: self.machine.read(now, to), to)

    def wait_for(self, least: int, name: str = "waiting") -> None:
        to = self.waiter(name)
        self.host.submit(lambda now: self.machine.wait_for(now, least, to), to)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()

    def told(self) -> dict[str, str]:
        """Who was told what, each once."""
        names = [name for name, _ in self.answers]
        assert len(set(names)) == len(names), f"somebody was told twice: {self.answers}"
        return {name: getattr(answer, "code", answer) for name, answer in self.answers}


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_an_answer_waits_for_its_records_to_be_committed(stage: Stage) -> None:
    stage.add(3)

    assert stage.machine.total == 3
    assert stage.answers == []

    stage.log.commit()

    assert stage.answers == [("adder", 3)]


def test_an_answer_without_records_waits_for_what_it_rests_on(stage: Stage) -> None:
    stage.add(3)
    stage.read()

    assert stage.answers == []

    stage.log.commit()

    assert stage.answers == [("adder", 3), ("reader", 3)]


def test_what_rests_on_nothing_uncommitted_is_answered_at_once(stage: Stage) -> None:
    stage.read("early")
    stage.add(3)
    stage.log.commit()
    stage.read("late")

    assert stage.told() == {"early": 0, "adder": 3, "late": 3}


def test_a_commit_frees_the_answers_before_it_and_no_others(stage: Stage) -> None:
    for number in range(1, 4):
        stage.add(number, f"adder {number}")
    stage.log.commit(2)

    assert [name for name, _ in stage.answers] == ["adder 1", "adder 2"]


def test_readers_of_one_end_listen_once(stage: Stage) -> None:
    stage.add(1)
    for number in range(5):
        stage.read(f"reader {number}")

    assert stage.log.listeners == 1


def test_who_waits_inside_is_answered_with_the_decision_that_frees_him(stage: Stage) -> None:
    stage.wait_for(5)
    stage.log.commit()

    assert stage.answers == []

    stage.add(7)
    stage.log.commit()

    assert stage.answers == [("adder", 7), ("waiting", 7)]


def test_one_who_asks_again_while_he_is_answered_sees_all_and_waits_his_turn(stage: Stage) -> None:
    def again(answer: object) -> None:
        stage.answers.append(("first", answer))
        stage.read("again")

    stage.host.submit(lambda now: stage.machine.add(now, 1, again), again)
    stage.add(2, "second")
    stage.log.commit()

    assert stage.answers == [("first", 1), ("second", 3), ("again", 3)]


def test_a_commit_within_an_append_answers_nobody_before_it_was_applied(stage: Stage) -> None:
    def again(answer: object) -> None:
        stage.answers.append(("first", answer))
        stage.read("again")

    stage.host.submit(lambda now: stage.machine.add(now, 1, again), again)
    stage.log.commits_at_once = True
    stage.add(2, "second")

    assert stage.answers == [("first", 1), ("second", 3), ("again", 3)]


def test_a_failed_append_tells_everyone_and_ends_the_machine(stage: Stage) -> None:
    stage.wait_for(100, "inside")
    stage.add(1, "uncommitted")
    stage.log.refuses = FULL
    stage.add(2, "refused")

    not_coordinator = NotCoordinatorError.code
    assert stage.told() == dict.fromkeys(["uncommitted", "refused", "inside"], not_coordinator)
    assert stage.failures == [FULL]
    assert stage.host.ended

    stage.read("late")

    assert stage.told()["late"] == not_coordinator
    assert stage.failures == [FULL]


def test_lost_leadership_tells_everyone_once(stage: Stage) -> None:
    lost = NotLeaderError(TopicPartition("t", 0), None, LeaderEpoch(1))
    stage.wait_for(100, "inside")
    stage.add(1, "uncommitted")
    stage.read("reader")
    stage.log.fail(lost)
    stage.host.resign(lost)

    codes = dict.fromkeys(["uncommitted", "reader", "inside"], NotCoordinatorError.code)
    assert stage.told() == codes
    assert stage.failures == [lost]


def test_leadership_that_is_lost_within_an_append_ends_the_machine_after_it(stage: Stage) -> None:
    stage.add(1, "before")
    stage.log.loses_leadership_in_append = True
    stage.add(2, "during")

    assert stage.told() == dict.fromkeys(["before", "during"], NotCoordinatorError.code)
    assert len(stage.failures) == 1


def test_a_machine_that_cannot_apply_its_own_record_is_thrown_away(stage: Stage) -> None:
    stage.add(13, "unlucky")

    assert stage.told() == {"unlucky": NotCoordinatorError.code}
    assert len(stage.failures) == 1


def test_a_decision_that_raises_harms_nobody_else(stage: Stage) -> None:
    def decide(now: Millis) -> Outcome[int]:
        raise KeyError("a planted bug in an event")

    with pytest.raises(KeyError):
        stage.host.submit(decide)
    stage.add(1)
    stage.log.commit()

    assert stage.told() == {"adder": 1}


def test_an_answer_that_nobody_can_take_keeps_no_other_from_his(stage: Stage) -> None:
    def broken(answer: object) -> None:
        raise ConnectionError("hung up")

    to = stage.waiter("other")
    stage.host.submit(lambda now: Outcome((), [Reply(broken, 1), Reply(to, 2)]))

    assert stage.told() == {"other": 2}


def test_the_machine_is_told_that_replay_is_over(stage: Stage) -> None:
    assert stage.machine.was_loaded


def test_deadlines_come_once_and_never_early(stage: Stage) -> None:
    start = stage.clock.now()
    stage.machine.deadlines = [Millis(start + 500), Millis(start + 2_000)]
    stage.read()
    stage.pass_time(0.49)

    assert stage.machine.ticks == []

    stage.pass_time(0.02)

    assert stage.machine.ticks == [start + 510]
    assert stage.log.records == [100]

    stage.pass_time(1.0)
    stage.pass_time(1.0)

    assert stage.machine.ticks == [start + 510, start + 2_510]


def test_a_deadline_that_was_put_off_is_looked_at_again(stage: Stage) -> None:
    start = stage.clock.now()
    stage.machine.deadlines = [Millis(start + 500)]
    stage.read("one")
    stage.machine.deadlines = [Millis(start + 900)]
    stage.read("two")
    stage.pass_time(0.6)

    assert stage.machine.ticks == []

    stage.pass_time(0.4)

    assert len(stage.machine.ticks) == 1


def test_an_earlier_deadline_takes_the_timer(stage: Stage) -> None:
    start = stage.clock.now()
    stage.machine.deadlines = [Millis(start + 5_000)]
    stage.read("one")
    stage.machine.deadlines.append(Millis(start + 100))
    stage.read("two")
    stage.pass_time(0.2)

    assert len(stage.machine.ticks) == 1


def test_a_tick_that_raises_ends_the_machine_instead_of_its_time(stage: Stage) -> None:
    stage.machine.broken = True
    stage.machine.deadlines = [Millis(stage.clock.now() + 100)]
    stage.wait_for(5, "inside")
    stage.pass_time(1.0)

    assert stage.told() == {"inside": NotCoordinatorError.code}
    assert len(stage.failures) == 1


def test_an_ended_host_has_no_deadline(stage: Stage) -> None:
    stage.machine.deadlines = [Millis(stage.clock.now() + 100)]
    stage.read()
    stage.host.resign(FULL)
    stage.pass_time(1.0)

    assert stage.machine.ticks == []


async def test_ask_gives_the_answer_or_raises_it(stage: Stage) -> None:
    stage.log.commits_at_once = True

    assert await stage.host.ask(lambda now, to: stage.machine.add(now, 4, to)) == 4

    stage.host.resign(FULL)

    with pytest.raises(NotCoordinatorError):
        await stage.host.ask(stage.machine.read)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_is_told_what_a_crash_could_take_back(seed: int) -> None:
    """Whatever the order of events, a told total is a prefix of what is committed by then."""
    chance, stage = Random(seed), Stage()
    asked = 0
    stage.log.commits_at_once = seed % 4 == 0
    for _ in range(200):
        match chance.randrange(4):
            case 0 | 1:
                stage.add(chance.randrange(1, 4), f"adder {asked}")
                asked += 1
            case 2:
                stage.read(f"reader {asked}")
                asked += 1
            case _:
                stage.log.commit(chance.randint(stage.log.committed, len(stage.log.records)))
        totals = [0]
        for record in stage.log.records[: stage.log.committed]:
            totals.append(totals[-1] + record)
        assert all(answer in totals for _, answer in stage.answers), f"seed {seed}"
    stage.log.commit()

    assert len(stage.told()) == asked, f"seed {seed}"


def test_replay_applies_everything_and_lets_others_have_their_turns() -> None:
    loop, clock, applied = virtual_loop(), ManualClock(), []
    turns = 0

    def apply(record: int) -> None:
        clock.advance(0.000_01)
        applied.append(record)

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(applied) < 10_000:
            loop.call_soon(turn)

    loop.call_soon(turn)
    count = loop.run_until_complete(replay(sliced(range(10_000)), apply, clock))

    assert (count, applied) == (10_000, list(range(10_000)))
    # A tenth of a second of work in turns of two milliseconds, each a little overdrawn.
    assert 30 < turns <= 51
