"""A scripted broker that also coordinates transactions, as strictly as Kafka.

``version`` is the level of the feature transaction.version: with 2 epochs rise with every
transaction and writing adds partitions, below partitions must be added first.  ``visible`` holds
the values of committed transactions by partition, in the order of their offsets.  An open
transaction times out once its offsets were asked for ``patience`` times.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.support.scripted_group import GroupBroker
from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from waystation.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from waystation.messages.end_txn import EndTxnRequest, EndTxnResponse
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.messages.offset_fetch import OffsetFetchResponse
from waystation.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from waystation.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from waystation.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from waystation.model.errors import ErrorCode
from waystation.records.batch import records_of
from waystation.records.header import peek
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey, Versions

FIRST_IMPLICIT_PRODUCE = 12
FIRST_IMPLICIT_COMMIT = 5
FIRST_BUMPING_END = 5


@dataclass
class Transactional:
    """What the coordinator knows of one transactional id."""

    producer_id: int
    epoch: int = 0
    state: str = "empty"
    partitions: set[int] = field(default_factory=set)
    with_offsets: bool = False
    offsets: dict[int, int] = field(default_factory=dict)
    ended_as: int = -1
    bumped_from: int = -1


class TransactionBroker(GroupBroker):
    """Coordinates any number of transactional ids over the partitions of one topic."""

    def __init__(self, leaders: tuple[int, ...] = (1,), version: int = 2) -> None:
        super().__init__(leaders)
        self.version = version
        self.ids: dict[str, Transactional] = {}
        self.visible: defaultdict[int, list[bytes | None]] = defaultdict(list)
        self.ends: list[str] = []
        self.patience = 3
        self._open: defaultdict[tuple[int, int], list[bytes | None]] = defaultdict(list)
        self.handlers |= {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self.commit_in_transaction,
            ApiKey.END_TXN: self.end,
            ApiKey.PREPARE_TXN: self.prepare,
        }
        if version < 2:
            self.versions[ApiKey.END_TXN] = Versions(0, 4)
            del self.versions[ApiKey.PREPARE_TXN]

    def api_versions(self, request: Message) -> Message:
        answer = super().api_versions(request)
        assert isinstance(answer, ApiVersionsResponse)
        level = FinalizedFeatureKey(name="transaction.version", max_version_level=self.version)
        answer.finalized_features = [level]
        return answer

    # --- the coordinator ------------------------------------------------------------------------

    def init_producer_id(self, request: Message) -> Message:
        assert isinstance(request, InitProducerIdRequest)
        if code := self._refusal(ApiKey.INIT_PRODUCER_ID):
            return InitProducerIdResponse(error_code=code)
        name = request.transactional_id
        if name is None:
            return super().init_producer_id(request)
        known = self.ids.get(name)
        if known is None:
            self.identities += 1
            known = self.ids[name] = Transactional(self.identities)
            return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=0)
        claimed = (request.producer_id, request.producer_epoch)
        if claimed[0] >= 0 and claimed != (known.producer_id, known.epoch):
            if claimed != (known.producer_id, known.bumped_from):
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)
        if known.state == "prepared":
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state == "ongoing":
            self._finish(name, commit=False)
        known.bumped_from = known.epoch if claimed[0] >= 0 else -1
        known.epoch += 1
        known.state = "empty"
        return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def add_partitions(self, request: Message) -> Message:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert self.asked[-1][2] <= 3, "later versions are for brokers"
        who = (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        name = request.v3_and_below_transactional_id
        code = self._refusal(ApiKey.ADD_PARTITIONS_TO_TXN) or self._check(name, *who)
        topics = []
        for topic in request.v3_and_below_topics:
            if not code:
                self._begin(name).partitions.update(topic.partitions)
            answers = [
                AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=code)
                for one in topic.partitions
            ]
            topics.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=answers)
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def add_offsets(self, request: Message) -> Message:
        assert isinstance(request, AddOffsetsToTxnRequest)
        who = (request.producer_id, request.producer_epoch)
        code = self._refusal(ApiKey.ADD_OFFSETS_TO_TXN)
        code = code or self._check(request.transactional_id, *who)
        if not code:
            self._begin(request.transactional_id).with_offsets = True
        return AddOffsetsToTxnResponse(error_code=code)

    def end(self, request: Message) -> Message:
        assert isinstance(request, EndTxnRequest)
        if code := self._refusal(ApiKey.END_TXN):
            return EndTxnResponse(error_code=code)
        name, bumps = request.transactional_id, self.asked[-1][2] >= FIRST_BUMPING_END
        known = self.ids[name]
        wanted = "committed" if request.committed else "aborted"
        if known.state == wanted and request.producer_epoch == known.ended_as:
            return self._ended(known, bumps)
        if code := self._check(name, request.producer_id, request.producer_epoch):
            return EndTxnResponse(error_code=code)
        if known.state not in ("ongoing", "prepared"):
            if not bumps or request.committed:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            self.ends.append("aborted nothing")
        known.ended_as = known.epoch
        self._finish(name, commit=request.committed)
        if bumps:
            known.epoch += 1
            for partition in self.partitions:
                partition.producers[known.producer_id].epoch = known.epoch
                partition.producers[known.producer_id].recent.clear()
        known.state = wanted
        return self._ended(known, bumps)

    def prepare(self, request: Message) -> Message:
        assert isinstance(request, PrepareTxnRequest)
        who = (request.producer_id, request.producer_epoch)
        code = self._refusal(ApiKey.PREPARE_TXN) or self._check(request.transactional_id, *who)
        known = self.ids[request.transactional_id]
        if not code and known.state not in ("ongoing", "prepared"):
            code = ErrorCode.INVALID_TXN_STATE
        if not code:
            known.state = "prepared"
        return PrepareTxnResponse(error_code=code)

    # --- what is written ------------------------------------------------------------------------

    def produce(self, request: Message) -> Message:
        assert isinstance(request, ProduceRequest)
        if code := self._refusal(ApiKey.PRODUCE):
            return self._refused(request, code)
        if request.transactional_id is None:
            return super().produce(request)
        version = self.asked[-1][2]
        for topic in request.topic_data:
            for data in topic.partition_data:
                header = peek(data.records or b"")
                assert header.is_transactional, "a plain batch in a transactional request"
                who = (header.producer_id, header.producer_epoch)
                code = self._check(request.transactional_id, *who)
                if code == ErrorCode.PRODUCER_FENCED:
                    code = ErrorCode.INVALID_PRODUCER_EPOCH
                known = self.ids[request.transactional_id]
                if not code and data.index not in known.partitions:
                    if version < FIRST_IMPLICIT_PRODUCE:
                        code = ErrorCode.INVALID_TXN_STATE
                    else:
                        self._begin(request.transactional_id).partitions.add(data.index)
                if code:
                    return self._refused(request, code)
        before = [len(one.values) for one in self.partitions]
        answer = super().produce(request)
        for topic in request.topic_data:
            for data in topic.partition_data:
                batch = bytes(data.records or b"")
                if len(self.partitions[data.index].values) > before[data.index]:
                    pending = self._open[peek(batch).producer_id, data.index]
                    pending += [record.value for record in records_of(batch)]
        return answer

    def commit_in_transaction(self, request: Message) -> Message:
        assert isinstance(request, TxnOffsetCommitRequest)
        name = request.transactional_id
        code = self._refusal(ApiKey.TXN_OFFSET_COMMIT)
        code = code or self._check(name, request.producer_id, request.producer_epoch)
        if not code and request.generation_id not in (-1, self.generation):
            code = ErrorCode.ILLEGAL_GENERATION
        if not code and self.asked[-1][2] < FIRST_IMPLICIT_COMMIT:
            code = ErrorCode.NONE if self.ids[name].with_offsets else ErrorCode.INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                if not code:
                    self._begin(name).offsets[one.partition_index] = one.committed_offset
                answers.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return TxnOffsetCommitResponse(topics=topics)

    def fetch_offsets(self, request: Message) -> Message:
        for name, known in self.ids.items():
            if known.offsets and self.patience:
                self.patience -= 1
                self.refuse(ApiKey.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif known.offsets:
                self._time_out(name)
        answer = super().fetch_offsets(request)
        assert isinstance(answer, OffsetFetchResponse)
        return answer

    # --- behind the scenes ----------------------------------------------------------------------

    def _check(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == known.epoch else ErrorCode.PRODUCER_FENCED

    def _time_out(self, name: str) -> None:
        """Abort for a producer that stays away, and let it write no more."""
        self._finish(name, commit=False)
        self.ids[name].epoch += 1
        self.ids[name].state = "aborted"
        self.patience = 3

    def _begin(self, name: str) -> Transactional:
        known = self.ids[name]
        known.state = "ongoing"
        return known

    def _finish(self, name: str, *, commit: bool) -> None:
        known = self.ids[name]
        for number in range(len(self.partitions)):
            values = self._open.pop((known.producer_id, number), [])
            if commit and values:
                self.visible[number] += values
        if commit:
            self.committed |= known.offsets
        self.ends.append("committed" if commit else "aborted")
        known.partitions.clear()
        known.offsets.clear()
        known.with_offsets = False

    @staticmethod
    def _ended(known: Transactional, bumps: bool) -> Message:
        if not bumps:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    @staticmethod
    def _refused(request: ProduceRequest, code: ErrorCode) -> Message:
        topics = [
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
        return ProduceResponse(responses=topics)
