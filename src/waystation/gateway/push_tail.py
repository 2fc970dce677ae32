"""The end of a topic, read once for all who follow it.

A ``Tail`` polls its topic, or one partition of it, and keeps what came last in a ring of entries,
bounded in bytes.  Those who follow hold a place in the ring and nothing else, so that the slow ones
cost nothing: whoever falls out of the ring reads for itself until it has caught up
(``push_subscriber.py``).  An entry is encoded once for each format that somebody wants.

Promises:

1. entries hold all messages from where the tail began, in order, none twice;
2. whoever has read exactly up to ``positions``, as they were when ``next_number`` was ``n``, misses
   nothing and sees nothing twice if it goes on with entry ``n``;
3. ``offered`` tells as much for who rests (``push_resting.py``): all who want something of the
   entries before that number were offered it;
4. a tail that cannot go on says why, to all who follow, and ends.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from waystation.client.message import Message
from waystation.filters.selecting import Filter
from waystation.gateway.payloads import Values
from waystation.gateway.push_events import Face, events_of
from waystation.gateway.push_ids import Ids, mark_of
from waystation.gateway.push_resting import Resting
from waystation.model.errors import WaystationError

if TYPE_CHECKING:
    from waystation.client.consumer import Consumer
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["Entry", "Follower", "Tail"]

_POLL: Final = 500
_POLL_MS: Final = 1_000
_ENTRY_MESSAGES: Final = 100
_ENTRY_BYTES: Final = 64 << 10
_RING_BYTES: Final = 1 << 20
_RING_ENTRIES: Final = 512
_PREFETCH_BYTES: Final = 2 << 20
_TURN_S: Final = 0.0002  # what is written takes five times as long once the turn is over
_LOOK_S: Final = 2.0
_LEADER_S: Final = 60.0  # of one partition only the leader changes, and errors tell that
_WAIT_MS: Final = 1_000  # a partition that is new is asked for with the next fetch
_WAIT_FOR_ONE_MS: Final = 5_000
_MESSAGE_BYTES: Final = 100  # what a message costs beside its key and value


class Entry:
    """Some messages in order, and where they lie between."""

    __slots__ = (
        "_by_key",
        "_chosen",
        "_events",
        "_mark",
        "after",
        "before",
        "count",
        "made_at",
        "messages",
        "number",
        "pieces",
    )

    def __init__(
        self, number: int, mark: str, before: dict[int, int], messages: Sequence[Message]
    ) -> None:
        self.number, self.before, self.messages = number, before, messages
        self.count = len(messages)
        self.made_at = asyncio.get_running_loop().time()
        self.after = before | {one.partition: one.offset + 1 for one in messages}
        self._mark = mark
        self._events: dict[tuple[str, Values], list[bytes]] = {}
        self.pieces: dict[tuple[str, Values], bytes] = {}
        self._chosen: dict[str, Sequence[int]] = {}
        self._by_key: dict[bytes, list[int]] | None = None

    @property
    def size(self) -> int:
        """About how many bytes it costs to keep."""
        return sum(one.size + _MESSAGE_BYTES for one in self.messages)

    def events(self, face: Face, values: Values) -> list[bytes]:
        """All messages as they are pushed."""
        key = face.name, values
        made = self._events.get(key)
        if made is None:
            ids = Ids(self._mark, self.before)
            made = self._events[key] = events_of(self.messages, ids, face, values)
        return made

    def whole(self, face: Face, values: Values) -> bytes:
        """All of it at once, as it goes over the wire; the next finds it among ``pieces``."""
        made = face.piece(b"".join(self.events(face, values)))
        self.pieces[face.name, values] = made
        return made

    def chosen(self, where: Filter) -> Sequence[int]:
        """Which of the messages a filter means."""
        found = self._chosen.get(where.expression)
        if found is None:
            found = self._to_look_at(where)
            if not where.keys_suffice:
                found = [number for number in found if matches(where, self.messages[number])]
            self._chosen[where.expression] = found
        return found

    @property
    def by_key(self) -> dict[bytes, list[int]]:
        """The numbers of those that have a key."""
        if self._by_key is None:
            self._by_key = {}
            for number, one in enumerate(self.messages):
                if one.key is not None:
                    self._by_key.setdefault(one.key, []).append(number)
        return self._by_key

    def _to_look_at(self, where: Filter) -> Sequence[int]:
        if where.keys is None:
            return range(self.count)
        by_key = self.by_key
        if len(where.keys) == 1:
            (key,) = where.keys
            return by_key.get(key, ())
        return sorted(number for key in where.keys for number in by_key.get(key, ()))

    def forget(self) -> None:
        """Let go of what the quick ones shared: the slow ones put theirs together themselves."""
        self.pieces.clear()
        self._chosen.clear()
        self._by_key = None


def matches(where: Filter, one: Message) -> bool:
    """Whether a filter means a message."""
    return where.matches(one.key, one.value, one.headers, one.timestamp, one.partition, one.offset)


class Follower(Protocol):
    """Who follows a tail."""

    def offer(self, entry: Entry) -> None:
        """Take an entry, now or later; must not wait."""

    def wake(self) -> None:
        """Look at the tail again: it has ended."""


Check = Callable[["Clients", "TopicView", float], Awaitable[None]]
"""Raises if a topic is gone, or was since made anew."""


class Tail:
    """One topic, or one partition of it, from where it ends at the moment."""

    def __init__(
        self, clients: "Clients", topic: "TopicView", partition: int | None, check: Check
    ) -> None:
        self._check = check
        self.topic, self.partition = topic, partition
        self.mark = mark_of(topic.id)
        self.positions: dict[int, int] = {}
        self.next_number = 0
        self.failure: BaseException | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.moved = asyncio.Event()
        self.followers: set[Follower] = set()
        self.resting = Resting()
        self.offered: tuple[int, dict[int, int]] = 0, {}
        self.users = 0
        self._clients = clients
        self._ring: deque[Entry] = deque()
        self._ring_bytes = 0

    @property
    def first_number(self) -> int:
        """The oldest entry that is still there; ``next_number`` if none is."""
        return self._ring[0].number if self._ring else self.next_number

    def entry(self, number: int) -> Entry | None:
        """The entry of that number; ``None`` if it is gone, or not there yet."""
        at = number - self.first_number
        return self._ring[at] if 0 <= at < len(self._ring) else None

    async def run(self) -> None:
        """Read until cancelled, or something stands in the way."""
        began = asyncio.get_running_loop().time()
        try:
            async with await self._consumer() as consumer:
                self._stand_at(self._at(consumer))
                self.ready.set_result(None)
                while True:
                    messages = await consumer.poll(_POLL_MS, _POLL)
                    for some in _cut(messages):
                        await self._push(Entry(self.next_number, self.mark, self.positions, some))
                    self._stand_at(self._at(consumer))
                    await self._check(self._clients, self.topic, began)
        except WaystationError as error:
            self.failure = error
        except asyncio.CancelledError as error:
            self.failure = error
            raise
        finally:
            self.failure = self.failure or RuntimeError("the tail has ended")
            self._tell_all()

    # --- behind the scenes ----------------------------------------------------------------------

    async def _consumer(self) -> "Consumer":
        from waystation.client.consumer import Consumer

        bootstrap, connect = self._clients.further()
        name = self.topic.name
        consumer = Consumer(
            None,
            [] if self.partition is not None else [name],
            bootstrap=bootstrap,
            connect=connect,
            client_id="gateway-push",
            metadata_max_age_ms=int((_LOOK_S if self.partition is None else _LEADER_S) * 1_000),
            fetch_max_wait_ms=_WAIT_MS if self.partition is None else _WAIT_FOR_ONE_MS,
            start="latest",
            auto_offset_reset="error",
            isolation="read_committed",
            prefetch_bytes=_PREFETCH_BYTES,
            fetch_partition_bytes=_PREFETCH_BYTES,
            fetch_max_bytes=_PREFETCH_BYTES,
        )
        if self.partition is not None:
            await consumer.start()
            try:
                await consumer.assign([(name, self.partition)])
            except BaseException:
                await consumer.close()
                raise
        return consumer

    def _stand_at(self, positions: dict[int, int]) -> None:
        self.positions = positions
        self.offered = self.next_number, positions

    def _at(self, consumer: "Consumer") -> dict[int, int]:
        """How far it has got; a partition that was just added has no place yet."""
        found = {where.partition: consumer.position(where) for where in consumer.assignment}
        return {where: offset for where, offset in sorted(found.items()) if offset >= 0}

    async def _push(self, entry: Entry) -> None:
        """Keep an entry, and offer it to all, some in each turn of the loop."""
        self._ring.append(entry)
        self._ring_bytes += entry.size
        self.next_number = entry.number + 1
        self.positions = entry.after
        self.offered = entry.number, entry.before
        while len(self._ring) > 1 and (
            self._ring_bytes > _RING_BYTES or len(self._ring) > _RING_ENTRIES
        ):
            self._ring_bytes -= self._ring.popleft().size
        until = perf_counter() + _TURN_S
        wanting = self.resting.wanting(entry.by_key) if self.resting else ()
        for follower in (*self.followers, *wanting):
            follower.offer(entry)
            if perf_counter() > until:
                await asyncio.sleep(0)
                until = perf_counter() + _TURN_S
        self.offered = self.next_number, entry.after
        entry.forget()
        self.moved.set()
        self.moved.clear()

    def _tell_all(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
        self.moved.set()
        for follower in (*self.followers, *self.resting.all()):
            follower.wake()


def _cut(messages: Sequence[Message]) -> list[list[Message]]:
    """In pieces that take little time and memory each."""
    pieces: list[list[Message]] = []
    room = count = 0
    for one in messages:
        if not pieces or count >= _ENTRY_MESSAGES or one.size > room:
            pieces.append([])
            room, count = _ENTRY_BYTES, 0
        pieces[-1].append(one)
        room -= one.size
        count += 1
    return pieces
