"""Produce: append each partition's batch, answer when ``acks`` is satisfied.

``acks=0`` is never answered; a failure then closes the connection, which is the only way left
to tell.  ``acks=1`` is answered after the append, ``acks=all`` after the commit or after the
client's own time-out, when the outcome of what is still waiting is unknown to it.

A batch of a transaction enters a partition only if the transaction's coordinator knows of it
(``broker/admission.py``): a client that adds partitions by writing to them (v12+) has it told so
here, an older one must have told it.
"""

from functools import partial

from waystation.apis.call import Call
from waystation.apis.endpoints import endpoints_of
from waystation.apis.produce_transactions import FLAGS_AT, when_admitted
from waystation.broker.admission import Verdict
from waystation.broker.broker import Broker
from waystation.messages.produce import (
    REPEATED,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from waystation.model.errors import (
    ErrorCode,
    InvalidRecordError,
    NotLeaderError,
    RequestTimedOutError,
    UnsupportedCompressionError,
    WaystationError,
)
from waystation.model.ids import TopicId
from waystation.model.offsets import NO_TIMESTAMP, Millis, Offset
from waystation.partition.intake import RejectedRecordsError
from waystation.partition.partition import ACKS_ALL, Partition
from waystation.records.compression import Codec
from waystation.records.header import TRANSACTIONAL, peek
from waystation.runtime.timers import Timer

_ACKS = (-1, 0, 1)
_ZSTD_FROM_VERSION = 7
# Shared by every response, since making empty lists is a tenth of a small produce.
_NO_RECORD_ERRORS: list[BatchIndexAndErrorMessage] = []
_NO_ENDPOINTS: list[NodeEndpoint] = []


class InvalidRequiredAcksError(WaystationError):
    """``acks`` other than 0, 1 or all."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class NoTransactionalIdError(WaystationError):
    """A batch of a transaction in a request without a transactional id: anybody's, for all we know.

    Kafka's code: without an id nobody can be authorized for it.
    """

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def answer(broker: Broker, call: Call[ProduceRequest]) -> None:
    """HOT: once per produce request; the reply leaves from here or from the last commit."""
    if call.message.transactional_id is not None:
        when_admitted(broker, call, partial(_write, broker, call))
    else:
        _write(broker, call)


def _write(broker: Broker, call: Call[ProduceRequest], admitted: Verdict | None = None) -> None:
    """Append everything; ``None`` is admitted where no transaction may be written to."""
    request, now = call.message, broker.clock.now()
    write = _Write(broker, call, now, admitted)
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[write.append(topic, data) for data in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    write.finish(ProduceResponse(responses=topics, node_endpoints=_NO_ENDPOINTS))


class _Write:
    """One produce request: what it appended, and what it still waits for."""

    __slots__ = (
        "_acks",
        "_admitted",
        "_appends",
        "_broker",
        "_call",
        "_failed",
        "_now",
        "_response",
        "_strayed",
        "_timer",
        "_waiting",
    )

    def __init__(
        self, broker: Broker, call: Call[ProduceRequest], now: Millis, admitted: Verdict | None
    ) -> None:
        self._broker, self._call, self._now = broker, call, now
        self._admitted = admitted
        self._acks = call.message.acks
        self._appends = 0
        self._waiting: dict[int, PartitionProduceResponse] = {}
        self._response: ProduceResponse | None = None
        self._failed: WaystationError | None = None
        self._strayed = False
        self._timer: Timer | None = None

    def append(
        self, topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Append one batch; what the client will be told of it may change until the commit."""
        told = PartitionProduceResponse(
            index=data.index, base_offset=-1, record_errors=_NO_RECORD_ERRORS
        )
        try:
            self._append(topic, data, told)
        except WaystationError as error:
            self._failed = error
            self._blame(told, error)
        return told

    def _append(
        self, topic: TopicProduceData, data: PartitionProduceData, told: PartitionProduceResponse
    ) -> None:
        if self._acks not in _ACKS:
            raise InvalidRequiredAcksError(f"acks is {self._acks}, must be 0, 1 or -1 (all)")
        partition = self._broker.replicas.get(topic.name, data.index, TopicId(topic.topic_id))
        batch = data.records
        if not batch:
            raise InvalidRecordError(f"no records for {partition.name}")
        if self._call.version < _ZSTD_FROM_VERSION and peek(batch).codec == Codec.ZSTD:
            raise UnsupportedCompressionError("zstd needs a client that speaks Produce v7")
        self._broker.check_writable(partition.name.topic)
        may_begin = True
        if len(batch) > FLAGS_AT and batch[FLAGS_AT] & TRANSACTIONAL:
            may_begin = self._may_begin(partition)
        told.log_start_offset = partition.log.log_start
        appended = partition.append(batch, self._acks, self._now, may_begin=may_begin)
        told.base_offset = appended.base_offset
        if appended.duplicate:
            told.error_message = REPEATED
        told.log_append_time_ms = (
            appended.append_time if partition.intake.stamps_time else NO_TIMESTAMP
        )
        if self._acks == ACKS_ALL:
            end = Offset(appended.last_offset + 1)
            self._appends += 1
            key = self._appends
            self._waiting[key] = told
            if partition.when_committed(end, partial(self._committed, key)):
                del self._waiting[key]

    def _may_begin(self, partition: Partition) -> bool:
        """Whether a transaction may begin in the partition; raises if none may be written to."""
        if self._admitted is None:
            raise NoTransactionalIdError(
                f"a batch for {partition.name} is of a transaction, the request names none"
            )
        refusal = self._admitted.get(partition.name)
        if refusal is not None:
            raise refusal
        return partition.name in self._admitted

    def finish(self, response: ProduceResponse) -> None:
        """All is appended: answer now, or once the last commit is in."""
        self._response = response
        if self._acks == 0:
            self._end_unanswered()
        elif not self._waiting:
            self._reply(response)
        else:
            delay_s = max(self._call.message.timeout_ms, 0) / 1_000
            self._timer = self._broker.timers.call_later(delay_s, self._time_out)

    def _end_unanswered(self) -> None:
        self._call.no_reply()
        if self._failed is not None:
            self._call.connection.close(f"acks=0 produce failed: {self._failed}")

    def _committed(self, key: int, error: WaystationError | None) -> None:
        told = self._waiting.pop(key, None)
        if told is None:
            return
        if error is not None:
            self._blame(told, error)
        if not self._waiting and self._response is not None:
            self._end()

    def _time_out(self) -> None:
        error = RequestTimedOutError(
            f"not committed within the {self._call.message.timeout_ms} ms the client allowed"
        )
        for told in self._waiting.values():
            _blame(told, error)
        self._waiting.clear()
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._response is not None, "ended before everything was appended"
        self._reply(self._response)

    def _reply(self, response: ProduceResponse) -> None:
        if self._strayed:
            leaders = [
                told.current_leader.leader_id
                for topic in response.responses
                for told in topic.partition_responses
                if told.current_leader is not None
            ]
            response.node_endpoints = [
                NodeEndpoint(**one._asdict()) for one in endpoints_of(self._broker.image, leaders)
            ]
        self._call.reply(response)

    def _blame(self, told: PartitionProduceResponse, error: WaystationError) -> None:
        if isinstance(error, NotLeaderError):
            self._strayed = True
        _blame(told, error)


def _blame(told: PartitionProduceResponse, error: WaystationError) -> None:
    told.error_code, told.error_message = error.code, str(error)
    told.base_offset = -1
    told.log_append_time_ms = NO_TIMESTAMP
    if isinstance(error, RejectedRecordsError):
        told.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
            for index, reason in error.rejected
        ]
    if isinstance(error, NotLeaderError):
        told.current_leader = LeaderIdAndEpoch(
            leader_id=-1 if error.leader is None else error.leader, leader_epoch=error.epoch
        )
