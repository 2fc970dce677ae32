"""What a produced batch must be before it may enter a log.

The checks run in the order of their cost: size, header and checksum, timestamps, the records'
own structure.  A batch that passes is returned as it is to be stored: as it came, unless the
topic wants the broker's timestamps or another compression.

Sequences of idempotent producers are checked by the log, which knows their past.
"""

from waystation.model.errors import (
    InvalidTimestampError,
    MessageTooLargeError,
)
from waystation.model.offsets import Millis
from waystation.model.topics import TopicSettings
from waystation.records.batch import recompress
from waystation.records.compression import Codec
from waystation.records.header import BatchHeader, check_produced, peek, stamp_append_time

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Intake:
    """The checks of one topic's settings."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_codec", "_max_bytes", "stamps_time")

    def __init__(self, settings: TopicSettings) -> None:
        self._max_bytes = settings.max_message_bytes
        self._before_max_ms = settings.message_timestamp_before_max_ms
        self._after_max_ms = settings.message_timestamp_after_max_ms
        self.stamps_time = settings.message_timestamp_type == "LogAppendTime"
        self._codec = _CODECS.get(settings.compression_type)

    def admit(self, batch: memoryview, now: Millis) -> tuple[memoryview, BatchHeader]:
        """The batch to store and its header, or an error that says what is wrong with it.

        HOT: once per batch.
        """
        if len(batch) > self._max_bytes:
            raise MessageTooLargeError(len(batch), self._max_bytes)
        header = check_produced(batch)
        if self._codec is not None and header.codec != self._codec:
            batch = memoryview(bytearray(recompress(batch, self._codec)))
            header = peek(batch)
        if self.stamps_time:
            stamp_append_time(batch, 0, now)
            header = peek(batch)
        else:
            self._check_timestamps(header, now)
        return batch, header

    def _check_timestamps(self, header: BatchHeader, now: Millis) -> None:
        ahead_ms = header.max_timestamp - now
        if ahead_ms > self._after_max_ms:
            raise InvalidTimestampError(
                f"timestamp {header.max_timestamp} lies {ahead_ms} ms after the broker's clock; "
                f"message.timestamp.after.max.ms is {self._after_max_ms}"
            )
        behind_ms = now - header.base_timestamp
        if header.base_timestamp >= 0 and behind_ms > self._before_max_ms:
            raise InvalidTimestampError(
                f"timestamp {header.base_timestamp} lies {behind_ms} ms before the broker's "
                f"clock; message.timestamp.before.max.ms is {self._before_max_ms}"
            )
