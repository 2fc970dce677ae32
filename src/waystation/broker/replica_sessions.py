"""The sessions of all followers of this broker; what one of them says is in ``replica_session.py``.

A follower has one session, the newest: one that begins anew, or on another connection, ends the
one before.  A fetch goes on with the session that it names, in the order of its epochs, or is told
that there is none.
"""

from collections.abc import Callable

from waystation.broker.replica_session import ReplicaSession
from waystation.broker.replicas import Replicas
from waystation.broker.throttle import LeaderThrottle
from waystation.model.error_codes import ErrorCode
from waystation.model.ids import BrokerEpoch, NodeId
from waystation.model.offsets import Millis
from waystation.runtime.clock import Clock
from waystation.runtime.timers import Timers
from waystation.telemetry.metrics import Counter

__all__ = ["ReplicaSession", "ReplicaSessions"]


class ReplicaSessions:
    """The sessions of all followers: one for each, the newest."""

    def __init__(
        self,
        replicas: Replicas,
        throttle: LeaderThrottle,
        clock: Clock,
        timers: Timers,
        next_id: Callable[[], int],
        sent: Counter,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self._replicas = replicas
        self._throttle = throttle
        self._clock = clock
        self._timers = timers
        self._next_id = next_id
        self._sent = sent
        self._defer = defer
        self._of: dict[NodeId, ReplicaSession] = {}
        self._began_ms = Millis(int(clock.monotonic() * 1_000))
        # When those were last heard of whose connection has ended.
        self._ended_ms: dict[NodeId, Millis] = {}

    def __len__(self) -> int:
        return len(self._of)

    def open(self, node: NodeId, life: BrokerEpoch) -> ReplicaSession:
        """Begin anew with a follower; what it asked before counts no more."""
        known = self._of.get(node)
        if known is not None:
            known.end_now()
            known.close()
        session = self._of[node] = ReplicaSession(
            self._next_id(),
            node,
            life,
            self._replicas,
            self._throttle,
            self._clock,
            self._timers,
            self._sent,
            self._defer,
        )
        return session

    def next(
        self, node: NodeId, life: BrokerEpoch, session_id: int, epoch: int
    ) -> ReplicaSession | ErrorCode:
        """The session that a fetch goes on with, or why there is none."""
        session = self._of.get(node)
        if session is None or session.id != session_id or session.life != life:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch += 1
        return session

    def close(self, session: ReplicaSession) -> None:
        """Its connection ended."""
        session.close()
        if self._of.get(session.node) is session:
            del self._of[session.node]
            self._ended_ms[session.node] = session.heard_at_ms

    def silent_s(self, node: NodeId) -> float:
        """For how long a follower has not asked anything."""
        session = self._of.get(node)
        if session is not None:
            heard_ms = session.heard_at_ms
        else:
            heard_ms = self._ended_ms.get(node, self._began_ms)
        return self._clock.monotonic() - heard_ms / 1_000

    def answer_all(self) -> None:
        """End every fetch that waits, with what there is."""
        for session in list(self._of.values()):
            session.end_now()
