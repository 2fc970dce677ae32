"""Makes the partitions on this node's disks match what the cluster says it holds.

1. A partition is served only once its log is open and its leadership known.
2. Of a directory that no topic claims any more, because the topic was deleted while this node
   was away, nothing is served; it is deleted as the topic would have been.
3. A replica that is moved away leaves nothing behind that could come back, should it return.
4. A partition whose directory is offline stays assigned and answers with a storage error, until
   an operator repairs the disk; it is never silently made anew elsewhere.

Disk work happens in a thread, so that making a thousand partitions does not stop the loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from waystation.broker.replicas import Replicas
from waystation.cluster.duties import Duties, Duty
from waystation.cluster.parts import TopicImage
from waystation.model.errors import StorageError
from waystation.model.ids import NodeId, TopicId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Millis
from waystation.model.topics import TopicSettings
from waystation.partition.leadership import Leadership
from waystation.partition.meters import TopicMeters
from waystation.partition.partition import Partition
from waystation.replication.lag import Paces
from waystation.runtime.clock import Clock
from waystation.storage.directory import DataDirectory
from waystation.storage.flusher import Flusher, Stopwatch
from waystation.storage.journal import FOLDER, Journal
from waystation.storage.journal_replay import replay
from waystation.storage.log import Log
from waystation.storage.relocation import generation_of, winner
from waystation.storage.unfinished import Unfinished
from waystation.storage.worker import Worker
from waystation.telemetry.logs import get_logger

events = get_logger("broker")

_LAG_MAX_MS = 30_000


class Holdings:
    """Opens, makes and deletes logs; ``replicas`` is what is being served."""

    def __init__(
        self,
        node: NodeId,
        directories: Sequence[DataDirectory],
        replicas: Replicas,
        flusher: Flusher,
        settings_of: Callable[[str], TopicSettings],
        clock: Clock,
        meters: TopicMeters,
        stopwatch: Stopwatch,
        lag_max_ms: Callable[[], int] = lambda: _LAG_MAX_MS,
        exists: Callable[[TopicId], bool] = lambda _: True,
        revision: Callable[[], int] = lambda: 0,
    ) -> None:
        """``exists`` says whether a topic still does, of which something is dropped.

        ``revision`` is of the store, when it said what is being carried out.
        """
        self._lag_max_ms = lag_max_ms
        self._exists = exists
        self._revision = revision
        self._node = node
        self._directories = directories
        self._replicas = replicas
        self._flusher = flusher
        self._settings_of = settings_of
        self._clock = clock
        self._meters = meters
        self._stopwatch = stopwatch
        self._found: dict[TopicPartition, Log] = {}
        self._journals: dict[Path, Journal] = {}
        self._workers: list[Worker] = []
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Open every log the directories hold, each directory in a thread of its own."""
        opened = await asyncio.gather(
            *(
                asyncio.to_thread(directory.open_logs, self._settings_of_partition)
                for directory in self._directories
            )
        )
        for directory, logs in zip(self._directories, opened, strict=True):
            # Before the first batch: a disk may be full sooner than housekeeping comes round.
            await asyncio.to_thread(directory.keep_reserve)
            await self._start_journal(directory, logs)
        found: dict[TopicPartition, list[Log]] = {}
        for log in (log for logs in opened for log in logs):
            found.setdefault(log.name, []).append(log)
        for name, copies in found.items():
            self._found[name] = copies[0] if len(copies) == 1 else await self._settle(copies)

    async def _settle(self, copies: list[Log]) -> Log:
        """A crash interrupted a move between directories: one of the copies counts."""
        kept = winner(copies)
        for log in copies:
            if log is not kept:
                events.warning("log.moved", path=str(log.path), to=str(kept.path))
                if generation_of(log) < 0:  # it never got so far as to count: the move goes on
                    target = next(one for one in self._directories if one is log.directory)
                    target.unfinished.append(Unfinished(log.topic_id, log.name.partition, None))
                await asyncio.to_thread(log.directory.delete_log, log)
        return kept

    async def _start_journal(self, directory: DataDirectory, logs: list[Log]) -> None:
        """Bring back what only the journal holds, and begin a new one."""
        if directory.offline is not None:
            return
        folder = directory.path / FOLDER
        try:
            await asyncio.to_thread(replay, directory.disk, folder, logs, self._clock.now())
        except OSError as error:
            directory.fail(f"cannot read the journal in {folder}: {error}")
            return
        journal = self._journals[directory.path] = directory.journal = Journal(
            directory.disk,
            folder,
            submit=self._journal_worker(directory).submit,
            background=self._journal_worker(directory).submit,
            post=self._loop.call_soon_threadsafe,
            defer=self._loop.call_later,
            fail=directory.fail,
            generation=self._clock.now(),
            stopwatch=self._stopwatch,
        )
        journal.prepare()

    def found(self, topic: TopicImage, number: int) -> bool:
        """Whether a log of the partition was there when the directories were opened."""
        log = self._found.get(TopicPartition(topic.name, number))
        return log is not None and log.topic_id == topic.id

    def tidy_journals(self) -> None:
        """Let journals free what they need no more."""
        for journal in self._journals.values():
            journal.tidy()

    async def close_journals(self) -> None:
        """End the journals' threads; their files are emptied once every log is synced."""
        for worker in self._workers:
            await asyncio.to_thread(worker.close)

    def _journal_worker(self, directory: DataDirectory) -> Worker:
        worker = Worker(f"journal-{directory.path.name}")
        self._workers.append(worker)
        return worker

    def _settings_of_partition(self, name: TopicPartition) -> TopicSettings:
        return self._settings_of(name.topic)

    async def carry_out(self, duties: Duties) -> None:
        """Do what the cluster asks, in the order it asks it."""
        for duty in duties.drop:
            await self._drop(duty)
        made = await asyncio.to_thread(self._logs_for, duties.hold)
        for duty in duties.hold:
            self._hold(duty, made)
        for topic in duties.reconfigure:
            self._reconfigure(topic)

    async def sweep(self) -> None:
        """Delete logs that nobody claims; call once, after the first duties are done."""
        for name, log in self._found.items():
            events.warning("log.unclaimed", partition=str(name), action="deleting")
            await asyncio.to_thread(log.directory.delete_log, log)
        self._found.clear()

    def _logs_for(self, duties: Sequence[Duty]) -> dict[TopicPartition, Log]:
        """Open or make the logs that are not served yet; runs in a thread."""
        made = {}
        for duty in duties:
            if self._replicas.find(*duty.name) is None:
                log = self._found.pop(duty.name, None)
                if log is not None and log.topic_id != duty.topic_id:
                    # A namesake that was deleted while this node was away.
                    log.directory.delete_log(log)
                    log = None
                made[duty.name] = log if log is not None else self._make(duty)
        return {name: log for name, log in made.items() if log is not None}

    def _make(self, duty: Duty) -> Log | None:
        online = [one for one in self._directories if one.offline is None]
        if not online:
            events.error("partition.homeless", partition=str(duty.name))
            return None
        emptiest = min(online, key=lambda one: len(one.logs))
        try:
            return emptiest.create_log(duty.name, duty.topic_id, self._settings_of(duty.name.topic))
        except StorageError as error:
            events.error("partition.not.made", partition=str(duty.name), reason=str(error))
            return None

    def _hold(self, duty: Duty, made: dict[TopicPartition, Log]) -> None:
        partition = self._replicas.find(*duty.name)
        if partition is None:
            log = made.get(duty.name)
            if log is None:
                return
            partition = Partition(
                duty.name,
                duty.topic_id,
                log,
                self._settings_of(duty.name.topic),
                node=self._node,
                flusher=self._flusher,
                journal=self._journals.get(log.directory.path),
                meter=self._meters.of(duty.name.topic),
                defer=self._loop.call_soon,
            )
            self._replicas.add(partition)
        state = duty.state
        partition.follow_store(
            Leadership(
                state.leader,
                state.leader_epoch,
                state.in_sync,
                state.eligible,
                state.replicas,
                state.version,
                self._revision(),
            )
        )
        if partition.leading and partition.paces is None and len(state.replicas) > 1:
            now = Millis(int(self._clock.monotonic() * 1_000))
            partition.paces = Paces(self._node, state.in_sync, self._lag_max_ms(), now)

    async def _drop(self, duty: Duty) -> None:
        partition = self._replicas.find("", duty.name.partition, duty.topic_id)
        if partition is None:
            return
        self._replicas.remove(partition)
        if not self._replicas.of_topic(duty.name.topic):
            self._meters.forget(duty.name.topic)
        partition.drop()
        self._void(partition)
        partition.log.directory.disown(partition.log)
        await asyncio.to_thread(partition.log.directory.delete_log, partition.log)

    def _void(self, partition: Partition) -> None:
        """Should this replica come back, nothing of the journal may come back with it."""
        log = partition.log
        if self._exists(partition.topic_id) and log.directory.offline is None:
            try:
                log.directory.void_journal(log, NO_OFFSET)
            except StorageError as error:
                events.error("journal.not.voided", partition=str(log.name), reason=str(error))

    def _reconfigure(self, topic: str) -> None:
        settings = self._settings_of(topic)
        for partition in self._replicas.of_topic(topic):
            partition.reconfigure(settings)
