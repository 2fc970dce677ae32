"""How well copies keep up, worked out when somebody scrapes it."""

from collections import defaultdict

from waystation.broker.followers import Followers
from waystation.broker.replica_sessions import ReplicaSessions
from waystation.broker.replicas import Replicas
from waystation.telemetry.metrics import Reading, Registry


class ReplicationGauges:
    """Reads the broker's parts; owns none of them."""

    def __init__(
        self,
        registry: Registry,
        replicas: Replicas,
        followers: Followers,
        sessions: ReplicaSessions,
    ) -> None:
        self._replicas = replicas
        registry.computed(
            "waystation_replication_lag_records_max",
            "How far behind the slowest copy of a partition led here is, by the broker it is on.",
            "gauge",
            self._lags,
        )
        registry.computed(
            "waystation_partitions_followed",
            "Partitions copied from other brokers.",
            "gauge",
            lambda: [({}, len(followers))],
        )
        registry.computed(
            "waystation_replica_sessions",
            "Brokers that copy from this one.",
            "gauge",
            lambda: [({}, len(sessions))],
        )

    def _lags(self) -> Reading:
        lags: defaultdict[int, int] = defaultdict(int)
        for one in self._replicas:
            if one.paces is None:
                continue
            for node in one.leadership.replicas:
                if node != one.leadership.leader:
                    behind = one.log_end - (one.paces.end_of(node) or one.log_start)
                    lags[node] = max(lags[node], behind)
        return [({"broker": str(node)}, lag) for node, lag in sorted(lags.items())]
