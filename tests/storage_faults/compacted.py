"""Random lives of a compacted log, checked against the list of everything that was appended.

A trial appends keys and tombstones, compacts in between, step by step with other things happening
meanwhile, and loses power anywhere.  What must hold, whatever was interrupted:

1. what is there was appended: offset, key, value, headers and timestamp are as they were;
2. what is not there was made needless by a later record of its key that a pass could know of, or
   is a tombstone whose time had come, or lies before the log's start, or was never flushed;
3. below the end of the last pass that went through, no key is there twice;
4. a tombstone is there until its time has come, and gone after the next pass then; what it
   deleted does not come back;
5. offsets, ends, reads by offset and by time, and what is known of producers are as if nothing
   had been compacted; who reads a segment that is replaced reads on undisturbed.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.storage_faults.lives import Lives, Weighted
from tests.storage_faults.operations import Producer
from waystation.model.errors import OutOfOrderSequenceError, StorageError, WaystationError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.compression import Codec
from waystation.records.header import batches, check, peek
from waystation.records.record import Record
from waystation.runtime.regions import FileRegion
from waystation.storage.cleanable import Dirt, dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.disk import Disk
from waystation.storage.retention import retire
from waystation.storage.settings import StorageSettings
from waystation.storage.tickets import NO_SPACE
from waystation.testing.disk import SimulatedDisk

KEYS = [b"key-%d" % number for number in range(7)]
CODECS = (Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4)
SECRET = bytes(range(16))
_NEVER = 1 << 40
_PADDING = random.Random(0).randbytes(300)


class Batch(NamedTuple):
    """One batch as it was appended."""

    content: bytes
    base: int
    end: int
    producer: int
    sequence: int


class Begun(NamedTuple):
    """A pass, whether or not it went through; its end is known once its keys are noted."""

    compaction: Compaction
    at: int


class CompactedTrial(Lives):
    """One compacted log."""

    CRASHES_AGAIN = 0.4

    def __init__(self, seed: int, disk: Disk, path: Path, crash: Callable[[], Disk]) -> None:
        super().__init__(seed, disk, path, crash)
        self.records: dict[int, Record] = {}
        self.batches: list[Batch] = []
        self.tombstones: dict[int, int] = {}
        """Where the batch of each ends."""
        self.begun: list[Begun] = []
        self.through: list[Begun] = []
        self.producers = [Producer(100 + number) for number in range(2)]
        self.start = 0
        self.passed_end = 0
        self.was_cut = False

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        settings = TopicSettings(
            cleanup_policy=chance.choice((("compact",), ("compact",), ("compact", "delete"))),
            segment_bytes=chance.choice((300, 1_000, 4_000)),
            index_interval_bytes=chance.choice((0, 100, 1_000)),
            segment_ms=chance.choice((300, 3_600_000)),
            retention_ms=chance.choice((-1, 4_000)),
            file_delete_delay_ms=chance.choice((0, 500)),
            min_compaction_lag_ms=chance.choice((0, 0, 300)),
            delete_retention_ms=chance.choice((0, 400, 3_000)),
        )
        return settings, StorageSettings(recovery_bytes_max=0)

    # --- what can happen ----------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do ``steps`` random things, crash, compact what is left, and close cleanly."""
        for _ in range(steps):
            self.step(_ACTIONS)
        self.crash()
        self.lose_power(-1)
        self.checkpoint()
        self.compact()
        self.lose_power(-1)
        self.check()
        self.restart_cleanly()

    def append(self) -> None:
        self._append(None)

    def append_idempotent(self) -> None:
        self._append(self.chance.choice(self.producers))

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            try:
                ticket.sync()
            except OSError as error:
                self.log.failed(error, "sync")
                return
            self.log.finish_flush(ticket)
        self.flushed_end = self.log.flushed_end

    def checkpoint(self) -> None:
        start = min(self.log.log_start, self.log.flushed_end)
        for step in self.directory.checkpoint_steps({}):
            step()
        if self.directory.offline is None:
            self.start_written = max(self.start_written, start)

    def retire(self) -> None:
        retire(self.log, Millis(self.now), Offset(self.flushed_end))
        self._drop_retired()

    def delete_records(self) -> None:
        self.log.advance_log_start(
            Offset(self.chance.randint(self.log.log_start, self.flushed_end))
            if self.flushed_end > self.log.log_start
            else self.log.log_start
        )
        self._drop_retired()

    def _drop_retired(self) -> None:
        self.start = max(self.start, self.log.log_start)
        if self.chance.random() < 0.3:
            return
        start = self.log.log_start
        self.directory.plan_log_starts()()
        if self.directory.offline is not None:
            return
        self.start_written = max(self.start_written, start)
        self.directory.drop_retired(self.log, Millis(self.now))
        self.directory.purge(Millis(self.now))

    def truncate(self) -> None:
        """A follower's tail goes; never what is committed, so never what was compacted."""
        lowest = max(self.reached_end, self.log.log_start)
        ends = [b.end for b in self.batches if lowest <= b.end < self.log.log_end]
        if not ends:
            return
        target = self.chance.choice(ends[-4:])
        self.flushed_end = min(self.flushed_end, target)
        self.was_cut = True
        try:
            self.log.truncate_to(Offset(target))
        except OSError as error:
            self.log.failed(error, "truncate")
            return
        assert self.log.log_end == target
        self._forget_past(target)
        self.flushed_end = target

    def compact(self) -> None:
        """One pass, with other things happening between its steps."""
        mark = Offset(self.flushed_end)
        dirt = dirt_of(self.log, mark, Millis(self.now))
        assert dirt.end <= max(min(mark, self.log.active.base_offset), self.log.log_start)
        held = self._held_regions(dirt)
        life, pass_at, cuts = self.lives, self.now, self.log.cuts
        compaction = Compaction(
            self.log,
            dirt,
            now=Millis(self.now),
            map_bytes=24 * self.chance.choice((4, 8, 1_000)),
            secret=SECRET,
        )
        self.begun.append(Begun(compaction, pass_at))
        try:
            for work in compaction.steps():
                work()
                if self.chance.random() < 0.15:
                    self.step(_MEANWHILE)
                if self.lives != life:
                    return
        except OSError as error:
            if error.errno not in NO_SPACE:
                self.log.failed(error, "compact")
                return
            compaction.abandon()
        for region, content in held if self.log.cuts == cuts else ():
            assert region.read() == content, "a reader was disturbed"
        if compaction.finished:
            self._passed(self.begun[-1])

    def compact_on_a_small_disk(self) -> None:
        if not isinstance(self.disk, SimulatedDisk):
            return
        self.disk.space_bytes = (4 << 20) + self.chance.randrange(6_000)
        with suppress(StorageError):
            self.compact()
        self.disk.space_bytes = None

    def compact_and_lose_power(self) -> None:
        self.checkpoint()
        self.lose_power(self.chance.randrange(30))
        self.compact()

    def compact_with_a_failing_sync(self) -> None:
        if isinstance(self.disk, SimulatedDisk):
            self.disk.fail_sync(self.chance.randrange(8))
            self.compact()
            self.disk.fail_sync(_NEVER)

    # --- what must hold -----------------------------------------------------------------

    def check(self) -> None:
        """Promises 1 to 5."""
        log = self.log
        there = self._read_all()
        for offset, record in there.items():
            assert record == self.records[offset], f"{offset} is {record}"
        for offset, record in self.records.items():
            if offset >= log.log_start and offset not in there:
                assert self._may_be_gone(record), f"{record} is gone"
        self._check_deleted(there)
        clean = [there[at].key for at in there if at < self.passed_end]
        assert len(clean) == len(set(clean)), f"a key is there twice below {self.passed_end}"
        self._check_reads(there)
        self._check_producers()

    def _check_deleted(self, there: dict[int, Record]) -> None:
        """What a tombstone deleted does not come back when it is gone."""
        newest = {one.key: at for at, one in self.records.items()}
        for at, one in there.items():
            assert newest[one.key] in there, f"{one} is back, of {newest[one.key]} at {at}"

    def _may_be_gone(self, record: Record) -> bool:
        """Promise 2, and the first half of 4."""
        later = (at for at, one in self.records.items() if one.key == record.key)
        if any(record.offset < at < self.reached_end for at in later):
            return True
        if record.value is not None:
            return False
        batch_end = self.tombstones[record.offset]
        return any(batch_end <= one.compaction.end and self._is_over(one) for one in self.begun)

    def _is_over(self, one: Begun, now: int | None = None) -> bool:
        """Whether tombstones that a pass has dated may go."""
        return (self.now if now is None else now) >= one.at + self.settings.delete_retention_ms

    def _passed(self, begun: Begun) -> None:
        """A pass went through: the second half of promise 4, and 3 from now on."""
        end = begun.compaction.end
        self.passed_end = max(self.passed_end, end)
        there = self._read_all()
        dated = [one.compaction.end for one in self.through if self._is_over(one, begun.at)]
        for at, batch_end in self.tombstones.items():
            if at < end and batch_end <= max(dated, default=0):
                assert at not in there, f"a tombstone stayed too long: {self.records[at]}"
        self.through.append(begun)
        self.check()

    @property
    def reached_end(self) -> int:
        """Up to where a pass may have taken something."""
        return max((one.compaction.end for one in self.begun), default=0)

    def _check_reads(self, there: dict[int, Record]) -> None:
        log = self.log
        for _ in range(4):
            if log.log_end == log.log_start:
                return
            offset = self.chance.randrange(log.log_start, log.log_end)
            upto = self.chance.choice(
                [b.end for b in self.batches if b.end > log.log_start] or [log.log_end]
            )
            self._check_read(there, offset, self.chance.choice((1, 200, 1 << 20)), upto)
            self._check_time(there, self.now - self.chance.randrange(3_000))
        newest = max((one.timestamp for one in there.values()), default=-1)
        found = log.max_timestamp()
        # Records before the log's start may still be found: their segment is still there.
        if found is not None and found[0] >= log.log_start:
            assert found[1] == newest, f"the newest is {found}, not {newest}"

    def _check_read(self, there: dict[int, Record], offset: int, max_bytes: int, upto: int) -> None:
        wanted = [at for at in there if offset <= at < upto]
        found = self.log.read(Offset(offset), max_bytes, Offset(upto))
        if found.region is None:
            assert not wanted, f"nothing read at {offset} up to {upto}, not even {wanted[0]}"
            return
        content, got = found.region.read(), []
        for at, header in batches(content):
            check(content, at)
            assert header.next_offset > offset
            assert header.next_offset <= upto
            got += [one.offset for one in records_of(content, at) if one.offset >= offset]
        assert got == wanted[: len(got)], f"read {got} at {offset}, not {wanted}"
        skipped = [at for at in wanted[len(got) :] if at < found.next_offset]
        assert not skipped, f"{skipped} are skipped"
        assert found.next_offset > offset

    def _check_time(self, there: dict[int, Record], timestamp: int) -> None:
        expected = next(
            ((at, one.timestamp) for at, one in there.items() if one.timestamp >= timestamp), None
        )
        found = self.log.find_by_time(Millis(timestamp))
        assert found == expected, f"at {timestamp} found {found}, not {expected}"

    def _check_producers(self) -> None:
        for producer in self.producers:
            sent = [batch for batch in self.batches if batch.producer == producer.id]
            if sent and sent[-1].base >= self.log.log_start and not self.was_cut:
                before = self.log.log_end
                told = self._to_log(bytearray(sent[-1].content))
                assert told == (sent[-1].base, True), f"{sent[-1].base} repeated: {told}"
                assert self.log.log_end == before

    # --- details ------------------------------------------------------------------------

    def _append(self, producer: Producer | None) -> None:
        chance, codec = self.chance, self.chance.choice(CODECS)
        if producer is None:
            builder = BatchBuilder(codec)
        else:
            builder = BatchBuilder(
                codec, ProducerId(producer.id), ProducerEpoch(0), producer.next_sequence
            )
        rows = []
        for _ in range(chance.choice((1, 2, 5))):
            timestamp = Millis(self.now - chance.choice((0, 0, 50)))
            value = None if chance.random() < 0.3 else _PADDING[: chance.choice((0, 20, 300))]
            headers = (("h", b"v"),) if chance.random() < 0.2 else ()
            rows.append((timestamp, chance.choice(KEYS), value, headers))
            builder.append(rows[-1][1], value, headers, timestamp=timestamp)
        content = bytearray(builder.build())
        try:
            base, duplicate = self._to_log(content)
        except OutOfOrderSequenceError:
            # The cut may have taken the snapshot that knew of segments dropped before.
            assert self.was_cut
            return
        except WaystationError:
            assert self.directory.offline is not None or self.disk_is_small
            return
        assert not duplicate
        sequence = -1
        if producer is not None:
            sequence = producer.next_sequence
            producer.next_sequence += len(rows)
        for at, (timestamp, key, value, headers) in enumerate(rows, base):
            self.records[at] = Record(Offset(at), timestamp, key, value, headers)
            if value is None:
                self.tombstones[at] = base + len(rows)
        self.batches.append(
            Batch(bytes(content), base, base + len(rows), producer.id if producer else -1, sequence)
        )

    @property
    def disk_is_small(self) -> bool:
        return isinstance(self.disk, SimulatedDisk) and self.disk.space_bytes is not None

    def _to_log(self, content: bytearray) -> tuple[int, bool]:
        told = self.log.append(memoryview(content), peek(content), LeaderEpoch(0), Millis(self.now))
        return told.base_offset, told.duplicate

    def _held_regions(self, dirt: Dirt) -> list[tuple[FileRegion, bytes]]:
        if dirt.end <= self.log.log_start:
            return []
        offset = self.chance.randrange(self.log.log_start, dirt.end)
        region = self.log.read(Offset(offset), 1 << 20, self.log.log_end).region
        return [] if region is None else [(region, region.read())]

    def _read_all(self) -> dict[int, Record]:
        """Everything that is there, read as a consumer does."""
        offset, there = self.log.log_start, {}
        while offset < self.log.log_end:
            found = self.log.read(offset, 1 << 20, self.log.log_end)
            assert found.region is not None, f"nothing at {offset}"
            content = found.region.read()
            for at, _ in batches(content):
                check(content, at)
                for record in records_of(content, at):
                    if record.offset >= self.log.log_start:
                        there[int(record.offset)] = record
            assert found.next_offset > offset
            offset = found.next_offset
        return there

    def _check_after_restart(self) -> None:
        log = self.log
        assert not log.damage, log.damage
        assert self.start_written <= log.log_start <= self.start
        assert log.log_end in (0, *(b.end for b in self.batches))
        assert log.clean_end <= self.reached_end
        self.passed_end = max(self.passed_end, log.clean_end)
        self._forget_past(log.log_end)
        self.start = self.start_written = log.log_start
        self.flushed_end = log.log_end
        leftovers = (".cleaned", ".swap", ".deleted")
        assert not [e.name for e in self.disk.entries(log.path) if e.name.endswith(leftovers)]
        self.check()

    def _forget_past(self, log_end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= log_end]
        self.records = {at: one for at, one in self.records.items() if at < log_end}
        self.tombstones = {at: one for at, one in self.tombstones.items() if at < log_end}
        for producer in self.producers:
            sent = [batch for batch in self.batches if batch.producer == producer.id]
            producer.next_sequence = sent[-1].sequence + sent[-1].end - sent[-1].base if sent else 0


_MEANWHILE: Weighted = (
    (CompactedTrial.append, 6),
    (CompactedTrial.append_idempotent, 2),
    (CompactedTrial.flush, 2),
    (CompactedTrial.checkpoint, 2),
    (CompactedTrial.roll, 1),
    (CompactedTrial.retire, 1),
    (CompactedTrial.delete_records, 1),
    (CompactedTrial.truncate, 1),
    (CompactedTrial.check, 2),
    (CompactedTrial.crash, 1),
)
_ACTIONS: Weighted = (
    (CompactedTrial.append, 24),
    (CompactedTrial.append_idempotent, 8),
    (CompactedTrial.flush, 6),
    (CompactedTrial.checkpoint, 8),
    (CompactedTrial.roll, 3),
    (CompactedTrial.retire, 1),
    (CompactedTrial.delete_records, 1),
    (CompactedTrial.truncate, 1),
    (CompactedTrial.compact, 10),
    (CompactedTrial.compact_and_lose_power, 6),
    (CompactedTrial.compact_with_a_failing_sync, 1),
    (CompactedTrial.compact_on_a_small_disk, 1),
    (CompactedTrial.lose_power_soon, 2),
    (CompactedTrial.crash, 2),
    (CompactedTrial.crash_and_lose_snapshots, 1),
    (CompactedTrial.restart_cleanly, 1),
)
