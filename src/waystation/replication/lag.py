"""Which followers keep up with their leader, and which in-sync set it should therefore propose.

A follower is caught up as of a moment if it has all that the leader's log had at that moment.  It
is in sync while that moment is at most ``replica.lag.time.max.ms`` ago, or while it has all that
there is.  What a follower "has" is what counts for the high watermark: what it flushed, with
``durability=disk``.  Promises:

1. the leader stays a member, and so does whoever is caught up, is registered and is assigned;
2. nobody joins who may lack something committed: it must have reached the high watermark, and the
   end that the leader's log had at its election, below which others may know of commits;
3. nobody joins but the incarnation that is registered: what another one reported may be lost;
4. who is no longer registered leaves at once: it waits for nothing, and others wait for it.

The store decides; see ``in_sync.py`` for what counts until it has answered.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from waystation.model.ids import BrokerEpoch, NodeId
from waystation.model.offsets import Millis, Offset
from waystation.replication.leader import LeaderState

_NEVER = Millis(-(1 << 62))


class _Pace:
    """How one follower keeps up: it was caught up as of ``caught_up_at``."""

    __slots__ = ("_goal", "_goal_at", "caught_up_at", "end", "life")

    def __init__(self, caught_up_at: Millis) -> None:
        self.life = BrokerEpoch(-1)
        self.end = Offset(0)
        self.caught_up_at = caught_up_at
        # The end that the leader's log had at a moment: once reached, that moment counts.
        self._goal, self._goal_at = Offset(0), caught_up_at

    def report(self, life: BrokerEpoch, end: Offset, log_end: Offset, now: Millis) -> None:
        """HOT: once per partition of a follower's fetch."""
        if life != self.life:
            if life < self.life:
                return
            self.life = life
            self._goal, self._goal_at = log_end, now
        # Lower than before too: of a copy that was made anew, or an old one, put right by the next.
        self.end = end
        if self.end >= log_end:
            self.caught_up_at = now
            self._goal, self._goal_at = log_end, now
        elif self.end >= self._goal:
            self.caught_up_at = self._goal_at
            self._goal, self._goal_at = log_end, now


class Cluster(NamedTuple):
    """What the store says of a partition's replicas."""

    replicas: Sequence[NodeId]
    registered: Mapping[NodeId, BrokerEpoch]
    leaving: Collection[NodeId] = ()
    """Those who want to stop: they may stay in sync until then, but do not join."""


class Paces:
    """The followers of one partition, seen by its leader, for one leader epoch."""

    __slots__ = ("_leader", "_paces", "lag_max_ms")

    def __init__(
        self, leader: NodeId, in_sync: Iterable[NodeId], lag_max_ms: int, now: Millis
    ) -> None:
        """Members at the election have the whole time to be heard of."""
        self._leader = leader
        self.lag_max_ms = lag_max_ms
        self._paces = {node: _Pace(now) for node in in_sync if node != leader}

    def on_fetch(
        self, node: NodeId, life: BrokerEpoch, end: Offset, log_end: Offset, now: Millis
    ) -> None:
        """A follower that agrees with the leader's log has everything before ``end``.

        ``log_end`` is the leader's.  HOT: once per partition of a follower's fetch.
        """
        pace = self._paces.get(node)
        if pace is None:
            pace = self._paces[node] = _Pace(_NEVER)
        pace.report(life, end, log_end, now)

    def forget(self, node: NodeId) -> None:
        """A replica is none any more: what its copy had, its next one has not."""
        self._paces.pop(node, None)

    def refresh(self, log_end: Offset, now: Millis) -> None:
        """Note who has all that there is: those have from now on to fetch what comes next.

        A follower that waits for news says nothing, so without this it would seem to be behind,
        since the day it last spoke, as soon as something is appended.
        """
        for pace in self._paces.values():
            if pace.end >= log_end:
                pace.caught_up_at = now

    def life_of(self, node: NodeId) -> BrokerEpoch | None:
        """The incarnation that was heard of last."""
        pace = self._paces.get(node)
        return None if pace is None or pace.life < 0 else pace.life

    def end_of(self, node: NodeId) -> Offset | None:
        """What a follower has, if it was heard of."""
        pace = self._paces.get(node)
        return None if pace is None or pace.life < 0 else pace.end

    def caught_up(self, node: NodeId, log_end: Offset, now: Millis) -> bool:
        """Whether a follower keeps up."""
        pace = self._paces.get(node)
        if pace is None:
            return False
        return pace.end >= log_end or now - pace.caught_up_at <= self.lag_max_ms

    def candidates(
        self, state: LeaderState, cluster: Cluster, log_end: Offset, now: Millis
    ) -> tuple[NodeId, ...]:
        """Who keeps up and may join once it has reached the mark: to be courted until then."""
        return tuple(
            node
            for node in cluster.replicas
            if node not in state.in_sync.written
            and self.caught_up(node, log_end, now)
            and self._is_welcome(node, cluster)
        )

    def proposal(
        self, state: LeaderState, cluster: Cluster, log_end: Offset, now: Millis
    ) -> tuple[NodeId, ...] | None:
        """The in-sync set to propose, in the order of the assignment; ``None``: leave it so.

        None while an earlier proposal is unanswered.
        """
        if state.in_sync.proposed is not None:
            return None
        written = state.in_sync.written
        wanted = tuple(
            node
            for node in cluster.replicas
            if node == self._leader
            or (
                node in cluster.registered
                and self.caught_up(node, log_end, now)
                and (node in written or self._may_join(node, state, cluster))
            )
        )
        if self._leader not in wanted:
            # Moved away while it leads: whoever takes over must be among those in sync.
            wanted = (*wanted, self._leader)
        return None if sorted(wanted) == sorted(written) else wanted

    def _may_join(self, node: NodeId, state: LeaderState, cluster: Cluster) -> bool:
        return self._is_welcome(node, cluster) and self._paces[node].end >= state.needed_to_join

    def _is_welcome(self, node: NodeId, cluster: Cluster) -> bool:
        """Whether it is the incarnation that is registered, and wants to stay."""
        life = self._paces[node].life
        return cluster.registered.get(node) == life and node not in cluster.leaving
