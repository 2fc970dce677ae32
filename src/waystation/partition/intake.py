"""What a produced batch must be before it may enter a log.

The checks run in the order of their cost: size, header and checksum, the records' own
structure, timestamps.  A batch that passes is returned as it is to be stored: as it came, unless
the topic wants the broker's timestamps or another compression.

A checksum proves that a batch is as its sender made it, not that consumers can read it: one
batch whose records contradict its header would stop every consumer at its offset for good.  So
the records are walked through too.  For 64 KB that takes 7 us with records of 100 bytes, 2 us
with 1 KB, under lz4 20 and 12 us (benchmarks/partition/intake.py).  Without the
compiled codec it would take a hundred times that, and is left out: such a node trusts its
producers to write what they say.  Only where keys are needed, because the topic is compacted, it
looks all the same.

Sequences of idempotent producers, and their transactions, are checked by the log, which knows
their past.
"""

from waystation.model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    WaystationError,
)
from waystation.model.offsets import NO_TIMESTAMP, Millis
from waystation.model.topics import TopicSettings
from waystation.records.batch import check_contents, recompress, records_of
from waystation.records.codec import COMPILED
from waystation.records.compression import Codec
from waystation.records.header import (
    HEADER_BYTES,
    BatchHeader,
    check_produced,
    peek,
    stamp_append_time,
)

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_ANY_AGE_MS = (1 << 63) - 1


class RejectedRecordsError(WaystationError):
    """Some records of a batch are refused, and the others with them."""

    def __init__(self, rejected: list[tuple[int, str]]) -> None:
        """``rejected`` are places in the batch, each with what is wrong there."""
        self.rejected = rejected
        super().__init__(f"{len(rejected)} records were refused, first: {rejected[0][1]}")


class UntimelyRecordsError(RejectedRecordsError, InvalidTimestampError):
    """Records have timestamps too far from the broker's clock."""


class KeylessRecordsError(RejectedRecordsError, InvalidRecordError):
    """Records of a compacted topic have no key, so that nobody could say which to keep."""


class Intake:
    """The checks of one topic's settings."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_codec",
        "_max_bytes",
        "_needs_keys",
        "_sequenced",
        "stamps_time",
    )

    def __init__(self, settings: TopicSettings, *, sequenced: bool = True) -> None:
        """Not ``sequenced`` are topics that only coordinators write to."""
        self._sequenced = sequenced
        self._max_bytes = settings.max_message_bytes
        self._before_max_ms = settings.message_timestamp_before_max_ms
        self._after_max_ms = settings.message_timestamp_after_max_ms
        self.stamps_time = settings.message_timestamp_type == "LogAppendTime"
        self._codec = _CODECS.get(settings.compression_type)
        self._needs_keys = settings.compacts

    def admit(self, batch: memoryview, now: Millis) -> tuple[memoryview, BatchHeader]:
        """The batch to store and its header, or an error that says what is wrong with it.

        HOT: once per batch (benchmarks/partition/intake.py).
        """
        nbytes = len(batch)
        if nbytes > self._max_bytes:
            raise MessageTooLargeError(nbytes, self._max_bytes)
        if nbytes < HEADER_BYTES:
            raise InvalidRecordError(f"{nbytes} bytes are no record batch")
        header = check_produced(batch, sequenced=self._sequenced)
        if header.base_offset:
            raise InvalidRecordError(f"a produced batch begins at 0, not at {header.base_offset}")
        if COMPILED or self._needs_keys:
            keyless = _check_contents(batch, header)
            if keyless and self._needs_keys:
                raise _without_keys(batch)
        if self._codec is not None and header.codec != self._codec:
            batch, header = self._recompressed(batch)
        if self.stamps_time:
            stamp_append_time(batch, 0, now)
            header = peek(batch)
        elif header.max_timestamp - now > self._after_max_ms or self._before_max_ms < _ANY_AGE_MS:
            self._check_timestamps(batch, header, now)
        return batch, header

    def _recompressed(self, batch: memoryview) -> tuple[memoryview, BatchHeader]:
        assert self._codec is not None, "recompressed as the producer did"
        anew = memoryview(bytearray(recompress(batch, self._codec)))
        if len(anew) > self._max_bytes:
            raise MessageTooLargeError(len(anew), self._max_bytes, "the batch, stored as it must,")
        return anew, peek(anew)

    def _check_timestamps(self, batch: memoryview, header: BatchHeader, now: Millis) -> None:
        """Look at each record: a client is told which of them to leave out."""
        earliest, latest = now - self._before_max_ms, now + self._after_max_ms
        rejected = [
            (index, f"timestamp {record.timestamp} is outside [{earliest}, {latest}]")
            for index, record in enumerate(records_of(batch))
            if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
        ]
        if rejected:
            raise UntimelyRecordsError(rejected)
        if header.max_timestamp > latest:
            raise InvalidTimestampError(
                f"the batch claims a timestamp of {header.max_timestamp}, no record has it"
            )


def _check_contents(batch: memoryview, header: BatchHeader) -> int:
    """How many records have no key.

    Corrupt would tell the client to send the same bytes again; these never get better.
    """
    try:
        return check_contents(batch, header)
    except CorruptBatchError as lie:
        raise InvalidRecordError(str(lie)) from lie


def _without_keys(batch: memoryview) -> KeylessRecordsError:
    return KeylessRecordsError(
        [
            (index, "a compacted topic takes no record without a key")
            for index, record in enumerate(records_of(batch))
            if record.key is None
        ]
    )
