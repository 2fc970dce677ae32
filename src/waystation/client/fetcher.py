"""Keeps the feeds filled: one fetch under way to each broker that one of them is read from.

A partition is asked for while its feed holds less than ``fetch_partition_bytes`` and all
feeds together less than ``prefetch_bytes``; so what waits in memory is bounded by that and
one answer per broker.  Leaders are followed by metadata and by refusals that name them; a reader
in a rack goes where its leaders send it (``sources.py``).  What cannot be mended by trying
again is left in ``troubled`` for ``poll`` to raise; meanwhile that feed is not fetched for.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from waystation.client.errors import PositionOutOfRangeError, error_of, is_retriable
from waystation.client.feed import Feed
from waystation.client.fetch import Asked, answers_in, fetch_request
from waystation.client.message import Message
from waystation.client.metadata import endpoints_in
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.client.sources import Sources
from waystation.messages.fetch import FetchResponse, PartitionData
from waystation.model.errors import ErrorCode, WaystationError
from waystation.model.ids import NodeId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks

if TYPE_CHECKING:
    from waystation.filters.selecting import Filter

__all__ = ["Fetcher"]

_IMPATIENT_MS = 50
_NOBODY = -1
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Fetcher:
    """Fetches for one consumer.

    ``turns`` are the feeds that hold messages, in the order they are to be served; ``arrived``
    is set whenever one joins them, or has trouble.
    """

    def __init__(
        self,
        router: Router,
        settings: ConsumerSettings,
        clock: Clock,
        where: "Filter | None" = None,
    ) -> None:
        self.feeds: dict[TopicPartition, Feed] = {}
        self.turns: deque[Feed] = deque()
        self.troubled: dict[Feed, WaystationError] = {}
        self.arrived = asyncio.Event()
        self._router, self._settings, self._clock, self._where = router, settings, clock, where
        self._tasks = Tasks()
        self._nodes: dict[NodeId, asyncio.Event] = {}
        self._paused_until: dict[TopicPartition, float] = {}
        self._failing_since: dict[TopicPartition, float] = {}
        max_age_ms = router.settings.metadata_max_age_ms
        self._sources = Sources(settings.client_rack, max_age_ms, clock)
        self._turn = 0
        router.on_change.append(self.wake)

    async def close(self) -> None:
        """Stop fetching."""
        self._router.on_change.remove(self.wake)
        await self._tasks.aclose()

    def wake(self) -> None:
        """Look again at what to ask for: feeds, their room or their leaders have changed."""
        for node in self._nodes_read():
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
        feed = Feed(where, self._settings.batch_limit_bytes, self._where)
        self.feeds[where] = feed
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
        """Ask ``node`` for what is read there, for as long as something is."""
        failures = 0
        try:
            while node in self._nodes_read():
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
            self._sources.lost(node)
            self.wake()
            self._router.want_refresh()
            await asyncio.sleep(self._router.backoff.delay_s(failures + 1))
            return failures + 1
        return 0

    def _to_ask(self, node: NodeId) -> tuple[list[Asked], bool]:
        """The feeds with room that are read from ``node``, and whether others have none."""
        room = self.buffered_bytes < self._settings.prefetch_bytes
        asked, left_out = [], False
        for where, feed in self.feeds.items():
            if feed.fetch_at < 0 or self._sources.of(where, self._router.view) != node:
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
        request, version = fetch_request(
            asked, self._router.view, settings, wait_ms, connection, self._sources.rack_at(node)
        )
        timeout_s = (self._router.settings.request_timeout_ms + wait_ms) / 1_000
        response = await connection.ask(request, FetchResponse, timeout_s, version)
        if response.error_code:
            raise error_of(response.error_code, f"the fetch from node {node}")
        for one, told in answers_in(response, request, asked):
            if one.feed.life == one.life and one.feed.fetch_at == one.offset:
                self._take(one.feed, told, node, response)

    # --- one partition's answer -------------------------------------------------------------

    def _take(self, feed: Feed, told: PartitionData, node: NodeId, response: FetchResponse) -> None:
        if told.error_code:
            if not self._moves_on(feed, told, node, response):
                self._failed(feed, told)
            return
        self._failing_since.pop(feed.partition, None)
        if told.preferred_read_replica not in (_NOBODY, node):
            where = feed.partition
            self._sources.sent_to(where, told.preferred_read_replica, self._router.view)
            self.wake()
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

    def _moves_on(
        self, feed: Feed, told: PartitionData, node: NodeId, response: FetchResponse
    ) -> bool:
        """Whether the partition can be read elsewhere at once, in spite of a refusal here."""
        where = feed.partition
        if told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            hint, at = told.current_leader, endpoints_in(response)
            named = None if hint is None else (hint.leader_id, hint.leader_epoch)
            elsewhere = self._router.strayed(where, node, named, at)
        else:
            elsewhere = self._router.view.leader(where) not in (None, node)
        if elsewhere:
            self._sources.refused(where)
            self.wake()
        return elsewhere

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

    def _nodes_read(self) -> list[NodeId]:
        nodes = (self._sources.of(where, self._router.view) for where in self.feeds)
        return [node for node in dict.fromkeys(nodes) if node is not None]
