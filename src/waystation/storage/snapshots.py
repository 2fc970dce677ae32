"""Producer snapshots on disk: Kafka's format, with all remembered batches.

A ``.snapshot`` file holds the producers of a partition as of the offset in its name.  Kafka keeps
one entry per producer; we write one per remembered batch, oldest first, so that a client with five
requests in flight may repeat any of them after a restart.  Kafka's tools list them all, and where
they load them the newest, which comes last, wins.  A producer without batches, which has only an
epoch or an open transaction, has one entry without an offset, as in Kafka.

A snapshot is written only after everything before its offset was synced.  A valid one is
therefore proof that the log is good up to there: recovery need not look before it.
"""

from collections.abc import Iterable
from struct import Struct, error
from typing import Final

from crc32c import crc32c

from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.storage.producer_state import KnownBatch, Producer

_VERSION: Final = 1
_HEAD = Struct(">hIi")
_CRC_FROM: Final = 6
_ENTRY = Struct(">qhiqiqiq")
_SEQUENCES: Final = 1 << 31


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    """The content of a snapshot file."""
    entries = [
        _ENTRY.pack(
            one.producer_id,
            one.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp,
            one.coordinator_epoch,
            one.txn_start,
        )
        for one in producers
        for batch in one.batches or [_no_batch(one)]
    ]
    content = bytearray(_HEAD.pack(_VERSION, 0, len(entries)) + b"".join(entries))
    content[2:6] = crc32c(memoryview(content)[_CRC_FROM:]).to_bytes(4, "big")
    return bytes(content)


def decode_snapshot(content: bytes) -> list[Producer]:
    """The producers of a snapshot; ``ValueError`` if it is not one or is damaged.

    When each was heard of is not written down: they are not forgotten before they had as long
    as any other to be heard of again.
    """
    try:
        version, crc, count = _HEAD.unpack_from(content)
    except error:
        raise ValueError(f"{len(content)} bytes are no snapshot") from None
    if version != _VERSION:
        raise ValueError(f"snapshot version {version}")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise ValueError(f"{len(content)} bytes for {count} entries")
    if crc32c(memoryview(content)[_CRC_FROM:]) != crc:
        raise ValueError("the checksum does not match")
    producers: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(content[_HEAD.size :]):
        _add(producers, entry)
    return list(producers.values())


def _add(producers: dict[int, Producer], entry: tuple[int, ...]) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, txn = entry
    producer = producers.get(producer_id)
    if producer is None or producer.epoch != epoch:
        producer = Producer(ProducerId(producer_id), ProducerEpoch(epoch))
        producers[producer_id] = producer
    producer.coordinator_epoch, producer.txn_start = coordinator, Offset(txn)
    producer.last_timestamp = Millis(timestamp)
    if last_offset >= 0:
        producer.batches.append(
            KnownBatch(
                (last_sequence - delta) % _SEQUENCES,
                last_sequence,
                Offset(last_offset),
                delta,
                Millis(timestamp),
            )
        )


def _no_batch(producer: Producer) -> KnownBatch:
    """Stands for one that has an epoch or a transaction, but no batch in this epoch."""
    return KnownBatch(-1, -1, NO_OFFSET, 0, producer.last_timestamp)
