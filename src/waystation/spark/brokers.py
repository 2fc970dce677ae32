"""Asks brokers what a plan needs to know, and tells them how far a stream has come.

Spark calls a data source as plain functions, so this runs an event loop for as long as each
question takes and keeps the connections for the next one.  The first contact fails at once, so
that a wrong address is told at once; after it, questions are repeated for ``max.block.ms``: a
broker that restarts costs a stream time, not its life.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Final, TypeVar

from waystation.client.admin import EARLIEST, LATEST, Admin
from waystation.client.descriptions import TopicDescription
from waystation.client.errors import BrokerUnreachableError
from waystation.model.errors import NonEmptyGroupError, UnknownTopicError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.runtime.clock import Clock, SystemClock
from waystation.spark.errors import BadOptionError
from waystation.spark.offsets import Offsets
from waystation.spark.option_names import connection_options
from waystation.spark.options import ReadOptions
from waystation.spark.planning import Held
from waystation.telemetry.logs import get_logger

__all__ = ["Brokers"]

T = TypeVar("T")

_events = get_logger("spark")

_GUESSED_BYTES: Final = 1_024.0
_SIZES_AGE_S: Final = 30.0
_DOUBTS: Final = 3
_DOUBT_S: Final = 0.5
_LOOK_AFTER_S: Final = 1.0


class Brokers:
    """The cluster behind one read; ``close`` it, or use it with ``with``."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._runner = asyncio.Runner()
        self._admin: Admin | None = None
        self._sizes: dict[TopicPartition, int] = {}
        self._sized: frozenset[TopicPartition] = frozenset()
        self._sizes_until = 0.0

    def close(self) -> None:
        """Close the connections."""
        admin, self._admin = self._admin, None
        if admin is not None:
            self._runner.run(admin.close())
        self._runner.close()

    def __enter__(self) -> "Brokers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- questions ------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicDescription]:
        """The topics to read that exist now, by name."""
        return self._run(self._topics)

    def held(
        self, partitions: Iterable[TopicPartition], read: Offsets | None = None
    ) -> dict[TopicPartition, Held]:
        """What ``partitions`` hold; ``read`` is how far some were read already.

        A leader that is new to its work may give an end that lies behind what it has served
        before, so that such an answer is asked for again before it is believed.
        ``UnknownTopicError`` says that a topic has gone since it was listed.
        """
        wanted = list(partitions)
        names = {where.topic for where in wanted}

        async def ask(admin: Admin) -> dict[TopicPartition, Held]:
            return await _unless_gone(admin, names, self._held(admin, wanted, read or {}))

        return self._run(ask)

    def since(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time in ms; None where all are older."""

        async def ask(admin: Admin) -> dict[TopicPartition, int | None]:
            found = await admin.list_offsets(dict(times.items()), isolation=self._options.isolation)
            return {where: one.offset if one.offset >= 0 else None for where, one in found.items()}

        return self._run(ask)

    def bytes_each(self, held: Mapping[TopicPartition, Held]) -> dict[TopicPartition, float]:
        """What an offset of each partition takes on disk, on average."""
        if self._clock.monotonic() >= self._sizes_until or not held.keys() <= self._sized:
            self._sizes, self._sized = self._run(_sizes), frozenset(held)
            self._sizes_until = self._clock.monotonic() + _SIZES_AGE_S
        return {
            where: self._sizes[where] / max(has.log_end - has.start, 1)
            if self._sizes.get(where)
            else _GUESSED_BYTES
            for where, has in held.items()
        }

    def publish(self, offsets: Offsets) -> None:
        """Keep ``offsets`` as those of the group; a group that has members is an error.

        Nothing else that goes wrong is: the stream can do without, and tries again next time.
        """
        group = self._options.group_id

        async def tell(admin: Admin) -> None:
            try:
                await admin.alter_group_offsets(group, dict(offsets.items()))
            except NonEmptyGroupError:
                raise BadOptionError(
                    f"groupId: group {group} has members, whose offsets would be overwritten: "
                    "stop them, or choose another group"
                ) from None
            except WaystationError as error:
                _events.warning("progress.unpublished", group=group, error=str(error))

        if offsets:
            self._run(tell)

    # --- behind the scenes ----------------------------------------------------------------------

    def _run(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        async def ask() -> T:
            if self._admin is None:
                self._admin = await self._reach()
            return await question(self._admin)

        return self._runner.run(ask())

    async def _reach(self) -> Admin:
        options = connection_options(self._options.client)
        try:
            return await Admin(self._options.bootstrap, **options).start()
        except BrokerUnreachableError as error:
            raise BadOptionError(f"bootstrap.servers: {error}") from None

    async def _topics(self, admin: Admin) -> dict[str, TopicDescription]:
        topics = self._options.topics
        if topics.pattern:
            fits = re.compile(topics.pattern).fullmatch
            return {one.name: one for one in await admin.list_topics() if fits(one.name)}
        names = topics.names or sorted({where.topic for where in topics.partitions})
        found = await asyncio.gather(*(_described(admin, name) for name in names))
        return {one.name: one for one in found if one is not None}

    async def _held(
        self, admin: Admin, partitions: list[TopicPartition], read: Offsets
    ) -> dict[TopicPartition, Held]:
        isolation = self._options.isolation
        for doubts in range(_DOUBTS):
            starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
            ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=isolation)
            # Where a transaction is open the log goes on; only then its end makes a difference.
            behind = [one for one in partitions if ends[one].offset < read.get(one, 0)]
            log_ends = {**ends, **await admin.list_offsets(dict.fromkeys(behind, LATEST))}
            if all(log_ends[one].offset >= read.get(one, 0) for one in behind):
                break
            if doubts + 1 < _DOUBTS:
                await asyncio.sleep(_DOUBT_S)
        return {
            one: Held(
                starts[one].offset,
                max(ends[one].offset, starts[one].offset),
                max(log_ends[one].offset, starts[one].offset),
            )
            for one in partitions
        }


async def _unless_gone(admin: Admin, names: Iterable[str], asking: Coroutine[None, None, T]) -> T:
    """What ``asking`` finds out.

    A client waits for a topic that does not exist, in case it is being made.  These were there
    a moment ago, so if it takes long they are looked for.
    """
    task = asyncio.create_task(asking)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_AFTER_S))[0]:
            for name in sorted(names):
                await admin.describe_topic(name)
        return task.result()
    finally:
        task.cancel()


async def _described(admin: Admin, name: str) -> TopicDescription | None:
    try:
        return await admin.describe_topic(name)
    except UnknownTopicError:
        return None


async def _sizes(admin: Admin) -> dict[TopicPartition, int]:
    """The bytes of each partition's largest replica; none if brokers do not tell."""
    sizes: dict[TopicPartition, int] = {}
    try:
        for directory in await admin.describe_log_dirs():
            for where, size_bytes in directory.partitions.items():
                sizes[where] = max(size_bytes, sizes.get(where, 0))
    except WaystationError as error:
        _events.warning("sizes.unknown", guessed_bytes=_GUESSED_BYTES, error=str(error))
    return sizes
