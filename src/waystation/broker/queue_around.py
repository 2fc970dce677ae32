"""What is around the queues of a broker: time, the coordinators of their states, who is told."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from waystation.broker.queue_meters import QueueMeters
from waystation.runtime.clock import Clock
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Persister
from waystation.sharing.settings import ShareSettings

if TYPE_CHECKING:
    from waystation.broker.queue_host import QueueHost


class DeadLetters(Protocol):
    """Whoever moves what was given up to dead-letter topics."""

    def changed(self, host: "QueueHost") -> None:
        """A queue was loaded, or something of it was stored: there may be dead letters."""
        ...

    def gone(self, host: "QueueHost") -> None:
        """A queue is led here no more."""
        ...


class Around(NamedTuple):
    """What all hosts of a broker share."""

    persister: Persister
    clock: Clock
    """Steady: locks are points in time on it."""
    wall: Clock
    timers: Timers
    defer: Callable[[Callable[[], None]], object]
    share: Callable[[], ShareSettings]
    meters: QueueMeters
    gone: Callable[["QueueHost"], None]
    dead_letters: DeadLetters
