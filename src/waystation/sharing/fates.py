"""What becomes of messages whose delivery came to nothing, and whether others may go meanwhile.

Brings the group's rules together: how often and with which pauses (``retry.py``), to a dead-letter
topic or not, and a breaker against floods of dead letters (``breaker.py``).
"""

from collections.abc import Callable

from waystation.model.offsets import Millis
from waystation.sharing.backlog import PASSED_OVER, Cell
from waystation.sharing.breaker import CLOSED, OPEN, PROBING, Breaker
from waystation.sharing.settings import QueueSettings
from waystation.sharing.states import ARCHIVING, AVAILABLE, REJECTED, WAITING


class Fates:
    """The rules of one queue; the group may change them at any time."""

    __slots__ = ("_breaker", "_queue")

    def __init__(self, queue: Callable[[], QueueSettings]) -> None:
        self._queue = queue
        self._breaker = Breaker()

    # --- messages -----------------------------------------------------------------------------

    def available(self, now: Millis, deliveries: int, least_ms: int = 0) -> Cell:
        """A message that was delivered so often and may be delivered again, after its pause."""
        pause_ms = max(self._queue().retry().pause_ms(deliveries), least_ms)
        if pause_ms <= 0:
            return Cell(AVAILABLE, deliveries)
        return Cell(WAITING, deliveries, None, Millis(now + pause_ms))

    def failed(
        self, now: Millis, records: int, cell: Cell, *, is_final: bool, least_ms: int = 0
    ) -> Cell:
        """What messages become that were not processed; ``is_final`` if their consumer says so.

        Those that come again wait for ``least_ms`` at least.
        """
        queue = self._queue()
        rule = queue.breaker()
        if rule.part and self._breaker.is_probing:
            self._breaker.probe_failed(now, rule)
        if not is_final and queue.retry().may_go_on(cell.deliveries):
            return self.available(now, cell.deliveries, least_ms)
        if self._breaker.may_give_up(now, records, rule):
            if not queue.dead_letter_topic:
                return PASSED_OVER
            return Cell(REJECTED if is_final else ARCHIVING, cell.deliveries)
        reopens = self._breaker.open_until()
        return self.available(now, cell.deliveries, 0 if reopens is None else reopens - now)

    def accepted(self, now: Millis, records: int) -> None:
        """Messages were processed."""
        queue = self._queue()
        if queue.dead_letter_breaker_part:
            self._breaker.accepted(now, records, queue.breaker())

    # --- the breaker --------------------------------------------------------------------------

    def breaker_state(self, now: Millis) -> str:
        """Whether a flood of dead letters has stopped deliveries."""
        return self._breaker.state(now) if self._queue().dead_letter_breaker_part else CLOSED

    def may_go(self, now: Millis, room: int, out: int) -> int:
        """How many messages may go, if there is room for so many and so many are out."""
        state = self.breaker_state(now)
        if state == CLOSED:
            return max(room, 0)
        # A probe that retention took, or that was none, is not waited for.
        is_probe_out = self._breaker.is_probing and out > 0
        return 0 if state == OPEN or is_probe_out else min(room, 1)

    def is_probing(self, now: Millis) -> bool:
        """Whether a single message is to show if the flood is over."""
        return self.breaker_state(now) == PROBING

    def went(self, now: Millis) -> None:
        """Messages were delivered."""
        if self.is_probing(now):
            self._breaker.probe()

    def wakes_at(self) -> Millis | None:
        """When a probe may go."""
        return self._breaker.wakes_at()

    def wake(self, now: Millis) -> bool:
        """Whether a probe may go since now."""
        return self._breaker.wake(now)
