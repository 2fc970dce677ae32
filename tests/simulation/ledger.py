"""Who decides the transactions of simulated members, and never forgets.

What is simulated is the groups' coordinator; the transactions' is played here.  A transaction has
an epoch of its own, and the marker that ends it the next one, so that what straggles belongs to
no other.  Checked is the promise that all this is for: what the committed transactions of a group
have read of a partition fits together without a gap and without an overlap.
"""

from typing import TYPE_CHECKING

from tests.simulation.witness import Place
from waystation.groups.records import Record
from waystation.model.errors import NotCoordinatorError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.records.control import Marker
from waystation.runtime.host import Host

if TYPE_CHECKING:
    from tests.simulation.coordinator import Cluster

_SETTLED_MS = 5_000

Moves = dict[Place, tuple[int, int]]
"""From where to where a transaction has read."""


class Transaction:
    """One of a producer's transactions, until its end is known to the group's coordinator."""

    def __init__(self, producer_id: ProducerId, epoch: int, began_ms: float) -> None:
        self.producer_id, self.epoch = producer_id, ProducerEpoch(epoch)
        self.began_ms = began_ms
        self.marker: Marker | None = None
        self.moves: Moves = {}
        self.sent_to: Host[Record] | None = None


class _Producer:
    def __init__(self, number: int) -> None:
        self.id = ProducerId(number)
        self.epoch = 0
        self.open: Transaction | None = None


class Ledger:
    """Decides transactions, and tells the group's coordinator until it has heard."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._producers: dict[str, _Producer] = {}
        self._committed: dict[Place, list[int]] = {}
        self._looked_at: tuple[object, int] = (None, 0)
        self._timeout_ms = 1_500

    @property
    def in_use(self) -> bool:
        return bool(self._producers)

    # --- what members ask -----------------------------------------------------------------------

    def enlist(self, name: str) -> None:
        """A producer begins anew; what one of that name has left open is aborted."""
        if not self._producers:
            self._timeout_ms = self._cluster.world.chance.choice([1_500, 4_000])
            self._cluster.world.every(25, self._work)
            self._cluster.world.always("transactions count if committed", self._only_committed)
        producer = self._producers.setdefault(name, _Producer(len(self._producers) + 1))
        if producer.open is not None and producer.open.marker is None:
            self.decide(producer.open, {}, commit=False)

    def begin(self, name: str) -> Transaction | None:
        """A transaction; none while the end of the one before is not written everywhere."""
        producer = self._producers[name]
        if producer.open is not None:
            return None
        now_ms = self._cluster.world.now_ms
        producer.open = Transaction(producer.id, producer.epoch, now_ms)
        return producer.open

    def decide(self, transaction: Transaction, moves: Moves, *, commit: bool) -> bool:
        """End a transaction; false if that was decided already."""
        if transaction.marker is not None:
            return False
        epoch = ProducerEpoch(transaction.epoch + 1)
        transaction.marker = Marker(transaction.producer_id, epoch, 0, commit)
        self._of(transaction).epoch = epoch
        if commit:
            transaction.moves = moves
            for place, (start, end) in moves.items():
                self._move(place, start, end)
        self._push(transaction)
        return True

    def admits(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether there is such a transaction: what a coordinator asks before it takes offsets."""
        return any(
            one.open is not None
            and one.open.marker is None
            and (one.open.producer_id, one.open.epoch) == (producer_id, epoch)
            for one in self._producers.values()
        )

    def _of(self, transaction: Transaction) -> _Producer:
        return next(one for one in self._producers.values() if one.id == transaction.producer_id)

    def _move(self, place: Place, start: int, end: int) -> None:
        ends = self._committed.setdefault(place, [0])
        if start != ends[-1]:
            self._cluster.witness.object_to(
                f"{place} was read up to {ends[-1]} by committed transactions, the next one "
                f"begins at {start}"
            )
        ends.append(end)
        self._cluster.witness.processed(place, end)

    # --- markers --------------------------------------------------------------------------------

    def _work(self) -> None:
        """Abort what takes too long, and repeat what nobody has confirmed."""
        now_ms = self._cluster.world.now_ms
        for producer in self._producers.values():
            transaction = producer.open
            if transaction is None:
                continue
            if transaction.marker is None and now_ms - transaction.began_ms > self._timeout_ms:
                self._cluster.world.note(f"the transaction of producer {producer.id} times out")
                self.decide(transaction, {}, commit=False)
            elif transaction.marker is not None:
                self._push(transaction)

    def _push(self, transaction: Transaction) -> None:
        host, marker = self._cluster.host, transaction.marker
        if host is None or host is transaction.sent_to or marker is None:
            return
        transaction.sent_to = host

        def to(answer: object) -> None:
            if answer is None:
                self._ended(transaction)
            elif isinstance(answer, NotCoordinatorError):
                transaction.sent_to = None
            else:
                self._cluster.witness.object_to(f"{marker} was refused: {answer}")

        host.submit(lambda now: host.machine.end_transaction(now, marker, to), to)

    def _ended(self, transaction: Transaction) -> None:
        producer = self._of(transaction)
        if producer.open is transaction:
            producer.open = None
            for place, (_, end) in transaction.moves.items():
                self._cluster.witness.told_offset(place, end)

    # --- what must be ---------------------------------------------------------------------------

    def _only_committed(self) -> None:
        """Whatever the coordinator holds, a committed transaction has said so."""
        machine, batches = self._cluster.machine, len(self._cluster.shelf.batches)
        if machine is None or (machine, batches) == self._looked_at:
            return
        self._looked_at = (machine, batches)
        for *place, offset in machine.committed_offsets():
            known = self._committed.get(tuple(place), [])  # type: ignore[call-overload]
            assert offset in known, f"{place} is at {offset}; committed were {known[-3:]}"

    def check_settled(self) -> None:
        """In calm, every transaction ends, and nobody waits for one that has."""
        now_ms = self._cluster.world.now_ms
        opened = [one.open for one in self._producers.values() if one.open is not None]
        for transaction in opened:
            age_ms = now_ms - transaction.began_ms
            assert age_ms < _SETTLED_MS, f"a transaction is open for {age_ms} ms in calm"
        machine = self._cluster.machine
        assert machine is not None, "nobody leads in calm"
        waiting = {
            producer_id
            for group in machine._pending.values()
            for producers in group.values()
            for producer_id in producers
        }
        hanging = waiting - {one.producer_id for one in opened}
        assert not hanging, f"offsets of producers {hanging} wait for an end that has passed"
