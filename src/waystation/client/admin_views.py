"""What an admin does with views: make, list, delete, and count what lies ahead in one.

A view is made and deleted as a topic is.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from waystation.client.descriptions import CreatedTopic
from waystation.client.errors import error_of
from waystation.client.router import Router
from waystation.messages.count_matching import CountMatchingRequest, CountMatchingResponse
from waystation.messages.describe_views import (
    DescribedView,
    DescribeViewsRequest,
    DescribeViewsResponse,
)
from waystation.model.errors import ErrorCode, UnknownTopicError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.offsets import Offset
from waystation.runtime.clock import Clock
from waystation.wire.versions import ApiKey

__all__ = ["MatchCount", "ViewAdministration", "ViewDescription"]

_AT_ONCE_BYTES = 32 << 20


class ViewDescription(NamedTuple):
    """A view, the topic it reads, and which of its messages it shows."""

    name: str
    id: TopicId
    on: str
    where: str
    partitions: int


class MatchCount(NamedTuple):
    """How many messages a view shows in ``[offset asked for, next_offset)``."""

    matches: int
    next_offset: Offset
    end: Offset

    @property
    def is_complete(self) -> bool:
        """Whether everything up to the end was looked at."""
        return self.next_offset >= self.end


class ViewAdministration:
    """The part of an admin that is about views."""

    _router: Router
    _clock: Clock

    if TYPE_CHECKING:  # of the whole that this is a part of

        async def create_topic(
            self, name: str, *, configs: Mapping[str, str] | None = None
        ) -> CreatedTopic: ...
        async def delete_topic(self, name: str) -> None: ...

    async def create_view(self, name: str, on: str, where: str) -> CreatedTopic:
        """Create a read-only topic that shows the messages of topic ``on`` that match ``where``."""
        return await self.create_topic(name, configs={"view.on": on, "view.where": where})

    async def delete_view(self, name: str) -> None:
        """Delete a view, and nothing else: a topic of that name is left alone."""
        await self.describe_view(name)
        await self.delete_topic(name)

    async def list_views(self) -> list[ViewDescription]:
        """Every view by name; none where brokers have no views."""
        return await self._views(None)

    async def describe_view(self, name: str) -> ViewDescription:
        """One view; ``UnknownTopicError`` if there is none of that name."""
        return (await self._views([name]))[0]

    async def count_matching(
        self, offsets: Mapping[tuple[str, int], int], within_ms: int = 5_000
    ) -> dict[TopicPartition, MatchCount]:
        """How many messages views show from these offsets on.

        The brokers look through their logs for it.  After ``within_ms`` they stop: what was
        counted by then is told, and where it ends.
        """
        ends_s = self._clock.monotonic() + within_ms / 1_000
        return {
            TopicPartition(*where): await self._counted(TopicPartition(*where), offset, ends_s)
            for where, offset in offsets.items()
        }

    async def _views(self, names: list[str] | None) -> list[ViewDescription]:
        request = DescribeViewsRequest(names=names)

        async def attempt() -> list[DescribedView]:
            connection = await self._router.to_any()
            if names is None and not connection.speaks(ApiKey.DESCRIBE_VIEWS):
                return []
            timeout_s = self._router.settings.request_timeout_ms / 1_000
            return (await connection.ask(request, DescribeViewsResponse, timeout_s)).views

        found = await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)
        return [_described(one) for one in found]

    async def _views_among(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that are views."""
        named = set(topics)
        if not named:
            return named
        return named & {one.name for one in await self.list_views()}

    async def _counted(self, where: TopicPartition, offset: int, ends_s: float) -> MatchCount:
        found = await self._count(where, Offset(offset))
        while not found.is_complete and self._clock.monotonic() < ends_s:
            more = await self._count(where, found.next_offset)
            found = more._replace(matches=found.matches + more.matches)
        return found

    async def _count(self, where: TopicPartition, offset: Offset) -> MatchCount:
        request = CountMatchingRequest(
            view=where.topic, partition=where.partition, offset=offset, max_bytes=_AT_ONCE_BYTES
        )

        async def attempt() -> MatchCount:
            leader = self._router.to_node(await self._router.leader_of(where))
            told = await self._router.ask(leader, request, CountMatchingResponse)
            if told.error_code:
                raise error_of(told.error_code, f"view {where}", told.error_message)
            return MatchCount(told.matches, Offset(told.next_offset), Offset(told.end))

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)


def _described(one: DescribedView) -> ViewDescription:
    if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"{one.error_message}; `waystation view list` shows all views")
    if one.error_code:
        raise error_of(one.error_code, f"view {one.name}", one.error_message)
    view_id = TopicId(one.view_id)
    return ViewDescription(one.name, view_id, one.topic, one.expression, one.partitions)
