"""A model of what lies around three replicas: the store with its controller, and their disks.

The store is one place that answers in order; what is asked of it, and what it answers, may be
late or lost.  The controller's rules are those of the cluster: it elects from the in-sync set,
then from the eligible leaders, each time under a new epoch, and nobody if none of them lives.
"""

from random import Random
from typing import NamedTuple

from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.replication.epochs import LeaderEpochs

NODES = (NodeId(1), NodeId(2), NodeId(3))
LEASE_MS = 300


class Row(NamedTuple):
    """One record of a log."""

    epoch: int
    value: int


class PartitionState(NamedTuple):
    """What is stored of the partition."""

    leader: NodeId | None
    epoch: LeaderEpoch
    in_sync: tuple[NodeId, ...]
    eligible: tuple[NodeId, ...]
    revision: int


class Proposal(NamedTuple):
    """An in-sync set, void unless the state and those who join are as their leader knew them."""

    revision: int
    members: tuple[NodeId, ...]
    joining: tuple[tuple[NodeId, BrokerEpoch], ...]


class Store:
    """The partition's state and who is registered; every change has a revision of its own."""

    def __init__(self, min_insync: int) -> None:
        self.min_insync = min_insync
        self.revision = 1
        self.state = PartitionState(None, LeaderEpoch(0), NODES, (), 1)
        self.brokers: dict[NodeId, BrokerEpoch] = {}
        self.leases: dict[NodeId, int] = {}
        self.elections = 0

    def register(self, node: NodeId, now: int) -> BrokerEpoch:
        """A new life of ``node``; what the one before led, it leads no more."""
        self.revision += 1
        life = self.brokers[node] = BrokerEpoch(self.revision)
        self.leases[node] = now + LEASE_MS
        if self.state.leader in (node, None):
            self.elect()
        return life

    def renew(self, node: NodeId, life: BrokerEpoch, now: int) -> bool:
        """Whether the life is still registered."""
        if self.brokers.get(node) != life:
            return False
        self.leases[node] = now + LEASE_MS
        return True

    def expire(self, now: int) -> bool:
        """Who did not renew is gone; whether anything changed."""
        gone = [node for node, until in self.leases.items() if until <= now]
        for node in gone:
            del self.leases[node], self.brokers[node]
        if self.state.leader not in self.brokers:
            before = self.state
            self.elect()
            return before != self.state or bool(gone)
        return bool(gone)

    def elect(self) -> None:
        """Under a new epoch; nothing if nobody led and nobody can."""
        in_sync, eligible = self.state.in_sync, self.state.eligible
        leader = self.first_of(in_sync)
        if leader is None:
            leader = self.first_of(eligible)
            if leader is not None:
                in_sync, eligible = (leader,), tuple(n for n in eligible if n != leader)
        if leader is None and self.state.leader is None:
            return
        self.elections += 1
        epoch = LeaderEpoch(self.state.epoch + 1)
        self._write(self.state._replace(leader=leader, epoch=epoch), in_sync, eligible)

    def first_of(self, allowed: tuple[NodeId, ...]) -> NodeId | None:
        return next((node for node in NODES if node in allowed and node in self.brokers), None)

    def change(self, proposal: Proposal) -> bool:
        """Compare and set."""
        joining_ok = all(self.brokers.get(node) == life for node, life in proposal.joining)
        if proposal.revision != self.state.revision or not joining_ok:
            return False
        members = proposal.members
        left = [n for n in (*self.state.in_sync, *self.state.eligible) if n not in members]
        eligible = tuple(dict.fromkeys(left)) if len(members) < self.min_insync else ()
        self._write(self.state, members, self.kept_eligible(eligible))
        return True

    def kept_eligible(self, eligible: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
        return eligible

    def _write(
        self, state: PartitionState, in_sync: tuple[NodeId, ...], eligible: tuple[NodeId, ...]
    ) -> None:
        self.revision += 1
        self.state = state._replace(in_sync=in_sync, eligible=eligible, revision=self.revision)


class ModelLog:
    """Rows from ``log_start`` on; ``safe_end`` is the end of what a crash cannot take."""

    def __init__(self) -> None:
        self.log_start = self.safe_end = Offset(0)
        self.rows: list[Row] = []
        self.epochs = LeaderEpochs()
        self.cuts = 0

    @property
    def log_end(self) -> Offset:
        return Offset(self.log_start + len(self.rows))

    def append(self, row: Row) -> None:
        self.epochs.assign(LeaderEpoch(row.epoch), self.log_end)
        self.rows.append(row)

    def read(self, offset: Offset, limit: int) -> list[Row]:
        at = offset - self.log_start
        return self.rows[at : at + limit]

    def truncate_to(self, offset: Offset) -> None:
        assert self.log_start <= offset <= self.log_end, f"cut at {offset}"
        del self.rows[offset - self.log_start :]
        self.epochs.truncate_to(offset)
        self.safe_end = self.log_end
        self.cuts += 1

    def start_at(self, offset: Offset) -> None:
        self.rows, self.log_start, self.safe_end = [], offset, offset
        self.epochs.clear()
        self.cuts += 1

    def advance_start(self, offset: Offset) -> None:
        offset = min(offset, self.log_end)
        if offset > self.log_start:
            del self.rows[: offset - self.log_start]
            self.log_start = offset
            self.safe_end = max(self.safe_end, offset)
            self.epochs.advance_start(offset)

    def lose_power(self, chance: Random) -> None:
        """Of what was not flushed some may be left, from its beginning."""
        self.cuts += 1
        kept = Offset(chance.randint(self.safe_end, self.log_end))
        del self.rows[kept - self.log_start :]
        self.epochs.truncate_to(kept)
        self.safe_end = kept
