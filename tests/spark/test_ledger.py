"""The records of sinks: one change at a time, and none of them lost."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.support.soak import count
from waystation import Admin, Producer
from waystation.client.partitioner import partition_of_key
from waystation.model.errors import ProducerFencedError
from waystation.runtime.clock import ManualClock, SystemClock
from waystation.spark.ledger import Ledger, NotWrittenError
from waystation.spark.ledger_topic import PARTITIONS, TOPIC, TopicShelf
from waystation.spark.sink_cluster import Sinks, check_two_phase, open_sinks
from waystation.spark.sink_errors import (
    LedgerBusyError,
    LedgerFormatError,
    NoTwoPhaseCommitError,
    SinkError,
)
from waystation.spark.sink_state import SinkState, encode_state, mutex_id
from waystation.wire.versions import ApiKey

CHANGERS, CHANGES = 5, count(3, 20)
NEW = SinkState("q", "run-1")


def counted(state: SinkState | None) -> SinkState:
    """One more than before, so that a change that is lost is missed."""
    return NEW if state is None else state._replace(batch=state.batch + 1)


@pytest.fixture
async def sinks(bootstrap: str) -> AsyncIterator[Sinks]:
    async with open_sinks(bootstrap, patience_ms=20_000) as opened:
        yield opened


def ledger_of(sinks: Sinks) -> Ledger:
    return sinks.steps._ledger


def shelf_of(sinks: Sinks) -> TopicShelf:
    return sinks._shelf


# --- in a topic -------------------------------------------------------------------------------


async def test_a_change_is_there_for_whoever_reads_next(sinks: Sinks, bootstrap: str) -> None:
    assert await ledger_of(sinks).read("new") is None

    written = await ledger_of(sinks).change("new", counted)

    async with open_sinks(bootstrap) as others:
        assert await ledger_of(others).read("new") == written == NEW
        assert (await others.every())["new"] == NEW


async def test_the_topic_keeps_the_last_record_of_each_sink(sinks: Sinks, bootstrap: str) -> None:
    await ledger_of(sinks).change("kept", counted)

    async with Admin(bootstrap) as admin:
        topic = await admin.describe_topic(TOPIC)
        options = await admin.describe_configs(TOPIC)
    assert len(topic.partitions) == PARTITIONS
    assert options["cleanup.policy"].value == "compact"
    assert options["durability"].value == "disk"
    assert options["segment.bytes"].value == str(1 << 20)


async def test_no_change_is_lost(bootstrap: str) -> None:
    """Several change one record, each by what it read; they shut each other out all the time."""

    async def change(number: int) -> None:
        async with open_sinks(bootstrap, chance=Random(number)) as own:
            for _ in range(CHANGES):
                await ledger_of(own).change("contended", counted)

    await asyncio.gather(*map(change, range(CHANGERS)))

    async with open_sinks(bootstrap) as sinks:
        state = await ledger_of(sinks).read("contended")
    assert state is not None
    assert state.batch == CHANGERS * CHANGES - 2  # the first makes it, at -1


async def test_who_was_shut_out_writes_nothing(sinks: Sinks, bootstrap: str) -> None:
    first = shelf_of(sinks)
    await first.take("guarded")
    before = await first.read("guarded")
    async with open_sinks(bootstrap) as others:
        await ledger_of(others).change("guarded", counted)

        with pytest.raises(NotWrittenError):
            await first.write("guarded", before, NEW._replace(run="shut out"))

        assert await ledger_of(others).read("guarded") == NEW
    assert await ledger_of(sinks).change("guarded", counted) == NEW._replace(batch=0)


async def test_who_rests_on_an_old_record_writes_nothing(sinks: Sinks) -> None:
    """As one would that was told an old end of the log by a broker that leads no more."""
    await ledger_of(sinks).change("old", counted)
    shelf = shelf_of(sinks)
    await shelf.take("old")

    with pytest.raises(NotWrittenError, match="by somebody else"):
        await shelf.write("old", None, NEW._replace(run="blind"))

    assert await ledger_of(sinks).read("old") == NEW


async def test_what_one_knew_is_not_believed_without_writing(sinks: Sinks, bootstrap: str) -> None:
    await ledger_of(sinks).change("known", counted)
    async with open_sinks(bootstrap) as others:
        await ledger_of(others).change("known", counted)

    assert await ledger_of(sinks).change("known", lambda state: state) == NEW._replace(batch=0)


async def test_one_who_dies_in_the_middle_of_a_change_holds_up_nobody(
    sinks: Sinks, bootstrap: str
) -> None:
    await ledger_of(sinks).change("dying", counted)
    place = partition_of_key(b"dying", PARTITIONS)
    async with Producer(bootstrap, transactional_id=mutex_id("dying")) as dying:
        transaction = await dying.transaction().__aenter__()
        content = encode_state("dying", NEW._replace(run="half done"))
        await transaction.send(TOPIC, content, key="dying", partition=place)

        async with asyncio.timeout(5):
            assert await ledger_of(sinks).change("dying", counted) == NEW._replace(batch=0)
        with pytest.raises(ProducerFencedError):
            await dying.transactor.commit()


async def test_who_reads_waits_for_what_is_open_in_the_partition(bootstrap: str) -> None:
    """Sinks share partitions: a change that is finished may lie behind one that is not."""
    place = partition_of_key(b"behind", PARTITIONS)
    async with (
        open_sinks(bootstrap, patience_ms=300) as hurried,
        open_sinks(bootstrap) as patient,
        Producer(bootstrap, transactional_id="in the way") as other,
    ):
        await ledger_of(patient).change("behind", counted)
        async with other.transaction() as transaction:
            content = encode_state("another", NEW)
            await transaction.send(TOPIC, content, key="another", partition=place)
            with pytest.raises(LedgerBusyError, match="is open since offset"):
                await ledger_of(hurried).read("behind")
            reading = asyncio.create_task(ledger_of(patient).read("behind"))
            await asyncio.sleep(0.1)
            assert not reading.done()

        assert await reading == NEW


async def test_a_record_that_nobody_understands_harms_only_its_own_sink(
    sinks: Sinks, bootstrap: str
) -> None:
    await ledger_of(sinks).change("clear", counted)
    async with Producer(bootstrap) as producer:
        place = partition_of_key(b"obscure", PARTITIONS)
        await producer.send(TOPIC, b'{"version":7}', key="obscure", partition=place)

    with pytest.raises(LedgerFormatError, match="version 7"):
        await ledger_of(sinks).read("obscure")
    every = await sinks.every()
    assert "clear" in every
    assert "obscure" not in every


async def test_a_sink_can_be_forgotten(sinks: Sinks) -> None:
    await ledger_of(sinks).change("forgotten", counted)

    await sinks.steps.forget("forgotten")

    assert await ledger_of(sinks).read("forgotten") is None
    assert "forgotten" not in await sinks.every()
    assert await ledger_of(sinks).change("forgotten", counted) == NEW


async def test_brokers_that_cannot_prepare_are_refused(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await check_two_phase(bootstrap, "s")
    from waystation.client import connection

    honest = connection.common_versions

    def older(answer: object) -> dict[ApiKey, int]:
        found = honest(answer)  # type: ignore[arg-type]
        return {api: version for api, version in found.items() if api < ApiKey.PREPARE_TXN}

    monkeypatch.setattr(connection, "common_versions", older)

    with pytest.raises(NoTwoPhaseCommitError, match="at-least-once"):
        await check_two_phase(bootstrap, "s")


# --- on a shelf that misbehaves ---------------------------------------------------------------


class Fickle:
    """Writes at the last try of those it was told to fail, or also before without saying so."""

    def __init__(self, failures: int, *, secretly: bool = False) -> None:
        self.state: SinkState | None = None
        self.taken = 0
        self._failures, self._secretly = failures, secretly

    async def read(self, sink: str) -> SinkState | None:
        return self.state

    async def take(self, sink: str) -> None:
        self.taken += 1

    async def holder(self, sink: str) -> object:
        return None

    async def write(self, sink: str, before: SinkState | None, after: SinkState | None) -> None:
        assert before == self.state
        self._failures -= 1
        if self._failures < 0 or self._secretly:
            self.state = after
        if self._failures >= 0:
            raise NotWrittenError("no answer")


def ledger_on(shelf: Fickle) -> Ledger:
    return Ledger(shelf, SystemClock(), Random(1), 60_000)


async def test_a_change_is_tried_again_until_it_is_made() -> None:
    shelf = Fickle(3)

    assert await ledger_on(shelf).change("s", lambda _: NEW) == NEW
    assert (shelf.state, shelf.taken) == (NEW, 4)


async def test_an_answer_that_is_lost_is_found_out_by_reading_again() -> None:
    shelf = Fickle(1, secretly=True)
    wanted: list[SinkState | None] = []

    def once(state: SinkState | None) -> SinkState:
        wanted.append(state)
        return state or NEW

    assert await ledger_on(shelf).change("s", once) == NEW
    assert wanted == [None, NEW]


async def test_patience_ends() -> None:
    clock = ManualClock()

    class Slow(Fickle):
        async def take(self, sink: str) -> None:
            clock.advance(0.4)

    ledger = Ledger(Slow(1_000), clock, Random(1), 1_000)

    with pytest.raises(LedgerBusyError, match="for 1200 ms: no answer"):
        await ledger.change("s", lambda _: NEW)


async def test_who_has_the_mutex_changes_again_without_taking_it() -> None:
    shelf = Fickle(0)
    ledger = ledger_on(shelf)
    for _ in range(3):
        await ledger.change("s", counted)

    assert shelf.taken == 1


async def test_a_refusal_rests_on_the_record_itself() -> None:
    """Not on what was known of it: that may be over."""
    shelf = Fickle(0)
    ledger = ledger_on(shelf)
    await ledger.change("s", lambda _: NEW)
    shelf.state = NEW._replace(batch=5)

    def refuse(state: SinkState | None) -> SinkState | None:
        raise SinkError("s", f"batch {state.batch if state else None}")

    with pytest.raises(SinkError, match="batch 5"):
        await ledger.change("s", refuse)
