"""What a session with a leader must know of the queue that it works for."""

from collections.abc import Iterable
from typing import Protocol

from waystation.client.queue_message import QueueMessage
from waystation.client.queue_requests import Named
from waystation.client.queue_settings import ReceivingSettings
from waystation.client.router import Router
from waystation.model.errors import WaystationError

__all__ = ["Surroundings"]


class Surroundings(Protocol):
    """The queue, as its sessions see it."""

    router: Router
    settings: ReceivingSettings

    @property
    def name(self) -> Named:
        """The group, and the member of it."""
        ...

    def room(self) -> int:
        """How many messages a session may ask for now."""
        ...

    def wait_ms(self) -> int:
        """How long the broker may wait for them."""
        ...

    def take(self, messages: Iterable[QueueMessage]) -> None:
        """Messages have arrived."""
        ...

    def troubled(self, error: WaystationError) -> None:
        """Something is wrong that only the application can mend."""
        ...
