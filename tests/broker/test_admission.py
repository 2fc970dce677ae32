"""Requests of a producer keep their order while its coordinator is asked."""

from random import Random

import pytest

from waystation.broker.admission import Admission, Hear, Verdict
from waystation.model.errors import InvalidTxnStateError
from waystation.model.ids import ProducerId, TopicPartition

ONE, OTHER = ProducerId(1), ProducerId(2)
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))


class Coordinator:
    """Answers when told to; ``open`` are the partitions in which the transaction is open."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.asked: list[tuple[list[TopicPartition], Hear]] = []
        self.open: set[TopicPartition] = set()
        self.at_once = at_once

    def ask(self, wanted: list[TopicPartition], hear: Hear) -> None:
        self.asked.append((wanted, hear))
        if self.at_once:
            self.answer(-1)

    def answer(self, index: int = 0, error: InvalidTxnStateError | None = None) -> None:
        wanted, hear = self.asked.pop(index)
        hear(dict.fromkeys(wanted, error))


class Log:
    """What went on, in order, and with which verdict."""

    def __init__(self, admission: Admission, coordinator: Coordinator) -> None:
        self.admission, self.coordinator = admission, coordinator
        self.went: list[str] = []
        self.verdicts: list[Verdict] = []

    def enter(self, name: str, *partitions: TopicPartition, producer: ProducerId = ONE) -> bool:
        def go(verdict: Verdict) -> None:
            self.went.append(name)
            self.verdicts.append(verdict)
            self.coordinator.open |= {one for one, error in verdict.items() if error is None}

        return self.admission.enter(
            producer,
            lambda: [one for one in partitions if one not in self.coordinator.open],
            self.coordinator.ask,
            go,
        )


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def log(coordinator: Coordinator) -> Log:
    return Log(Admission(), coordinator)


def test_who_is_in_the_transaction_asks_nobody(log: Log, coordinator: Coordinator) -> None:
    coordinator.open = {P0}

    assert log.enter("a", P0)
    assert log.went == ["a"]
    assert coordinator.asked == []
    assert len(log.admission) == 0


def test_a_request_that_needs_nothing_waits_behind_one_that_asks(
    log: Log, coordinator: Coordinator
) -> None:
    coordinator.open = {P1}

    assert not log.enter("asks", P0)
    assert not log.enter("needs nothing", P1)
    assert log.admission.waits(ONE)
    assert log.went == []

    coordinator.answer()

    assert log.went == ["asks", "needs nothing"]
    assert not log.admission.waits(ONE)


def test_another_producer_waits_for_nobody(log: Log, coordinator: Coordinator) -> None:
    coordinator.open = {P1}
    log.enter("slow", P0)

    assert log.enter("quick", P1, producer=OTHER)
    assert log.went == ["quick"]


def test_all_ask_at_once_so_that_one_commit_serves_them(log: Log, coordinator: Coordinator) -> None:
    for name, partition in (("a", P0), ("b", P1), ("c", P2)):
        log.enter(name, partition)

    assert [wanted for wanted, _ in coordinator.asked] == [[P0], [P1], [P2]]

    for _ in range(3):
        coordinator.answer()

    assert log.went == ["a", "b", "c"]
    assert coordinator.asked == []


def test_an_answer_out_of_turn_is_asked_for_again(log: Log, coordinator: Coordinator) -> None:
    log.enter("a", P0)
    log.enter("b", P1)
    coordinator.answer(1)

    assert log.went == []

    coordinator.answer(0)

    assert log.went == ["a"]
    assert [wanted for wanted, _ in coordinator.asked] == [[P1]]

    coordinator.answer()

    assert log.went == ["a", "b"]


def test_a_transaction_that_ended_while_a_request_was_in_line_is_asked_about(
    log: Log, coordinator: Coordinator
) -> None:
    coordinator.open = {P1}
    log.enter("a", P0)
    log.enter("b", P1)
    coordinator.open = set()
    coordinator.answer()

    assert log.went == ["a"]
    assert [wanted for wanted, _ in coordinator.asked] == [[P1]]


def test_a_refusal_is_its_own_request_s_and_the_next_one_goes_on(
    log: Log, coordinator: Coordinator
) -> None:
    refusal = InvalidTxnStateError("no transaction")
    log.enter("refused", P0)
    log.enter("fine", P1)
    coordinator.answer(0, refusal)
    coordinator.answer()

    assert log.went == ["refused", "fine"]
    assert log.verdicts == [{P0: refusal}, {P1: None}]


def test_a_coordinator_that_fails_while_it_is_asked_answers_all_at_once(
    log: Log, coordinator: Coordinator
) -> None:
    error = InvalidTxnStateError("it has failed")
    log.enter("first", P0)

    def fail(wanted: list[TopicPartition], hear: Hear) -> None:
        coordinator.answer(error=error)
        hear(dict.fromkeys(wanted, error))

    went = log.admission.enter(ONE, lambda: [P1], fail, lambda _: log.went.append("second"))

    assert went
    assert log.went == ["first", "second"]
    assert len(log.admission) == 0


def test_a_request_that_cannot_ask_keeps_no_other_waiting(
    log: Log, coordinator: Coordinator
) -> None:
    def break_down(wanted: list[TopicPartition], hear: Hear) -> None:
        raise RuntimeError

    for waiting in (False, True):
        if waiting:
            log.enter("first", P0)
        with pytest.raises(RuntimeError):
            log.admission.enter(ONE, lambda: [P1], break_down, lambda _: None)
    log.enter("second", P0)
    for _ in range(2):
        coordinator.answer()

    assert log.went == ["first", "second"]
    assert len(log.admission) == 0


def test_answers_at_once_need_no_deeper_stack_for_a_longer_line(log: Log) -> None:
    slow, quick = log.coordinator, Coordinator(at_once=True)
    log.enter("first", P0)
    log.coordinator = quick
    for number in range(5_000):
        log.enter(str(number), TopicPartition("orders", 10 + number))
    slow.answer()

    assert log.went == ["first", *map(str, range(5_000))]


@pytest.mark.parametrize("seed", range(100))
def test_order_is_kept_whatever_order_answers_come_in(seed: int) -> None:
    chance = Random(seed)
    coordinator = Coordinator()
    log = Log(Admission(), coordinator)
    entered = 0
    for _ in range(200):
        event = chance.random()
        if event < 0.5:
            wanted = TopicPartition("orders", chance.randrange(4))
            log.enter(str(entered), wanted)
            entered += 1
        elif event < 0.9 and coordinator.asked:
            coordinator.answer(chance.randrange(len(coordinator.asked)))
        else:
            coordinator.open.clear()
    while coordinator.asked:
        coordinator.answer()

    assert log.went == [str(number) for number in range(entered)]
    assert len(log.admission) == 0
