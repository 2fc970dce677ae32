"""What a webhook has done on one node, and on all of them together.

Figures go on where the node's last life left them, give or take the last seconds of it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from waystation.client.webhook_descriptions import GivenUp

__all__ = ["Figures", "together"]

_REMEMBERED: Final = 10
_STALE_MS: Final = 60_000
"""A node that fails says so every few seconds; one that has not for so long is not there."""


class Figures(msgspec.Struct, omit_defaults=True):
    """Counts since the webhook was created, and how it stands; times are ms since 1970."""

    created_ms: int = 0
    """Of the webhook: another one of the same name begins anew."""
    delivered: int = 0
    """Messages that the target took."""
    failed: int = 0
    """Messages in requests that came to nothing; each is tried again, or counted as dead too."""
    dead: int = 0
    """Messages that were given up."""
    skipped: int = 0
    """Messages that ``where`` does not mean."""
    last_delivered_ms: int | None = None
    failing_since_ms: int | None = None
    """Since when nothing but failures was heard; null if the last answer was fine."""
    last_error: str | None = None
    last_error_ms: int | None = None
    given_up: list[GivenUp] = []
    """The last few messages that were given up, the newest last."""
    told_ms: int = 0

    def accepted(self, messages: int, now: int) -> None:
        """The target took messages."""
        self.delivered += messages
        self.last_delivered_ms = now
        self.failing_since_ms = None

    def went_wrong(self, messages: int, error: str, now: int) -> None:
        """A request, or what leads to one, came to nothing."""
        self.failed += messages
        self.last_error, self.last_error_ms = error, now
        if self.failing_since_ms is None:
            self.failing_since_ms = now

    def recovered(self) -> None:
        """What failed was not the target, and is over."""
        self.failing_since_ms = None

    def gave_up(self, letters: Sequence[GivenUp]) -> None:
        """Messages went to the dead letters."""
        self.dead += len(letters)
        self.given_up = [*self.given_up, *letters][-_REMEMBERED:]


def together(figures: Iterable[Figures], now: int) -> Figures:
    """The figures of all nodes as one; what nodes that are gone said of failures is forgotten."""
    whole = Figures()
    for one in figures:
        whole.delivered += one.delivered
        whole.failed += one.failed
        whole.dead += one.dead
        whole.skipped += one.skipped
        whole.last_delivered_ms = _later(whole.last_delivered_ms, one.last_delivered_ms)
        if (one.last_error_ms or 0) > (whole.last_error_ms or 0):
            whole.last_error, whole.last_error_ms = one.last_error, one.last_error_ms
        whole.given_up += one.given_up
        since = one.failing_since_ms
        if since is not None and now - one.told_ms < _STALE_MS:
            whole.failing_since_ms = min(since, whole.failing_since_ms or since)
    whole.given_up = sorted(whole.given_up, key=lambda one: one.at_ms)[-_REMEMBERED:]
    return whole


def _later(one: int | None, other: int | None) -> int | None:
    return max(one or 0, other or 0) or None
