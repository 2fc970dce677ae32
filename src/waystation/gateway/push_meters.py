"""What is measured about push."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from waystation.telemetry.metrics import Registry

__all__ = ["PushMeters"]


class Follows(Protocol):
    """Who reads a topic by itself."""

    @property
    def is_behind(self) -> bool:
        """Whether there is something that was not pushed to it yet."""


class PushMeters:
    """The metrics of push on one node."""

    def __init__(self, registry: Registry) -> None:
        self.pushed = registry.counter(
            "waystation_push_messages_total", "Messages that were pushed to subscribers."
        )
        self.subscribers = {
            kind: registry.gauge(
                "waystation_push_subscribers", "Streams and sockets that are pushed to.", kind=kind
            )
            for kind in ("events", "events-group", "socket", "socket-group", "socket-queue")
        }
        self.followers: set[Follows] = set()
        registry.computed(
            "waystation_push_lagging",
            "Subscribers that are behind the end of their topic.",
            "gauge",
            lambda: [({}, sum(one.is_behind for one in self.followers))],
        )

    @contextmanager
    def subscribed(self, kind: str) -> Iterator[None]:
        """For as long as a subscriber is there."""
        self.subscribers[kind].add()
        try:
            yield
        finally:
            self.subscribers[kind].add(-1)
