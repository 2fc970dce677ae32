"""Batches that an honest client never makes."""

from typing import Any

from crc32c import crc32c

from waystation.records.header import ATTRIBUTES_AT, HEADER, HEADER_BYTES, peek


def forged(batch: bytes, **fields: Any) -> bytes:
    """The batch with other header fields, under a checksum that is right all the same."""
    header = peek(batch)._replace(**fields)
    out = bytearray(HEADER.pack(*header) + batch[HEADER_BYTES:])
    crc = crc32c(memoryview(out)[ATTRIBUTES_AT:])
    HEADER.pack_into(out, 0, *header._replace(crc=crc))
    return bytes(out)


def damaged(batch: bytes) -> bytes:
    """The batch with its last bit turned."""
    return batch[:-1] + bytes([batch[-1] ^ 1])
