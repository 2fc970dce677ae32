"""A whole batch that was packed from columns, ready to be numbered and sent.

``packing.py`` writes the records behind room for a header; the header is put there when the
producer's fields are known, so that an uncompressed batch is never copied.  Like
``batch.BatchBuilder``'s, a built batch passes ``header.check_produced``.
"""

from crc32c import crc32c

from waystation.model.ids import NO_PRODUCER, NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId
from waystation.records.batch import assemble, opening
from waystation.records.compression import Codec, compress
from waystation.records.header import ATTRIBUTES_AT, FRAME_BYTES, HEADER, HEADER_BYTES
from waystation.records.packing import RowWriter

__all__ = ["PackedBatch"]

_NO_SEQUENCE = -1


class PackedBatch(RowWriter):
    """Rows of one partition as one batch; the producer's fields may be set until ``build``."""

    __slots__ = (
        "base_sequence",
        "codec",
        "is_transactional",
        "level",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, room_bytes: int) -> None:
        super().__init__(room_bytes)
        self.codec = Codec.NONE
        self.level: int | None = None
        self.producer_id: ProducerId = NO_PRODUCER
        self.producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
        self.base_sequence, self.is_transactional = _NO_SEQUENCE, False

    def build(self) -> memoryview:
        """The batch as it goes on the wire; stays uncompressed where that is no larger.

        An uncompressed one is the batch's own memory: to build it again under another number
        changes what was built before, so that this must have reached its broker, or never will.
        """
        assert self.records_count, "a batch without records was built"
        payload = memoryview(self.out)[HEADER_BYTES : self.size_bytes]
        if self.codec is not Codec.NONE:
            smaller = compress(self.codec, payload, self.level)
            if len(smaller) < len(payload):
                return memoryview(assemble(opening(self, self.codec), smaller))
        return self._in_place()

    def _in_place(self) -> memoryview:
        batch = memoryview(self.out)[: self.size_bytes]
        header = opening(self, Codec.NONE)._replace(batch_length=self.size_bytes - FRAME_BYTES)
        HEADER.pack_into(batch, 0, *header)
        HEADER.pack_into(batch, 0, *header._replace(crc=crc32c(batch[ATTRIBUTES_AT:])))
        return batch
