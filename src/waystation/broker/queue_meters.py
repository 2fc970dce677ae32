"""What queues did, counted: by messages, over all queues of a broker."""

from collections.abc import Sequence
from typing import Final

from waystation.sharing.states import ACCEPT, GAP, REJECT, RELEASE, RENEW, Acknowledgement
from waystation.telemetry.metrics import Counter, Registry

_DOCS: Final = {
    "acquired": "Messages given to consumers of queues, each delivery counted.",
    "acknowledged": "Messages of queues that consumers have accepted.",
    "released": "Messages of queues that consumers gave back, or left behind.",
    "rejected": "Messages of queues that consumers have rejected.",
    "renewed": "Messages of queues that consumers keep for longer.",
    "passed_over": "Offsets that consumers of queues found no message at.",
    "lock_timeouts": "Messages taken back from consumers of queues because their lock was over.",
}


class QueueMeters:
    """One counter for each thing that happens to messages of queues."""

    __slots__ = (
        "_by_kind",
        "acknowledged",
        "acquired",
        "lock_timeouts",
        "passed_over",
        "rejected",
        "released",
        "renewed",
    )

    def __init__(self, registry: Registry) -> None:
        def counter(name: str) -> Counter:
            return registry.counter(f"waystation_queue_{name}_total", _DOCS[name])

        self.acquired = counter("acquired")
        self.acknowledged = counter("acknowledged")
        self.released = counter("released")
        self.rejected = counter("rejected")
        self.renewed = counter("renewed")
        self.passed_over = counter("passed_over")
        self.lock_timeouts = counter("lock_timeouts")
        self._by_kind = {
            GAP: self.passed_over,
            ACCEPT: self.acknowledged,
            RELEASE: self.released,
            REJECT: self.rejected,
            RENEW: self.renewed,
        }

    def count(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """A consumer was followed."""
        for first, end, kind, _ in acknowledgements:
            self._by_kind[kind].value += end - first
