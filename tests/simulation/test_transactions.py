"""Transactional producers, processors and readers, with everything that can befall them.

Requests are lost, late, repeated and reordered; the broker and its clients die between any two
steps; other instances take over while the first ones live on.  The checker judges what clients saw:
no write lost, repeated, reordered or seen before its time, no transaction torn, no input processed
twice or left out.  At the end each input is transformed once, and nothing is left open.

A failure prints its seed; the seed becomes a line of ``regressions.txt``.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.simulation.data_log import DataLog
from tests.simulation.exactly_once import Life
from tests.simulation.transaction_broker import Broker
from tests.support.soak import count
from waystation.broker.admission import Admission, Verdict
from waystation.groups.pending import Pending
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.machines import Outcome, Reply
from waystation.records.control import Marker
from waystation.runtime.host import Host
from waystation.testing.checker import Kind
from waystation.transactions import producers
from waystation.transactions.commands import MarkersDue
from waystation.transactions.machine import Transactions

SEEDS = 40
REGRESSIONS = Path(__file__).with_name("regressions.txt")
Patch = pytest.MonkeyPatch


def remembered() -> list[int]:
    """The seeds that once found something."""
    lines = (line.split("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [int(words[1]) for words in lines if words and words[0] == "transactions"]


@pytest.mark.parametrize("seed", [*range(count(12, 600)), *remembered()])
def test_everything_happens_exactly_once(seed: int) -> None:
    Life(seed).run()


def test_the_same_seed_is_the_same_life() -> None:
    def lived(seed: int) -> tuple[int, object]:
        life = Life(seed)
        return life.world.schedule.steps, life.run()

    assert lived(1) == lived(1)


# --- planted bugs -----------------------------------------------------------------------------


def answers_before_the_commit(patch: Patch) -> None:
    def queue(host: Host[Any], replies: list[Reply]) -> None:
        for to, answer in replies:
            to(answer)

    patch.setattr(Host, "_queue", queue)


def loses_the_newest_batch_in_a_restart(patch: Patch) -> None:
    honest = DataLog.crash

    def crash(log: DataLog, chance: Random) -> None:
        if log.entries:
            log.end = log.synced = log.entries.pop().offset
        honest(log, chance)

    patch.setattr(DataLog, "crash", crash)


def shows_what_is_open(patch: Patch) -> None:
    patch.setattr(DataLog, "last_stable", property(lambda log: log.synced))


def writes_a_repeated_batch_again(patch: Patch) -> None:
    honest = DataLog.append

    def append(log: DataLog, producer_id: int, *arguments: Any, may_begin: bool) -> int:
        known = log._producers.get(producer_id)
        if known is not None and arguments[1] in known.recent:
            known.recent.clear()
            known.next_sequence = arguments[1]
        return honest(log, producer_id, *arguments, may_begin=may_begin)

    patch.setattr(DataLog, "append", append)


def takes_markers_of_an_earlier_coordinator(patch: Patch) -> None:
    honest = DataLog.refusal_of

    def refusal_of(log: DataLog, marker: Marker) -> object:
        return honest(log, marker._replace(coordinator_epoch=1 << 30))

    patch.setattr(DataLog, "refusal_of", refusal_of)


def commits_what_was_aborted_after_a_restart(patch: Patch) -> None:
    honest = Broker.write_marker

    async def write_marker(broker: Broker, due: MarkersDue, where: Any) -> None:
        again = due.coordinator_epoch > 1
        await honest(broker, due._replace(commit=due.commit or again), where)

    patch.setattr(Broker, "write_marker", write_marker)


def commits_one_partition_and_aborts_another(patch: Patch) -> None:
    honest = Broker.write_marker

    async def write_marker(broker: Broker, due: MarkersDue, where: Any) -> None:
        half = len(due.partitions) > 1 and where == due.partitions[0] and where.topic == "in"
        await honest(broker, due._replace(commit=due.commit and not half), where)

    patch.setattr(Broker, "write_marker", write_marker)


def keeps_the_epoch_from_one_transaction_to_the_next(patch: Patch) -> None:
    """Without KIP-890, what comes late joins the wrong transaction."""
    honest = Broker.end

    async def end(broker: Broker, name: str, *producer: int) -> object:
        *who, commit, _ = producer
        return await honest(broker, name, *who, commit, False)  # type: ignore[call-arg, arg-type]

    patch.setattr(Broker, "end", end)


def admits_without_asking(patch: Patch) -> None:
    def enter(_: Admission, producer: object, missing: Any, ask: object, go: Any) -> bool:
        verdict: Verdict = dict.fromkeys(missing())
        go(verdict)
        return True

    patch.setattr(Admission, "enter", enter)


def fences_nobody(patch: Patch) -> None:
    def careless(state: Any, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """Anybody is right."""

    patch.setattr(producers, "check_producer", careless)
    patch.setattr(DataLog, "refusal_of", lambda *_: None)


def offsets_of_aborted_transactions_count(patch: Patch) -> None:
    honest = Pending.end

    def end(pending: Pending, producer_id: ProducerId, *, committed: bool) -> object:
        return honest(pending, producer_id, committed=True)

    patch.setattr(Pending, "end", end)


def forgets_its_markers_in_a_restart(patch: Patch) -> None:
    patch.setattr(Transactions, "loaded", lambda *_: Outcome())


HANGS = "hangs"
BUGS: dict[Callable[[Patch], None], tuple[str, int]] = {
    answers_before_the_commit: (Kind.LOST_WRITE, 3),
    loses_the_newest_batch_in_a_restart: (Kind.LOST_WRITE, 0),
    shows_what_is_open: (Kind.ABORTED_READ, 0),
    writes_a_repeated_batch_again: (Kind.DUPLICATE, 1),
    takes_markers_of_an_earlier_coordinator: (Kind.ABORTED_READ, 20),
    commits_what_was_aborted_after_a_restart: (Kind.ABORTED_READ, 0),
    commits_one_partition_and_aborts_another: (Kind.TORN_TRANSACTION, 0),
    keeps_the_epoch_from_one_transaction_to_the_next: (Kind.TORN_TRANSACTION, 0),
    admits_without_asking: (HANGS, 0),
    fences_nobody: (Kind.INCONSISTENT_OFFSET, 0),
    offsets_of_aborted_transactions_count: (Kind.INCONSISTENT_OFFSET, 0),
    forgets_its_markers_in_a_restart: (HANGS, 0),
}
"""What is planted, as what it is found, and the seed at which it was found first."""


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    kind, first = BUGS[plant]

    assert any(kind in found_in(seed) for seed in range(first, first + SEEDS))


def found_in(seed: int) -> set[str]:
    """What the checker finds, or that it does not get that far."""
    life = Life(seed)
    try:
        return {one.kind for one in life.live().findings}
    except Exception:
        return {HANGS}
