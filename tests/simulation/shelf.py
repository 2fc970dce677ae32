"""The partition under simulated coordinators: what replicas hold, and how a leader writes to it.

Batches are real ones, written, told apart and read as a broker does it.  What a log knows of
transactional producers is the broker's own code too; only files, syncs and replicas are played.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.simulation.witness import Witness
from waystation.broker.group_records import encode
from waystation.broker.machine_log import encoded, records_in
from waystation.groups.records import Record
from waystation.model.errors import NotCoordinatorError, StorageError, WaystationError
from waystation.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.control import Marker, marker_batch
from waystation.records.header import BatchHeader, peek, stamp
from waystation.runtime.machine import OnCommit
from waystation.storage.producer_state import ProducerStates
from waystation.testing.world import Node, World

_LIMIT_BYTES = 64 << 20


class Shelf:
    """What the replicas hold: batches in order, of which a prefix is committed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: list[bytes] = []
        self._headers: list[tuple[BatchHeader, Marker | None]] = []
        """Of all batches, as they were before they were compacted."""
        self._ends = [0]
        self.committed_batches = 0
        self.epoch = 0
        self.producers = ProducerStates()
        self.sync_s = 0.05
        """How long a commit takes at most."""

    @property
    def end(self) -> Offset:
        return Offset(self._ends[-1])

    @property
    def committed(self) -> Offset:
        return Offset(self._ends[self.committed_batches])

    def add(self, batch: bytearray, marker: Marker | None) -> None:
        """Append what one decision led to, unless the log would refuse it."""
        header = peek(batch)
        if marker is not None:
            self.producers.check_marker(marker)
        elif header.producer_id >= 0:
            assert self.producers.check(header) is None, f"{header} was taken for a repetition"
        stamp(batch, 0, self.end, LeaderEpoch(self.epoch))
        stamped = peek(batch)
        self.batches.append(bytes(batch))
        self._headers.append((stamped, marker))
        self._ends.append(self._ends[-1] + header.records_count)
        self.producers.replay(stamped, marker)

    def records(self, read: Any) -> Iterator[list[Any]]:
        """What a coordinator that loads is given."""
        return records_in(b"".join(self.batches), read, "the shelf")

    def new_epoch(self) -> int:
        """Another leader: of what is not committed it has all, some or nothing."""
        kept = self._world.chance.randint(self.committed_batches, len(self.batches))
        del self.batches[kept:], self._headers[kept:], self._ends[kept + 1 :]
        self.committed_batches = kept
        self.epoch += 1
        self.producers = ProducerStates()
        for header, marker in self._headers:
            self.producers.replay(header, marker)
        if self._world.chance.random() < 0.3:
            self._compact()
        return self.epoch

    # --- compaction -----------------------------------------------------------------------------

    def _compact(self) -> None:
        """Keep the newest value of each key, where it was; no offset changes.

        Nothing is touched from the first open transaction on.  What was aborted goes, and a
        marker may go with the last record of its transaction.
        """
        count, aborted = self._stable(), self._aborted()
        rows = [
            [] if at in aborted or self._headers[at][1] is not None else _rows(self.batches[at])
            for at in range(count)
        ]
        newest = {key: (at, n) for at, some in enumerate(rows) for n, (key, _) in enumerate(some)}
        needed: dict[ProducerId, None] = {}
        for at, some in enumerate(rows):
            header, marker = self._headers[at]
            left = [row for n, row in enumerate(some) if newest[row[0]] == (at, n)]
            if marker is None:
                self.batches[at] = _rebuilt(header, left)
                if left:
                    needed[header.producer_id] = None
            elif marker.producer_id not in needed and self._world.chance.random() < 0.5:
                self.batches[at] = b""
            else:
                needed.pop(marker.producer_id, None)

    def _stable(self) -> int:
        """How many batches lie before the first open transaction."""
        opened = [one.first_offset for one in self.producers.open_transactions()]
        stable = min(opened, default=self.end)
        return sum(end <= stable for end in self._ends[1:])

    def _aborted(self) -> dict[int, None]:
        """The batches of transactions that came to nothing."""
        aborted: dict[int, None] = {}
        opened: dict[ProducerId, list[int]] = {}
        for at, (header, marker) in enumerate(self._headers):
            if marker is None and header.is_transactional:
                opened.setdefault(header.producer_id, []).append(at)
            elif marker is not None:
                ended = opened.pop(marker.producer_id, [])
                if not marker.committed:
                    aborted.update(dict.fromkeys(ended))
        return aborted


def _rows(batch: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(row[2], row[3]) for row in rows_of(batch)] if batch else []


def _rebuilt(header: BatchHeader, rows: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
    """The same batch with fewer records."""
    if not rows:
        return b""
    batch = BatchBuilder(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        is_transactional=header.is_transactional,
        limit_bytes=_LIMIT_BYTES,
    )
    for key, value in rows:
        batch.append(key, value, timestamp=header.base_timestamp)
    return batch.build()


class ShelfProducers:
    """What a coordinator asks its log before it decides."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def refusal(self, producer_id: ProducerId, epoch: ProducerEpoch) -> WaystationError | None:
        try:
            self._shelf.producers.check_epoch(producer_id, epoch)
        except WaystationError as error:
            return error
        return None

    def refusal_of_marker(self, marker: Marker) -> WaystationError | None:
        try:
            self._shelf.producers.check_marker(marker)
        except WaystationError as error:
            return error
        return None


class SimulatedLog:
    """The shelf as one leader writes to it."""

    def __init__(self, world: World, node: Node, shelf: Shelf, witness: Witness) -> None:
        self._world, self._node, self._shelf, self._witness = world, node, shelf, witness
        self._epoch = shelf.epoch
        self._end = shelf.end
        self._waiting: list[tuple[Offset, OnCommit]] = []
        self.failing = 0.0
        """The share of appends that fail."""

    def append(self, records: Sequence[Record]) -> Offset:
        self._check()
        if self._world.chance.random() < self.failing:
            self._world.note("an append fails")
            raise StorageError("the disk is full")
        self._add(records)
        self._witness.remembered(records)
        self._end = Offset(self._end + len(records))
        count = len(self._shelf.batches)
        if self._world.chance.random() < 0.2:
            self._commit(count)  # within the append, as with durability=memory
        else:
            delay_s = self._world.chance.uniform(0.000_5, self._shelf.sync_s)
            self._node.loop.call_later(delay_s, self._commit, count)
        return self._end

    def _add(self, records: Sequence[Record]) -> None:
        now = Millis(int(self._world.now_ms))
        marker = records[0]
        try:
            if isinstance(marker, Marker):
                self._shelf.add(marker_batch(marker, now), marker)
            else:
                self._shelf.add(encoded(records, encode, now, _LIMIT_BYTES), None)
        except WaystationError as error:
            self._witness.object_to(f"the log refuses what was decided: {error}")
            raise

    @property
    def committed(self) -> Offset:
        return self._shelf.committed if self._epoch == self._shelf.epoch else Offset(-1)

    def when_committed(self, end: Offset, told: OnCommit) -> bool:
        if self.committed >= end:
            return True
        self._waiting.append((end, told))
        return False

    def lose(self, error: WaystationError) -> None:
        """Tell those who wait that this leader commits nothing more."""
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(error)

    def _check(self) -> None:
        if self._epoch != self._shelf.epoch:
            raise NotCoordinatorError("another node leads")

    def _commit(self, count: int) -> None:
        shelf = self._shelf
        if self._epoch != shelf.epoch or count <= shelf.committed_batches:
            return
        shelf.committed_batches = count
        ready = [told for end, told in self._waiting if end <= shelf.committed]
        self._waiting = [one for one in self._waiting if one[0] > shelf.committed]
        for told in ready:
            told(None)
