"""What an admin does with transactions: list, describe, ask for outcomes, find and end them.

What is asked of a coordinator or a leader is repeated while it fails retriably; all of it may be
asked twice.

A transaction **hangs** if a partition holds it open and no coordinator knows of it: nobody will
ever end it, and who reads committed records only waits behind it for ever.  A broker of ours
finds and ends such ones by itself; others do not.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from waystation.client.coordinator import TRANSACTION, Coordinator
from waystation.client.descriptions import ProducerDescription
from waystation.client.errors import error_of
from waystation.client.producer_states import producers_in
from waystation.client.router import Router
from waystation.client.transaction_descriptions import (
    PREPARED,
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
    TransactionOutcome,
)
from waystation.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from waystation.messages.end_txn import EndTxnRequest, EndTxnResponse
from waystation.messages.list_transactions import (
    ANY_DURATION,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from waystation.messages.txn_outcome import TxnOutcomeRequest, TxnOutcomeResponse
from waystation.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.model.errors import InvalidRequestError, InvalidTxnStateError
from waystation.model.ids import NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.runtime.clock import Clock

__all__ = ["TransactionAdministration"]

T = TypeVar("T")

_FIRST_COORDINATOR_EPOCH = 0


class TransactionAdministration:
    """The part of an admin that is about transactions."""

    _router: Router
    _clock: Clock

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producers: Iterable[int] = (),
        open_for_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Every transactional id by name, or those in some states or of some producer ids.

        ``open_for_ms`` leaves out transactions that have not been open for so long.
        """
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producers),
            duration_filter=ANY_DURATION if open_for_ms is None else open_for_ms,
        )

        async def attempt() -> list[TransactionListing]:
            # When one is missing its transactions may be anywhere: everybody is asked anew.
            found = []
            for node in sorted(self._router.view.brokers):
                found += await self._transactions_at(node, request)
            return sorted(found)

        return await self._with_patience(attempt)

    async def describe_transactions(
        self, transactional_ids: str | Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """These transactional ids; ``TransactionalIdNotFoundError`` if one is not known."""
        ids = [transactional_ids] if isinstance(transactional_ids, str) else transactional_ids
        return {one: await self._transaction(one) for one in ids}

    async def transaction_outcome(
        self, transactional_id: str, producer: int, epoch: int
    ) -> TransactionOutcome:
        """What became of one transaction; of prepared ones it is known for seven days."""
        coordinator = Coordinator(self._router, transactional_id, TRANSACTION)
        request = TxnOutcomeRequest(
            transactional_id=transactional_id, producer_id=producer, producer_epoch=epoch
        )

        async def attempt() -> TransactionOutcome:
            told = await coordinator.ask(request, TxnOutcomeResponse)
            coordinator.raise_if(told.error_code, told.error_message)
            return TransactionOutcome(told.state, _moment(told.at_ms))

        return await self._with_patience(attempt)

    async def abort_transaction(
        self, transactional_id: str, *, prepared: bool = False
    ) -> TransactionDescription:
        """Abort the open transaction of a transactional id; what it was until then.

        A prepared one is only aborted if ``prepared`` says so: whoever prepared it may have
        committed elsewhere, and relies on it.
        """
        found = await self._transaction(transactional_id)
        if not found.open:
            raise InvalidTxnStateError(
                f"transactional id {transactional_id} has no open transaction: its last is "
                f"{found.state}"
            )
        if found.state == PREPARED and not prepared:
            raise InvalidTxnStateError(
                f"the transaction of {transactional_id} is prepared, and whoever prepared it may "
                "count on it: let its owner end it, or say that you mean prepared ones"
            )
        await self._end_by_force(found)
        return found

    # --- in partitions --------------------------------------------------------------------------

    async def describe_producers(self, partition: tuple[str, int]) -> list[ProducerDescription]:
        """The idempotent producers that a partition remembers."""
        where = TopicPartition(*partition)
        return (await self._producers_in([where]))[where]

    async def open_transactions(
        self, partitions: Iterable[tuple[str, int]]
    ) -> list[OpenTransaction]:
        """The transactions that these partitions hold open, the oldest write first."""
        remembered = await self._producers_in([TopicPartition(*one) for one in partitions])
        found = [
            OpenTransaction(
                where,
                one.producer,
                one.epoch,
                one.coordinator_epoch,
                one.transaction_start,
                one.last_timestamp,
            )
            for where, producers in remembered.items()
            for one in producers
            if one.transaction_start is not None
        ]
        return sorted(found, key=lambda one: one.last_written_at)

    async def hanging_transactions(
        self, older_than_ms: int, topics: Iterable[str] | None = None
    ) -> list[OpenTransaction]:
        """Transactions that partitions hold open and no coordinator knows of.

        Looks into all topics, or some; only transactions whose last write is ``older_than_ms``
        count, which should be the longest time-out that producers may have.
        """
        named = None if topics is None else list(topics)
        before = self._clock.now() - older_than_ms
        every = await self.open_transactions(await self._partitions_of(named))
        suspects = [one for one in every if one.last_written_at <= before]
        owned = await self._owned({one.producer for one in suspects})
        unowned = [one for one in suspects if one.partition not in owned.get(one.producer, {})]
        return await self._still_open(unowned)

    async def abort_hanging_transaction(
        self, partition: tuple[str, int], producer: int
    ) -> OpenTransaction:
        """Write an abort into one partition, for a transaction that no coordinator knows of.

        What a coordinator knows of is refused: its partitions must end together.
        """
        where = TopicPartition(*partition)
        open_here = await self.open_transactions([where])
        found = next((one for one in open_here if one.producer == producer), None)
        if found is None:
            raise InvalidTxnStateError(
                f"producer {producer} has no open transaction in partition {where}"
            )
        owner = (await self._owned({found.producer})).get(found.producer, {}).get(where)
        if owner is not None:
            raise InvalidTxnStateError(
                f"the transaction of producer {producer} in partition {where} does not hang, it "
                f"belongs to transactional id {owner}: abort that"
            )
        if await self._still_open([found]):
            await self._with_patience(lambda: self._write_abort(found))
        return found

    # --- behind the scenes ----------------------------------------------------------------------

    async def _with_patience(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """A coordinator that died is missed when its lease has ended, and loads elsewhere."""
        return await self._router.retrying(attempt, self._router.settings.request_timeout_ms)

    async def _transactions_at(
        self, node: NodeId, request: ListTransactionsRequest
    ) -> list[TransactionListing]:
        told = await self._router.ask(self._router.to_node(node), request, ListTransactionsResponse)
        if told.error_code:
            raise error_of(told.error_code, f"node {node}")
        if unknown := ", ".join(told.unknown_state_filters):
            raise InvalidRequestError(
                f"no transaction is ever {unknown}: try Ongoing, Prepared, PrepareCommit, "
                "PrepareAbort, CompleteCommit, CompleteAbort or Empty"
            )
        return [
            TransactionListing(
                one.transactional_id, one.transaction_state, ProducerId(one.producer_id), node
            )
            for one in told.transaction_states
        ]

    async def _transaction(self, transactional_id: str) -> TransactionDescription:
        coordinator = Coordinator(self._router, transactional_id, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> TransactionDescription:
            response = await coordinator.ask(request, DescribeTransactionsResponse)
            told = response.transaction_states[0]
            coordinator.raise_if(told.error_code)
            return TransactionDescription(
                told.transactional_id,
                told.transaction_state,
                ProducerId(told.producer_id),
                ProducerEpoch(told.producer_epoch),
                told.transaction_timeout_ms,
                _moment(told.transaction_start_time_ms),
                tuple(
                    TopicPartition(topic.topic, number)
                    for topic in told.topics
                    for number in topic.partitions
                ),
                await coordinator.find(),
            )

        return await self._with_patience(attempt)

    async def _end_by_force(self, found: TransactionDescription) -> None:
        """Abort as its own producer would; that one is told so by the next thing it does."""
        coordinator = Coordinator(self._router, found.transactional_id, TRANSACTION)
        request = EndTxnRequest(
            transactional_id=found.transactional_id,
            producer_id=found.producer,
            producer_epoch=found.epoch,
            committed=False,
        )

        async def attempt() -> None:
            coordinator.raise_if((await coordinator.ask(request, EndTxnResponse)).error_code)

        await self._with_patience(attempt)

    async def _producers_in(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        return await self._with_patience(lambda: producers_in(self._router, partitions))

    async def _partitions_of(self, topics: list[str] | None) -> list[TopicPartition]:
        view = await self._with_patience(lambda: self._router.look_up(topics))
        for name in topics or ():
            if refused := view.refused.get(name):
                raise error_of(refused, f"topic {name}")
        return [
            TopicPartition(name, one.partition)
            for name, topic in view.topics.items()
            for one in topic.partitions
        ]

    async def _owned(
        self, producers: set[ProducerId]
    ) -> dict[ProducerId, dict[TopicPartition, str]]:
        """The partitions that coordinators still have to end a producer's transaction in."""
        owned: dict[ProducerId, dict[TopicPartition, str]] = {}
        if not producers:
            return owned
        for listed in await self.list_transactions(producers=producers):
            found = await self._transaction(listed.transactional_id)
            partitions = dict.fromkeys(found.partitions, found.transactional_id)
            owned.setdefault(found.producer, {}).update(partitions)
        return owned

    async def _still_open(self, found: list[OpenTransaction]) -> list[OpenTransaction]:
        """Those that did not end while coordinators were asked about them.

        Coordinators forget a transaction after its markers are written: one that is open after
        they said that they do not know it was forgotten too early, and one that is not was not.
        """
        now_open = await self.open_transactions({one.partition for one in found})
        beginnings = {(one.partition, one.producer, one.first_offset) for one in now_open}
        return [
            one for one in found if (one.partition, one.producer, one.first_offset) in beginnings
        ]

    async def _write_abort(self, found: OpenTransaction) -> None:
        topic = WritableTxnMarkerTopic(
            name=found.partition.topic, partition_indexes=[found.partition.partition]
        )
        marker = WritableTxnMarker(
            producer_id=found.producer,
            producer_epoch=found.epoch,
            transaction_result=False,
            topics=[topic],
            # A producer whose first transaction hangs has not seen a coordinator's epoch yet.
            coordinator_epoch=max(found.coordinator_epoch, _FIRST_COORDINATOR_EPOCH),
        )
        leader = await self._router.leader_of(found.partition)
        told = await self._router.ask(
            self._router.to_node(leader),
            WriteTxnMarkersRequest(markers=[marker]),
            WriteTxnMarkersResponse,
        )
        code = told.markers[0].topics[0].partitions[0].error_code
        if code:
            raise error_of(code, f"partition {found.partition}")


def _moment(at_ms: int) -> Millis | None:
    return None if at_ms < 0 else Millis(at_ms)
