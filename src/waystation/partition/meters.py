"""What goes in and out of each topic, counted.

Every topic has four counters of its own, up to a limit; those beyond it share the label
``...``, which no topic can be called.  Scrapers are spared a thousand lines that way, and
counting costs two additions per batch.
"""

from waystation.telemetry.metrics import Counter, Registry

REST = "..."
TOPICS_MAX = 100

_PRODUCED_RECORDS = "waystation_topic_produced_records_total"
_PRODUCED_BYTES = "waystation_topic_produced_bytes_total"
_FETCHED_RECORDS = "waystation_topic_fetched_records_total"
_FETCHED_BYTES = "waystation_topic_fetched_bytes_total"
_DOCS = {
    _PRODUCED_RECORDS: "Records appended for producers.",
    _PRODUCED_BYTES: "Bytes of record batches appended for producers.",
    _FETCHED_RECORDS: "Records sent to consumers.",
    _FETCHED_BYTES: "Bytes of record batches sent to consumers.",
}


class TopicMeter:
    """The counters that the partitions of one topic share."""

    __slots__ = ("fetched_bytes", "fetched_records", "produced_bytes", "produced_records")

    def __init__(self, registry: Registry, topic: str) -> None:
        self.produced_records = _counter(registry, _PRODUCED_RECORDS, topic)
        self.produced_bytes = _counter(registry, _PRODUCED_BYTES, topic)
        self.fetched_records = _counter(registry, _FETCHED_RECORDS, topic)
        self.fetched_bytes = _counter(registry, _FETCHED_BYTES, topic)


class TopicMeters:
    """The meters of a broker's topics."""

    __slots__ = ("_limit", "_meters", "_registry", "_rest")

    def __init__(self, registry: Registry, limit: int = TOPICS_MAX) -> None:
        self._registry = registry
        self._limit = limit
        self._meters: dict[str, TopicMeter] = {}
        self._rest = TopicMeter(registry, REST)

    def of(self, topic: str) -> TopicMeter:
        """The topic's own meter, or what the topics beyond the limit share."""
        known = self._meters.get(topic)
        if known is None:
            if len(self._meters) >= self._limit:
                return self._rest
            known = self._meters[topic] = TopicMeter(self._registry, topic)
        return known

    def label(self, topic: str) -> str:
        """The name under which a topic is counted."""
        return topic if topic in self._meters else REST

    def forget(self, topic: str) -> None:
        """The topic is gone; another may have its place."""
        if self._meters.pop(topic, None) is not None:
            for name in _DOCS:
                self._registry.forget(name, topic=topic)


def _counter(registry: Registry, name: str, topic: str) -> Counter:
    return registry.counter(name, _DOCS[name], topic=topic)
