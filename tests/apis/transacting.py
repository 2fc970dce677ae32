"""The questions that tests of transactions ask, each in any version, and requests in one line."""

import time
from typing import Any, NamedTuple
from uuid import UUID

from tests.apis.asking import Asking, produce_request, records_in
from tests.apis.kit import batch_of
from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from waystation.messages.describe_producers import DescribeProducersRequest, TopicRequest
from waystation.messages.describe_transactions import DescribeTransactionsRequest
from waystation.messages.end_txn import EndTxnRequest
from waystation.messages.find_coordinator import TRANSACTION, FindCoordinatorRequest
from waystation.messages.init_producer_id import InitProducerIdRequest
from waystation.messages.list_transactions import ListTransactionsRequest
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.messages.prepare_txn import PrepareTxnRequest
from waystation.messages.produce import ProduceRequest
from waystation.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from waystation.messages.txn_outcome import TxnOutcomeRequest
from waystation.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.control import read_marker
from waystation.records.header import batches

STATE_TOPIC = "__transaction_state"
CLASSIC, IMPLICIT = 11, 12
"""Versions of Produce: the newest that needs AddPartitionsToTxn, and the first that does not."""
READ_COMMITTED = 1
_SOON = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_WITHIN_S = 30.0


class Writer(NamedTuple):
    """A transactional producer, as it is known to its coordinator."""

    name: str
    producer_id: int
    epoch: int

    def at(self, epoch: int) -> "Writer":
        """The same one under another epoch."""
        return self._replace(epoch=epoch)


class Transacting(Asking):
    """A connection that knows how to ask a transaction's coordinator."""

    def find_transaction(self, name: str, *, version: int = 6) -> Any:
        """Who coordinates the transactional id."""
        request = FindCoordinatorRequest(key=name, key_type=TRANSACTION, coordinator_keys=[name])
        reply = self.ask(request, version)
        return reply.coordinators[0] if version >= 4 else reply

    def init(self, name: str, *, version: int = 5, **asked: Any) -> Any:
        """One InitProducerId, whatever comes of it."""
        return self.ask(init_request(name, **asked), version)

    def writer(self, name: str, *, version: int = 5, **asked: Any) -> Writer:
        """A producer under that transactional id; waits until it has a coordinator."""
        deadline = time.monotonic() + _WITHIN_S
        while True:
            assert self.find_transaction(name).error_code in (0, *_SOON)
            told = self.init(name, version=version, **asked)
            if told.error_code not in _SOON:
                assert told.error_code == 0, told
                return Writer(name, told.producer_id, told.producer_epoch)
            assert time.monotonic() < deadline, "the coordinator does not become ready"
            time.sleep(0.01)

    def add(self, writer: Writer, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """The codes of adding partitions of one topic."""
        reply = self.ask(add_request(writer, {topic: partitions}, version=version), version)
        results = (
            reply.results_by_transaction[0].topic_results
            if version >= 4
            else reply.results_by_topic_v3_and_below
        )
        return [one.partition_error_code for one in results[0].results_by_partition]

    def add_offsets(self, writer: Writer, group: str, *, version: int = 4) -> int:
        """The code of adding a group's offsets."""
        return int(self.ask(add_offsets_request(writer, group), version).error_code)

    def write(
        self,
        writer: Writer,
        topic: str,
        *values: bytes,
        sequence: int = 0,
        partition: int = 0,
        version: int = IMPLICIT,
    ) -> int:
        """The code of producing in the transaction."""
        topic_id = self.topic_id(topic) if version >= 13 else None
        request = write_request(
            writer, topic, *values, sequence=sequence, partition=partition, topic_id=topic_id
        )
        return int(self.ask(request, version).responses[0].partition_responses[0].error_code)

    def end(self, writer: Writer, *, commit: bool, version: int = 5) -> Any:
        """The answer to EndTxn."""
        return self.ask(end_request(writer, commit=commit), version)

    def commit(self, writer: Writer, *, version: int = 5) -> Writer:
        """Commit; who the producer is then."""
        return self._ended(writer, self.end(writer, commit=True, version=version))

    def abort(self, writer: Writer, *, version: int = 5) -> Writer:
        """Abort; who the producer is then."""
        return self._ended(writer, self.end(writer, commit=False, version=version))

    def _ended(self, writer: Writer, told: Any) -> Writer:
        assert told.error_code == 0, told
        if told.producer_id == -1:
            return writer
        return Writer(writer.name, told.producer_id, told.producer_epoch)

    def commit_offsets(
        self, writer: Writer, group: str, topic: str, offset: int, *, version: int = 5, **who: Any
    ) -> int:
        """The code of committing an offset of partition 0 in the transaction."""
        request = txn_commit_request(writer, group, topic, offset, **who)
        return int(self.ask(request, version).topics[0].partitions[0].error_code)

    def stable_offset(self, group: str, topic: str) -> int:
        """The offset of partition 0, once no transaction could change it."""
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=[asked])]
        request = OffsetFetchRequest(groups=wanted, require_stable=True)
        deadline = time.monotonic() + _WITHIN_S
        while True:
            (found,) = self.ask(request, 9).groups[0].topics[0].partitions
            if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert found.error_code == 0, found
                return int(found.committed_offset)
            assert time.monotonic() < deadline, f"the offset of {group} stays unstable"
            time.sleep(0.005)

    def prepare(self, writer: Writer) -> Any:
        """The answer to PrepareTxn."""
        return self.ask(
            PrepareTxnRequest(
                transactional_id=writer.name,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
            ),
            0,
        )

    def outcome(self, writer: Writer) -> Any:
        """The answer to TxnOutcome."""
        return self.ask(
            TxnOutcomeRequest(
                transactional_id=writer.name,
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
            ),
            0,
        )

    def describe(self, *names: str) -> list[Any]:
        """What is known of transactional ids."""
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        return list(self.ask(request, 0).transaction_states)

    def list_transactions(self, *, version: int = 1, **filters: Any) -> Any:
        """The answer to ListTransactions."""
        return self.ask(ListTransactionsRequest(**filters), version)

    def mark(
        self,
        writer: Writer,
        topic: str,
        partition: int,
        *,
        commit: bool,
        epoch: int = 0,
        rules: int = 0,
    ) -> int:
        """The code of writing a marker from outside, by the rules of a transaction version."""
        request = marker_request(writer, topic, partition, commit=commit, epoch=epoch, rules=rules)
        reply = self.ask(request, 2)
        return int(reply.markers[0].topics[0].partitions[0].error_code)

    def producers(self, topic: str, partition: int = 0) -> list[Any]:
        """The producers that a partition remembers."""
        asked = TopicRequest(name=topic, partition_indexes=[partition])
        reply = self.ask(DescribeProducersRequest(topics=[asked]), 0)
        return list(reply.topics[0].partitions[0].active_producers)

    def committed(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes]:
        """The values that a read_committed consumer is shown."""
        found = self.fetch(topic, offset, partition=partition, isolation_level=READ_COMMITTED)
        assert found.error_code == 0, found
        return visible_values(found)

    def await_stable(self, topic: str, *, partition: int = 0) -> None:
        """Wait until no transaction is open in the partition."""
        deadline = time.monotonic() + _WITHIN_S
        while True:
            found = self.fetch(topic, 0, partition=partition)
            if found.last_stable_offset == found.high_watermark:
                return
            assert time.monotonic() < deadline, f"a transaction stays open in {topic}: {found}"
            time.sleep(0.005)


def visible_values(found: Any) -> list[bytes]:
    """What is left without markers and without the aborted transactions that a fetch names."""
    data = b"" if found.records is None else bytes(found.records)
    ahead = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or ())
    aborted, values = set(), []
    for at, header in batches(data):
        while ahead and ahead[0][0] <= header.last_offset:
            aborted.add(ahead.pop(0)[1])
        if header.is_control:
            marker = read_marker(data, at)
            if marker is not None and not marker.committed:
                aborted.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            values += [record.value for record in records_of(data, at)]
    return values


def all_values(client: Asking, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a read_uncommitted consumer is shown, markers left out."""
    return [
        record.value
        for record in records_in(client.fetch(topic, 0, partition=partition))
        if record.value is not None and not record.value.startswith(b"\0\0\0")
    ]


def init_request(
    name: str | None, *, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def add_request(
    writer: Writer,
    topics: dict[str, Any],
    *,
    version: int,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    """In the shape of that version."""
    wanted = [
        AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
        for name, partitions in topics.items()
    ]
    if version >= 4:
        return AddPartitionsToTxnRequest(transactions=[added(writer, topics, verify_only)])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=writer.name,
        v3_and_below_producer_id=writer.producer_id,
        v3_and_below_producer_epoch=writer.epoch,
        v3_and_below_topics=wanted,
    )


def added(
    writer: Writer, topics: dict[str, Any], verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    """One transaction of a batched request."""
    return AddPartitionsToTxnTransaction(
        transactional_id=writer.name,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        verify_only=verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ],
    )


def add_offsets_request(writer: Writer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=writer.name,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        group_id=group,
    )


def write_request(
    writer: Writer,
    topic: str,
    *values: bytes,
    sequence: int = 0,
    partition: int = 0,
    topic_id: UUID | None = None,
    transactional: bool = True,
    name: str | None = "",
    acks: int = -1,
) -> ProduceRequest:
    """One batch in the writer's transaction; ``name=None`` does not say whose."""
    batch = batch_of(
        *(values or (b"x",)),
        producer=(writer.producer_id, writer.epoch, sequence),
        transactional=transactional,
    )
    request = produce_request(topic, batch, partition, acks, topic_id=topic_id)
    request.transactional_id = writer.name if name == "" else name
    return request


def end_request(writer: Writer, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=writer.name,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        committed=commit,
    )


def txn_commit_request(
    writer: Writer,
    group: str,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> TxnOffsetCommitRequest:
    position = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return TxnOffsetCommitRequest(
        transactional_id=writer.name,
        group_id=group,
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[position])],
    )


def marker_request(
    writer: Writer, topic: str, partition: int, *, commit: bool, epoch: int = 0, rules: int = 0
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=epoch,
        transaction_version=rules,
    )
    return WriteTxnMarkersRequest(markers=[marker])
