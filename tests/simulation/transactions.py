"""Members that read, process and commit in transactions; ``ledger.py`` decides those."""

import asyncio
from collections.abc import Iterable

from tests.simulation.coordinator import Cluster
from tests.simulation.ledger import Transaction
from tests.simulation.members import ClassicMember, DisconnectedError, Member, ServerSideMember
from waystation.groups.commands import (
    Committed,
    FetchedOffsets,
    OffsetToCommit,
    TransactionalCommit,
)
from waystation.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    WaystationError,
)

_PATIENCE_S = 0.1


class InTransactions(Member):
    """What both kinds of members do instead of plain commits."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        group: str,
        topics: Iterable[str],
        instance: str | None,
    ) -> None:
        self._producer = name
        self._starts: dict[tuple[str, int], int] = {}
        """Where what was read since the last committed transaction begins."""
        cluster.ledger.enlist(name)
        super().__init__(cluster, name, group, topics, instance)

    async def _positions(self, topics: tuple[tuple[str, tuple[int, ...]], ...]) -> FetchedOffsets:
        """Wait for stable ones: what another has read and not decided must not be read again."""
        question = self._fetch(topics)._replace(require_stable=True)
        while True:
            fetched: FetchedOffsets = await self.connection.ask("fetch_offsets", question)
            if not any(one.error for one in fetched.offsets):
                break
            await asyncio.sleep(_PATIENCE_S)
        for one in fetched.offsets:
            self._starts[one.topic, one.partition] = max(one.offset, 0)
        return fetched

    def _read_on(self) -> None:
        """Process a little of everything; it counts when it is committed."""
        for place, position in self.positions.items():
            self.positions[place] = position + self.cluster.world.chance.randrange(5)

    async def _commit(self, partitions: Iterable[tuple[str, int]] | None = None) -> None:
        chosen = self.owned if partitions is None else list(partitions)
        if not chosen:
            return
        transaction = await self._begun()
        try:
            await self._send(transaction, chosen)
        except (InvalidTxnStateError, InvalidProducerEpochError) as error:
            self._note(f"took too long for its transaction: {error}")
            self._finish(transaction, chosen, commit=False)
            return
        except (DisconnectedError, WaystationError):
            self._finish(transaction, chosen, commit=False)
            raise
        if not self.cluster.calm and self._chance() < 0.1:
            await asyncio.sleep(self._chance() * 6)  # others may have taken over by then
        self._finish(transaction, chosen, commit=self._chance() < 0.75)

    async def _begun(self) -> Transaction:
        while (transaction := self.cluster.ledger.begin(self._producer)) is None:
            await asyncio.sleep(0.02)
        return transaction

    async def _send(self, transaction: Transaction, chosen: list[tuple[str, int]]) -> None:
        """Hand the offsets over; one who does not hear of it asks again, or gives up."""
        offsets = tuple(OffsetToCommit(*place, self.positions[place], -1, "") for place in chosen)
        command = TransactionalCommit(
            self.group,
            self.generation,
            self.member_id,
            self.instance,
            offsets,
            transaction.producer_id,
            transaction.epoch,
        )
        while True:
            try:
                told: Committed = await self.connection.ask("commit_in_transaction", command)
            except DisconnectedError:
                if self._chance() < 0.5:
                    raise
                await asyncio.sleep(_PATIENCE_S)
            else:
                assert not any(told.errors), told
                return

    def _finish(
        self, transaction: Transaction, chosen: list[tuple[str, int]], *, commit: bool
    ) -> None:
        """Decide, unless it took so long that the ledger did; what is not committed is unread."""
        moves = {
            (self.group, *place): (self._starts[place], self.positions[place])
            for place in chosen
            if place in self.positions
        }
        if self.cluster.ledger.decide(transaction, moves, commit=commit) and commit:
            self._starts.update({place: self.positions[place] for place in chosen})
            self.committed_at_ms = self.cluster.world.now_ms
        for place in self.positions:
            self.positions[place] = self._starts[place]


class TransactionalClassic(InTransactions, ClassicMember):
    """Of the classic protocol."""


class TransactionalServerSide(InTransactions, ServerSideMember):
    """Of the server-side protocol."""
