"""The states that a message of a queue goes through, and the words spoken about them.

A message is available, is acquired by one consumer until its lock is over, and is settled in the
end: acknowledged, or archived.  Between two deliveries it may have to wait; on its way to a
dead-letter topic it is archiving.  Numbers are Kafka's where Kafka has one; a waiting message is
an available one to everybody but its leader, and an acquired one to whoever loads the state next.
"""

from typing import Final, NamedTuple

from waystation.model.offsets import Offset

AVAILABLE: Final = 0
ACQUIRED: Final = 1
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
"""Given up, and not yet in the dead-letter topic: it keeps its place until it is."""
ARCHIVED: Final = 4
REJECTED: Final = 5
"""As archiving, and given up because a consumer said so; ours, for Kafka does not tell why."""
WAITING: Final = -1
"""Available, but not before its back-off is over; never leaves the leader's memory."""

DYING: Final = (ARCHIVING, REJECTED)
STORED_STATES: Final = (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED, REJECTED)

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
ACKNOWLEDGE_TYPES: Final = (GAP, ACCEPT, RELEASE, REJECT, RENEW)

DELIVERIES_MAX: Final = (1 << 15) - 1
"""What a count can say on the wire."""


class Span(NamedTuple):
    """Offsets from ``first`` up to, but not including, ``end``."""

    first: Offset
    end: Offset


class Acknowledgement(NamedTuple):
    """What became of some offsets: one of ``ACKNOWLEDGE_TYPES``."""

    first: Offset
    end: Offset
    kind: int
    for_ms: int = 0
    """How long what is released waits, or what is renewed is locked; 0 is as the group says."""


class Acquired(NamedTuple):
    """Offsets that are a consumer's now, and how often they were delivered, this time included."""

    first: Offset
    end: Offset
    deliveries: int


class StateBatch(NamedTuple):
    """What is stored of some offsets: one of ``STORED_STATES``, and deliveries that are over."""

    first: Offset
    end: Offset
    state: int
    deliveries: int


class DeadLetter(NamedTuple):
    """Messages to be moved to the dead-letter topic; ``deliveries`` says how often it was tried."""

    first: Offset
    end: Offset
    deliveries: int
    is_rejected: bool = False
    """Whether a consumer gave them up, and not the number of deliveries."""


class Counts(NamedTuple):
    """How many messages of a queue are in which state, between its start and its end."""

    start: Offset
    end: Offset
    available: int
    waiting: int
    acquired: int
    archiving: int
    settled: int
