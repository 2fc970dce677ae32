"""Transactions that a partition holds open and no coordinator will ever end.

Such a one keeps those who read committed records waiting for good.  Admission lets none arise
here; they come with logs that were written elsewhere, by older brokers, or whose coordinator lost
its own log.

1. Nothing is ended that a coordinator knows of, however long it takes: not while one is loading,
   and not where one is elsewhere and cannot be asked.
2. What is ended was open for longer than any producer may ask for (``transaction.max.timeout.ms``).
3. It is aborted, and told to the operator.
"""

from collections.abc import Callable
from functools import partial

from waystation.broker.replicas import Replicas
from waystation.broker.transactions import TransactionCoordinators
from waystation.model.errors import WaystationError
from waystation.partition.partition import Partition
from waystation.records.control import Marker
from waystation.runtime.clock import Clock
from waystation.storage.producer_state import OpenTransaction
from waystation.telemetry.logs import get_logger
from waystation.transactions.settings import TransactionSettings

_EVERY_MS = 10_000
# A log may know of no coordinator yet; the first one has this epoch.
_FIRST_COORDINATOR_EPOCH = 0

_events = get_logger("transactions")


class Hanging:
    """Looks through the partitions led here now and then."""

    __slots__ = ("_clock", "_looked_s", "_replicas", "_settings", "_transactions")

    def __init__(
        self,
        replicas: Replicas,
        transactions: TransactionCoordinators,
        settings: Callable[[], TransactionSettings],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._settings = settings
        self._clock = clock
        self._looked_s = clock.monotonic()

    def look_if_due(self) -> None:
        """Look, unless it was done a short while ago."""
        interval_ms = min(_EVERY_MS, self._settings().transaction_max_timeout_ms)
        if (self._clock.monotonic() - self._looked_s) * 1_000 >= interval_ms:
            self._looked_s = self._clock.monotonic()
            self.look()

    def look(self) -> None:
        """End what hangs; what cannot be ended now is found again the next time."""
        if not self._transactions.all_here:
            return
        began_before = self._clock.now() - self._settings().transaction_max_timeout_ms
        machines = self._transactions.machines()
        for partition in self._replicas:
            if not partition.leading:
                continue
            for found in partition.open_transactions():
                known = any(one.owns(found.producer_id, partition.name) for one in machines)
                if found.began_at < began_before and not known:
                    self._abort(partition, found)

    def _abort(self, partition: Partition, found: OpenTransaction) -> None:
        epoch = max(found.coordinator_epoch, _FIRST_COORDINATOR_EPOCH)
        marker = Marker(found.producer_id, found.producer_epoch, epoch, committed=False)
        # No await since the coordinators were asked: none has begun to know of it.
        self._transactions.markers.write(partition.name, marker, partial(_told, partition, found))


def _told(partition: Partition, found: OpenTransaction, error: WaystationError | None) -> None:
    facts = {
        "partition": str(partition.name),
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "first_offset": found.first_offset,
        "began_at": found.began_at,
    }
    if error is None:
        _events.warning("hanging.aborted", **facts)
    else:
        _events.warning("hanging.not.aborted", reason=str(error), **facts)
