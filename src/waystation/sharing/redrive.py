"""One order to send dead letters back, as far as it got in one partition; and where each one goes.

An order has an id.  Giving it twice is giving it once; another one waits until the last is over.
What was sent back before, by whichever order, is not sent again (``redriven.py``).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.record import Row
from waystation.sharing.dead_letters import origin_of

__all__ = [
    "CANCELLED",
    "DONE",
    "FAILED",
    "RUNNING",
    "Redrive",
    "RedriveOrder",
    "addressed",
    "blocked_name",
    "check_order",
    "passed",
    "redrive_of",
    "saved_redrive",
    "target_of",
]

RUNNING: Final = "running"
DONE: Final = "done"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"

_ID_MAX: Final = 200
_REFUSED, _STRAY = "refused", "stray"


class RedriveOrder(NamedTuple):
    """Which dead letters of a partition go back, where to, and how fast."""

    id: str
    first: Offset
    end: Offset
    """Half-open; what dies while the order is carried out is not meant."""
    where: str = ""
    """An expression that chooses among them; all if it is empty."""
    since: Millis = Millis(0)
    until: Millis = Millis((1 << 63) - 1)
    """When they became dead letters, half-open."""
    to: str = ""
    """A topic; where each came from if it is empty."""
    rate: float = 0.0
    """Messages per second at most; 0 is as fast as it goes."""
    total_rate: float = 0.0
    together: tuple[int, ...] = ()
    """The partitions that share ``total_rate``, if any: then ``rate`` is of no account."""


class Redrive(NamedTuple):
    """An order, and what became of it."""

    order: RedriveOrder
    begun_at: Millis
    cursor: Offset
    """Everything before was looked at, and went if it was meant."""
    state: str = RUNNING
    moved: int = 0
    refused: int = 0
    """What its topic does not take, and what must not pass such a message of its key."""
    strays: int = 0
    """Messages that do not say where they came from, while no topic was named."""
    blocked: tuple[str, ...] = ()
    """The keys of refused messages, in hexadecimal."""
    problem: str = ""
    ended_at: Millis = Millis(-1)

    @property
    def is_running(self) -> bool:
        """Whether there is more to do."""
        return self.state == RUNNING

    def ended(self, state: str, now: Millis, problem: str = "") -> "Redrive":
        """The same, over."""
        return self._replace(state=state, ended_at=now, problem=problem)


def check_order(order: RedriveOrder) -> None:
    """Refuse what cannot be meant."""
    if not order.id or len(order.id) > _ID_MAX:
        raise InvalidRequestError(
            f"the id of a redrive has {len(order.id)} characters; 1 to {_ID_MAX} may be"
        )
    for rate in (order.rate, order.total_rate):
        if rate < 0 or rate != rate:
            raise InvalidRequestError(f"a rate of {rate} messages per second; 0 is no limit")
    if order.first < 0 or order.end < order.first:
        raise InvalidRequestError(f"offsets from {order.first} to {order.end} are no range")
    if order.until < order.since:
        raise InvalidRequestError(f"times from {order.since} to {order.until} are no range")


def target_of(
    row: Row, to: str, partitions_of: Callable[[str], int], by_key: Callable[[bytes, int], int]
) -> TopicPartition | None:
    """Where a dead letter goes; ``None`` if it does not say where it came from.

    Back to its partition, so that keys stay where their producer put them; into another topic, or
    one that has lost that partition, by its key as clients do.
    """
    origin = origin_of(row[4])
    if origin is None and not to:
        return None
    topic = to or (origin.source.topic if origin is not None else "")
    count = partitions_of(topic)
    before = 0 if origin is None else origin.source.partition
    if not to and before < count:
        return TopicPartition(topic, before)
    key = row[2]
    return TopicPartition(topic, before % count if key is None else by_key(key, count))


Going = dict[TopicPartition, list[Row]]


def addressed(
    rows: Iterable[Row],
    redrive: Redrive,
    partitions_of: Callable[[str], int],
    by_key: Callable[[bytes, int], int],
) -> tuple[Going, dict[Offset, str]]:
    """Which of these go, by where they go, and why the others do not."""
    going: Going = {}
    left: dict[Offset, str] = {}
    blocked = frozenset(redrive.blocked)
    for row in rows:
        offset = Offset(row[0])
        target = target_of(row, redrive.order.to, partitions_of, by_key)
        if target is None:
            left[offset] = _STRAY
        elif blocked_name(offset, row[2]) in blocked:
            left[offset] = _REFUSED
        else:
            going.setdefault(target, []).append(row)
    return going, left


def blocked_name(offset: Offset, key: bytes | None) -> str:
    """What stays with a refused message: all of its key, or without one only itself."""
    return f"@{offset}" if key is None else key.hex()


def passed(redrive: Redrive, left: Mapping[Offset, str], cursor: Offset) -> Redrive:
    """The order once everything before ``cursor`` is done: what did not go is counted, once."""
    kinds = [kind for offset, kind in left.items() if redrive.cursor <= offset < cursor]
    return redrive._replace(
        cursor=cursor,
        refused=redrive.refused + kinds.count(_REFUSED),
        strays=redrive.strays + kinds.count(_STRAY),
    )


def saved_redrive(redrive: Redrive) -> dict[str, Any]:
    """As JSON has it."""
    return {**redrive._asdict(), "order": redrive.order._asdict()}


def redrive_of(saved: dict[str, Any] | None) -> Redrive | None:
    """What ``saved_redrive`` was given."""
    if not saved:
        return None
    order = RedriveOrder(**saved["order"])
    order = order._replace(together=tuple(order.together))
    return Redrive(**{**saved, "order": order, "blocked": tuple(saved["blocked"])})
