"""Random lives of a log with transactions, checked against the list of all that was appended.

A trial writes in transactions and outside, ends them, sends what must be refused, cuts, retires,
compacts, loses power anywhere and comes back.  What must hold whenever someone looks:

1. the last stable offset is where the first transaction begins that is open, or whose marker is
   not safe yet, and else the end of what is safe;
2. a reader of stable records, from wherever it begins, is shown what was committed or written
   outside of transactions, and nothing else; where the log is compacted, of each key the last;
3. transactions that are open are known as such, and no others; what must not join them, and
   markers that come too late, are refused;
4. the index names aborted transactions, and no others;
5. a marker is there for as long as ``delete.retention.ms`` after compaction could do without it.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.storage_faults.lives import Lives, Weighted
from tests.storage_faults.written import Event, Row, Written
from waystation.client.visible import Visibility
from waystation.messages.fetch import AbortedTransaction
from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.control import Marker, marker_batch, read_marker
from waystation.records.header import batches, check, peek, stamp
from waystation.storage import checkpointing
from waystation.storage.cleanable import dirt_of
from waystation.storage.compaction import Compaction
from waystation.storage.disk import Disk
from waystation.storage.retention import retire
from waystation.storage.settings import StorageSettings

KEYS = [b"key-%d" % number for number in range(4)]
SECRET = bytes(range(16))
LIMIT_BYTES = 1 << 20
_PADDING = random.Random(0).randbytes(200)


class Begun(NamedTuple):
    """A pass of compaction, whether or not it went through."""

    compaction: Compaction
    at: int
    mark: int
    """The end of what was committed: nothing before it is ever cut."""


class TransactionalTrial(Lives):
    """One log with transactions."""

    def __init__(self, seed: int, disk: Disk, path: Path, crash: Callable[[], Disk]) -> None:
        super().__init__(seed, disk, path, crash)
        self.written = Written()
        self.origin = 0
        self.coordinator_epoch = 0
        self.was_cut = self.forgot = False
        self.new_origin: int | None = None
        self.producers = [100, 101, 102]
        self.begun: list[Begun] = []
        self.passes = 0
        self.aborted_seen = 0

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        self.compacted = chance.random() < 0.5
        settings = TopicSettings(
            cleanup_policy=("compact",) if self.compacted else ("delete",),
            segment_bytes=chance.choice((300, 1_000, 4_000)),
            index_interval_bytes=chance.choice((0, 100, 1_000)),
            segment_ms=chance.choice((300, 3_600_000)),
            retention_bytes=chance.choice((-1, -1, 4_000)),
            file_delete_delay_ms=chance.choice((0, 500)),
            delete_retention_ms=chance.choice((0, 400, 3_000)),
        )
        return settings, StorageSettings(recovery_bytes_max=chance.choice((0, 5_000)))

    # --- what can happen ----------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do ``steps`` random things, crash, end what is open, and close cleanly."""
        for _ in range(steps):
            self.step(_ACTIONS)
        self.crash()
        self.lose_power(-1)
        for producer in self.producers:
            self._end(producer, commit=self.chance.random() < 0.5)
        self._settle()
        assert self.log.last_stable(self.log.log_end) == self.log.log_end
        if self.compacted:
            self._grow_old()
        self.check()
        self.restart_cleanly()

    def _settle(self) -> None:
        """Let everything be safe, and nothing be left for recovery."""
        flush, checkpoint = self.log.begin_flush(), checkpointing.begin(self.log)
        if flush is not None:
            flush.sync()
            self.log.finish_flush(flush)
        if checkpoint is not None:
            checkpointing.carry_out(self.log, checkpoint)
        self.flushed_end = self.log.flushed_end
        assert self.flushed_end == self.log.recovery_point == self.log.log_end

    def _grow_old(self) -> None:
        """Compact all there is until nothing changes, and see what the log alone knows."""
        self.log.roll()
        self._write(-1)
        self._settle()
        for _ in range(3):
            self._compact(lambda: None)
            self.now += self.settings.delete_retention_ms
        self.crash_and_lose_snapshots()
        assert self.log.last_stable(self.log.log_end) == self.log.log_end

    def write(self) -> None:
        """A batch of a transaction, which it may begin."""
        producer = self.chance.choice(self.producers)
        self._write(producer, sequenced=producer != self.producers[-1])

    def write_outside(self) -> None:
        self._write(-1)

    def write_beside(self) -> None:
        """A batch that is in none, of a producer that has a transaction open."""
        for one in self.written.open():
            if one.events[-1].base < self.log.log_start or self._has_lost_state:
                continue
            epoch = self.written.epoch_of(one.producer)
            batch = self._builder(
                one.producer, epoch, self.written.sequence_of(one.producer, epoch)
            )
            batch.is_transactional = False
            batch.append(KEYS[0], b"", timestamp=Millis(self.now))
            self._must_refuse(InvalidTxnStateError, bytearray(batch.build()))

    def end(self) -> None:
        opened = [one.producer for one in self.written.open()]
        producer = self.chance.choice(opened or self.producers)
        self._end(producer, commit=self.chance.random() < 0.5)

    def end_too_late(self) -> None:
        """A marker of an older producer, and one of an older coordinator."""
        if self._has_lost_state:
            return
        markers = [
            one for one in self.written.events if one.marker and one.base >= self.log.log_start
        ]
        for one in markers[-1:]:
            assert one.marker is not None
            epoch = self.written.epoch_of(one.producer)
            known = self.written.coordinator_epoch_of(one.producer)
            for wrong, error in (
                (one.marker._replace(producer_epoch=epoch - 1), InvalidProducerEpochError),
                (
                    one.marker._replace(producer_epoch=epoch, coordinator_epoch=known - 1),
                    TransactionCoordinatorFencedError,
                ),
            ):
                self._must_refuse_marker(error, wrong)

    def new_coordinator(self) -> None:
        self.coordinator_epoch += 1

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            if self.chance.random() < 0.3:
                self.write()
            ticket.sync()
            if self.chance.random() < 0.3:
                self.end()
            self.log.finish_flush(ticket)
        self.flushed_end = self.log.flushed_end

    def checkpoint(self) -> None:
        for number, step in enumerate(self.directory.checkpoint_steps({})):
            if number == 0 and self.chance.random() < 0.3:
                self.end()
            step()

    def retire(self) -> None:
        retire(self.log, Millis(self.now), Offset(self.flushed_end))
        self._drop_retired()

    def delete_records(self) -> None:
        lowest = self.log.log_start
        self.log.advance_log_start(Offset(self.chance.randint(lowest, max(self._mark, lowest))))
        self._drop_retired()

    def _drop_retired(self) -> None:
        if self.chance.random() < 0.7:
            self.directory.plan_log_starts()()
            if self.directory.offline is None:
                self.directory.drop_retired(self.log, Millis(self.now))
                self.directory.purge(Millis(self.now))

    def forget_producers(self) -> None:
        """Those without a transaction, as after a long time."""
        self.forgot = True
        self.log.producers.expire(Millis(self.now), 0)
        self.log.producers.expire(Millis(self.now + 1_000_000), 0)

    def truncate(self) -> None:
        """A follower's tail goes; never what compaction took for committed, markers above all."""
        lowest = max(self.log.log_start, *(one.mark for one in self.begun), 0)
        ends = [one.end for one in self.written.events if lowest <= one.end < self.log.log_end]
        if not ends:
            return
        target = self.chance.choice(ends[-4:])
        self.flushed_end = min(self.flushed_end, target)
        self.was_cut = True
        self.log.truncate_to(Offset(target))
        self.written.cut(target)
        self.flushed_end = target

    def begin_elsewhere(self) -> None:
        """A follower whose leader has deleted all that it holds."""
        if self.compacted:
            return
        self.new_origin = self.log.log_end + self.chance.randrange(1, 1_000)
        self.was_cut = True
        self.log.start_at(Offset(self.new_origin))
        self._adopt_origin()

    def _adopt_origin(self) -> None:
        assert self.new_origin is not None
        self.origin = self.flushed_end = self.new_origin
        self.written, self.new_origin, self.forgot = Written(), None, True
        # Interrupted by a crash, the log may still know the producers it had.
        self.producers = [one + 10 for one in self.producers]

    def compact(self) -> None:
        """One pass, with other things happening between its steps."""
        if self.compacted:
            self._compact(lambda: self.chance.random() < 0.15 and self.step(_MEANWHILE))

    def _compact(self, meanwhile: Callable[[], object]) -> None:
        stable = self.log.last_stable(Offset(self._mark))
        dirt = dirt_of(self.log, stable, Millis(self.now))
        life = self.lives
        compaction = Compaction(
            self.log,
            dirt,
            now=Millis(self.now),
            map_bytes=24 * self.chance.choice((4, 8, 1_000)),
            secret=SECRET,
        )
        self.begun.append(Begun(compaction, self.now, self._mark))
        for work in compaction.steps():
            work()
            meanwhile()
            if self.lives != life:
                return
        self.passes += compaction.finished
        self.check()

    def compact_and_lose_power(self) -> None:
        self.checkpoint()
        self.lose_power(self.chance.randrange(30))
        self.compact()

    def crash_and_lose_snapshots(self) -> None:
        """What is known of transactions must then come from the log itself."""
        self.was_cut = True
        super().crash_and_lose_snapshots()

    # --- what must hold -----------------------------------------------------------------

    def _check_after_restart(self) -> None:
        log = self.log
        if log.log_start == self.new_origin:
            # What lies before it may be torn; nobody needs it.
            self._adopt_origin()
        else:
            assert not log.damage, log.damage
        self.new_origin = None
        self.written.cut(log.log_end)
        self.flushed_end = log.log_end
        self.check()

    def check(self) -> None:
        """Promises 1 to 5."""
        stable = self._check_stable()
        self._check_open()
        self._check_index()
        for _ in range(3):
            begin = self.chance.randint(self.log.log_start, max(stable, self.log.log_start))
            self._check_view(begin, stable, self.chance.choice((1, 300, 1 << 20)))
        self._check_view(self.log.log_start, stable, 1 << 20)
        if self.compacted:
            self._check_markers()

    def _check_stable(self) -> int:
        """Between the true offset and the first that is still there of what is undecided.

        They differ only where the log's start was moved into a transaction and a cut took the
        snapshot that knew of its beginning.
        """
        mark, start = self._mark, self.log.log_start
        undecided = [
            one for one in self.written.transactions() if one.end is None or one.end.end > mark
        ]
        lowest = min((max(one.first, start) for one in undecided), default=mark)
        visible = [e.base for one in undecided for e in one.events if e.end > start]
        highest = min((max(base, start) for base in visible), default=mark)
        stable = self.log.last_stable(Offset(mark))
        lowest = min(lowest, mark) if not self._has_lost_state else min(highest, lowest, mark)
        assert lowest <= stable <= min(highest, mark), (
            f"stable up to {stable}, not within [{lowest}, {min(highest, mark)}]"
        )
        return stable

    def _check_open(self) -> None:
        known = {int(one.producer_id) for one in self.log.producers.open_transactions()}
        opened = {one.producer: one for one in self.written.open()}
        assert known <= set(opened), f"{known} are open, not {set(opened)}"
        start = self.log.log_start
        there = {one.producer for one in opened.values() if one.events[-1].base >= start}
        assert there <= known, f"{known} are open, not {there}"

    def _check_index(self) -> None:
        """Every entry is of a transaction that was aborted."""
        ends = {
            (one.producer, one.end.base): one.first
            for one in self.written.transactions()
            if one.aborted and one.end is not None
        }
        for found in self.log.aborted(self.log.log_start, self.log.log_end):
            self.aborted_seen += 1
            first = ends.get((int(found.producer_id), int(found.last_offset)))
            assert first is not None, f"{found} was not aborted"
            lost = self._has_lost_state or first < self.log.log_start
            assert first == found.first_offset or (lost and first < found.first_offset)

    def _check_view(self, begin: int, stable: int, max_bytes: int) -> None:
        aborted = {e.base for one in self.written.transactions() if one.aborted for e in one.events}
        wanted = [
            row
            for one in self.written.events
            if one.base not in aborted
            for row in one.rows
            if begin <= row[0] < stable
        ]
        got = list(self._shown(begin, stable, max_bytes))
        if not self.compacted:
            assert got == wanted, f"shown {_brief(got)}, not {_brief(wanted)}"
            return
        assert set(got) <= set(wanted), f"shown {_brief(got)}, of {_brief(wanted)}"
        assert [row[0] for row in got] == sorted(row[0] for row in got)
        last = {key: offset for offset, key, _ in wanted}
        missing = set(last.values()) - {row[0] for row in got}
        assert not missing, f"the last of their keys are gone: {missing}"

    def _shown(self, begin: int, stable: int, max_bytes: int) -> Iterator[Row]:
        """What a client shows to its application; each fetch must be enough by itself."""
        offset = Offset(begin)
        while offset < stable:
            found = self.log.read(offset, max_bytes, Offset(stable))
            assert found.region is not None, f"nothing at {offset}"
            content = memoryview(found.region.read())
            aborted = self.log.aborted(offset, found.next_offset)
            visibility = Visibility(
                LIMIT_BYTES,
                [
                    AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in aborted
                ],
            )
            for at, header in batches(content):
                check(content, at)
                if visibility.shows(content, at, header):
                    for record in records_of(content, at):
                        if record.offset >= offset:
                            assert record.key is not None
                            yield int(record.offset), record.key, record.value or b""
            offset = found.next_offset

    def _check_markers(self) -> None:
        """Promise 5, as far as it can be told without repeating what compaction does."""
        there = {at for at, _ in self._markers()}
        keep_ms = self.settings.delete_retention_ms
        for one in self.written.events:
            if one.marker is None or one.base in there or one.base < self.log.log_start:
                continue
            dated = [p for p in self.begun[:-1] if p.mark > one.base]
            assert any(p.at + keep_ms <= self.now for p in dated), f"{one} is gone too early"

    def _markers(self) -> Iterator[tuple[int, Marker]]:
        offset = self.log.log_start
        while offset < self.log.log_end:
            found = self.log.read(offset, 1 << 20, self.log.log_end)
            assert found.region is not None, f"nothing at {offset}"
            content = found.region.read()
            for at, header in batches(content):
                marker = read_marker(content, at)
                if marker is not None:
                    yield int(header.base_offset), marker
            offset = found.next_offset

    # --- details ------------------------------------------------------------------------

    @property
    def _mark(self) -> int:
        """The high watermark of a leader that is alone: what is safe."""
        return max(self.flushed_end, int(self.log.log_start))

    @property
    def _has_lost_state(self) -> bool:
        """Whether something may be known no longer that lies before the log's start."""
        return self.was_cut or self.forgot

    # --- appending ----------------------------------------------------------------------

    def _builder(self, producer: int, epoch: int, sequence: int) -> BatchBuilder:
        return BatchBuilder(
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )

    def _write(self, producer: int, *, sequenced: bool = True) -> None:
        epoch = self.written.epoch_of(producer) if producer >= 0 else -1
        sequence = self.written.sequence_of(producer, epoch) if producer >= 0 and sequenced else -1
        try:
            self._write_as(producer, epoch, sequence)
        except OutOfOrderSequenceError:
            # What knew the sequence is gone; a client begins another epoch then.
            assert self._has_lost_state
            self._write_as(producer, epoch + 1, 0)

    def _write_as(self, producer: int, epoch: int, sequence: int) -> None:
        chance, builder = self.chance, self._builder(producer, epoch, sequence)
        rows = [
            (chance.choice(KEYS), _PADDING[: chance.choice((0, 20, 200))])
            for _ in range(chance.choice((1, 1, 3)))
        ]
        for key, value in rows:
            builder.append(key, value, timestamp=Millis(self.now))
        base = self._append(bytearray(builder.build()), None)
        numbered = tuple((base + at, key, value) for at, (key, value) in enumerate(rows))
        self.written.events.append(
            Event(
                base,
                base + len(rows),
                producer,
                epoch,
                sequence,
                numbered,
                producer >= 0,
                None,
            )
        )

    def _end(self, producer: int, *, commit: bool) -> None:
        """Sometimes under the epoch of the transaction, sometimes under the next."""
        epoch = self.written.epoch_of(producer) + self.chance.choice((0, 1))
        marker = Marker(ProducerId(producer), ProducerEpoch(epoch), self.coordinator_epoch, commit)
        base = self._append(marker_batch(marker, Millis(self.now)), marker)
        self.written.events.append(Event(base, base + 1, producer, epoch, -1, (), True, marker))

    def _append(self, content: bytearray, marker: Marker | None) -> int:
        """As a leader does, or as one who follows, or who reads what a journal kept."""
        log, now, view = self.log, Millis(self.now), memoryview(content)
        base = int(log.log_end)
        if self.chance.random() < 0.2:
            stamp(view, 0, log.log_end, LeaderEpoch(0))
            log.append_replicated(view, now)
        elif marker is not None:
            log.append_marker(view, marker, LeaderEpoch(0), now)
        else:
            assert not log.append(view, peek(view), LeaderEpoch(0), now).duplicate
        return base

    def _must_refuse(self, error: type[WaystationError], content: bytearray) -> None:
        end = self.log.log_end
        with suppress(error):
            self.log.append(memoryview(content), peek(content), LeaderEpoch(0), Millis(self.now))
            raise AssertionError(f"{error.__name__} was expected")
        assert self.log.log_end == end

    def _must_refuse_marker(self, error: type[WaystationError], marker: Marker) -> None:
        end, batch = self.log.log_end, memoryview(marker_batch(marker, Millis(self.now)))
        with suppress(error):
            self.log.append_marker(batch, marker, LeaderEpoch(0), Millis(self.now))
            raise AssertionError(f"{error.__name__} was expected of {marker}")
        assert self.log.log_end == end


def _brief(rows: list[Row]) -> list[int]:
    return [row[0] for row in rows]


_MEANWHILE: Weighted = (
    (TransactionalTrial.write, 6),
    (TransactionalTrial.end, 3),
    (TransactionalTrial.write_outside, 2),
    (TransactionalTrial.flush, 2),
    (TransactionalTrial.checkpoint, 2),
    (TransactionalTrial.roll, 1),
    (TransactionalTrial.delete_records, 1),
    (TransactionalTrial.check, 2),
    (TransactionalTrial.crash, 1),
)
_ACTIONS: Weighted = (
    (TransactionalTrial.write, 24),
    (TransactionalTrial.end, 12),
    (TransactionalTrial.write_outside, 6),
    (TransactionalTrial.write_beside, 2),
    (TransactionalTrial.end_too_late, 2),
    (TransactionalTrial.new_coordinator, 1),
    (TransactionalTrial.flush, 8),
    (TransactionalTrial.checkpoint, 6),
    (TransactionalTrial.roll, 3),
    (TransactionalTrial.retire, 2),
    (TransactionalTrial.delete_records, 1),
    (TransactionalTrial.forget_producers, 1),
    (TransactionalTrial.truncate, 2),
    (TransactionalTrial.begin_elsewhere, 1),
    (TransactionalTrial.compact, 8),
    (TransactionalTrial.compact_and_lose_power, 4),
    (TransactionalTrial.check, 4),
    (TransactionalTrial.lose_power_soon, 3),
    (TransactionalTrial.crash, 3),
    (TransactionalTrial.crash_and_lose_snapshots, 1),
    (TransactionalTrial.restart_cleanly, 1),
)
