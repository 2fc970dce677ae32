"""A partition as the log of a machine: its records written, committed and read back.

1. The records of one decision are one batch: a crash leaves all of them or none.  It is a plain
   one, one of a producer's transaction, or the marker that ends such a transaction; whatever it
   is, it is read back as the machine decided it.
2. Nothing is appended under another leader epoch than the one the machine was loaded in.  Who
   led in between may have written what the machine does not know.
3. A batch that cannot be read is told to the operator and skipped: a coordinator that never
   loads would harm everyone instead of some.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from waystation.model.errors import (
    CorruptBatchError,
    MessageTooLargeError,
    StorageError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.machines import InTransaction
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.control import Marker, read_marker
from waystation.records.header import BatchHeader, batches, check
from waystation.records.record import Row
from waystation.runtime.clock import Clock
from waystation.runtime.machine import OnCommit
from waystation.runtime.replay import SLICE, replay
from waystation.telemetry.logs import get_logger

R = TypeVar("R")
Encode = Callable[[Any], tuple[bytes, bytes | None]]
"""The key and the value of a record."""
Read = Callable[[Sequence[Row]], list[Any]]
"""What those rows say to the machine; rows that say nothing to it are left out."""

_CHUNK_BYTES = 1 << 20
_events = get_logger("coordinator")


class PartitionLog(Generic[R]):
    """Appends a machine's records to the partition that this node leads."""

    __slots__ = ("_clock", "_encode", "_epoch", "_partition")

    def __init__(
        self, partition: Partition, epoch: LeaderEpoch, encode: Encode, clock: Clock
    ) -> None:
        self._partition = partition
        self._epoch = epoch
        self._encode = encode
        self._clock = clock

    def append(self, records: Sequence[R]) -> Offset:
        """Write the records of one decision as one batch; where the log ends now."""
        partition, now = self._partition, self._clock.now()
        partition.check_epoch(self._epoch)
        marker = records[0]
        if isinstance(marker, Marker):
            assert len(records) == 1, f"{len(records)} records in what ends a transaction"
            appended = partition.append_marker(marker, now)
        else:
            limit_bytes = partition.settings.max_message_bytes
            batch = encoded(records, self._encode, now, limit_bytes)
            appended = partition.append(memoryview(batch), ACKS_ALL, now)
        return Offset(appended.last_offset + 1)

    @property
    def committed(self) -> Offset:
        """The partition's high watermark."""
        return self._partition.high_watermark

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        """As the partition says."""
        return self._partition.when_committed(end, told)


class PartitionProducers:
    """What a partition knows of transactional producers, for a machine to ask before it decides."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> WaystationError | None:
        """Why nothing of the producer's transaction would be stored, if that is so."""
        try:
            self._partition.log.producers.check_epoch(producer_id, epoch)
        except WaystationError as error:
            return error
        return None

    def refusal_of_marker(self, marker: Marker) -> WaystationError | None:
        """Why the marker would not be stored, if that is so."""
        try:
            self._partition.log.producers.check_marker(marker)
        except WaystationError as error:
            return error
        return None


def encoded(records: Sequence[Any], encode: Encode, now: Millis, limit_bytes: int) -> bytearray:
    """The batch of one decision, as it is appended; a marker is made by the partition itself."""
    batch = BatchBuilder(limit_bytes=limit_bytes)
    first = records[0]
    if isinstance(first, InTransaction):
        batch.producer_id, batch.producer_epoch = first.producer_id, first.producer_epoch
        batch.is_transactional = True
    for record in records:
        plain = record
        if batch.is_transactional:
            assert record[:2] == first[:2], f"{record} in a decision that begins with {first}"
            plain = record.record
        if not batch.append(*encode(plain), timestamp=now):
            raise MessageTooLargeError(batch.size_bytes, limit_bytes, "one decision")
    return bytearray(batch.build())


async def settled(partition: Partition, epoch: LeaderEpoch) -> Offset:
    """The end of what a new leader found in its log, once no other leader can take it back."""
    partition.check_epoch(epoch)
    end = partition.log_end
    committed: asyncio.Future[WaystationError | None] = asyncio.get_running_loop().create_future()

    def told(error: WaystationError | None) -> None:
        if not committed.done():
            committed.set_result(error)

    if not partition.when_committed(end, told) and (error := await committed) is not None:
        raise error
    return end


async def load(
    partition: Partition,
    epoch: LeaderEpoch,
    end: Offset,
    read: Read,
    apply: Callable[[R], None],
    clock: Clock,
) -> int:
    """Apply everything that the partition holds before ``end``; how many records it was.

    Files are read by a thread, records decoded and applied in turns of the loop's time.
    """
    offset, count, name = partition.log.log_start, 0, str(partition.name)
    while offset < end:
        partition.check_epoch(epoch)
        region, behind = partition.read(offset, _CHUNK_BYTES, at_least_one=True)
        if region is None:
            break
        try:
            chunk = await asyncio.to_thread(region.read)
        except OSError as error:
            raise StorageError(f"cannot read {partition.name}: {error}") from error
        count += await replay(records_in(chunk, read, name), apply, clock)
        offset = behind
    partition.check_epoch(epoch)
    return count


def records_in(chunk: bytes, read: Read, name: str) -> Iterator[list[Any]]:
    """Every record of the chunk, in slices that follow the batches."""
    for at, header in batches(chunk):
        try:
            check(chunk, at)
            if header.is_control:
                marker = read_marker(chunk, at)
                yield [] if marker is None else [marker]
                continue
            rows = rows_of(chunk, at)
        except CorruptBatchError as error:
            _events.error("batch.unreadable", partition=name, reason=str(error))
            continue
        for first in range(0, len(rows), SLICE):
            records = read(rows[first : first + SLICE])
            yield _undecided(header, records) if header.is_transactional else records


def _undecided(header: BatchHeader, records: Sequence[R]) -> list[InTransaction[R]]:
    return [InTransaction(header.producer_id, header.producer_epoch, one) for one in records]
