"""The partition that is delivered to, as its producers know it: it remembers, and may forget."""

from waystation.model.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import rows_of
from waystation.records.control import Marker
from waystation.records.header import peek
from waystation.scheduling.mover import Outcome
from waystation.scheduling.records import Decided
from waystation.storage.producer_state import ProducerStates


class Target:
    """Appends what it is sent, by the rules of ``storage/producer_state.py``."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches: list[tuple[int, int, int]] = []
        self.most_records = 1_000
        self.poison: set[bytes] = set()
        self._producers = ProducerStates()

    def produce(self, batch: bytes, now: Millis) -> Outcome:
        header = peek(batch)
        rows = rows_of(batch)
        values = [row[3] or b"" for row in rows]
        if len(rows) > self.most_records or self.poison.intersection(values):
            return Outcome.REFUSED
        try:
            if self._producers.check(header) is not None:
                return Outcome.DONE
        except (OutOfOrderSequenceError, InvalidProducerEpochError):
            return Outcome.FORGOTTEN
        self._producers.note(header, Offset(len(self.values)), now)
        self.batches.append((header.producer_id, header.producer_epoch, header.base_sequence))
        self.values += values
        return Outcome.DONE

    def fence(self, producer_id: ProducerId, epoch: ProducerEpoch, now: Millis) -> Outcome:
        marker = Marker(producer_id, epoch, 0, committed=False)
        try:
            self._producers.check_marker(marker)
        except (InvalidProducerEpochError, TransactionCoordinatorFencedError):
            return Outcome.FORGOTTEN
        self._producers.end(marker, Offset(len(self.values)), now, now)
        return Outcome.DONE

    def look(self, batch: Decided) -> Outcome:
        wanted = (batch.producer_id, batch.producer_epoch, batch.sequence)
        return Outcome.DONE if wanted in self.batches else Outcome.ABSENT

    def forget(self, now: Millis, quiet_ms: int) -> None:
        self._producers.expire(now, quiet_ms)
