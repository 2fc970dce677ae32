"""What the application has in hand, and how far it has processed each partition.

Messages are in hand from the moment ``poll`` gives them until it is called again: whoever asks
for more is done with what he had.  Promises:

1. a message in hand does not count as processed: an automatic commit never covers it;
2. partitions change owners only at rest, which is while nothing is in hand; whoever waits for
   that gets his turn at the next poll, however many messages there are to hand out;
3. what is due to be committed differs from what was committed last, so that nothing is
   committed twice and nothing goes back on its own.

``commits.py`` sends what is due.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from waystation.client.feed import Feed
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

__all__ = ["Progress"]


class Progress:
    """The positions of one consumer, seen from the group's side."""

    def __init__(
        self, feeds: Mapping[TopicPartition, Feed], look_again: Callable[[], None]
    ) -> None:
        """``look_again`` is called when messages may be handed out that might not before."""
        self._feeds = feeds
        self._look_again = look_again
        self._in_hand: dict[TopicPartition, Offset] = {}
        self._committed: dict[TopicPartition, Offset] = {}
        self._is_busy = False
        self._rest = asyncio.Event()
        self._wanting_rest = 0
        self._polling = asyncio.Event()
        self._left_at: float | None = None

    # --- the application comes and goes ---------------------------------------------------------

    def came_back(self) -> None:
        """The application polls: what it had is processed."""
        self._in_hand.clear()
        self._left_at = None
        self._is_busy = False
        self._rest.set()
        self._polling.set()

    def hand_out(self, first: Mapping[TopicPartition, Offset]) -> None:
        """Messages are handed out, perhaps more; ``first`` are the positions before them."""
        for where, offset in first.items():
            self._in_hand.setdefault(where, offset)
        self._is_busy = True
        self._rest.clear()

    def went_away(self, now_s: float) -> None:
        """``poll`` returns."""
        self._left_at = now_s
        self._polling.clear()

    def away_s(self, now_s: float) -> float:
        """How long the application has not been polling."""
        return 0.0 if self._left_at is None else now_s - self._left_at

    @property
    def rest_is_wanted(self) -> bool:
        """Whether nothing more may be handed out until someone had his turn."""
        return self._wanting_rest > 0

    async def at_rest(self) -> None:
        """Return once nothing is in hand; nothing will be before the next ``await``."""
        if not self._is_busy:
            return
        self._wanting_rest += 1
        try:
            while self._is_busy:
                await self._rest.wait()
        finally:
            self._wanting_rest -= 1
            self._look_again()

    async def polled(self) -> None:
        """Return once the application polls."""
        await self._polling.wait()

    # --- positions ------------------------------------------------------------------------------

    def processed(self) -> dict[TopicPartition, Offset]:
        """How far each partition is processed; partitions without a position are left out."""
        return {
            where: self._in_hand.get(where, feed.position)
            for where, feed in self._feeds.items()
            if feed.position >= 0
        }

    def due(self) -> dict[TopicPartition, Offset]:
        """What is processed and not committed."""
        return {
            where: offset
            for where, offset in self.processed().items()
            if self._committed.get(where) != offset
        }

    def finish(self) -> None:
        """The application is done with what it has in hand, though it does not poll yet."""
        self._in_hand.clear()

    # --- changes --------------------------------------------------------------------------------

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Those offsets are what the coordinator holds now."""
        for where, offset in offsets.items():
            if where in self._feeds:
                self._committed[where] = offset

    def sought(self, where: TopicPartition) -> None:
        """The application went elsewhere in a partition: what it had of it does not count."""
        self._in_hand.pop(where, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Those partitions are someone else's now."""
        for where in partitions:
            self._in_hand.pop(where, None)
            self._committed.pop(where, None)
