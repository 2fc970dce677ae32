"""Random lives of followers' logs that share a journal: appended to, cut, begun anew, crashed.

What must hold after every crash, wherever in an operation it came:

1. a log holds a prefix of what its leaders gave it, byte for byte, and nothing that was cut;
2. whatever was called safe, by the log's files or by the journal, is there unless it was cut;
3. epochs and producers are those of the batches that are there.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from waystation.model.errors import StorageError
from waystation.model.ids import LeaderEpoch, NodeId, ProducerEpoch, ProducerId, TopicId
from waystation.model.ids import TopicPartition as Name
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.header import stamp
from waystation.storage.directory import DataDirectory
from waystation.storage.journal import FOLDER, Journal
from waystation.storage.journal_replay import replay
from waystation.storage.log import Log
from waystation.storage.settings import StorageSettings
from waystation.testing.disk import PowerLossError, SimulatedDisk

ROOT = Path("/data")
LOGS = 2
NOW = Millis(1_700_000_000_000)
COMPACTED = 1
SETTINGS = [
    TopicSettings(segment_bytes=3_000),
    TopicSettings(segment_bytes=3_000, cleanup_policy="compact"),
]
PRODUCERS = 2


class Batch(NamedTuple):
    """One batch as a leader gave it."""

    content: bytes
    base: int
    end: int
    epoch: int
    producer: int
    sequence: int


class Replica:
    """A follower's log that writes through the journal, by the rules that a partition follows."""

    def __init__(self, log: Log, journal: Journal) -> None:
        self.log, self._journal = log, journal
        self.journal_from = self.journaled_end = log.flushed_end

    @property
    def log_end(self) -> Offset:
        return self.log.log_end

    @property
    def flushed_end(self) -> Offset:
        return self.log.flushed_end

    @property
    def safe_end(self) -> Offset:
        if self.journal_from <= self.flushed_end < self.journaled_end:
            return self.journaled_end
        return self.flushed_end

    def append(self, content: bytes) -> None:
        log, before, batch = self.log, self.log.log_end, memoryview(bytearray(content))
        header = log.append_replicated(batch, NOW)
        # What follows a gap cannot be replayed: nothing tells that the gap is one of the leader's.
        if self._journal.takes(len(batch)) and header.base_offset == before:
            if self.flushed_end >= before:
                self.journal_from = before
            self._journal.add(self, log.topic_id, log.name.partition, batch)
        else:
            self.not_journaled()

    def cut(self, how: Callable[[], None]) -> None:
        how()
        self._journal.forget(self)
        self.journal_from = self.journaled_end = self.flushed_end

    def journaled(self, outcome: Offset | StorageError) -> None:
        assert not isinstance(outcome, StorageError), outcome
        self.journaled_end = outcome

    def not_journaled(self) -> None:
        self.journal_from = self.log.log_end

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.finish_flush(ticket)


class Followed:
    """What one log must hold, and since when it began where it begins."""

    def __init__(self) -> None:
        self.origin = 0
        self.batches: list[Batch] = []
        self.safe = 0
        self.epoch = 0
        self.producers = 70
        """The id of the first; others before it were there before the log began anew."""
        self.instead: tuple[int, list[Batch]] | None = None
        """What an operation under way would leave: where it begins, and what it holds."""

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.origin


class World:
    """Logs, a journal and a disk; work waits in lists until the seed says that it happens."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.followed = [Followed() for _ in range(LOGS)]
        self.number = self.crashes = self.cuts = self.replayed = 0
        self._start()

    def _start(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.soon: list[Callable[[], None]] = []
        self.directory = DataDirectory(ROOT, self.disk, StorageSettings(), NodeId(1))
        found = {
            log.name: log for log in self.directory.open_logs(lambda name: SETTINGS[name.partition])
        }
        assert self.directory.offline is None, self.directory.offline
        self.replayed += replay(self.disk, ROOT / FOLDER, found.values(), NOW)
        names = [Name("t", number) for number in range(LOGS)]
        logs = [
            found.get(name)
            or self.directory.create_log(name, TopicId(UUID(int=number + 1)), SETTINGS[number])
            for number, name in enumerate(names)
        ]
        self.journal = self.directory.journal = Journal(
            self.disk,
            ROOT / FOLDER,
            submit=self.work.append,
            background=self.work.append,
            post=self.soon.append,
            defer=lambda _, run: self.soon.append(run),
            fail=self.directory.fail,
            generation=self.disk.life << 32,
        )
        self.replicas = [Replica(log, self.journal) for log in logs]

    # --- what can happen ----------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
        self._crash()

    def _step(self) -> None:
        if self.chance.random() < 0.06:
            self.disk.lose_power(self.chance.randrange(30))
        number = self.chance.randrange(LOGS)
        try:
            match self.chance.randrange(17):
                case 0 | 1 | 2 | 3 | 4 | 5:
                    self._append(number)
                case 6 | 7 | 8:
                    self._turn(self.soon)
                case 9 | 10:
                    self._turn(self.work)
                case 11:
                    self.replicas[number].flush()
                case 12:
                    self.journal.tidy()
                case 13:
                    self._checkpoint()
                case 14:
                    self._truncate(number)
                case 15 if self.chance.random() < 0.2:
                    self._start_anew(number)
                case _ if self.chance.random() < 0.2:
                    self._crash()
        except PowerLossError:
            self._crash()
        for followed, replica in zip(self.followed, self.replicas, strict=True):
            followed.safe = max(followed.safe, replica.safe_end)

    def _turn(self, waiting: list[Callable[[], None]]) -> None:
        if waiting:
            waiting.pop(0)()

    def _append(self, number: int) -> None:
        """What one answer of the leader brings: one batch, or a few."""
        followed = self.followed[number]
        for _ in range(self.chance.choice((1, 1, 3))):
            gap = self.chance.choice((0, 0, 0, 5)) if number == COMPACTED else 0
            batch = self._batch(followed, gap)
            followed.batches.append(batch)
            self.replicas[number].append(batch.content)

    def _batch(self, followed: Followed, gap: int) -> Batch:
        self.number += 1
        producer = self.chance.choice((-1, followed.producers, followed.producers + 1))
        sent = [one for one in followed.batches if one.producer == producer]
        sequence = sent[-1].sequence + 1 if sent and producer >= 0 else 0
        builder = BatchBuilder()
        if producer >= 0:
            builder = BatchBuilder(
                producer_id=ProducerId(producer),
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
        value = b"%d:" % self.number + self.chance.randbytes(
            self.chance.choice((9, 90, 200, 40_000))
        )
        builder.append(None, value, timestamp=NOW)
        content, base = bytearray(builder.build()), followed.end + gap
        stamp(memoryview(content), 0, Offset(base), LeaderEpoch(followed.epoch))
        return Batch(bytes(content), base, base + 1, followed.epoch, producer, sequence)

    def _checkpoint(self) -> None:
        for step in self.directory.checkpoint_steps({}):
            step()

    def _truncate(self, number: int) -> None:
        """A new leader lacks the tail, and goes on from there."""
        followed = self.followed[number]
        kept = followed.batches[: len(followed.batches) - self.chance.randint(1, 6)]
        target = kept[-1].end if kept else followed.origin
        followed.safe = min(followed.safe, target)
        followed.instead = (followed.origin, kept)
        replica = self.replicas[number]
        replica.cut(lambda: replica.log.truncate_to(Offset(target)))
        assert replica.log_end == target
        followed.batches, followed.instead, followed.safe = kept, None, target
        followed.epoch += self.chance.randint(1, 2)
        self.cuts += 1

    def _start_anew(self, number: int) -> None:
        """The leader's log begins behind the end of this one."""
        followed = self.followed[number]
        origin = followed.end + self.chance.randint(1, 500)
        # Interrupted by a crash, the log may still know the producers it had.
        followed.producers += PRODUCERS
        followed.safe = 0
        followed.instead = (origin, [])
        replica = self.replicas[number]
        replica.cut(lambda: replica.log.start_at(Offset(origin)))
        followed.origin, followed.batches, followed.instead = origin, [], None
        followed.safe = origin
        self.cuts += 1

    # --- what must hold -----------------------------------------------------------------

    def _crash(self) -> None:
        """Sometimes power is lost again while coming back."""
        self.crashes += 1
        self.disk.crash()
        while self.chance.random() < 0.3:
            self.disk.lose_power(self.chance.randrange(25))
            try:
                self._start()
            except PowerLossError:
                self.disk.crash()
            else:
                break
        else:
            self._start()
        self.disk.lose_power(-1)
        for followed, replica in zip(self.followed, self.replicas, strict=True):
            self._check(followed, replica.log)

    def _check(self, followed: Followed, log: Log) -> None:
        if followed.instead is not None and followed.instead[0] == log.log_start != followed.origin:
            followed.origin, followed.batches = followed.instead
        followed.instead = None
        assert log.log_start == followed.origin, f"{log} begins elsewhere than {followed.origin}"
        assert log.log_end >= followed.safe, f"{log} lacks what is safe up to {followed.safe}"
        held = [one for one in followed.batches if one.end <= log.log_end]
        assert log.log_end == (held[-1].end if held else followed.origin), f"{log} has a gap"
        assert content_of(log) == b"".join(one.content for one in held), f"{log}: other bytes"
        for one in held:
            assert log.epochs.epoch_at(Offset(one.base)) == one.epoch, f"{log}: epoch of {one.base}"
        first = followed.producers
        sequences = {one.producer: one.sequence for one in held if one.producer >= first}
        producers = [one for one in log.producers.active() if one.producer_id >= first]
        known = {one.producer_id: one.last_sequence for one in producers}
        assert known == sequences, f"{log} knows producers {known}, not {sequences}"
        followed.batches, followed.safe = held, log.log_end
        followed.epoch = max(followed.epoch, held[-1].epoch if held else 0)


def content_of(log: Log) -> bytes:
    offset, content = log.log_start, b""
    while offset < log.log_end:
        found = log.read(offset, 1 << 20, log.log_end)
        assert found.region is not None, f"nothing at {offset}"
        content += bytes(found.region.read())
        offset = found.next_offset
    return content
