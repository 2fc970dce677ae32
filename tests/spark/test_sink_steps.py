"""A sink over a real broker: every row once, whoever is killed, and whenever."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.spark.sink_player import (
    PARTS,
    POINTS,
    ROWS,
    DiedError,
    Player,
    done,
    dying_at,
    expected,
    nowhere,
    shown,
)
from tests.support.soak import SOAKING, count
from waystation import Admin
from waystation.client.transactor import PreparedTransaction
from waystation.model.errors import WaystationError
from waystation.spark.sink_cluster import open_sink, open_sinks
from waystation.spark.sink_errors import (
    DecidedRowsMissingError,
    OlderCheckpointError,
    PreparedRowsGoneError,
    ReplayDiffersError,
    SinkOfAnotherQueryError,
    SinkTakenOverError,
    WrittenTooLateError,
)
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import Admitted, Dropped, SinkSteps, TaskMessage
from waystation.testing.process import BrokerProcess

KILLS = count(2, 40)
BROKER_KILLS = count(2, 20)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def out(bootstrap: str, topic: str) -> str:
    """A topic to write to, whose name is also the sink's."""
    name = topic[-100:].strip("-")
    create(bootstrap, name)
    return name


def create(bootstrap: str, name: str) -> None:
    async def creating() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, 2)

    asyncio.run(creating())


def left_open(bootstrap: str, sink: str) -> list[object]:
    async def looking() -> list[object]:
        async with open_sinks(bootstrap) as sinks:
            return list(await sinks.open_of(sink))

    return asyncio.run(looking())


def check(bootstrap: str, sink: str, batches: int) -> None:
    """Every row is there once, in order for its key, and nothing is left open."""
    assert asyncio.run(shown(bootstrap, sink, batches * PARTS * ROWS)) == expected(batches)
    assert left_open(bootstrap, sink) == []


# --- deaths -----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_is_followed_by_another(
    point: str, bootstrap: str, out: str, checkpoint: Path
) -> None:
    with pytest.raises(DiedError):
        asyncio.run(Player(bootstrap, out, out, checkpoint, dying_at(point)).play(2))
    asyncio.run(Player(bootstrap, out, out, checkpoint).play(2))

    check(bootstrap, out, 2)


def test_drivers_are_killed_at_any_moment(bootstrap: str, out: str, checkpoint: Path) -> None:
    """Whole processes, by SIGKILL; the next one starts at once."""
    chance = Random(7)
    command = [sys.executable, "-m", "tests.spark.sink_player", bootstrap, out, out]
    for kills in range(KILLS + 1):
        batches = 4 * (kills + 1) if kills < KILLS else done(checkpoint) + 2
        with subprocess.Popen([*command, str(checkpoint), str(batches)]) as player:
            if kills < KILLS:
                before = done(checkpoint)
                while done(checkpoint) == before and player.poll() is None:
                    time.sleep(0.005)
                time.sleep(chance.uniform(0.0, 0.15))
                player.kill()
        assert kills < KILLS or player.returncode == 0

    check(bootstrap, out, done(checkpoint))


def test_brokers_are_killed_at_any_moment(tmp_path: Path, checkpoint: Path) -> None:
    """And come back; whoever wrote meanwhile waits, or fails and is followed by another run."""
    chance = Random(11)
    with BrokerProcess(tmp_path / "data") as broker:
        create(broker.bootstrap, "out")

        async def fate() -> None:
            for _ in range(BROKER_KILLS):
                await asyncio.sleep(chance.uniform(0.2, 0.8))
                broker.kill()
                await asyncio.to_thread(broker.start)
            enough.set()

        async def query() -> None:
            batches = 0
            while not enough.is_set() or done(checkpoint) < batches:
                batches = done(checkpoint) + 2
                try:
                    await Player(broker.bootstrap, "out", "out", checkpoint).play(batches)
                except (WaystationError, OSError):
                    await asyncio.sleep(0.1)

        async def live() -> None:
            async with asyncio.timeout(240 if SOAKING else 50):
                await asyncio.gather(fate(), query())

        enough = asyncio.Event()
        asyncio.run(live())
        batches = done(checkpoint)
        # One more run, so that what the others left is cleaned up.
        asyncio.run(Player(broker.bootstrap, "out", "out", checkpoint).play(batches + 1))

        check(broker.bootstrap, "out", batches + 1)


# --- refusals ---------------------------------------------------------------------------------


class Play:
    """The steps, one by one."""

    def __init__(self, bootstrap: str, sink: str, checkpoint: Path) -> None:
        self.bootstrap, self.sink = bootstrap, sink
        self._player = Player(bootstrap, sink, sink, checkpoint, nowhere)
        self.attempt = Attempt(sink, "q", "run-1", 0)

    async def prepared(
        self, steps: SinkSteps, attempt: Attempt | None = None, task: Task | None = None
    ) -> TaskMessage:
        admitted = await steps.admit(attempt or self.attempt, task or Task(0))
        assert isinstance(admitted, Admitted)
        admitted, prepared = await self._player.prepare(steps, admitted)
        return await steps.written(admitted, prepared, ROWS)

    async def shown(self, count: int) -> list[str]:
        return (await shown(self.bootstrap, self.sink, count))["0"]


@pytest.fixture
def play(bootstrap: str, out: str, checkpoint: Path) -> Iterator[Play]:
    yield Play(bootstrap, out, checkpoint)
    assert left_open(bootstrap, out) == []


FIRST = [f"0.0.{row}" for row in range(ROWS)]


async def test_a_batch_is_visible_once_it_is_committed(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        message = await play.prepared(steps)
        assert await play.shown(0) == []

        await steps.commit([message, None])
        await steps.commit([message, None])

        assert await play.shown(ROWS) == FIRST
        again = await steps.admit(play.attempt._replace(run="run-2"), Task(0))
        assert isinstance(again, Dropped)
        await steps.commit([again.message(ROWS)])
        with pytest.raises(ReplayDiffersError, match="5 rows, and came again with 6"):
            await steps.commit([again.message(ROWS + 1)])


async def test_what_is_aborted_is_never_visible_and_the_batch_comes_again(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        message = await play.prepared(steps)
        await steps.abort([message, None])
        await steps.abort([message, None])
        with pytest.raises(SinkTakenOverError):
            await steps.commit([message])

        again = play.attempt._replace(run="run-2")
        await steps.commit([await play.prepared(steps, again)])
        await steps.abort([message])

        assert await play.shown(ROWS) == FIRST


async def test_what_is_decided_is_not_aborted(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        message = await play.prepared(steps)
        await steps.commit([message])

        await steps.abort([message])

        assert await play.shown(ROWS) == FIRST


async def test_a_run_that_was_taken_over_changes_nothing(play: Play) -> None:
    later = play.attempt._replace(run="run-2")
    async with open_sink(play.bootstrap) as steps, open_sink(play.bootstrap) as others:
        message = await play.prepared(steps)
        winner = await play.prepared(others, later)

        with pytest.raises(SinkTakenOverError, match="run run-2 has taken it over"):
            await steps.commit([message])
        with pytest.raises(SinkTakenOverError):
            await steps.admit(play.attempt, Task(1))
        await steps.abort([message])
        await others.commit([winner])

        assert await play.shown(ROWS) == FIRST


async def test_an_attempt_that_wakes_up_late_takes_its_rows_back(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps, open_sink(play.bootstrap) as sleeper:
        late = await sleeper.admit(play.attempt, Task(0, 1))
        assert isinstance(late, Admitted)
        await steps.commit([await play.prepared(steps)])

        late, prepared = await play._player.prepare(sleeper, late)
        with pytest.raises(WrittenTooLateError, match=r"task 0 \(attempt 1\)"):
            await sleeper.written(late, prepared, ROWS)

        assert await play.shown(ROWS) == FIRST


async def test_two_attempts_with_one_number_do_not_harm_each_other(play: Play) -> None:
    """Spark counts anew where it repeats a stage."""
    async with open_sink(play.bootstrap) as steps, open_sink(play.bootstrap) as twin:
        first = await play.prepared(steps)
        second = await play.prepared(twin)

        await steps.commit([first])

        assert first.prepared is not None
        assert second.prepared is not None
        assert first.prepared.transactional_id != second.prepared.transactional_id
        assert await play.shown(ROWS) == FIRST


async def test_others_and_older_ones_are_refused(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        await steps.commit([await play.prepared(steps, play.attempt._replace(batch=4))])

        with pytest.raises(OlderCheckpointError):
            await steps.admit(play.attempt._replace(batch=3), Task(0))
        with pytest.raises(SinkOfAnotherQueryError):
            await steps.admit(play.attempt._replace(query="other", batch=5), Task(0))


async def test_batches_without_numbers_are_counted(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        for number in range(3):
            write = play.attempt._replace(run=f"write-{number}", batch=None)
            message = await play.prepared(steps, write)
            assert message.attempt.batch == number
            await steps.commit([message])
            assert isinstance(await steps.admit(write, Task(9)), Dropped)

        assert len(await play.shown(3 * ROWS)) == 3 * ROWS


# --- operators --------------------------------------------------------------------------------


async def aborted_by_operator(bootstrap: str, prepared: PreparedTransaction | None) -> None:
    assert prepared is not None
    async with Admin(bootstrap) as admin:
        await admin.abort_transaction(prepared.transactional_id, prepared=True)


async def test_rows_that_an_operator_took_are_told_before_anything_is_decided(play: Play) -> None:
    async with open_sink(play.bootstrap) as steps:
        kept, gone = [await play.prepared(steps, task=Task(one)) for one in range(2)]
        await aborted_by_operator(play.bootstrap, gone.prepared)

        with pytest.raises(PreparedRowsGoneError, match=r"task 1 \(attempt 0\).* is abort"):
            await steps.commit([kept, gone])

        assert await play.shown(0) == []


async def test_decided_rows_that_are_gone_stop_the_sink_until_an_operator_acts(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sink(play.bootstrap) as steps:
        kept, gone = [await play.prepared(steps, task=Task(one)) for one in range(2)]
        honest = steps._check_prepared

        async def checked(told: list[TaskMessage]) -> None:
            await honest(told)
            await aborted_by_operator(play.bootstrap, gone.prepared)

        with monkeypatch.context() as patch:
            patch.setattr(steps, "_check_prepared", checked)
            with pytest.raises(DecidedRowsMissingError, match=r"task 1 \(attempt 0\)"):
                await steps.commit([kept, gone])
        with pytest.raises(DecidedRowsMissingError):  # nor by repeating
            await steps.commit([kept, gone])
        assert await play.shown(ROWS) == FIRST
        following = play.attempt._replace(run="run-2", batch=1)
        with pytest.raises(DecidedRowsMissingError):
            await steps.admit(following, Task(0))
        with pytest.raises(DecidedRowsMissingError):
            await steps.resolve(play.sink, "operator", accept_missing=False)

        await steps.resolve(play.sink, "operator", accept_missing=True)
        after = following._replace(run="run-3")
        await steps.commit([await play.prepared(steps, after)])

        assert len(await play.shown(2 * ROWS)) == 2 * ROWS
