"""What a consumer's part in a group looks like from outside, whichever protocol it speaks."""

from typing import NamedTuple, Protocol

from waystation.client.coordinator import Coordinator
from waystation.client.group_offsets import Identity
from waystation.client.ownership import Ownership
from waystation.client.progress import Progress
from waystation.client.router import Router
from waystation.client.settings import MemberSettings
from waystation.client.subscription import Subscription
from waystation.model.ids import TopicPartition
from waystation.runtime.clock import Clock

__all__ = ["Member", "Surroundings", "partitions_of", "without"]


class Member(Protocol):
    """Joins a group, stays in it and leaves it."""

    @property
    def identity(self) -> Identity | None:
        """Who commits; ``None`` while it is no member."""

    async def run(self) -> None:
        """Be a member until cancelled; raises what only the application can mend."""

    def resubscribe(self) -> None:
        """The subscription wants other topics than before."""

    async def leave(self) -> None:
        """Tell the others at once, instead of being missed; ``run`` has ended before."""


class Surroundings(NamedTuple):
    """What every member works with."""

    router: Router
    coordinator: Coordinator
    settings: MemberSettings
    subscription: Subscription
    ownership: Ownership
    progress: Progress
    clock: Clock

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the others wait for this member."""
        own = self.settings.rebalance_timeout_ms
        return self.settings.max_poll_interval_ms if own is None else own

    @property
    def is_late(self) -> bool:
        """Whether the application was away from ``poll`` for too long."""
        away_s = self.progress.away_s(self.clock.monotonic())
        return away_s * 1_000 > self.settings.max_poll_interval_ms


def partitions_of(router: Router, topics: set[str]) -> dict[str, int]:
    """How many partitions each of ``topics`` has that exists, as far as is known."""
    known = router.view.topics
    return {name: len(known[name].partitions) for name in sorted(topics) if name in known}


def without(owned: tuple[TopicPartition, ...], keep: set[TopicPartition]) -> list[TopicPartition]:
    """What has to be given up."""
    return [where for where in owned if where not in keep]
