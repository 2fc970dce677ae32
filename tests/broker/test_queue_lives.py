"""A queue's host through lives made of seeds: consumers, leaders and coordinators that fail.

Promises checked after every step: what was confirmed as settled is never given again, nobody is
given what another still holds, those of a key come in order where that is wanted, nobody waits
while there is something, and in the end every message was settled.
"""

from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.broker.test_queue_host import Stage
from tests.partition.building import ELSEWHERE, HERE, NOW, led
from tests.support.soak import count
from waystation.broker.fetching import Polls
from waystation.broker.share_fetching import ShareFetch, ShareLimits, Taken
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.records.batch import BatchBuilder
from waystation.sharing.persister import Read, Write
from waystation.sharing.states import (
    ACCEPT,
    ACKNOWLEDGED,
    REJECT,
    RELEASE,
    Acknowledgement,
    StateBatch,
)

ALL = -1
KEYS = 5
LOCK_S = 30.0
MEMBERS = ("ann", "bob", "cat")


class Life:
    """One queue, three consumers, and what they believe."""

    def __init__(self, path: Path, seed: int, **group: object) -> None:
        self.random = Random(seed)
        self.stage = Stage(path, max_deliveries=10_000, **group)
        self.stage.begin()
        self.settled: set[int] = set()
        """What a consumer was told is settled, or retention took."""
        self.is_ordered = group.get("share_order") == "key"
        self.unheard: set[int] = set()
        """What a consumer has acknowledged, and has not heard of yet."""
        self.unknown: set[int] = set()
        """What a consumer was told is not settled, as far as its leader knew."""
        self.held: dict[int, tuple[str, float, int]] = {}
        """By offset: who holds it, until when, in which term."""
        self.waiting: dict[str, ShareFetch] = {}
        self.polls = Polls()
        self.epoch = 0
        self.produced = 0
        self.given = 0

    # --- what consumers do ------------------------------------------------------------------

    def fetch(self, member: str, max_wait_ms: int = 0) -> None:
        place = self.stage.partition.topic_id, 0
        limits = ShareLimits(
            self.random.randint(1, 12),
            self.random.choice((0, 1, 300)),
            1 << 20,
            max_wait_ms,
            self.random.random() < 0.5,
        )
        self.waiting[member] = ShareFetch(
            self.stage.queues,
            "q",
            member,
            [place],
            limits,
            partial(self.took, member),
            timers=self.stage.timers,
            polls=self.polls,
        )
        self.waiting[member].start()

    def took(self, member: str, taken: list[Taken]) -> None:
        self.waiting.pop(member, None)
        now = self.stage.clock.monotonic()
        for one in taken:
            for first, end, deliveries in one.given.acquired:
                assert deliveries >= 1
                for offset in range(first, end):
                    assert offset not in self.settled, f"{offset} was settled"
                    self.check_free(offset, member, now)
                    self.check_order(offset)
                    self.held[offset] = member, now + LOCK_S, self.epoch
                    self.given += 1

    def check_free(self, offset: int, member: str, now: float) -> None:
        holder = self.held.get(offset)
        if holder is None:
            return
        who, until, epoch = holder
        assert epoch < self.epoch or until <= now, f"{offset} is {who}'s, {member} got it"

    def check_order(self, offset: int) -> None:
        """All before it of its key is settled, or may be."""
        if self.is_ordered:
            before = set(range(offset % KEYS, offset, KEYS))
            assert before <= self.settled | self.unknown | self.unheard, f"{offset} came too early"

    def check_nobody_waits_in_vain(self) -> None:
        host = self.stage.queues.find("q", self.stage.partition.topic_id, 0)
        patient = [one for one in self.waiting.values() if one._limits.min_bytes <= 1]
        assert not (patient and host is not None and host.may_give())

    def say(self, member: str, share: float = 0.7) -> None:
        now = self.stage.clock.monotonic()
        mine = sorted(
            offset
            for offset, (who, until, epoch) in self.held.items()
            if who == member and epoch == self.epoch and until > now
        )
        chosen = [offset for offset in mine if self.random.random() < share]
        host = self.stage.queues.find("q", self.stage.partition.topic_id, 0)
        if not chosen or host is None or host.leader is None:
            return
        kind = self.random.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT))
        meant = [Acknowledgement(Offset(one), Offset(one + 1), kind) for one in chosen]
        for offset in chosen:
            del self.held[offset]
        if kind != RELEASE:
            self.unheard.update(chosen)
        host.acknowledge(member, meant, partial(self.heard, chosen, kind))

    def heard(self, chosen: list[int], kind: int, answer: object) -> None:
        if kind == RELEASE:
            return
        self.unheard.difference_update(chosen)
        if answer is None:
            self.settled.update(chosen)
        else:
            self.unknown.update(chosen)

    def leave(self, member: str) -> None:
        fetch = self.waiting.pop(member, None)
        if fetch is not None:
            fetch.cancel()
        host = self.stage.queues.find("q", self.stage.partition.topic_id, 0)
        if host is not None:
            host.leave(member)
        self.held = {at: one for at, one in self.held.items() if one[0] != member}

    # --- what happens to them ---------------------------------------------------------------

    def produce(self) -> None:
        builder = BatchBuilder()
        for _ in range(self.random.randint(1, 9)):
            key = b"%d" % (self.produced % KEYS)
            builder.append(key, b"x" * 20, (), timestamp=NOW)
            self.produced += 1
        self.stage.partition.append(memoryview(bytearray(builder.build())), ALL, NOW)
        self.stage.turn()

    def another_term(self) -> None:
        """Another broker leads for a while, and settles something; then this one does again."""
        stage, queue_id, epoch = self.stage, self.stage.queue_id, LeaderEpoch(self.epoch + 1)
        stage.partition.follow_store(led(ELSEWHERE, epoch))
        self.epoch += 2
        if self.random.random() < 0.5:
            stage.turn()
        stage.persister.failing.clear()
        stage.persister.read(Read(queue_id, epoch), lambda _: None)
        first = self.random.randint(0, self.produced)
        end = min(first + 3, self.produced)
        if first < end:
            batch = StateBatch(Offset(first), Offset(end), ACKNOWLEDGED, 1)
            stage.persister.write(Write(queue_id, 1, epoch, NO_OFFSET, (batch,)), lambda _: None)
            self.settled.update(range(first, end))
        stage.partition.follow_store(led(HERE, self.epoch))
        stage.turn()

    def truncate(self) -> None:
        before = self.random.randint(0, self.produced // 3)
        self.stage.partition.delete_records(Offset(before))
        self.settled.update(range(before))

    def step(self) -> None:
        random, stage = self.random, self.stage
        member = random.choice(MEMBERS)
        match random.choices(range(9), (6, 12, 12, 2, 2, 2, 2, 1, 3))[0]:
            case 0:
                self.produce()
            case 1 if member not in self.waiting:
                self.fetch(member, random.choice((500, 60_000)))
            case 2:
                self.say(member)
            case 3:
                self.leave(member)
            case 4:
                stage.persister.hold()
            case 5:
                stage.persister.be_away(random.randint(1, 3))
            case 6:
                self.another_term()
            case 7:
                self.truncate()
            case 8:
                stage.persister.answer()
        stage.turn(random.choice((0, 0.001, 0.1, 1, 12)))
        stage.turn(0.01)  # timers may be a tick late
        stage.turn()
        self.check_nobody_waits_in_vain()

    def end(self) -> None:
        """All is well from now on: everything that is left comes and is accepted."""
        stage = self.stage
        stage.persister.failing.clear()
        stage.persister.answer()
        for member in MEMBERS:
            self.leave(member)
            self.fetch(member)
            stage.persister.be_away()
            self.say(member)
            for _ in range(5):
                stage.turn(1)
            assert not self.unheard, "somebody was not answered"
            self.leave(member)
        for _ in range(3):
            stage.turn(LOCK_S + 1)
        for _ in range(self.produced + 10):
            self.fetch("ann")
            stage.turn(0.2)
            self.say_all("ann")
        assert self.settled | self.unknown == set(range(self.produced))

    def say_all(self, member: str) -> None:
        held = sorted(offset for offset, one in self.held.items() if one[0] == member)
        host = self.stage.queues.find("q", self.stage.partition.topic_id, 0)
        if not held or host is None:
            return
        meant = [Acknowledgement(Offset(one), Offset(one + 1), ACCEPT) for one in held]
        host.acknowledge(member, meant, partial(self.heard, held, ACCEPT))
        self.held.clear()


@pytest.mark.parametrize("order", ["none", "key"])
@pytest.mark.parametrize("seed", range(count(25, 1_000)))
async def test_every_message_is_settled_once(tmp_path: Path, seed: int, order: str) -> None:
    life = Life(tmp_path / str(uuid4()), seed, share_order=order)
    for _ in range(150):
        life.step()
    life.end()

    assert life.given >= life.produced / 2, "hardly anything was given"
