"""Random lives of one log, checked against a list of batches.

A trial appends, flushes, rolls, retires, deletes, reads, crashes and restarts as its seed says.
What must hold after every restart, whatever was lost:

1. everything that was flushed is there, in order, byte for byte, and so is all before it;
2. nothing is there that was not appended;
3. the log begins no earlier than where its start was written down, nor later than where it was
   moved to, and the next batch gets the next offset;
4. batches that are still there are recognised when an idempotent producer repeats them;
5. reads by offset and by time agree with a walk over the list, and so do leader epochs.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.storage_faults.lives import NAME, Lives, Weighted
from waystation.model.errors import OutOfOrderSequenceError, StorageError, WaystationError
from waystation.model.ids import (
    LeaderEpoch,
    ProducerEpoch,
    ProducerId,
)
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.header import peek
from waystation.storage.disk import Disk
from waystation.storage.log import Log
from waystation.storage.retention import retire
from waystation.storage.settings import StorageSettings
from waystation.testing.disk import SimulatedDisk

REMEMBERED = 5


class Batch(NamedTuple):
    """One batch as it must be read back."""

    content: bytes
    base: int
    end: int
    epoch: int
    producer: int
    sequence: int
    timestamps: tuple[int, ...]


class Producer:
    """An idempotent producer outside the log."""

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.next_sequence = 0


class Trial(Lives):
    """One log of which nothing goes but from its ends."""

    POWER_LASTS = 30

    def __init__(self, seed: int, disk: Disk, path: Path, crash: Callable[[], Disk]) -> None:
        super().__init__(seed, disk, path, crash)
        self.epoch = 0
        self.batches: list[Batch] = []
        self.producers = [Producer(100 + n) for n in range(3)]
        self.start = 0
        self.was_truncated = False
        self.origin = 0
        self.new_origin: int | None = None

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        settings = TopicSettings(
            segment_bytes=chance.choice((600, 3_000, 20_000)),
            index_interval_bytes=chance.choice((0, 100, 1_000)),
            segment_ms=chance.choice((300, 3_600_000)),
            retention_bytes=chance.choice((-1, 4_000, 30_000)),
            retention_ms=chance.choice((-1, 2_000)),
            file_delete_delay_ms=chance.choice((0, 500)),
        )
        return settings, StorageSettings(recovery_bytes_max=chance.choice((0, 5_000)))

    # --- what can happen ----------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do ``steps`` random things, then crash once more, and close cleanly once."""
        for _ in range(steps):
            self.step(WEIGHTS)
        self.crash()
        self.lose_power(-1)
        self.append()
        self.restart_cleanly()

    def append(self) -> None:
        builder = BatchBuilder()
        self._append(builder, None)

    def append_idempotent(self) -> None:
        producer = self.chance.choice(self.producers)
        builder = BatchBuilder(
            producer_id=ProducerId(producer.id),
            producer_epoch=ProducerEpoch(0),
            base_sequence=producer.next_sequence,
        )
        self._append(builder, producer)

    def repeat(self) -> None:
        """A producer sends a batch again that the log has."""
        sent = self._known_of(self.chance.choice(self.producers).id)
        if sent:
            batch = self.chance.choice(sent)
            self._must_recognise(batch)

    def skip_a_sequence(self) -> None:
        producer = self.chance.choice(self.producers)
        if not self._known_of(producer.id):
            return
        builder = BatchBuilder(
            producer_id=ProducerId(producer.id),
            producer_epoch=ProducerEpoch(0),
            base_sequence=producer.next_sequence + 7,
        )
        builder.append(None, b"x", timestamp=Millis(self.now))
        content = bytearray(builder.build())
        before = self.log.log_end
        try:
            self._to_log(content)
        except OutOfOrderSequenceError:
            assert self.log.log_end == before
        else:
            raise AssertionError("a gap in a producer's sequence was let in")

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            if self.chance.random() < 0.3:
                self.append()
            ticket.sync()
            if self.chance.random() < 0.2:
                self.append()
            self.log.finish_flush(ticket)
        self._see_flushed()

    def checkpoint(self) -> None:
        write = next(self.directory.checkpoint_steps({NAME: self.log.flushed_end}))
        start = min(self.log.log_start, self.log.flushed_end)
        if self.chance.random() < 0.2:
            self.append_idempotent()
        write()
        if self.directory.offline is None:
            self.start_written = max(self.start_written, start)

    def new_leader(self) -> None:
        self.epoch += 1

    def retire(self) -> None:
        retire(self.log, Millis(self.now), Offset(self.flushed_end))
        self.start = max(self.start, self.log.log_start)
        self._drop_retired()

    def delete_records(self) -> None:
        target = self.chance.randint(self.log.log_start, self.log.log_end)
        self.log.advance_log_start(Offset(target))
        self.start = max(self.start, self.log.log_start)
        self._drop_retired()

    def _drop_retired(self) -> None:
        if self.chance.random() < 0.2:
            return
        start = self.log.log_start
        write = self.directory.plan_log_starts()
        if self.chance.random() < 0.2:
            self.append()
        write()
        if self.directory.offline is None:
            self.start_written = max(self.start_written, start)
        if self.directory.offline is not None or self.chance.random() < 0.2:
            return
        self.directory.drop_retired(self.log, Millis(self.now))
        self.directory.purge(Millis(self.now))

    def fail_a_sync(self) -> None:
        """The disk loses pages: nothing is promised any more, and only a restart helps."""
        if isinstance(self.disk, SimulatedDisk):
            self.disk.fail_sync()
        self.append()
        ticket = self.log.begin_flush()
        if ticket is not None:
            try:
                ticket.sync()
            except OSError as error:
                self.log.fail(StorageError(str(error)))
                self._must_refuse()
                return
            self.log.finish_flush(ticket)
        self._see_flushed()

    def truncate(self) -> None:
        """A follower finds that its leader does not have its tail."""
        ends = [b.end for b in self.batches if self.log.log_start <= b.end < self.log.log_end]
        if not ends:
            return
        target = self.chance.choice(ends[-4:])
        self.flushed_end = min(self.flushed_end, target)
        self.was_truncated = True
        self.log.truncate_to(Offset(target))
        assert self.log.log_end == target
        self._forget_past(target)
        self.flushed_end = target

    def begin_elsewhere(self) -> None:
        """A follower whose leader has deleted all that it holds."""
        self.new_origin = self.log.log_end + self.chance.randrange(1, 1_000)
        self.was_truncated = True
        self.log.start_at(Offset(self.new_origin))
        self._adopt_origin()

    def _adopt_origin(self) -> None:
        """The log has moved: nothing of what it held counts any more."""
        assert self.new_origin is not None
        self.origin = self.start = self.start_written = self.flushed_end = self.new_origin
        self.new_origin = None
        self.batches = []
        # Interrupted by a crash, the log may still know the producers it had.
        self.producers = [Producer(one.id + 10) for one in self.producers]

    def read(self) -> None:
        self.check_reads(4)

    # --- what must hold -----------------------------------------------------------------

    def _check_after_restart(self) -> None:
        """Promises 1 to 4."""
        log = self.log
        if log.log_start == self.new_origin:
            self._adopt_origin()
        self.new_origin = None
        assert self.start_written <= log.log_start <= self.start, (
            f"starts at {log.log_start}, not within [{self.start_written}, {self.start}]"
        )
        assert log.log_start <= log.log_end
        assert log.flushed_end == log.log_end
        ends = [self.origin, *(b.end for b in self.batches)]
        assert log.log_end in ends, f"ends at {log.log_end}, in the middle of a batch"
        self._forget_past(log.log_end)
        self.start = self.start_written = log.log_start
        self.flushed_end = log.log_end
        for producer in self.producers:
            for batch in self._of_producer(producer.id)[-REMEMBERED:]:
                if batch.base >= log.log_start:
                    self._must_recognise(batch)
        self._check_content()
        self._check_epochs()
        self.check_reads(6)

    def _forget_past(self, log_end: int) -> None:
        self.batches = [b for b in self.batches if b.end <= log_end]
        for producer in self.producers:
            sent = self._of_producer(producer.id)
            producer.next_sequence = sent[-1].sequence + len(sent[-1].timestamps) if sent else 0

    def check_reads(self, count: int) -> None:
        """Promise 5."""
        held = self._held()
        if not held:
            return
        for _ in range(count):
            offset = self.chance.randint(max(held[0].base, self.log.log_start), held[-1].end - 1)
            upto = self.chance.choice((held[-1].end, self.chance.choice(held).end))
            max_bytes = self.chance.choice((1, 500, 5_000, 1 << 20))
            self._check_read(offset, max_bytes, upto)
            self._check_time(self.chance.choice(self.chance.choice(held).timestamps))

    def _check_read(self, offset: int, max_bytes: int, upto: int) -> None:
        found = self.log.read(Offset(offset), max_bytes, Offset(upto))
        wanted = [b for b in self.batches if b.end > offset and b.end <= upto]
        if not wanted:
            assert found.region is None, f"read {found} from {offset} up to {upto}"
            return
        assert found.region is not None, f"nothing read from {offset} up to {upto}"
        content = found.region.read()
        expected = b"".join(b.content for b in wanted)
        assert expected.startswith(content), f"other bytes at {offset}"
        assert len(content) <= max(max_bytes, len(wanted[0].content)), "more than was asked for"
        taken, at = 0, 0
        while at < len(content):
            at += len(wanted[taken].content)
            taken += 1
        assert at == len(content), "a batch was torn"
        assert found.next_offset == wanted[taken - 1].end

    def _check_time(self, timestamp: int) -> None:
        target = timestamp + self.chance.choice((-1, 0, 0, 1))
        expected = next(
            (
                (batch.base + number, at)
                for batch in self._held()
                for number, at in enumerate(batch.timestamps)
                if at >= target and batch.base + number >= self.log.log_start
            ),
            None,
        )
        found = self.log.find_by_time(Millis(target))
        assert found == expected, f"at {target} found {found}, not {expected}"

    def _check_content(self) -> None:
        """Read the log from end to end, as a consumer does."""
        offset, read = self.log.log_start, bytearray()
        while offset < self.log.log_end:
            found = self.log.read(Offset(offset), 1 << 20, self.log.log_end)
            assert found.region is not None, f"nothing at {offset}"
            read += found.region.read()
            assert found.next_offset > offset
            offset = found.next_offset
        expected = b"".join(b.content for b in self._held())
        assert bytes(read) == expected, "the log holds other bytes"

    def _check_epochs(self) -> None:
        for batch in self._held():
            if batch.base >= self.log.log_start:
                assert self.log.epochs.epoch_at(Offset(batch.base)) == batch.epoch

    def _must_recognise(self, batch: Batch) -> None:
        before = self.log.log_end
        told = self._to_log(bytearray(batch.content))
        assert told == (batch.base, batch.end - 1, True), f"{batch.base} repeated: {told}"
        assert self.log.log_end == before

    def _must_refuse(self) -> None:
        for refused in (
            self.append_refused,
            lambda: self.log.read(self.log.log_start, 1, Offset(1)),
        ):
            try:
                refused()
            except StorageError:
                continue
            raise AssertionError("an offline directory serves")

    def append_refused(self) -> None:
        builder = BatchBuilder()
        builder.append(None, b"x", timestamp=Millis(self.now))
        self._to_log(bytearray(builder.build()))

    # --- details ------------------------------------------------------------------------

    def _append(self, builder: BatchBuilder, producer: Producer | None) -> None:
        chance, timestamps = self.chance, []
        for _ in range(chance.choice((1, 1, 2, 5))):
            timestamp = self.now - chance.choice((0, 0, 50, 500))
            value = _PADDING[: chance.choice((0, 10, 100, 100, 2_000))]
            builder.append(b"k", value, timestamp=Millis(timestamp))
            timestamps.append(timestamp)
        content = bytearray(builder.build())
        try:
            base, last, duplicate = self._to_log(content)
        except WaystationError:
            if self.directory.offline is None:
                raise
            return
        assert not duplicate
        assert last - base == len(timestamps) - 1
        sequence = -1
        if producer is not None:
            sequence, producer.next_sequence = (
                producer.next_sequence,
                producer.next_sequence + len(timestamps),
            )
        assert base == (self.batches[-1].end if self.batches else self.origin), f"a gap at {base}"
        self.batches.append(
            Batch(
                bytes(content),
                base,
                last + 1,
                self.epoch,
                producer.id if producer else -1,
                sequence,
                tuple(timestamps),
            )
        )

    def _to_log(self, content: bytearray) -> tuple[int, int, bool]:
        told = self.log.append(
            memoryview(content), peek(content), LeaderEpoch(self.epoch), Millis(self.now)
        )
        return told.base_offset, told.last_offset, told.duplicate

    def _see_flushed(self) -> None:
        assert self.flushed_end <= self.log.flushed_end <= self.log.log_end
        self.flushed_end = self.log.flushed_end

    def _of_producer(self, producer: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.producer == producer]

    def _known_of(self, producer: int) -> list[Batch]:
        """What the log must recognise.

        Cutting the tail may take the snapshot along that knew of segments dropped before.
        """
        sent = self._of_producer(producer)[-REMEMBERED:]
        return [b for b in sent if b.base >= self.log.log_start or not self.was_truncated]

    def _held(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.end > self.log.log_start]


_PADDING = random.Random(0).randbytes(2_000)
WEIGHTS: Weighted = (
    (Trial.append, 20),
    (Trial.append_idempotent, 20),
    (Trial.repeat, 4),
    (Trial.skip_a_sequence, 2),
    (Trial.flush, 12),
    (Trial.checkpoint, 6),
    (Trial.roll, 3),
    (Trial.new_leader, 1),
    (Trial.retire, 4),
    (Trial.delete_records, 2),
    (Trial.fail_a_sync, 1),
    (Trial.truncate, 1),
    (Trial.begin_elsewhere, 1),
    (Trial.read, 6),
    (Trial.crash, 4),
    (Trial.lose_power_soon, 3),
    (Trial.restart_cleanly, 2),
)


def contents(log: Log) -> list[tuple[int, bytes | None]]:
    """Every record of a log: its offset and value."""
    found = log.read(log.log_start, 1 << 30, log.log_end)
    if found.region is None:
        return []
    data, at, records = found.region.read(), 0, []
    while at < len(data):
        records += [(record.offset, record.value) for record in records_of(data, at)]
        at += peek(data, at).size_bytes
    return records
