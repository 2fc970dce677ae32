"""What a broker holds, worked out when somebody scrapes it."""

from collections import Counter
from collections.abc import Callable, Sequence

from waystation.broker.fetch_sessions import FetchSessions
from waystation.broker.long_polls import LongPolls
from waystation.broker.replicas import Replicas
from waystation.partition.meters import TopicMeters
from waystation.storage.directory import DataDirectory
from waystation.telemetry.metrics import Reading, Registry


class Gauges:
    """Reads the broker's parts; owns none of them."""

    def __init__(
        self,
        registry: Registry,
        replicas: Replicas,
        meters: TopicMeters,
        directories: Sequence[DataDirectory],
        sessions: FetchSessions,
        polls: LongPolls,
    ) -> None:
        self._replicas = replicas
        self._meters = meters
        _one(registry, "waystation_partitions", "Partitions held.", lambda: len(replicas))
        _one(
            registry,
            "waystation_partitions_led",
            "Partitions that this broker leads.",
            lambda: sum(one.leading for one in replicas),
        )
        _one(
            registry,
            "waystation_partitions_under_min_isr",
            "Led partitions with fewer in-sync replicas than min.insync.replicas.",
            lambda: sum(one.under_min_insync for one in replicas),
        )
        _one(
            registry,
            "waystation_fetch_sessions",
            "Fetch sessions remembered.",
            lambda: len(sessions),
        )
        _one(registry, "waystation_long_polls", "Fetches that wait.", lambda: len(polls))
        _one(
            registry,
            "waystation_idempotency_keys",
            "Idempotency keys remembered, 65 bytes each, by leaders and followers.",
            lambda: sum(len(one.log.once) for one in replicas),
        )
        registry.computed(
            "waystation_log_bytes", "Bytes of record batches held.", "gauge", self._log_bytes
        )
        registry.computed(
            "waystation_data_directory_online",
            "1 while a data directory is in use, 0 once its disk has failed.",
            "gauge",
            lambda: [({"path": str(one.path)}, float(one.offline is None)) for one in directories],
        )

    def _log_bytes(self) -> Reading:
        sizes: Counter[str] = Counter()
        for one in self._replicas:
            sizes[self._meters.label(one.name.topic)] += one.log.size_bytes
        return [({"topic": topic}, size) for topic, size in sizes.items()]


def _one(registry: Registry, name: str, doc: str, read: Callable[[], float]) -> None:
    registry.computed(name, doc, "gauge", lambda: [({}, read())])
