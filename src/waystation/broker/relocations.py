"""Moves of replicas between the data directories of this node.

A move copies in the background, no faster than it may, while the partition is written and read;
when it has caught up, the partition goes on in the other directory.  The loop waits for that
switch: little is left to copy by then, and a few small files are synced.  After a restart a
move goes on by itself, with what was copied before.  One that cannot go on leaves the partition
where it was: then it must be asked for again.  How a crash is survived is in
``storage/relocation.py``.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from waystation.broker.replicas import Replicas
from waystation.broker.settings import BrokerSettings
from waystation.model.errors import (
    LogDirNotFoundError,
    NotLeaderError,
    ReplicaNotAvailableError,
    StorageError,
    WaystationError,
)
from waystation.model.ids import TopicPartition
from waystation.model.offsets import NO_OFFSET
from waystation.partition.partition import Partition
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.storage import relocation
from waystation.storage.directory import DataDirectory
from waystation.storage.log import Log
from waystation.telemetry.logs import get_logger

_events = get_logger("broker")

_READ_BYTES = 1 << 20
# So much may be unsynced in between, and so much is brought over while the loop waits.
_SYNC_BYTES = 32 << 20
_LAST_BYTES = 1 << 18
_TRIES = 20
# How often to go after what was written during the last sync, however much that was.
_ROUNDS = 8


class Future(NamedTuple):
    """A copy on its way: where to, how much is there, and how many records it lacks."""

    directory: DataDirectory
    size_bytes: int
    lag: int


class Relocations:
    """The moves under way, one per partition."""

    def __init__(
        self,
        replicas: Replicas,
        directories: Sequence[DataDirectory],
        settings: Callable[[], BrokerSettings],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._settings = settings
        self._clock = clock
        self._moves: dict[TopicPartition, _Move] = {}
        self._tasks = Tasks()

    def ask(self, name: TopicPartition, path: str) -> None:
        """Let the replica lie in the directory at ``path``; raises why it cannot.

        One that lies there already stays, and a move elsewhere that is under way ends.
        """
        target = self._directory(path)
        partition = self._held(name)
        under_way = self._moves.get(name)
        if under_way is not None:
            if under_way.target is target:
                return
            under_way.cancel()
            del self._moves[name]
        if partition.log.directory is not target:
            self._begin(partition, target, None)

    def resume(self) -> None:
        """Go on with what the last life had not finished; call once, when replicas are held."""
        for directory in self._directories:
            found, directory.unfinished = directory.unfinished, []
            for one in found:
                partition = self._replicas.find("", one.partition, one.topic_id)
                if partition is not None and partition.log.directory.offline is not None:
                    continue  # the next start may be able to
                if partition is not None and self._is_wanted(partition, directory):
                    _events.info("replica.move.resumed", partition=str(partition.name))
                    self._begin(partition, directory, one.path)
                elif one.path is not None:
                    removing = asyncio.to_thread(directory.disk.remove_tree, one.path)
                    self._tasks.spawn(removing, f"remove-{one.path.name}")

    def _is_wanted(self, partition: Partition, target: DataDirectory) -> bool:
        return partition.log.directory is not target and partition.name not in self._moves

    def _begin(self, partition: Partition, target: DataDirectory, found: Path | None) -> None:
        move = _Move(partition, target, self._settings, self._clock, found)
        self._moves[partition.name] = move
        move.task = self._tasks.spawn(self._carry_out(move), f"relocation-{partition.name}")

    def future(self, name: TopicPartition) -> Future | None:
        """The copy of a partition that is on its way, if it is."""
        move = self._moves.get(name)
        if move is None or move.future is None:
            return None
        lag = max(move.log.log_end - move.future.log_end, 0)
        return Future(move.target, move.future.size_bytes, lag)

    async def aclose(self) -> None:
        """Leave what is under way to the next life."""
        await self._tasks.aclose()

    async def _carry_out(self, move: "_Move") -> None:
        name = move.partition.name
        try:
            await move.run()
            _events.info("replica.moved", partition=str(name), to=str(move.target.path))
        except WaystationError as error:
            _events.error("replica.not.moved", partition=str(name), reason=str(error))
        finally:
            if self._moves.get(name) is move:
                del self._moves[name]

    def _directory(self, path: str) -> DataDirectory:
        found = [one for one in self._directories if str(one.path) == path.rstrip("/")]
        if not found:
            known = ", ".join(str(one.path) for one in self._directories)
            raise LogDirNotFoundError(f"{path!r} is no data directory of this node: it has {known}")
        if found[0].offline is not None:
            raise StorageError(f"{path} is offline: {found[0].offline}")
        return found[0]

    def _held(self, name: TopicPartition) -> Partition:
        try:
            partition = self._replicas.get(*name)
        except NotLeaderError as error:
            raise ReplicaNotAvailableError(f"this node holds no replica of {name}") from error
        partition.log.check_online()
        return partition


class _Move:
    """One partition on its way to ``target``."""

    def __init__(
        self,
        partition: Partition,
        target: DataDirectory,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        found: Path | None,
    ) -> None:
        """``found`` is what the last life had copied."""
        self.partition, self.target = partition, target
        self.log = partition.log
        self.future: Log | None = None
        self.task: asyncio.Task[None] | None = None
        self._settings = settings
        self._clock = clock
        self._found = found
        self._unwanted = False

    def cancel(self) -> None:
        """Leave the partition where it is."""
        self._unwanted = True
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Copy, and once it has caught up, switch; anew if the log was cut meanwhile."""
        for _ in range(_TRIES):
            cuts = self.log.cuts
            future = self.future = await self._begun()
            try:
                if await self._copied(future, cuts):
                    self._switch(future)
                    return
            except BaseException as error:
                await self._let_go(future, isinstance(error, asyncio.CancelledError))
                raise
            await asyncio.to_thread(relocation.discard, future)
        raise StorageError(f"{self.log.name} was cut {_TRIES} times while it was copied")

    async def _begun(self) -> Log:
        """What the last life had copied, if that is of use, or an empty future log."""
        path, self._found = self._found, None
        if path is not None:
            found = await self._made(relocation.reopen, self.log, path, self.target)
            if relocation.continues(self.log, found):
                return found
            await asyncio.to_thread(relocation.discard, found)
        start = relocation.first_batch(self.log)
        return await self._made(relocation.begin, self.log, start, self.target)

    async def _made(self, make: Callable[..., Log], *facts: object) -> Log:
        """A future log, made in a thread; cancelled meanwhile, it is not forgotten."""
        making = asyncio.ensure_future(asyncio.to_thread(make, *facts))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await self._let_go(await making, cancelled=True)
            raise

    async def _let_go(self, future: Log, cancelled: bool) -> None:
        """Leave it to the next life if this one ends, or else remove it."""
        self.future = None
        let_go = relocation.leave if cancelled and not self._unwanted else relocation.discard
        await asyncio.shield(asyncio.to_thread(let_go, future))

    async def _copied(self, future: Log, cuts: int) -> bool:
        """Copy until little is left; false if the log was cut, so that the copy is worthless."""
        due_s, unsynced = self._clock.monotonic(), 0
        settled, rounds = False, 0
        while not settled:
            start = max(future.log_end, self.log.log_start)
            found = self.log.read(start, _READ_BYTES, self.log.log_end)
            if found.region is not None:
                data = await asyncio.to_thread(found.region.read)
                if not self._is_same(cuts):
                    return False
                relocation.copy(future, data, self._clock.now())
                unsynced += len(data)
                due_s = await self._pause(due_s, len(data))
            left = found.region is None or found.region.nbytes < _LAST_BYTES
            if left or unsynced >= _SYNC_BYTES:
                await asyncio.to_thread(relocation.settle, future)
                unsynced, rounds = 0, rounds + left
                settled = left and (rounds >= _ROUNDS or self._lacks_little(future))
            if not self._is_same(cuts):
                return False
        return True

    def _lacks_little(self, future: Log) -> bool:
        """Whether little was written while the copy was synced."""
        start = max(future.log_end, self.log.log_start)
        found = self.log.read(start, _LAST_BYTES, self.log.log_end)
        return found.region is None or found.region.nbytes < _LAST_BYTES // 2

    def _is_same(self, cuts: int) -> bool:
        if not self.log.directory.holds(self.log):
            raise StorageError(f"{self.log.name} is not held here any more")
        return self.log.cuts == cuts

    async def _pause(self, due_s: float, nbytes: int) -> float:
        """Keep to ``replica.alter.log.dirs.io.max.bytes.per.second``."""
        limit = self._settings().replica_alter_log_dirs_io_max_bytes_per_second
        now_s = self._clock.monotonic()
        due_s = max(due_s, now_s - 1.0) + nbytes / limit
        await asyncio.sleep(max(due_s - now_s, 0.0))
        return due_s

    def _switch(self, future: Log) -> None:
        """Nothing is awaited here: nobody appends to the log that is left behind."""
        old = self.log
        moved = relocation.switch(old, future, self.target, self._clock.now())
        self.partition.relocate(moved, self.target.journal)
        old.directory.disown(old)
        try:
            old.directory.void_journal(old, NO_OFFSET)
        except StorageError as error:
            _events.error("journal.not.voided", partition=str(old.name), reason=str(error))
        asyncio.get_running_loop().run_in_executor(None, old.directory.delete_log, old)
