"""Transactions that a partition holds open and no coordinator will ever end.

Such a one keeps those who read committed records waiting for good.  Admission lets none arise
here; they come with logs that were written elsewhere, by older brokers, or whose coordinator lost
its own log.

1. Nothing is ended that a coordinator knows of, however long it takes: not while one is loading,
   or is elsewhere and does not answer, and not if anything was written meanwhile.
2. What is ended was open for longer than any producer may ask for (``transaction.max.timeout.ms``).
3. It is aborted, and told to the operator.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from waystation.broker.far_transactions import FarTransactions
from waystation.broker.replicas import Replicas
from waystation.broker.transactions import TransactionCoordinators
from waystation.model.errors import WaystationError
from waystation.partition.partition import Partition
from waystation.records.control import Marker
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks
from waystation.storage.producer_state import OpenTransaction
from waystation.telemetry.logs import get_logger
from waystation.transactions.settings import TransactionSettings

_EVERY_MS = 10_000
# A log may know of no coordinator yet; the first one has this epoch.
_FIRST_COORDINATOR_EPOCH = 0

_events = get_logger("transactions")


class _Suspect(NamedTuple):
    """A transaction that has been open for longer than any producer may ask for."""

    partition: Partition
    found: OpenTransaction


class Hanging:
    """Looks through the partitions led here now and then."""

    __slots__ = (
        "_clock",
        "_elsewhere",
        "_looked_s",
        "_replicas",
        "_settings",
        "_tasks",
        "_transactions",
    )

    def __init__(
        self,
        replicas: Replicas,
        transactions: TransactionCoordinators,
        elsewhere: FarTransactions,
        settings: Callable[[], TransactionSettings],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._elsewhere = elsewhere
        self._tasks = Tasks()
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
        suspects = list(self._suspects())
        if not suspects:
            return
        if self._transactions.all_here:
            machines = self._transactions.machines()
            for partition, found in suspects:
                if not any(one.owns(found.producer_id, partition.name) for one in machines):
                    # No await since the coordinators were asked: none has begun to know of it.
                    self._abort(partition, found)
        elif not self._transactions.loading and not self._tasks:
            self._tasks.spawn(self._ask_around(suspects), "hanging-transactions")

    async def aclose(self) -> None:
        """Look no more."""
        await self._tasks.aclose()

    def _suspects(self) -> Iterator[_Suspect]:
        began_before = self._clock.now() - self._settings().transaction_max_timeout_ms
        for partition in self._replicas:
            if partition.leading:
                for found in partition.open_transactions():
                    if found.began_at < began_before:
                        yield _Suspect(partition, found)

    async def _ask_around(self, suspects: list[_Suspect]) -> None:
        """End what no coordinator on any broker knows of.

        A producer may have begun another transaction since they were asked.  If it has written
        here, the partition says so; if not, what it writes later comes behind the marker.
        """
        try:
            owned = await self._elsewhere.owned({one.found.producer_id for one in suspects})
        except WaystationError as error:
            _events.debug("hanging.unknown", reason=str(error))
            return
        for partition, found in suspects:
            known = (found.producer_id, partition.name) in owned
            if not known and partition.leading and found in partition.open_transactions():
                self._abort(partition, found)

    def _abort(self, partition: Partition, found: OpenTransaction) -> None:
        epoch = max(found.coordinator_epoch, _FIRST_COORDINATOR_EPOCH)
        marker = Marker(found.producer_id, found.producer_epoch, epoch, committed=False)
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
