"""Random lives of a log with a key index, which finds what a scan of the log finds."""

import random
from pathlib import Path

from tests.storage.building import checkpoint, end, flush
from tests.storage.compacting import SECRET, compact
from tests.storage_faults.lives import Lives, Weighted
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.compression import Codec
from waystation.records.endings import Aborted
from waystation.records.header import batches, peek
from waystation.records.record import Row
from waystation.storage.key_index import KeyIndex, Tools, Wanted, taken_back, view_of
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.storage.settings import StorageSettings

KEYS = [b"", b"a", b"b" * 9, *(b"user-%d" % number for number in range(12))]
NEVER = b"nobody"


def scanned(log: Log, key: bytes, offset: Offset, stop: Offset) -> list[Row]:
    """What a reader of the whole log would keep."""
    rows: list[Row] = []
    at = log.log_start
    aborted = Aborted(log.aborted(at, stop))
    while at < stop:
        found = log.read(at, 1 << 20, stop)
        if found.region is None:
            break
        content = found.region.read()
        for place, header in batches(content):
            if not header.is_control and header.records_count and not aborted.holds(header):
                rows += rows_of(content, place)
        at = found.next_offset
    first = max(offset, log.log_start)
    return [row for row in rows if row[2] == key and first <= row[0] < stop]


def searched(
    index: KeyIndex, log: Log, key: bytes, offset: Offset, stop: Offset, chance: random.Random
) -> list[Row]:
    """The same by the index, in as many goes as it takes."""
    rows: list[Row] = []
    at, idle = max(offset, log.log_start), 0
    while at < stop:
        aborted, known = taken_back(log, at, stop, chance.choice([1, 3, 100]))
        assert at < known <= stop
        wanted = Wanted(
            key,
            at,
            known,
            chance.choice([1, 3, 100]),
            chance.choice([1, 200, 1 << 20]),
            aborted,
        )
        found = index.find(view_of(log, log.segments, at), wanted, chance.choice([1, 300, 1 << 20]))
        assert at <= found.next_offset <= known
        assert len(found.rows) <= wanted.limit
        assert all(at <= row[0] < found.next_offset for row in found.rows)
        rows += found.rows
        idle = 0 if found.next_offset > at else idle + 1
        assert idle < 1_000, f"stays at {at} of {log}"
        at = found.next_offset
    return rows


class IndexedLives(Lives):
    """Appends, transactions, cuts and compaction, and damage to the index."""

    def _chosen_settings(self, chance: random.Random) -> tuple[TopicSettings, StorageSettings]:
        self.compacts = chance.random() < 0.5
        self.open_since: dict[int, bool] = {}
        self.index: KeyIndex | None = None
        self.producer_epoch = 1
        settings = TopicSettings(
            cleanup_policy=("compact",) if self.compacts else ("delete",),
            segment_bytes=chance.choice([400, 1_500, 6_000]),
            index_interval_bytes=chance.choice([0, 100, 500]),
            file_delete_delay_ms=0,
            index_keys=True,
        )
        return settings, StorageSettings(recovery_bytes_max=0)

    def _check_after_restart(self) -> None:
        self.flushed_end = 0
        # Transactions that were open: their producers are fenced by new epochs, in life too.
        self.open_since, self.index = {}, None
        self.producer_epoch += 1
        self.check()

    def run(self, steps: int) -> None:
        for _step in range(steps):
            self.step(ACTIONS)
            if self.chance.random() < 0.3:
                self.step(((IndexedLives.check, 1),))
        self.lose_power(-1)
        self.check()

    def index_of(self) -> KeyIndex:
        if self.index is None:
            secret = SECRET if self.chance.random() < 0.5 else self.chance.randbytes(16)
            files = OpenFiles(self.disk, self.chance.choice([1, 8]))
            self.index = KeyIndex(Tools(secret, files, block_entries=self.chance.choice([3, 20])))
        return self.index

    def check(self) -> None:
        log, index = self.log, self.index_of()
        stop = Offset(self.chance.choice([log.log_end, log.last_stable(log.log_end)]))
        for key in (self.chance.choice(KEYS), NEVER):
            offset = Offset(self.chance.choice([0, self.chance.randrange(log.log_end + 1)]))
            expected = scanned(log, key, offset, stop)
            assert searched(index, log, key, offset, stop, self.chance) == expected

    # --- what can happen ----------------------------------------------------------------

    def put(self) -> None:
        self._append(BatchBuilder(self.chance.choice(list(Codec))))

    def put_transactional(self) -> None:
        producer = self.chance.randrange(3)
        builder = BatchBuilder(
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(self.producer_epoch),
            is_transactional=True,
        )
        self._append(builder)
        self.open_since[producer] = True

    def _append(self, builder: BatchBuilder) -> None:
        for _number in range(self.chance.choice([1, 1, 4, 30])):
            keyless = not self.compacts and self.chance.random() < 0.1
            key = None if keyless else self.chance.choice(KEYS)
            value = self.chance.choice([b"", b"v" * 40, self.chance.randbytes(30), None])
            builder.append(key, value, timestamp=self.now)
        batch = bytearray(builder.build())
        self.log.append(memoryview(batch), peek(batch), LeaderEpoch(0), Millis(self.now))

    def end_transaction(self) -> None:
        if self.open_since:
            producer, _open = self.open_since.popitem()
            commit = self.chance.random() < 0.5
            end(self.log, producer, commit=commit, producer_epoch=self.producer_epoch)

    def flush(self) -> None:
        flush(self.log)

    def settle(self) -> None:
        self.close_segment()
        flush(self.log)
        checkpoint(self.directory)

    def close_segment(self) -> None:
        if self.log.active.size_bytes:
            self.log.roll()

    def catch_up(self) -> None:
        index = self.index_of()
        view = view_of(self.log, index.behind(self.log), Offset(0))
        index.catch_up(view, self.chance.choice([1, 500, 1 << 20]))

    def cut(self) -> None:
        log = self.log
        log.truncate_to(Offset(self.chance.randrange(log.log_start, log.log_end + 1)))
        self.open_since = {}
        self.producer_epoch += 1

    def delete_records(self) -> None:
        log = self.log
        log.advance_log_start(Offset(self.chance.randrange(log.log_start, log.log_end + 1)))
        checkpoint(self.directory)
        self.directory.drop_retired(log, Millis(self.now))

    def compact(self) -> None:
        if self.compacts and not self.open_since:
            self.close_segment()
            flush(self.log)
            compact(self.log, self.now)
            self.directory.purge(Millis(self.now))

    def damage(self) -> None:
        """Let index files be torn, lost or mixed up."""
        found = [
            entry
            for entry in self.disk.entries(self.log.path)
            if entry.name.endswith(".keyindex") and entry.size_bytes
        ]
        contents = [self.disk.read(self.log.path / entry.name) for entry in found]
        self.index = None
        for entry in found:
            path: Path = self.log.path / entry.name
            match self.chance.randrange(4):
                case 0:
                    self.disk.unlink(path)
                case 1:
                    self.disk.open(path).truncate(self.chance.randrange(entry.size_bytes))
                case 2:
                    garbage = self.chance.randbytes(9)
                    self.disk.open(path).pwrite(garbage, self.chance.randrange(entry.size_bytes))
                case _:
                    self.disk.replace(path, self.chance.choice(contents))

    def forget(self) -> None:
        self.index = None


ACTIONS: Weighted = (
    (IndexedLives.put, 30),
    (IndexedLives.put_transactional, 12),
    (IndexedLives.end_transaction, 8),
    (IndexedLives.flush, 4),
    (IndexedLives.settle, 3),
    (IndexedLives.roll, 2),
    (IndexedLives.catch_up, 10),
    (IndexedLives.cut, 2),
    (IndexedLives.delete_records, 2),
    (IndexedLives.compact, 3),
    (IndexedLives.damage, 2),
    (IndexedLives.forget, 2),
    (Lives.restart_cleanly, 1),
    (Lives.crash, 1),
    (Lives.lose_power_soon, 1),
)
