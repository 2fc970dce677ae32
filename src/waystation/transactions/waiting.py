"""Requests that came while the markers of the transaction before were still being written.

Kafka sends their clients away to ask again, each time a little later; here they wait for what
takes milliseconds, and are sent away only if it takes long.
"""

from collections.abc import Callable
from typing import Final

from waystation.model.machines import Waiter
from waystation.model.offsets import Millis
from waystation.transactions.decision import Decision, too_early
from waystation.transactions.records import TransactionStored

WAIT_MS: Final = 2_000
WAITING_MAX: Final = 64
"""How many may wait for one transactional id: more are no client's doing."""

Decide = Callable[[TransactionStored | None, Millis], Decision]


class Request:
    """What was asked about a transactional id, until when, and by whom."""

    __slots__ = ("decide", "to", "transactional_id", "until")

    def __init__(self, transactional_id: str, decide: Decide, to: Waiter, now: Millis) -> None:
        self.transactional_id = transactional_id
        self.decide = decide
        self.to = to
        self.until = Millis(now + WAIT_MS)


class Waiting:
    """Those who wait; each for as long, so the one who came first is the first to give up."""

    __slots__ = ("_of", "_queue")

    def __init__(self) -> None:
        self._of: dict[str, dict[Request, None]] = {}
        self._queue: dict[Request, None] = {}

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._of

    def add(self, request: Request) -> None:
        """Let it wait, for the first time or for what is left of its time."""
        ahead = self._of.setdefault(request.transactional_id, {})
        if len(ahead) >= WAITING_MAX:
            self._queue.pop(request, None)
            raise too_early(request.transactional_id)
        ahead[request] = None
        self._queue.setdefault(request, None)

    def take(self, transactional_id: str) -> list[Request]:
        """Those whose turn it is, in the order they came: answer each, or ``add`` it again."""
        return list(self._of.pop(transactional_id, ()))

    def done(self, request: Request) -> None:
        """It is answered."""
        self._queue.pop(request, None)

    def next_deadline(self) -> Millis | None:
        """When the first of them has waited long enough."""
        return next((request.until for request in self._queue), None)

    def due(self, now: Millis) -> list[Request]:
        """Those who have waited long enough; they wait no more."""
        over = []
        for request in self._queue:
            if request.until > now:
                break
            over.append(request)
        for request in over:
            self._remove(request)
        return over

    def abandon(self) -> list[Waiter]:
        """Everyone who waits."""
        return [request.to for request in self._queue]

    def _remove(self, request: Request) -> None:
        del self._queue[request]
        ahead = self._of[request.transactional_id]
        del ahead[request]
        if not ahead:
            del self._of[request.transactional_id]
