"""What a transaction costs its coordinator: to decide, to write down, to keep and to read back.

Run: python benchmarks/coordinators/transactions.py
"""

import tracemalloc
from collections.abc import Callable
from time import process_time

from waystation.broker.transaction_records import encode, read_rows
from waystation.model.ids import ProducerId, TopicPartition
from waystation.model.machines import Outcome
from waystation.model.offsets import Millis
from waystation.transactions.commands import Add, End, Init, Initialised, MarkersDue
from waystation.transactions.machine import Transactions
from waystation.transactions.records import Record
from waystation.transactions.settings import TransactionSettings

IDS, ROUNDS = 2_000, 5
NOW = Millis(1_700_000_000_000)
PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
SETTINGS = TransactionSettings()


class Desk:
    """A host that commits at once, and writes markers as fast as they are asked for."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.due: list[MarkersDue] = []
        self.heard: list[object] = []
        self.machine = Transactions(lambda: SETTINGS, 1, self._order)

    def carry_out(self, outcome: Outcome[Record]) -> None:
        """As a host does."""
        for record in outcome.records:
            self.log.append(record)
            self.machine.apply(record)
        for to, answer in outcome.replies:
            to(answer)
        self.machine.next_deadline()

    def transact(self, name: str, who: Initialised) -> Initialised:
        """A transaction with three partitions, as KIP-890 has it; who the producer is next."""
        machine, hear = self.machine, self.heard.append
        for partition in PARTITIONS:
            add = Add(name, *who, frozenset([partition]), implicit=True)
            self.carry_out(machine.add(NOW, add, hear))
        self.carry_out(machine.end(NOW, End(name, *who, True, True), hear))
        due = self.due.pop()
        self.carry_out(machine.markers_written(NOW, due, due.partitions))
        return Initialised(due.producer_id, due.epoch)

    def _order(self, due: object) -> None:
        assert isinstance(due, MarkersDue), due
        self.due.append(due)


def seconds(work: Callable[[], object]) -> float:
    """How much of a processor's time ``work`` takes."""
    began = process_time()
    work()
    return process_time() - began


def main() -> None:
    """Measure and print."""
    tracemalloc.start()
    desk, producers = Desk(), {}
    desk.carry_out(desk.machine.loaded(NOW))
    for number in range(IDS):
        name = f"producer-{number:06}"
        init = Init(name, 60_000, fresh=ProducerId(number))
        desk.carry_out(desk.machine.init(NOW, init, desk.heard.append))
        producers[name] = Initialised(ProducerId(number), desk.heard[-1].epoch)  # type: ignore[attr-defined]
    desk.log.clear()
    desk.heard.clear()
    print(f"an idle id:             {tracemalloc.get_traced_memory()[0] / IDS:8.0f} bytes")
    tracemalloc.stop()

    def transact() -> None:
        for _ in range(ROUNDS):
            for name, who in producers.items():
                producers[name] = desk.transact(name, who)

    count = IDS * ROUNDS
    print(f"deciding a transaction: {seconds(transact) / count * 1e6:8.1f} us")
    rows: list[tuple[bytes, bytes | None]] = []
    spent = seconds(lambda: rows.extend(map(encode, desk.log)))
    print(f"writing its records:    {spent / count * 1e6:8.1f} us")
    loaded = Transactions(lambda: SETTINGS, 2, lambda _: None)

    def load() -> None:
        for record in read_rows([(0, 0, *row, ()) for row in rows]):
            loaded.apply(record)

    print(f"loading a record:       {seconds(load) / len(rows) * 1e6:8.1f} us")


if __name__ == "__main__":
    main()
