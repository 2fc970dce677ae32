"""Where reading begins: at an end of the partition, at a time, or at an offset."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from waystation.client.fetch import ISOLATION
from waystation.client.offsets import EARLIEST, LATEST, list_offsets
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.model.errors import InvalidConfigError, InvalidRequestError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

__all__ = ["Places", "Start", "checked_start"]

Start = str | int | datetime | Mapping[TopicPartition, int]
"""Where to begin: ``"earliest"``, ``"latest"``, a time (as ms since 1970 or a datetime: the
first message at or after it), or an offset for each partition."""

_ENDS = {"earliest": EARLIEST, "latest": LATEST}


def checked_start(start: Start) -> Start:
    """``start`` itself, unless it is a word that means nothing."""
    if isinstance(start, str) and start not in _ENDS:
        if start == "error":
            raise InvalidConfigError("auto_offset_reset is 'error': say where to start")
        raise InvalidConfigError(f"start is {start!r}, must be 'earliest', 'latest' or a time")
    return start


class Places:
    """Finds offsets for one consumer, as its settings say."""

    def __init__(self, router: Router, settings: ConsumerSettings, start: Start | None) -> None:
        self._router = router
        self._policy = settings.auto_offset_reset
        self._start: Start = self._policy if start is None else start
        self.isolation_level = ISOLATION[settings.isolation]

    @property
    def reads_committed(self) -> bool:
        """Whether only what transactions have committed is read."""
        return self.isolation_level == ISOLATION["read_committed"]

    @property
    def mends(self) -> bool:
        """Whether an offset that does not exist is replaced by one that does."""
        return self._policy != "error"

    async def first(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where to begin in partitions that were not read before."""
        return await self.of(partitions, self._start)

    async def of(
        self, partitions: Iterable[TopicPartition], start: Start
    ) -> dict[TopicPartition, Offset]:
        """The offset that ``start`` means in each partition."""
        placed, times = {}, {}
        for where in partitions:
            if isinstance(start, Mapping):
                if where not in start:
                    raise InvalidRequestError(f"start names no offset for partition {where}")
                placed[where] = Offset(start[where])
            else:
                times[where] = _time_of(start)
        found = await list_offsets(self._router, times, self.isolation_level)
        young = [where for where, told in found.items() if told.offset < 0]
        found |= await list_offsets(
            self._router, dict.fromkeys(young, LATEST), self.isolation_level
        )
        return placed | {where: told.offset for where, told in found.items()}

    async def again(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where to go on when the offset wanted is not there; the policy says."""
        return await self.of(partitions, self._policy)

    async def uncommitted(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Where a group begins that has committed nothing; without those that need a word."""
        wanted = list(partitions)
        start = self._start
        named = {}
        if isinstance(start, Mapping):
            named = {where: Offset(start[where]) for where in wanted if where in start}
            start = self._policy
        if start == "error":
            return named
        return named | await self.of([where for where in wanted if where not in named], start)


def _time_of(start: str | int | datetime) -> int:
    if isinstance(start, datetime):
        return int(start.timestamp() * 1_000)
    return _ENDS[start] if isinstance(start, str) else start
