"""What a pure state machine says to its host: what to remember, and whom to answer.

A machine decides without a clock, disk or socket.  Its host appends ``records`` to the machine's
log, applies them, and hands out ``replies`` once everything decided so far is committed
(``runtime/host.py``).
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from waystation.model.ids import ProducerEpoch, ProducerId

R = TypeVar("R")

Waiter = Callable[[object], None]
"""Whoever asked: called once, with the answer or with an error.  A machine keeps it, and hands it
back in a ``Reply``; it never calls it."""


class Reply(NamedTuple):
    """An answer, or a ``WaystationError``, and who waits for it."""

    to: Waiter
    answer: object


class InTransaction(NamedTuple, Generic[R]):
    """A record that counts once its producer's transaction is committed, and not before.

    It is remembered at once all the same: a replay brings it back, as undecided as it was.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    record: R


class Outcome(NamedTuple, Generic[R]):
    """What follows from one event.

    Its records are stored together, so all of them are plain, or all are of one producer's
    transaction, or there is one marker.
    """

    records: Sequence[R] = ()
    replies: Sequence[Reply] = ()
