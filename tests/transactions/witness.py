"""Sees every decision, every answer and every marker, and knows what must never happen.

1. No transaction is both committed and aborted, in no partition and between no two.
2. Who was told that it committed finds all its writes, who was told that it aborted finds none.
3. A producer id and epoch belong to one instance, and with KIP-890 to one transaction.
4. Epochs of a producer id never go back, nobody is told the last one, and a producer id that
   was left never returns.
5. A transaction ends as was decided, and is complete when no partition has it open any more.
6. A prepared transaction ends by its holder, by the operator or by the limit.
7. A marker is written after the decision it stands for is safe.
"""

from collections.abc import Sequence

from tests.transactions.partitions import Partition, Tag, Write
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.transactions.commands import MarkersDue
from waystation.transactions.lifecycle import is_committed, is_ending, is_idle
from waystation.transactions.records import (
    EPOCH_MAX,
    Ending,
    OutcomeStored,
    Record,
    TransactionStored,
    TxnState,
)
from waystation.transactions.settings import NO_LIMIT

Who = tuple[ProducerId, ProducerEpoch]


class Witness:
    """What happened so far; every method fails where it may not have happened."""

    def __init__(self, partitions: dict[TopicPartition, Partition], limit_ms: int) -> None:
        self._partitions, self._limit_ms = partitions, limit_ms
        self._states: dict[str, TransactionStored] = {}
        self._left: set[ProducerId] = set()
        self._instances: dict[Who, int] = {}
        self._tags: dict[Who, Tag] = {}
        self._word: set[tuple[str, ProducerId, ProducerEpoch, bool]] = set()
        self.told: dict[Tag, bool] = {}
        """How each transaction ended, as its producer or holder was told."""
        self.acknowledged: dict[Tag, list[tuple[Partition, Write]]] = {}
        self.outcomes: dict[Tag, tuple[str, Who]] = {}
        """The prepared ones, by what the coordinator knows them by."""

    # --- decisions ----------------------------------------------------------------------------

    def decided(self, now: Millis, records: Sequence[Record]) -> None:
        outcomes = {record[:3]: record for record in records if isinstance(record, OutcomeStored)}
        for record in records:
            if not isinstance(record, TransactionStored):
                continue
            before = self._states.get(record.transactional_id)
            if before is not None:
                self._check_epochs(before, record)
                self._check_step(before, record)
                if before.is_prepared and not record.is_prepared:
                    key = before.transactional_id, before.producer_id, before.epoch
                    self._check_end_of_prepared(now, before, record, outcomes.get(key))
            self._states[record.transactional_id] = record

    def rebuilt(self, records: Sequence[Record]) -> None:
        """A crash took back what was not safe."""
        found = [record for record in records if isinstance(record, TransactionStored)]
        self._states = {record.transactional_id: record for record in found}

    def _check_epochs(self, before: TransactionStored, after: TransactionStored) -> None:
        if before.producer_id == after.producer_id:
            assert after.epoch >= before.epoch, f"{before} -> {after}: the epoch went back"
            return
        self._left.add(before.producer_id)
        assert after.producer_id not in self._left, f"{after}: a producer id came back"

    def _check_step(self, before: TransactionStored, after: TransactionStored) -> None:
        if is_ending(before):
            assert is_idle(after), f"{before} -> {after}: began before the last one had ended"
            assert is_committed(before) == is_committed(after), f"{before} -> {after}"
            for partition in before.partitions:
                is_open = self._partitions[partition].is_open(before.producer_id)
                assert not is_open, f"{before} is complete, and open in {partition}"
        if before.state is TxnState.ONGOING and after.state is TxnState.ONGOING:
            assert set(before.partitions) <= set(after.partitions), f"{before} -> {after}"
        elif before.state is TxnState.ONGOING:
            assert is_ending(after), f"{before} -> {after}: was never ended"
            assert after.partitions == before.partitions, f"{before} -> {after}"

    def _check_end_of_prepared(
        self,
        now: Millis,
        before: TransactionStored,
        after: TransactionStored,
        outcome: OutcomeStored | None,
    ) -> None:
        assert outcome is not None, f"{before} ended, and nobody will know how"
        commit = is_committed(after)
        assert (outcome.ending is Ending.COMMITTED) == commit, f"{outcome}, {after}"
        if outcome.ending is Ending.ABORTED_BY_LIMIT:
            assert self._limit_ms != NO_LIMIT, f"{before}: there is no limit"
            assert now - before.prepared_at >= self._limit_ms, f"{before}: limit came early"
            return
        key = before.transactional_id, before.producer_id, before.epoch, commit
        assert key in self._word, f"{before} was ended by nobody"

    # --- what was asked and answered ----------------------------------------------------------

    def may_end(self, transactional_id: str, who: Who, commit: bool) -> None:
        """Somebody who may is about to end a prepared transaction."""
        self._word.add((transactional_id, *who, commit))

    def named(self, instance: int, who: Who) -> None:
        """An instance was told who it is."""
        assert who[1] < EPOCH_MAX, f"{who}: the epoch that only markers have"
        known = self._instances.setdefault(who, instance)
        assert known == instance, f"instances {known} and {instance} are both {who}"

    def admitted(self, who: Who, tag: Tag) -> None:
        """A write was let into the transaction of that epoch (KIP-890)."""
        known = self._tags.setdefault(who, tag)
        assert known == tag, f"{who} is {known}, and {tag} was let into it"

    def acked(self, tag: Tag, partition: Partition, write: Write) -> None:
        self.acknowledged.setdefault(tag, []).append((partition, write))

    def ended(self, tag: Tag, commit: bool) -> None:
        known = self.told.setdefault(tag, commit)
        assert known == commit, f"{tag} was told both"

    # --- markers ------------------------------------------------------------------------------

    def marked(self, due: MarkersDue) -> None:
        """A marker is about to be written under the present coordinator."""
        state = self._states.get(due.transactional_id)
        assert state is not None, f"{due} of an unknown id"
        assert is_ending(state), f"{due} while {state}"
        assert (state.producer_id, state.epoch) == (due.producer_id, due.epoch), f"{due}, {state}"
        assert is_committed(state) == due.commit, f"{due}, {state}"

    # --- in the end ---------------------------------------------------------------------------

    def check_all(self) -> None:
        """Everything has come to rest: compare what was told with what is there."""
        fates: dict[Tag, bool] = {}
        for partition in self._partitions.values():
            for write, committed in partition.ended.items():
                known = fates.setdefault(write.tag, committed)
                assert known == committed, f"{write.tag} is torn at {partition.name}"
        for tag, committed in fates.items():
            assert self.told.get(tag, committed) == committed, f"{tag} was told otherwise"
        for tag, committed in self.told.items():
            if committed:
                self._check_all_there(tag)
        for partition in self._partitions.values():
            self._check_open(partition)

    def _check_all_there(self, tag: Tag) -> None:
        for partition, write in self.acknowledged.get(tag, ()):
            assert partition.ended.get(write), f"{write} of a committed transaction is lost"

    def _check_open(self, partition: Partition) -> None:
        prepared = {one.producer_id for one in self._states.values() if one.is_prepared}
        for producer_id, writes in partition.open_writes().items():
            assert producer_id in prepared, f"{writes} hang in {partition.name} for ever"
