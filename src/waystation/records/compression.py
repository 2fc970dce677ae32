"""The four codecs that Kafka clients use."""

from enum import IntEnum

__all__ = ["Codec"]


class Codec(IntEnum):
    """How the records of a batch are compressed, by its number in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
