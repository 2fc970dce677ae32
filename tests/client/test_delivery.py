"""A lane against a broker that counts, over links that lose requests and answers.

Every run is a seed.  The broker is as strict as Kafka's: five remembered batches, epochs that
fence, any first number from a producer it does not know, and nothing that is too large.
"""

import os
from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from waystation.client.delivery import Identity, Lane, Verdict
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition

SEEDS = 2_000 if os.environ.get("WAYSTATION_SOAK") else 200
ME = Identity(ProducerId(7), ProducerEpoch(0))
WHERE = TopicPartition("orders", 0)
MOST_RECORDS = 4
"""The most in a batch that the broker takes."""


@dataclass(eq=False)
class Batch:
    order: tuple[int, ...]
    count: int = 1
    poison: bool = False
    identity: Identity | None = None
    sequence: int = -1
    retry_at: float = 0.0
    waiting: bool = False
    led: bool = False


Sent = tuple[Batch, Identity, int]


@dataclass
class Broker:
    """One partition's log with the checks of an idempotent append."""

    log: list[Batch] = field(default_factory=list)
    epoch: int = -1
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, sent: Sent) -> str:
        batch, (_, epoch), sequence = sent
        if epoch < self.epoch:
            return "fenced"
        if batch.count > MOST_RECORDS:
            return "too large"
        if batch.poison:
            return "refused"
        if epoch > self.epoch:
            if sequence != 0 and self.epoch >= 0:
                return "out of order"
            self.epoch = epoch
            self.recent.clear()
        elif (sequence, batch.count) in self.recent:
            return "ok"
        elif self.recent and sequence != sum(self.recent[-1]):
            return "out of order"
        self.recent.append((sequence, batch.count))
        self.log.append(batch)
        return "ok"


@dataclass
class World:
    """A producer's lane, a broker, and a connection that may break at any moment."""

    chance: Random
    gives_up: bool
    lane: Lane[Batch] = field(default_factory=lambda: Lane(WHERE, 5))
    broker: Broker = field(default_factory=Broker)
    to_broker: deque[Sent] = field(default_factory=deque)
    answers: deque[tuple[Batch, str]] = field(default_factory=deque)
    acknowledged: list[Batch] = field(default_factory=list)
    given_up: list[Batch] = field(default_factory=list)
    made: list[Batch] = field(default_factory=list)

    def step(self) -> None:
        moves = [self.produce, self.send, self.send, self.arrive, self.arrive, self.answer]
        moves += [self.answer, self.lose_connection]
        if self.gives_up:
            moves.append(self.give_up)
        self.chance.choice(moves)()

    def produce(self) -> None:
        poison = self.gives_up and self.chance.random() < 0.1
        count = self.chance.choice([1, 1, 2, 3, 3, 5, 17])
        batch = Batch((len(self.made),), count, poison)
        self.made.append(batch)
        self.lane.queued.append(batch)

    def send(self) -> None:
        batch = self.lane.ready(now=0.0)
        if batch is None:
            return
        if not batch.waiting and self.lane.needs_identity():
            self.lane.identify(ME)
        self.lane.sent(batch)
        assert batch.identity is not None
        self.to_broker.append((batch, batch.identity, batch.sequence))

    def arrive(self) -> None:
        if self.to_broker:
            sent = self.to_broker.popleft()
            if self.chance.random() < 0.1:
                self.answers.append((sent[0], "not leader"))
            else:
                self.answers.append((sent[0], self.broker.append(sent)))

    def answer(self) -> None:
        if not self.answers:
            return
        batch, said = self.answers.popleft()
        match said:
            case "ok":
                self.lane.acknowledged(batch)
                self.acknowledged.append(batch)
            case "out of order":
                verdict = self.lane.out_of_order(batch, retry_at=0.0)
                assert verdict is Verdict.RETRY, "the broker lost nothing"
            case "not leader":
                self.lane.failed(batch, retry_at=0.0)
            case "too large":
                self.cut(batch)
            case _:
                self.lane.gave_up(batch)
                self.given_up.append(batch)

    def cut(self, batch: Batch) -> None:
        first = batch.count // 2
        parts = [
            Batch((*batch.order, half), count, batch.poison)
            for half, count in enumerate((first, batch.count - first))
        ]
        self.lane.cut(batch, parts)
        self.made.remove(batch)
        self.made += parts

    def lose_connection(self) -> None:
        if self.chance.random() < 0.8:
            return
        self.to_broker.clear()
        self.answers.clear()
        for batch in list(self.lane.under_way):
            self.lane.failed(batch, retry_at=0.0)

    def give_up(self) -> None:
        hopeless = [batch for batch in self.lane.under_way if batch.waiting]
        hopeless += list(self.lane.queued)
        if hopeless and self.chance.random() < 0.2:
            batch = self.chance.choice(hopeless)
            self.lane.gave_up(batch)
            self.given_up.append(batch)

    def settle(self) -> None:
        """A quiet end: everything still wanted gets through."""
        for _ in range(10_000):
            self.send()
            self.arrive()
            self.answer()
            if not (self.lane.queued or self.lane.under_way or self.to_broker or self.answers):
                return
        raise AssertionError("the lane is stuck")


def in_order_and_once(world: World) -> None:
    orders = [batch.order for batch in world.broker.log]
    assert orders == sorted(set(orders)), "a batch was appended twice or out of order"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("gives_up", [False, True])
def test_batches_arrive_in_order_and_once(seed: int, gives_up: bool) -> None:
    world = World(Random(seed), gives_up)
    for _ in range(400):
        world.step()
        in_order_and_once(world)
    world.settle()
    in_order_and_once(world)

    assert set(world.acknowledged) <= set(world.broker.log)
    assert set(world.acknowledged) | set(world.given_up) == set(world.made)
    if not gives_up:
        assert world.broker.log == sorted(world.made, key=lambda batch: batch.order)
        assert world.broker.epoch <= 0, "what was cut keeps its numbers"


def lane_with(count: int) -> tuple[Lane[Batch], list[Batch]]:
    lane: Lane[Batch] = Lane(WHERE, 5)
    batches = [Batch((number,)) for number in range(count)]
    lane.queued.extend(batches)
    lane.identify(ME)
    return lane, batches


def send(lane: Lane[Batch]) -> Batch | None:
    batch = lane.ready(now=0.0)
    if batch is not None:
        lane.sent(batch)
    return batch


def test_one_batch_leaves_until_the_first_is_acknowledged_then_five() -> None:
    lane, batches = lane_with(8)

    assert send(lane) is batches[0]
    assert send(lane) is None

    lane.acknowledged(batches[0])

    assert [send(lane) for _ in range(6)] == [*batches[1:6], None]


def test_a_retried_batch_leaves_before_anything_new() -> None:
    lane, batches = lane_with(4)
    send(lane)
    lane.acknowledged(batches[0])
    send(lane)
    send(lane)
    lane.failed(batches[1], retry_at=5.0)

    assert lane.ready(now=4.9) is None
    assert lane.ready(now=5.0) is batches[1]


def test_the_first_batch_out_of_order_means_the_broker_lost_data() -> None:
    lane, batches = lane_with(2)
    send(lane)
    lane.acknowledged(batches[0])
    send(lane)

    assert lane.out_of_order(batches[1], retry_at=0.0) is Verdict.LOST


def test_after_a_loss_numbers_begin_again_under_the_next_epoch() -> None:
    lane, batches = lane_with(3)
    send(lane)
    lane.acknowledged(batches[0])
    send(lane)
    lane.gave_up(batches[1])
    send(lane)

    assert batches[2].identity == Identity(ProducerId(7), ProducerEpoch(1))
    assert batches[2].sequence == 0


def test_the_parts_of_a_batch_have_its_numbers_and_go_before_those_behind_it() -> None:
    lane: Lane[Batch] = Lane(WHERE, 5)
    lane.identify(ME)
    batches = [Batch((0,)), Batch((1,), count=5), Batch((2,))]
    lane.queued.extend(batches)
    send(lane)
    lane.acknowledged(batches[0])
    send(lane)
    send(lane)
    parts = [Batch((1, 0), count=2), Batch((1, 1), count=3)]
    lane.cut(batches[1], parts)
    lane.out_of_order(batches[2], retry_at=0.0)

    left = []
    while (batch := send(lane)) is not None:
        left.append((batch, batch.identity, batch.sequence))
        lane.acknowledged(batch)
    assert left == [(parts[0], ME, 1), (parts[1], ME, 3), (batches[2], ME, 6)]


def test_an_identity_without_epochs_left_is_replaced() -> None:
    lane: Lane[Batch] = Lane(WHERE, 5)
    lane.queued.extend([Batch((0,)), Batch((1,))])
    last = Identity(ProducerId(7), ProducerEpoch(32767))
    lane.identify(last)
    first = send(lane)
    assert first is not None
    lane.gave_up(first)

    assert lane.needs_identity()
    assert not lane.accepts(last)
    assert lane.accepts(Identity(ProducerId(8), ProducerEpoch(0)))


def test_sequence_numbers_wrap_to_zero() -> None:
    lane: Lane[Batch] = Lane(WHERE, 5)
    lane.identify(ME)
    lane.queued.extend([Batch((0,), count=(1 << 31) - 1), Batch((1,), count=3), Batch((2,))])
    first = send(lane)
    assert first is not None
    lane.acknowledged(first)
    second, third = send(lane), send(lane)

    assert second is not None
    assert second.sequence == (1 << 31) - 1
    assert third is not None
    assert third.sequence == 2


def test_a_batch_that_left_behind_another_may_be_out_of_order_once_more() -> None:
    """Its answer may be older than the other's, if the two came over different connections."""
    lane, batches = lane_with(3)
    send(lane)
    lane.acknowledged(batches[0])
    send(lane)
    send(lane)
    lane.acknowledged(batches[1])

    assert lane.out_of_order(batches[2], retry_at=0.0) is Verdict.RETRY
    assert send(lane) is batches[2]
    assert lane.out_of_order(batches[2], retry_at=0.0) is Verdict.LOST


def test_a_lane_renewed_by_its_coordinator_may_have_several_under_way_at_once() -> None:
    lane: Lane[Batch] = Lane(WHERE, 5)
    lane.identify(ME)
    lane.queued.extend(Batch((number,)) for number in range(4))
    first = lane.ready(now=0.0)
    assert first is not None
    lane.sent(first)

    assert not lane.has_room()

    lane.acknowledged(first)
    lane.renew(Identity(ME.producer, ProducerEpoch(1)))
    numbers = []
    for _ in range(3):
        batch = lane.ready(now=0.0)
        assert batch is not None
        lane.sent(batch)
        numbers.append((batch.identity, batch.sequence))

    assert numbers == [(Identity(ME.producer, ProducerEpoch(1)), number) for number in range(3)]


def test_a_lane_renewed_as_another_producer_begins_with_one() -> None:
    lane: Lane[Batch] = Lane(WHERE, 5)
    lane.identify(ME)
    lane.queued.extend(Batch((number,)) for number in range(2))
    first = lane.ready(now=0.0)
    assert first is not None
    lane.sent(first)
    lane.acknowledged(first)
    lane.renew(Identity(ProducerId(8), ProducerEpoch(0)))
    second = lane.ready(now=0.0)
    assert second is not None
    lane.sent(second)

    assert not lane.has_room()
