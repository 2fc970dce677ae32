"""What follows from a delivery that came to nothing: another one, later, or none.

Pauses grow by a factor from delivery to delivery, up to a bound.  A message that was delivered
as often as the group allows is given up: it goes to the dead-letter topic if there is one, and
is archived otherwise.
"""

from typing import NamedTuple

from waystation.sharing.states import DELIVERIES_MAX


class RetryPolicy(NamedTuple):
    """How often, and with which pauses, a message is delivered; a pause of 0 is none."""

    max_deliveries: int = 5
    backoff_ms: int = 0
    backoff_max_ms: int = 60_000
    backoff_factor: float = 2.0

    def may_go_on(self, deliveries: int) -> bool:
        """Whether a message that was delivered so often may be delivered once more."""
        return deliveries < min(self.max_deliveries, DELIVERIES_MAX)

    def pause_ms(self, deliveries: int) -> int:
        """How long after its last delivery failed a message is delivered again."""
        if self.backoff_ms <= 0 or deliveries <= 0:
            return 0
        # The bound comes first: a power of hundreds of deliveries is beyond any number.
        pause = float(self.backoff_ms)
        for _ in range(deliveries - 1):
            if pause >= self.backoff_max_ms:
                break
            pause *= self.backoff_factor
        return min(int(pause), self.backoff_max_ms)
