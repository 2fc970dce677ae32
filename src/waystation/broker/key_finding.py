"""Key indexes of the logs that this broker holds: kept up to date, and asked.

1. Every replica of a topic with ``index.keys`` has one, so that whoever leads next can answer.
2. One thread does all that reads or writes files, in slices; the loop only looks at segments.
3. An answer rests on what readers may see: the last stable offset of the leader.
4. Where the index is behind, a search brings it up to date as far as it comes, and says how far.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from waystation.broker.key_waiting import KeyWaiters
from waystation.broker.replicas import Replicas
from waystation.model.errors import (
    CorruptBatchError,
    InvalidRequestError,
    OffsetNotAvailableError,
    StorageError,
    WaystationError,
)
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.key_entries import hash_of
from waystation.records.record import Row
from waystation.runtime.chance import Chance
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.storage.key_index import (
    Found,
    KeyIndex,
    OvertakenError,
    Tools,
    Wanted,
    remove_key_index,
    row_bytes,
    taken_back,
    view_of,
)
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Registry

__all__ = ["KeyFinding", "Page", "Search"]

_events = get_logger("key-index")
P = ParamSpec("P")
T = TypeVar("T")

_LOOK_S: Final = 0.5
# What the thread does in one go: some milliseconds.
_STEP_BYTES: Final = 4 << 20
_READ_BYTES: Final = 1 << 20
_ABORTED: Final = 500
# How long a search goes on before it says how far it came.
_BUSY_S: Final = 0.2
_ATTEMPTS: Final = 5
_OPEN_FILES: Final = 256


class Search(NamedTuple):
    """The messages of ``key`` from ``offset`` on; waits up to ``wait_ms`` for the first."""

    key: bytes
    offset: Offset
    limit: int
    max_bytes: int
    wait_ms: int


class Page(NamedTuple):
    """All messages of the key in ``[offset, next_offset)``.

    There are no others for now if ``next_offset`` has reached ``end``.
    """

    rows: list[Row]
    next_offset: Offset
    end: Offset


class KeyFinding:
    """All key indexes of one broker."""

    def __init__(
        self, replicas: Replicas, clock: Clock, chance: Chance, registry: Registry
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._secret = chance.new_id().bytes
        self._thread = ThreadPoolExecutor(1, "key-index")
        self._tools: dict[int, Tools] = {}
        self._indexes: WeakKeyDictionary[Log, KeyIndex] = WeakKeyDictionary()
        self._without: WeakKeyDictionary[Log, None] = WeakKeyDictionary()
        self._refused: WeakKeyDictionary[Log, str] = WeakKeyDictionary()
        self._waiters: dict[Partition, KeyWaiters] = {}
        self._updating: dict[Partition, bool] = {}
        self._tasks = Tasks()
        self._closed = False
        self._searches = registry.counter(
            "waystation_key_searches_total", "Searches for the messages of a key."
        )
        self._found = registry.counter(
            "waystation_key_found_messages_total", "Messages that were found by their keys."
        )
        self._seconds = registry.histogram(
            "waystation_key_search_seconds", "How long a look into a key index took."
        )
        self._indexed = registry.counter(
            "waystation_key_index_read_bytes_total", "Bytes of logs that were read for key indexes."
        )
        self._written = registry.counter(
            "waystation_key_index_written_bytes_total", "Bytes that were written to key indexes."
        )
        registry.computed(
            "waystation_key_index_memory_bytes",
            "Memory that key indexes take for segments that still grow.",
            "gauge",
            lambda: [({}, sum(one.memory_bytes for one in list(self._indexes.values())))],
        )

    async def run(self) -> None:
        """Keep every index up to date, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for partition in list(self._replicas):
                try:
                    await self._look_after(partition.log)
                except Exception as error:  # the outermost frame of this task
                    _events.error("key.index.failed", exc_info=error)

    async def aclose(self) -> None:
        """End the thread; what it has not written is made anew from the log."""
        self._closed = True
        self.wake_all()
        await self._tasks.aclose()
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def waiting(self) -> int:
        """How many searches wait for a message."""
        return sum(map(len, self._waiters.values()))

    def wake_all(self) -> None:
        """Let every search answer with what there is."""
        self._closed = True
        for waiters in list(self._waiters.values()):
            waiters.wake_all()

    # --- searching ----------------------------------------------------------------------

    async def find(self, partition: Partition, search: Search) -> Page:
        """A page of what is wanted, at once or as soon as there is something."""
        self._check(partition)
        self._searches.value += 1
        deadline = self._clock.monotonic() + search.wait_ms / 1_000
        hashed: int | None = hash_of(self._secret, search.key)
        while True:
            waiters = self._waiters_of(partition)
            changed = waiters.add(hashed)
            try:
                page, hidden = await self._page(partition, search)
                left_s = deadline - self._clock.monotonic()
                if page.rows or page.next_offset < page.end or left_s <= 0 or self._closed:
                    self._found.value += len(page.rows)
                    return page
                if hidden and hashed is not None:
                    waiters.remove(hashed, changed)
                    hashed = None
                    changed = waiters.add(None)
                    if partition.last_stable > page.end:
                        continue
                await asyncio.wait([changed], timeout=left_s)
            finally:
                waiters.remove(hashed, changed)
                if not len(waiters) and self._waiters.get(partition) is waiters:
                    del self._waiters[partition]
            search = search._replace(offset=page.next_offset)
            hashed = hash_of(self._secret, search.key) if not hidden else None

    def _check(self, partition: Partition) -> None:
        if not partition.settings.index_keys:
            topic = partition.name.topic
            raise InvalidRequestError(
                f"topic {topic} has no index of keys: let it have one with "
                f"`waystation topic alter {topic} --set index.keys=true`"
            )
        if not partition.check_epoch(-1).settled:
            raise OffsetNotAvailableError(f"{partition.name} has just got this leader")

    async def _page(self, partition: Partition, search: Search) -> tuple[Page, bool]:
        """Look, one step after the other; and whether there is something not yet to be seen."""
        rows: list[Row] = []
        began_s, end = self._clock.monotonic(), partition.last_stable
        at, size_bytes = max(search.offset, partition.log.log_start), 0
        hidden = goes_on = True
        # Once in any case: something may be there that is not yet to be seen.
        while goes_on:
            left_bytes = min(search.max_bytes - size_bytes, _READ_BYTES)
            step = search._replace(offset=at, limit=search.limit - len(rows), max_bytes=left_bytes)
            found = await self._step(partition, step, end)
            rows += found.rows
            at, hidden = found.next_offset, found.hidden
            size_bytes += sum(map(row_bytes, found.rows))
            enough = len(rows) >= search.limit or size_bytes >= search.max_bytes
            goes_on = at < end and not enough and self._clock.monotonic() - began_s <= _BUSY_S
        self._seconds.observe(self._clock.monotonic() - began_s)
        return Page(rows, at, end), hidden

    async def _step(self, partition: Partition, search: Search, end: Offset) -> Found:
        believed = True
        for _ in range(_ATTEMPTS):
            partition.check_epoch(-1)
            log = partition.log
            log.check_online()
            at = max(search.offset, log.log_start)
            if at >= log.log_end:
                return Found([], at, hidden=False)
            try:
                aborted, known = taken_back(log, at, end, _ABORTED)
            except OSError as error:
                raise self._failure(log, error) from error
            wanted = Wanted(search.key, at, known, search.limit, search.max_bytes, aborted)
            index = self._index(log)
            cuts = log.cuts
            try:
                view = view_of(log, log.segments, at)
                return await self._in_thread(log, index.find, view, wanted, _STEP_BYTES)
            except (OvertakenError, FileNotFoundError):
                await self._in_thread(log, index.forget)
            except CorruptBatchError:
                # The index may have led astray, if its file was damaged since it was believed.
                if log.cuts == cuts and not believed:
                    raise
                believed = False
                await self._in_thread(log, index.forget)
            except OSError as error:
                raise self._failure(log, error) from error
        raise StorageError(f"{partition.name} changes too fast to be searched")

    # --- keeping up ---------------------------------------------------------------------

    async def _look_after(self, log: Log) -> None:
        if log.directory.offline is not None:
            return
        if log.settings.index_keys:
            self._without.pop(log, None)
            await self._catch_up(log)
        elif log not in self._without:
            self._without[log] = None
            self._indexes.pop(log, None)
            if await self._in_thread(log, remove_key_index, log, log.cuts):
                _events.info("key.index.removed", partition=str(log.name))

    async def _catch_up(self, log: Log) -> None:
        """Read what was appended since; a log that is damaged is left alone."""
        index = self._index(log)
        while (
            log not in self._refused and log.settings.index_keys and (behind := index.behind(log))
        ):
            cuts = log.cuts
            try:
                view = view_of(log, behind, Offset(0))
                spent = await self._in_thread(log, index.catch_up, view, _STEP_BYTES)
            except (OvertakenError, FileNotFoundError):
                await self._in_thread(log, index.forget)
                return
            except CorruptBatchError as error:
                if log.cuts != cuts:
                    return
                self._refused[log] = str(error)
                _events.error("key.index.refused", partition=str(log.name), reason=str(error))
                return
            except (OSError, WaystationError) as error:
                _events.warning("key.index.postponed", partition=str(log.name), reason=str(error))
                return
            self._indexed.value += spent

    def _index(self, log: Log) -> KeyIndex:
        index = self._indexes.get(log)
        if index is None:
            index = self._indexes[log] = KeyIndex(self._tools_of(log))
        return index

    def _tools_of(self, log: Log) -> Tools:
        disk = log.directory.disk
        tools = self._tools.get(id(disk))
        if tools is None:
            files = OpenFiles(disk, _OPEN_FILES)
            tools = self._tools[id(disk)] = Tools(self._secret, files, self._wrote)
        return tools

    def _wrote(self, nbytes: int) -> None:
        self._written.value += nbytes

    def _failure(self, log: Log, error: OSError) -> StorageError:
        return StorageError(f"the key index of {log.name} cannot be used: {error}")

    # --- waiting ------------------------------------------------------------------------

    def _waiters_of(self, partition: Partition) -> KeyWaiters:
        waiters = self._waiters.get(partition)
        if waiters is None:
            waiters = self._waiters[partition] = KeyWaiters(partition, self._update)
        self._index(partition.log).listened_for = waiters.by_hash
        return waiters

    def _update(self, partition: Partition) -> None:
        """Something was committed: bring the index up to date, once for all who wait."""
        if partition in self._updating:
            self._updating[partition] = True
        elif not self._closed:
            self._updating[partition] = False
            self._tasks.spawn(self._updated(partition), "key-waiters")

    async def _updated(self, partition: Partition) -> None:
        again = True
        try:
            while again and (waiters := self._waiters.get(partition)) is not None:
                self._updating[partition] = False
                self._index(partition.log).listened_for = waiters.by_hash
                await self._catch_up(partition.log)
                again = self._updating[partition]
        finally:
            del self._updating[partition]

    async def _in_thread(
        self, log: Log, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, lambda: work(*args, **kwargs))
        finally:
            self._tell(log)

    def _tell(self, log: Log) -> None:
        index = self._indexes.get(log)
        if index is None or not index.listened_for:
            return
        heard = index.heard()
        for partition, waiters in list(self._waiters.items()):
            if heard and partition.log is log:
                waiters.heard(heard)
