"""Writers who ask for less than the word of all replicas, and what may become of what they wrote.

- *a leader's word stands while it leads*: what was acknowledged with ``acks=1`` is in the log in
  the end, at its offset, if nobody was elected since the epoch in which it was written;
- *unasked is at most once*: what was sent with ``acks=0`` is never there twice, since nobody
  repeats it;
- *nothing comes from nowhere*: every record was sent by somebody.

That what they wrote is committed and replicated like everything else is seen to by the witness.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.simulation.cluster_witness import Witness, read_batches
from waystation.client.producer import Producer
from waystation.model.errors import WaystationError
from waystation.records.batch import records_of
from waystation.testing.world import InvariantBrokenError

LOOSE = "hints"
_PAUSE_S = 0.2
_MOST_AT_ONCE = 5
_WAIT_S = (0.01, 0.4)

Make = Callable[[str], Producer]


class Loose:
    """What such writers sent, and what they were told."""

    def __init__(self, partitions: int) -> None:
        self.told: list[tuple[int, int, str]] = []
        """Partition, offset and value of what a leader acknowledged."""
        self.epochs: dict[str, int] = {}
        """In which epoch a value was written that somebody has, when it was acknowledged."""
        self.epoch_of: Callable[[int, int, str], int | None] = lambda *_: None
        self.sent: set[str] = set()
        self._unasked: set[str] = set()
        self._partitions = partitions

    async def write(self, make: Make, acks: str, name: str, chance: Random, until_s: float) -> None:
        """Send until the loop's clock says ``until_s``; with another producer if one fails."""
        loop, lives = asyncio.get_running_loop(), 0
        while loop.time() < until_s:
            lives += 1
            try:
                async with make(acks) as producer:
                    await self._write(producer, acks, f"{name}.{lives}", chance, until_s)
            except (WaystationError, OSError):
                await asyncio.sleep(_PAUSE_S)

    async def _write(
        self, producer: Producer, acks: str, name: str, chance: Random, until_s: float
    ) -> None:
        loop, number = asyncio.get_running_loop(), 0
        while loop.time() < until_s:
            sending = []
            for _ in range(chance.randint(1, _MOST_AT_ONCE)):
                number += 1
                value, where = f"{name}.{number}", chance.randrange(self._partitions)
                self.sent.add(value)
                if acks == "0":
                    self._unasked.add(value)
                sending.append((where, value, producer.submit(LOOSE, value, partition=where)))
            for where, value, answer in sending:
                delivered = await answer
                if acks == "1":
                    self._noted(where, delivered.offset, value)
            await asyncio.sleep(chance.uniform(*_WAIT_S))

    def _noted(self, where: int, offset: int, value: str) -> None:
        self.told.append((where, offset, value))
        epoch = self.epoch_of(where, offset, value)
        if epoch is not None:
            self.epochs[value] = epoch

    def check(self, witness: Witness) -> None:
        """In the end, when all replicas are the same."""
        topic = witness.image.topics[LOOSE]
        for number, state in enumerate(topic.partitions):
            assert state.leader is not None, f"{LOOSE}-{number} is led by nobody"
            held = witness.held(state.leader, LOOSE, number)
            assert held is not None, f"{LOOSE}-{number} is not held by its leader"
            found: dict[int, str] = {}
            for _, _, batch in read_batches(held.log, 0, held.log.log_end):
                for one in records_of(batch):
                    found[one.offset] = (one.value or b"").decode()
            self._check_told(number, state.leader_epoch, found)
            self._check_found(number, found)

    def _check_told(self, number: int, last: int, found: dict[int, str]) -> None:
        for partition, offset, value in self.told:
            kept = self.epochs.get(value) == last
            if partition == number and kept and found.get(offset) != value:
                _broken(
                    "a leader's word stands while it leads",
                    f"{LOOSE}-{number}@{offset} was {value}, is {found.get(offset)}",
                )

    def _check_found(self, number: int, found: dict[int, str]) -> None:
        times = Counter(found.values())
        for value, count in times.items():
            if value not in self.sent:
                _broken("nothing comes from nowhere", f"{LOOSE}-{number} holds {value}")
            if count > 1 and value in self._unasked:
                _broken("unasked is at most once", f"{LOOSE}-{number}: {value} {count} times")


def _broken(name: str, why: str) -> None:
    raise InvariantBrokenError(name, why)
