"""A message as a queue hands it out."""

import asyncio
from typing import NamedTuple

from waystation.client.queue_lease import Lease
from waystation.model.ids import TopicId
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Headers

__all__ = ["QueueMessage"]


class QueueMessage(NamedTuple):
    """What was sent, how often it was delivered, and the lease on it; immutable.

    ``deliveries`` counts this one too: 1 the first time.  ``timestamp`` is in milliseconds since
    1970.  The message is this consumer's until it is settled or its lock is over.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    headers: Headers
    deliveries: int
    lease: Lease

    @property
    def id(self) -> str:
        """Where it stands, as tools write it: ``3-1742``."""
        return f"{self.partition}-{self.offset}"

    @property
    def topic_id(self) -> TopicId:
        """The life of its topic that it is of: one that was made anew has other messages."""
        return self.lease.hold.topic_id

    @property
    def is_held(self) -> bool:
        """Whether it can still be settled, as far as is known here."""
        return self.lease.why_not(self.offset, asyncio.get_running_loop().time()) is None

    @property
    def seconds_left(self) -> float:
        """For how long it is still locked; not more than 0 once that is over."""
        return self.lease.ends_at(self.offset) - asyncio.get_running_loop().time()

    def header(self, name: str) -> bytes | None:
        """The first header of that name."""
        return next((content for each, content in self.headers if each == name), None)
