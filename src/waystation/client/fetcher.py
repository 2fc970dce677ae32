"""Keeps the feeds filled: one fetch under way to each broker that leads one of them.

A partition is asked for while its feed holds less than ``fetch_partition_bytes`` and all
feeds together less than ``prefetch_bytes``; so what waits in memory is bounded by that and
one answer per broker.  Leaders are followed by metadata.  What cannot be mended by trying
again is left in ``troubled`` for ``poll`` to raise; meanwhile that feed is not fetched for.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from waystation.client.errors import PositionOutOfRangeError, error_of, is_retriable
from waystation.client.feed import Feed
from waystation.client.fetch import Asked, answers_in, fetch_request
from waystation.client.message import Message
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.messages.fetch import FetchResponse, PartitionData
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks

__all__ = ["Fetcher"]

_IMPATIENT_MS = 50
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fetcher:
    """Fetches for one consumer.

    ``turns`` are the feeds that hold messages, in the order they are to be served; ``arrived``
    is set whenever one joins them, or has trouble.
    """

    def __init__(self, router: Router, settings: ConsumerSettings, clock: Clock) -> None:
        self.feeds: dict[TopicPartition, Feed] = {}
        self.turns: deque[Feed] = deque()
        self.troubled: dict[Feed, WaystationError] = {}
        self.arrived = asyncio.Event()
        self._router, self._settings, self._clock = router, settings, clock
        self._tasks = Tasks()
        self._nodes: dict[NodeId, asyncio.Event] = {}
        self._paused_until: dict[TopicPartition, float] = {}
        self._failing_since: dict[TopicPartition, float] = {}
        self._turn = 0
        router.on_change.append(self.wake)

    async def close(self) -> None:
        """Stop fetching."""
        self._router.on_change.remove(self.wake)
        await self._tasks.aclose()

    def wake(self) -> None:
        """Look again at what to ask for: feeds, their room or their leaders have changed."""
        for node in self._leaders():
            if node not in self._nodes:
                self._nodes[node] = asyncio.Event()
                self._tasks.spawn(self._fetch_from(node), f"consumer-fetch {node}")
        if self._is_leaderless():
            self._router.want_refresh()
        self.drained()

    def drained(self) -> None:
        """Feeds may have room again."""
        for changed in self._nodes.values():
            changed.set()

    def add(self, where: TopicPartition) -> Feed:
        """Begin to read a partition; nothing is fetched before someone says where to start."""
        feed = self.feeds[where] = Feed(where, self._settings.batch_limit_bytes)
        return feed

    def seek(self, feed: Feed, offset: Offset) -> None:
        """Go on from ``offset``; what stood in the way stands there no longer."""
        feed.seek(offset)
        self.troubled.pop(feed, None)
        self.wake()

    def remove(self, where: TopicPartition) -> None:
        """Stop reading a partition."""
        feed = self.feeds.pop(where)
        feed.seek(Offset(-1))
        self.troubled.pop(feed, None)

    def report(self, feed: Feed, trouble: WaystationError) -> None:
        """Leave ``trouble`` for the application, and fetch no more until it was told."""
        self.troubled[feed] = trouble
        self.arrived.set()

    @property
    def buffered_bytes(self) -> int:
        """What all feeds hold."""
        return sum(feed.buffered_bytes for feed in self.feeds.values())

    def take(self, limit: int) -> tuple[list[Message], dict[TopicPartition, Offset]]:
        """Messages from one feed after the other, whose turn lasts a batch.

        And the position that each of those feeds had before.
        """
        messages: list[Message] = []
        before: dict[TopicPartition, Offset] = {}
        turns = self.turns
        while turns and len(messages) < limit:
            feed = turns.popleft()
            at = feed.position
            try:
                taken = feed.take(limit - len(messages))
            except WaystationError as error:
                self.report(feed, error)  # raised by the next poll, after these messages
                continue
            if taken:
                before.setdefault(feed.partition, at)
                messages += taken
            if feed.in_batch:
                turns.appendleft(feed)
            elif feed.has_messages:
                turns.append(feed)
        self.drained()
        return messages, before

    # --- one broker -------------------------------------------------------------------------

    async def _fetch_from(self, node: NodeId) -> None:
        """Ask ``node`` for what it leads, for as long as it leads something."""
        failures = 0
        try:
            while node in self._leaders():
                failures = await self._fetch_once(node, failures)
        finally:
            del self._nodes[node]

    async def _fetch_once(self, node: NodeId, failures: int) -> int:
        """One round; the result is how many rounds in a row have failed."""
        changed = self._nodes[node]
        changed.clear()
        asked, left_out = self._to_ask(node)
        if not asked:
            await self._until_changed(changed)
            return failures
        try:
            await self._fetch(node, asked, left_out)
        except WaystationError as error:
            if not is_retriable(error):
                self._trouble(asked, error)
            self._router.want_refresh()
            await asyncio.sleep(self._router.backoff.delay_s(failures + 1))
            return failures + 1
        return 0

    def _to_ask(self, node: NodeId) -> tuple[list[Asked], bool]:
        """The feeds with room that ``node`` leads, and whether others have none."""
        room = self.buffered_bytes < self._settings.prefetch_bytes
        asked, left_out = [], False
        for where, feed in self.feeds.items():
            if feed.fetch_at < 0 or self._router.view.leader(where) != node:
                continue
            if room and self._has_room(feed):
                asked.append(Asked(feed, feed.life, feed.fetch_at))
            else:
                left_out = True
        # Whoever is asked for first gets the most of a full answer: take turns.
        self._turn += 1
        first = self._turn % len(asked) if asked else 0
        return asked[first:] + asked[:first], left_out

    def _has_room(self, feed: Feed) -> bool:
        if feed in self.troubled or feed.buffered_bytes >= self._settings.fetch_partition_bytes:
            return False
        return self._paused_until.get(feed.partition, 0.0) <= self._clock.monotonic()

    async def _until_changed(self, changed: asyncio.Event) -> None:
        """Wait for a reason to look again; a pause of one partition ends by itself."""
        timeout_s = _IMPATIENT_MS / 1_000 if self._paused_until else None
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            now = self._clock.monotonic()
            for where in [one for one, until in self._paused_until.items() if until <= now]:
                del self._paused_until[where]

    async def _fetch(self, node: NodeId, asked: list[Asked], left_out: bool) -> None:
        settings = self._settings
        # A broker that waits for these cannot be asked for those that get room meanwhile.
        wait_ms = settings.fetch_max_wait_ms
        wait_ms = min(wait_ms, _IMPATIENT_MS) if left_out else wait_ms
        connection = await self._router.to_node(node, held=True)
        request, version = fetch_request(asked, self._router.view, settings, wait_ms, connection)
        timeout_s = (self._router.settings.request_timeout_ms + wait_ms) / 1_000
        response = await connection.ask(request, FetchResponse, timeout_s, version)
        if response.error_code:
            raise error_of(response.error_code, f"the fetch from node {node}")
        for one, told in answers_in(response, request, asked):
            if one.feed.life == one.life and one.feed.fetch_at == one.offset:
                self._take(one.feed, told)

    # --- one partition's answer -------------------------------------------------------------

    def _take(self, feed: Feed, told: PartitionData) -> None:
        if told.error_code:
            self._failed(feed, told)
            return
        self._failing_since.pop(feed.partition, None)
        if told.records is None:
            return
        assert isinstance(told.records, memoryview), f"records came as {type(told.records)}"
        try:
            feed.add(told.records, told.aborted_transactions or ())
        except WaystationError as error:
            self.report(feed, error)
        if feed.has_messages and feed not in self.turns:
            self.turns.append(feed)
            self.arrived.set()

    def _failed(self, feed: Feed, told: PartitionData) -> None:
        where = feed.partition
        if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            ends = Offset(told.log_start_offset), Offset(told.high_watermark)
            self.report(feed, PositionOutOfRangeError(where, feed.fetch_at, *ends))
            return
        error = error_of(told.error_code, f"partition {where}")
        now = self._clock.monotonic()
        since = self._failing_since.setdefault(where, now)
        patience_s = self._router.settings.metadata_timeout_ms / 1_000
        gone = error.code in _GONE and now - since > patience_s
        if gone or not is_retriable(error):
            self.report(feed, error)
        self._paused_until[where] = now + self._router.settings.retry_backoff_ms / 1_000
        self._router.want_refresh()

    def _trouble(self, asked: Iterable[Asked], error: WaystationError) -> None:
        for one in asked:
            self.report(one.feed, error)

    def _is_leaderless(self) -> bool:
        """Whether a partition has no leader at the moment: no broker would tell of its next."""
        view = self._router.view
        return any(
            feed.fetch_at >= 0 and view.leader(where) is None and view.find(where) is not None
            for where, feed in self.feeds.items()
        )

    def _leaders(self) -> list[NodeId]:
        leaders = (self._router.view.leader(where) for where in self.feeds)
        return [leader for leader in dict.fromkeys(leaders) if leader is not None]
