"""One partition on three nodes: the pure cores, a model of the store, and a bad network.

What is true after every event:

1. acknowledged is never lost: what any leader called committed is what everyone calls so;
2. committed is on every in-sync replica, flushed;
3. logs agree below the high watermark, of leader and followers alike;
4. the high watermark never moves back for a reader that follows the newest epoch it heard of;
5. there is one leader per epoch.
"""

import struct
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import TypeVar

from tests.simulation.replica_store import (
    NODES,
    ModelLog,
    PartitionState,
    Proposal,
    Row,
    Store,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Millis, Offset
from waystation.replication.follower import (
    Answer,
    Append,
    FollowerState,
    Question,
    StartAnew,
    Truncate,
)
from waystation.replication.lag import Cluster, Paces
from waystation.replication.leader import LeaderState, divergence

T = TypeVar("T")

LAG_MAX_MS = 250
ROW = struct.Struct(">iq")
ROWS_PER_ANSWER = 12
QUIET_MS = 2_500
"""At the end nothing fails any more, so that everyone can catch up."""


class BrokenPromiseError(AssertionError):
    """Something that shall always hold did not."""


class Node:
    """A replica: what a broker does with the cores, without waiting for anything."""

    def __init__(self, world: "World", number: NodeId) -> None:
        self.world, self.id = world, number
        self.log = ModelLog()
        self.alive, self.paused_until = True, 0
        self.starts = 0
        self._forget()

    def _forget(self) -> None:
        self.starts += 1
        self.life = BrokerEpoch(-1)
        self.state: PartitionState | None = None
        self.brokers: dict[NodeId, BrokerEpoch] = {}
        self.leading: LeaderState | None = None
        self.paces: Paces | None = None
        # Where the log begins was committed; what lies behind is for the leader to say.
        self.following = FollowerState(None, LeaderEpoch(-1), self.log.log_start)
        self.proposal: Proposal | None = None
        self.waiting: list[tuple[int, int]] = []
        self.flushing = False

    @property
    def mark(self) -> Offset:
        return self.leading.high_watermark if self.leading else self.following.mark

    # --- living -------------------------------------------------------------------------

    def crash(self) -> None:
        self.alive = False
        if self.world.durability == "disk":
            self.log.lose_power(self.world.chance)
        else:
            # The process was killed: the page cache has it all.
            self.log.cuts += 1
        self._forget()

    def tick(self) -> None:
        """What a broker does every few milliseconds."""
        now = self.world.now
        question = self.following.ask(self.log, Millis(now)) if self.leading is None else None
        if question is not None:
            self.world.ask(self, question)
        if self.paces is not None and self.leading is not None and self.state is not None:
            cluster = Cluster(NODES, self.brokers)
            self.leading.court(
                self.paces.candidates(self.leading, cluster, self.log.log_end, Millis(now))
            )
            self.moved()
            self._propose(self.leading, self.paces, self.state)

    def keep_alive(self) -> None:
        if self.life < 0:
            self.world.store_call(
                self, lambda: self.world.store.register(self.id, self.world.now), self._registered
            )
        else:
            life = self.life
            self.world.store_call(
                self,
                lambda: self.world.store.renew(self.id, life, self.world.now),
                partial(self._renewed, life),
            )

    def _registered(self, life: BrokerEpoch) -> None:
        if life > self.life:
            self.life = life

    def _renewed(self, life: BrokerEpoch, there: bool) -> None:
        """A broker whose lease ended leads nothing that it led, and registers anew."""
        if not there and life == self.life:
            self.life = BrokerEpoch(-1)
            self._resign()

    # --- roles --------------------------------------------------------------------------

    def hear(self, state: PartitionState, brokers: dict[NodeId, BrokerEpoch]) -> None:
        """The store's words, which may be late."""
        if self.life < 0 or (self.state is not None and state.revision < self.state.revision):
            return
        self.brokers = brokers
        before, self.state = self.state, state
        if before is not None and before.revision == state.revision:
            return
        if self.proposal is not None and state.revision > self.proposal.revision:
            self.proposal = None
        # What it led before it registered, it leads no more.
        if state.leader != self.id or state.revision < self.life:
            self._resign()
            self.following.obey(state.leader if state.leader != self.id else None, state.epoch)
        elif self.leading is None or self.leading.epoch != state.epoch:
            self._lead(state)
        else:
            self.leading.settle(state.in_sync, state.eligible)
        self.moved()

    def _resign(self) -> None:
        if self.leading is not None:
            self.following = FollowerState(None, self.leading.epoch, self.leading.high_watermark)
        self.leading = self.paces = self.proposal = None
        self.waiting.clear()

    def _lead(self, state: PartitionState) -> None:
        self._resign()
        world = self.world
        world.note_leader(self, state.epoch)
        self.leading = LeaderState(
            state.epoch,
            state.in_sync,
            world.min_insync,
            world.durability,
            leader=self.id,
            mark=self.following.mark,
            log_end=self.log.log_end,
            eligible=state.eligible,
        )
        self.following.obey(None, state.epoch)
        self.paces = Paces(self.id, state.in_sync, LAG_MAX_MS, Millis(world.now))
        self.flush_soon()

    def _propose(self, leading: LeaderState, paces: Paces, state: PartitionState) -> None:
        """The same is sent again until the store has refused it, or something newer is heard."""
        if self.proposal is None:
            cluster = Cluster(NODES, self.brokers)
            wanted = paces.proposal(leading, cluster, self.log.log_end, Millis(self.world.now))
            if wanted is None:
                return
            joining = tuple((n, self.brokers[n]) for n in wanted if n not in state.in_sync)
            self.proposal = Proposal(state.revision, wanted, joining)
            leading.propose(wanted)
        proposal = self.proposal
        self.world.store_call(
            self, lambda: self.world.store.change(proposal), partial(self._proposed, proposal)
        )

    def _proposed(self, proposal: Proposal, changed: bool) -> None:
        """Only what is read afterwards says which set is written; and it tells of any outcome."""
        if not changed and self.proposal == proposal and self.leading is not None:
            joined = [node for node, life in proposal.joining if self.brokers.get(node) != life]
            if joined and self.state is not None and self.state.revision == proposal.revision:
                # Refused for who joined: nobody can write it any more, so it is given up.
                self.proposal = None
                self.leading.settle(self.state.in_sync, self.state.eligible)
                self.moved()

    # --- leading ------------------------------------------------------------------------

    def produce(self, value: int) -> None:
        leading = self.leading
        if leading is None or not leading.enough_replicas():
            return
        self.log.append(Row(leading.epoch, value))
        self.waiting.append((self.log.log_end, value))
        self.flush_soon()
        self.moved()

    def answer(self, asker: NodeId, life: BrokerEpoch, question: Question) -> Answer:
        leading, log = self.leading, self.log
        if leading is None or self.paces is None:
            return Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if question.epoch != leading.epoch:
            older = question.epoch < leading.epoch
            return Answer(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if life < self.brokers.get(asker, BrokerEpoch(-1)):
            return Answer(ErrorCode.STALE_BROKER_EPOCH)
        diverging = divergence(log.epochs, log.log_end, question.offset, question.last_epoch)
        if diverging is not None:
            return Answer(diverging=diverging)
        if not log.log_start <= question.offset <= log.log_end:
            return Answer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start=log.log_start)
        counted = question.safe_end if self.world.durability == "disk" else question.offset
        leading.on_follower(asker, life, question.offset, question.safe_end)
        self.paces.on_fetch(asker, life, counted, log.log_end, Millis(self.world.now))
        self.moved()
        rows = log.read(question.offset, ROWS_PER_ANSWER)
        data = b"".join(ROW.pack(*row) for row in rows)
        return Answer(mark=leading.high_watermark, log_start=log.log_start, data=memoryview(data))

    def moved(self) -> None:
        """The log, or who counts, may have changed: see what is committed now."""
        leading = self.leading
        if leading is None:
            return
        leading.on_local(self.log.log_end, self.log.safe_end)
        mark = leading.high_watermark
        self.world.committed_by(self, mark)
        self.world.acknowledged += sum(end <= mark for end, _ in self.waiting)
        self.waiting = [one for one in self.waiting if one[0] > mark]

    def delete_records(self) -> None:
        if self.leading is not None and self.leading.settled:
            self.log.advance_start(Offset(max(0, self.leading.high_watermark - 3)))

    # --- following ----------------------------------------------------------------------

    def answered(self, question: Question, answer: Answer) -> None:
        step = self.following.decide(question, answer, self.log, Millis(self.world.now))
        match step:
            case Append():
                for at in range(0, len(step.data), ROW.size):
                    self.log.append(Row(*ROW.unpack_from(step.data, at)))
                self.log.advance_start(step.log_start)
                self.flush_soon()
            case Truncate():
                if step.loses_committed:
                    raise BrokenPromiseError(f"{self.id} cuts committed records at {step.offset}")
                self.log.truncate_to(step.offset)
            case StartAnew():
                self.log.start_at(step.offset)
            case _:
                return
        self.following.carried_out(step, self.log)

    def unanswered(self, question: Question) -> None:
        self.following.failed(question, Millis(self.world.now))

    # --- flushing -----------------------------------------------------------------------

    def flush_soon(self) -> None:
        if not self.flushing and self.log.safe_end < self.log.log_end:
            self.flushing = True
            end, cuts = self.log.log_end, self.log.cuts
            self.world.at_node(
                self, self.world.chance.randint(1, 30), partial(self._flushed, end, cuts)
            )

    def _flushed(self, end: Offset, cuts: int) -> None:
        self.flushing = False
        if cuts == self.log.cuts:
            self.log.safe_end = max(self.log.safe_end, end)
        self.flush_soon()
        self.moved()


class World:
    """Time, links, failures and what was ever committed."""

    def __init__(self, seed: int, run_ms: int = 6_000) -> None:
        self.chance = Random(seed)
        self.now, self._number, self.run_ms = 0, 0, run_ms
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self.durability = self.chance.choice(("disk", "disk", "disk", "memory"))
        self.min_insync = self.chance.choice((1, 2, 2))
        self.loss = self.chance.choice((0.0, 0.05, 0.2))
        self.store = Store(self.min_insync)
        self.nodes = {number: Node(self, number) for number in NODES}
        self.cut_off: dict[NodeId | tuple[NodeId, NodeId], int] = {}
        self.committed: list[Row] = []
        self.leaders: dict[int, NodeId] = {}
        self.acknowledged = self.value = 0
        self.seen_epoch, self.seen_mark = -1, 0
        for node in self.nodes.values():
            self._every(7, node, node.tick)
            self._every(90, node, node.keep_alive)
        self._every(20, None, self._expire)
        self._every(9, None, self._produce)
        self._every(13, None, self._read)
        self._every(120, None, self._fault)

    @property
    def quiet(self) -> bool:
        return self.now > self.run_ms - QUIET_MS

    # --- time ---------------------------------------------------------------------------

    def after(self, wait_ms: int, work: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._events, (self.now + wait_ms, self._number, work))

    def _every(self, period_ms: int, node: Node | None, work: Callable[[], None]) -> None:
        def again() -> None:
            self.after(self.chance.randint(1, 2 * period_ms), again)
            if node is None or (node.alive and node.paused_until <= self.now):
                work()

        self.after(self.chance.randint(1, 2 * period_ms), again)

    def at_node(self, node: Node, wait_ms: int, work: Callable[[], None]) -> None:
        """Later, when the node is not paused; never if it crashed in between."""
        starts = node.starts

        def then() -> None:
            if node.starts != starts or not node.alive:
                return
            if node.paused_until > self.now:
                self.after(node.paused_until - self.now, then)
            else:
                work()

        self.after(wait_ms, then)

    def run(self) -> None:
        while self._events and self.now < self.run_ms:
            self.now, _, work = heappop(self._events)
            work()
            self.check()

    # --- messages -----------------------------------------------------------------------

    def _delay_ms(self) -> int:
        slow = not self.quiet and self.chance.random() < 0.05
        return self.chance.randint(50, 700) if slow else self.chance.randint(1, 12)

    def _copies(self, *ends: NodeId) -> int:
        """How often a message arrives."""
        link = tuple(sorted(ends))
        if self.quiet:
            return 1
        if self.cut_off.get(link if len(link) > 1 else ends[0], 0) > self.now:  # type: ignore[call-overload]
            return 0
        if self.chance.random() < self.loss:
            return 0
        return 2 if self.chance.random() < 0.05 else 1

    def ask(self, asker: Node, question: Question) -> None:
        life, leader = asker.life, self.nodes[question.leader]

        def arrive() -> None:
            answer = leader.answer(asker.id, life, question)
            for _ in range(self._copies(asker.id, leader.id)):
                self.at_node(asker, self._delay_ms(), partial(asker.answered, question, answer))

        for _ in range(self._copies(asker.id, leader.id)):
            self.at_node(leader, self._delay_ms(), arrive)
        self.at_node(asker, 150, partial(asker.unanswered, question))

    def store_call(self, node: Node, call: Callable[[], T], told: Callable[[T], None]) -> None:
        """Ask the store; the answer may be lost although it was carried out."""

        def arrive() -> None:
            outcome = call()
            state, brokers = self.store.state, dict(self.store.brokers)
            self._publish()
            if self._copies(node.id):

                def back() -> None:
                    told(outcome)
                    node.hear(state, brokers)

                self.at_node(node, self._delay_ms(), back)

        for _ in range(min(self._copies(node.id), 1)):
            self.after(self._delay_ms(), arrive)

    def _publish(self) -> None:
        """Everyone who watches hears of the present state."""
        state, brokers = self.store.state, dict(self.store.brokers)
        for node in self.nodes.values():
            if self._copies(node.id):
                self.at_node(node, self._delay_ms(), partial(node.hear, state, brokers))

    def _expire(self) -> None:
        if self.store.expire(self.now):
            self._publish()

    # --- what happens -------------------------------------------------------------------

    def _produce(self) -> None:
        self.value += 1
        for node in self.nodes.values():
            if node.alive and node.leading is not None and node.paused_until <= self.now:
                node.produce(self.value)

    def _read(self) -> None:
        """A reader that never goes back to an older epoch than it has heard of."""
        node = self.nodes[self.chance.choice(NODES)]
        leading = node.leading
        if not node.alive or leading is None or leading.epoch < self.seen_epoch:
            return
        if not leading.settled:
            return
        if leading.high_watermark < self.seen_mark:
            raise BrokenPromiseError(
                f"a reader sees {leading.high_watermark} after {self.seen_mark}"
            )
        self.seen_epoch, self.seen_mark = leading.epoch, leading.high_watermark

    def _fault(self) -> None:
        if self.quiet:
            self.cut_off.clear()
            return
        node = self.nodes[self.chance.choice(NODES)]
        match self.chance.randrange(6):
            case 0 if node.alive:
                node.crash()
                self.after(self._downtime_ms(), partial(self._restart, node))
            case 1:
                node.paused_until = self.now + self.chance.randint(50, 900)
            case 2:
                self.cut_off[node.id] = self.now + self.chance.randint(50, 800)
            case 3:
                other = self.chance.choice([one for one in NODES if one != node.id])
                link = (min(node.id, other), max(node.id, other))
                self.cut_off[link] = self.now + self.chance.randint(50, 800)
            case 4 if self.chance.random() < 0.3:
                node.delete_records()
            case 5 if self.chance.random() < 0.15:
                for one in self.nodes.values():
                    if one.alive:
                        one.crash()
                        self.after(self._downtime_ms(), partial(self._restart, one))

    def _downtime_ms(self) -> int:
        """Sometimes shorter than a lease lasts."""
        return self.chance.randint(10, self.chance.choice((40, 900)))

    def _restart(self, node: Node) -> None:
        node.alive, node.paused_until = True, 0

    # --- what must hold -----------------------------------------------------------------

    def note_leader(self, node: Node, epoch: LeaderEpoch) -> None:
        if self.leaders.setdefault(epoch, node.id) != node.id:
            raise BrokenPromiseError(f"{node.id} and {self.leaders[epoch]} lead in epoch {epoch}")

    def committed_by(self, node: Node, mark: Offset) -> None:
        """A leader calls everything before ``mark`` committed: acknowledged to producers."""
        if mark > node.log.log_end:
            raise BrokenPromiseError(f"{node.id} calls {mark} committed and has {node.log.log_end}")
        known = len(self.committed)
        if mark > known:
            if node.log.log_start > known:
                raise BrokenPromiseError(f"{node.id} deleted what was not committed")
            self.committed += node.log.read(Offset(known), mark - known)

    def check(self) -> None:
        """Promises 1 to 3."""
        end = len(self.committed)
        for node in self.nodes.values():
            log = node.log
            upto = min(node.mark, log.log_end)
            if (
                log.read(log.log_start, upto - log.log_start)
                != self.committed[log.log_start : upto]
            ):
                raise BrokenPromiseError(f"{node.id} has other records below its mark {upto}")
            if node.id in self.store.state.in_sync:
                held = log.safe_end if self.durability == "disk" else log.log_end
                if held < end and log.log_start < end:
                    raise BrokenPromiseError(f"{node.id} is in sync with {held} of {end}")
                if log.read(log.log_start, end - log.log_start) != self.committed[log.log_start :]:
                    raise BrokenPromiseError(f"{node.id} is in sync and has other records")
