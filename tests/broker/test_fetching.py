"""One fetch under way: when it ends, and with what."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.partition.building import MEMORY, NOW, World, batch_of, led, offset
from tests.partition.test_transactions import ALICE, marker, written
from waystation.broker.fetching import Fetch, Found, Limits, Polls, Wanted
from waystation.broker.long_polls import LongPolls
from waystation.broker.replicas import Replicas
from waystation.model.errors import ErrorCode
from waystation.model.ids import TopicId
from waystation.partition.partition import Partition
from waystation.runtime.clock import ManualClock
from waystation.runtime.timers import TICK_S, Timers

BATCH_BYTES = len(batch_of(b"x"))


class Reader:
    """Fetches from partitions of topic ``t``, on a clock that stands still."""

    def __init__(self, path: Path, partitions: int) -> None:
        self.world = World(path / "data")
        self.replicas = Replicas()
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.polls = Polls()
        self.answers: list[list[Found]] = []
        self.partitions = [self.world.partition(MEMORY, number) for number in range(partitions)]
        for partition in self.partitions:
            partition.follow_store(led())
            self.replicas.add(partition)

    def fetch(
        self,
        *wanted: Wanted,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
        stable_only: bool = False,
    ) -> Fetch:
        limits = Limits(min_bytes, max_bytes, max_wait_ms, stable_only)
        fetch = self.new_fetch(wanted, limits, self.polls)
        fetch.start()
        return fetch

    def new_fetch(self, wanted: Sequence[Wanted], limits: Limits, polls: Polls) -> Fetch:
        return Fetch(
            self.replicas, wanted, limits, self.answers.append, timers=self.timers, polls=polls
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.run_due()

    @property
    def listeners(self) -> list[int]:
        return [len(one.read_waiters) for one in self.partitions]


def at(number: int, offset_: int = 0, max_bytes: int = 1 << 20) -> Wanted:
    return Wanted("t", number, offset(offset_), max_bytes)


def fill(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        partition.append(batch_of(b"x"), 1, NOW)


@pytest.fixture
async def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path, partitions=3)


async def test_what_is_there_is_answered_at_once(reader: Reader) -> None:
    fill(reader.partitions[0])
    reader.fetch(at(0), at(1))

    ((first, second),) = reader.answers
    assert (first.nbytes, first.high_watermark, first.next_offset) == (BATCH_BYTES, 1, 1)
    assert (second.nbytes, second.high_watermark) == (0, 0)
    assert reader.listeners == [0, 0, 0]


async def test_nothing_there_waits_and_leaves_no_trace_when_it_ends(reader: Reader) -> None:
    reader.fetch(at(0), at(1))
    assert (reader.answers, reader.listeners, len(reader.polls.fetches)) == ([], [1, 1, 0], 1)
    fill(reader.partitions[1])
    reader.world.turn()

    (found,) = reader.answers
    assert [one.nbytes for one in found] == [0, BATCH_BYTES]
    assert (reader.listeners, reader.polls.fetches) == ([0, 0, 0], {})
    reader.pass_time(1)
    assert len(reader.answers) == 1


async def test_the_time_ends_the_wait(reader: Reader) -> None:
    reader.fetch(at(0))
    reader.pass_time(0.4)
    assert reader.answers == []
    reader.pass_time(0.2)

    assert [one.nbytes for one in reader.answers[0]] == [0]
    assert reader.listeners == [0, 0, 0]


@pytest.mark.parametrize("limits", [{"max_wait_ms": 0}, {"max_wait_ms": -5}, {"min_bytes": 0}])
async def test_who_does_not_want_to_wait_does_not(reader: Reader, limits: dict[str, int]) -> None:
    reader.fetch(at(0), **limits)

    assert len(reader.answers) == 1


async def test_the_wait_goes_on_until_there_is_enough(reader: Reader) -> None:
    reader.fetch(at(0), at(1), min_bytes=2 * BATCH_BYTES)
    fill(reader.partitions[0])
    reader.world.turn()
    assert reader.answers == []
    fill(reader.partitions[1])
    reader.world.turn()

    assert [one.nbytes for one in reader.answers[0]] == [BATCH_BYTES, BATCH_BYTES]


async def test_an_error_is_told_at_once(reader: Reader) -> None:
    reader.fetch(at(0), at(9), at(1, 5))
    codes = [one.error.code if one.error else 0 for one in reader.answers[0]]

    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_a_partition_that_goes_away_ends_the_wait(reader: Reader) -> None:
    reader.fetch(at(0))
    reader.replicas.remove(reader.partitions[0])
    reader.partitions[0].drop()
    reader.world.turn()

    assert reader.answers[0][0].error is not None


async def test_nothing_wanted_is_answered_at_once(reader: Reader) -> None:
    reader.fetch()

    assert reader.answers == [[]]


async def test_the_response_is_no_larger_than_asked_for(reader: Reader) -> None:
    for partition in reader.partitions:
        fill(partition, 3)
    reader.fetch(at(0), at(1), at(2), max_bytes=4 * BATCH_BYTES + 1)
    reader.fetch(at(0, max_bytes=2 * BATCH_BYTES), at(1), max_bytes=3 * BATCH_BYTES)
    reader.fetch(at(0), at(1), max_bytes=1)

    sizes = [[one.nbytes // BATCH_BYTES for one in found] for found in reader.answers]
    assert sizes == [[3, 1, 0], [2, 1], [1, 0]]


async def test_a_cancelled_wait_answers_nobody(reader: Reader) -> None:
    fetch = reader.fetch(at(0))
    fetch.cancel()
    fetch.cancel()
    fill(reader.partitions[0])
    reader.world.turn()
    reader.pass_time(1)
    fetch.end_now()

    assert (reader.answers, reader.listeners, reader.polls.fetches) == ([], [0, 0, 0], {})


async def test_a_shutdown_answers_with_what_there_is(reader: Reader) -> None:
    fetch = reader.fetch(at(0), min_bytes=1 << 20)
    fill(reader.partitions[0])
    fetch.end_now()
    fetch.end_now()

    assert [[one.nbytes for one in found] for found in reader.answers] == [[BATCH_BYTES]]


async def test_a_topic_is_found_by_its_id(reader: Reader) -> None:
    fill(reader.partitions[1])
    known = reader.partitions[0].topic_id
    by_id = Wanted("", 1, offset(0), 1_000, known)
    no_partition = Wanted("", 9, offset(0), 1_000, known)
    no_topic = Wanted("", 0, offset(0), 1_000, TopicId(UUID(int=99)))
    reader.fetch(by_id, no_partition, no_topic)

    found = reader.answers[0]
    assert found[0].nbytes == BATCH_BYTES
    assert [one.error.code for one in found[1:] if one.error] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


class Client:
    """A connection, as far as long polls know it."""

    def __init__(self) -> None:
        self.session: dict[str, object] = {}
        self.ends: list[object] = []

    def when_closed(self, run: object) -> None:
        self.ends.append(run)

    def close(self) -> None:
        for run in self.ends:
            run()  # type: ignore[operator]


async def test_long_polls_end_with_their_connection(reader: Reader) -> None:
    polls, first, second = LongPolls(), Client(), Client()
    for client in (first, first, second):
        polls_of = polls.of(client)  # type: ignore[arg-type]
        reader.new_fetch([at(0)], Limits(1, 100, 500), polls_of).start()
    assert (len(polls), len(first.ends)) == (3, 1)
    first.close()

    assert (len(polls), reader.answers) == (1, [])
    polls.answer_all()
    assert (len(polls), len(reader.answers)) == (0, 1)


# --- transactions -------------------------------------------------------------------------------


async def test_who_wants_stable_records_waits_at_the_first_open_transaction(
    reader: Reader,
) -> None:
    partition = reader.partitions[0]
    fill(partition)
    partition.append(written(ALICE, 0), 1, NOW)
    reader.fetch(at(0, 1), stable_only=True)
    reader.fetch(at(0, 2), stable_only=True)
    assert reader.answers == []
    reader.fetch(at(0, 1))
    assert [one.nbytes for one in reader.answers.pop()] == [len(written(ALICE, 0))]
    fill(partition)
    reader.world.turn()
    assert reader.answers == []

    partition.append_marker(marker(ALICE, commit=False), NOW)
    reader.world.turn()

    (first,), (second,) = reader.answers
    assert (first.high_watermark, first.last_stable, first.next_offset) == (4, 4, 4)
    assert [(one.producer_id, one.first_offset) for one in first.aborted] == [(ALICE, 1)]
    assert [one.first_offset for one in second.aborted] == [1]


async def test_both_kinds_of_readers_are_told_what_is_stable(reader: Reader) -> None:
    partition = reader.partitions[0]
    partition.append(written(ALICE, 0), 1, NOW)
    for offset_ in (0, 1):
        for stable_only in (True, False):
            reader.fetch(at(0, offset_), max_wait_ms=0, stable_only=stable_only)

    told = [(one.high_watermark, one.last_stable, one.nbytes > 0) for (one,) in reader.answers]
    assert told == [(1, 0, False), (1, 0, True), (1, 0, False), (1, 0, False)]


async def test_without_transactions_stable_records_are_all_records(reader: Reader) -> None:
    fill(reader.partitions[0])
    reader.fetch(at(0), at(1), stable_only=True)

    ((first, second),) = reader.answers
    assert (first.nbytes, first.last_stable, first.aborted) == (BATCH_BYTES, 1, [])
    assert (second.nbytes, second.last_stable) == (0, 0)


def set_linger(reader: Reader, number: int, linger_ms: int) -> None:
    partition = reader.partitions[number]
    partition.reconfigure(replace(partition.settings, fetch_linger_ms=linger_ms))


async def test_a_reader_is_answered_no_more_often_than_its_topic_says(reader: Reader) -> None:
    set_linger(reader, 0, 10)
    fill(reader.partitions[0])
    reader.fetch(at(0))
    assert len(reader.answers) == 1, "the first is answered at once"
    reader.fetch(at(0, 1))
    for _ in range(3):
        reader.pass_time(0.003)
        fill(reader.partitions[0])
        reader.world.turn()
    assert len(reader.answers) == 1
    reader.pass_time(0.001 + TICK_S)

    assert [one.nbytes for one in reader.answers[1]] == [3 * BATCH_BYTES]
    reader.fetch(at(0, 4))
    reader.pass_time(0.1)
    fill(reader.partitions[0])
    reader.world.turn()
    assert len(reader.answers) == 3, "who was not answered for long is answered at once"


async def test_a_reader_that_is_behind_never_waits(reader: Reader) -> None:
    set_linger(reader, 0, 10)
    fill(reader.partitions[0], 3)
    for number in range(3):
        reader.fetch(at(0, number, max_bytes=BATCH_BYTES))

    assert [[one.nbytes for one in found] for found in reader.answers] == [[BATCH_BYTES]] * 3


async def test_the_least_patient_topic_decides(reader: Reader) -> None:
    set_linger(reader, 0, 10)
    set_linger(reader, 1, 0)
    fill(reader.partitions[0])
    fill(reader.partitions[1])
    reader.fetch(at(0), at(1))
    fill(reader.partitions[0])
    reader.fetch(at(0, 1), at(1, 1))

    assert len(reader.answers) == 2


async def test_nobody_waits_longer_than_the_client_allows(reader: Reader) -> None:
    set_linger(reader, 0, 1_000)
    fill(reader.partitions[0])
    reader.fetch(at(0))
    reader.fetch(at(0, 1), max_wait_ms=50)
    fill(reader.partitions[0])
    reader.pass_time(0.06)

    assert [one.nbytes for one in reader.answers[1]] == [BATCH_BYTES]
