"""What followers and leaders say to each other in Fetch, as bytes; mostly written by hand.

``messages/fetch.py`` declares Fetch in all its versions, and whatever is said here is Fetch.  But
between brokers of one version nearly every question and answer has one shape, hundreds of times a
second: no error, no rack, one tagged field that is always there.  For that shape, in version 18,
bytes are written and read here without an object for every level.

1. What is written is, byte for byte, what the declaration writes.
2. What has another shape, down to the last byte, is left to the declaration.

A partition that is named with room for no bytes is a report, not a question.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar, cast

from waystation.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import NotLeaderError, WaystationError
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.replication.epochs import EpochEnd
from waystation.replication.follower import Answer
from waystation.runtime.regions import FileRegion, Part
from waystation.wire.primitives import encode_uvarint, uuid_of
from waystation.wire.versions import ApiKey

BY_HAND: Final = 18
"""The version in which two brokers of ours speak."""

UNTOLD: Final = -1
"""The revision that a follower has acted on, if it does not say."""

_ID_BYTES: Final = 16
# A length is one byte as long as there is less than this.
_FEW: Final = 127
_NOTHING = b"\0"

_HEAD = Struct(">iiibii")
_MIN_BYTES, _ISOLATION = 1, 0
_ASKED = Struct(">iiqiqi4sq")
_FLUSHED_END = b"\x01\x90\x4e\x08"
# No forgotten topic, no rack, two tagged fields: who asks, and what it has acted on.
_TAIL = Struct(">5siq4sq")
_WHO, _ACTED_ON = b"\x01\x01\x02\x01\x0d", b"\x00\x90\x4e\x08"

_ANSWER_HEAD = Struct(">ihi")
_TOLD = Struct(">ihqqq5s")
_NOT_STABLE: Final = -1
# No aborted transactions, no other replica to read from.
_NO_MORE = b"\x00\xff\xff\xff\xff"
_EMPTY = memoryview(b"")

Key = tuple[TopicId, int]
T = TypeVar("T", bound=tuple[Key, *tuple[object, ...]])


class Asked(NamedTuple):
    """One partition as a follower names it; with ``max_bytes`` of 0 it only reports."""

    key: Key
    leader_epoch: int
    offset: Offset
    last_epoch: LeaderEpoch
    flushed_end: Offset
    max_bytes: int
    log_start: Offset = NO_OFFSET


class Told(NamedTuple):
    """The leader's answer to one question."""

    key: Key
    error: WaystationError | None = None
    region: FileRegion | None = None
    high_watermark: Offset = NO_OFFSET
    log_start: Offset = NO_OFFSET
    diverging: EpochEnd | None = None


class Questions:
    """One fetch of a follower."""

    __slots__ = (
        "acted_on",
        "asked",
        "forgotten",
        "life",
        "max_bytes",
        "max_wait_ms",
        "node",
        "session_epoch",
        "session_id",
    )

    api: Final = ApiKey.FETCH

    def __init__(
        self,
        node: NodeId,
        life: BrokerEpoch,
        acted_on: int,
        session_id: int,
        session_epoch: int,
        max_wait_ms: int,
        max_bytes: int,
        asked: Sequence[Asked],
        forgotten: Sequence[Key] = (),
    ) -> None:
        self.node, self.life, self.acted_on = node, life, acted_on
        self.session_id, self.session_epoch = session_id, session_epoch
        self.max_wait_ms, self.max_bytes = max_wait_ms, max_bytes
        self.asked, self.forgotten = asked, forgotten

    def encode_parts(self, version: int) -> list[Part]:
        """HOT: once per fetch of a follower."""
        written = self._by_hand() if version == BY_HAND else None
        return [written] if written is not None else self.declared().encode_parts(version)

    def _by_hand(self) -> bytes | None:
        if self.forgotten or self.acted_on == UNTOLD:
            return None
        parts = [
            _HEAD.pack(
                self.max_wait_ms,
                _MIN_BYTES,
                self.max_bytes,
                _ISOLATION,
                self.session_id,
                self.session_epoch,
            )
        ]
        topics = _by_topic(self.asked)
        if len(topics) >= _FEW:
            return None
        parts.append(encode_uvarint(len(topics) + 1))
        for topic_id, asked in topics.items():
            if len(asked) >= _FEW:
                return None
            parts += (topic_id.bytes, encode_uvarint(len(asked) + 1))
            for key, leader_epoch, offset, last_epoch, flushed_end, max_bytes, log_start in asked:
                if flushed_end < 0:
                    return None
                parts.append(
                    _ASKED.pack(
                        key[1],
                        leader_epoch,
                        offset,
                        last_epoch,
                        log_start,
                        max_bytes,
                        _FLUSHED_END,
                        flushed_end,
                    )
                )
            parts.append(_NOTHING)
        parts.append(_TAIL.pack(_WHO, self.node, self.life, _ACTED_ON, self.acted_on))
        return b"".join(parts)

    def declared(self) -> FetchRequest:
        """The same as a message."""
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node, replica_epoch=self.life),
            max_wait_ms=self.max_wait_ms,
            min_bytes=_MIN_BYTES,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[
                FetchTopic(topic="", topic_id=topic_id, partitions=[_declared(one) for one in some])
                for topic_id, some in _by_topic(self.asked).items()
            ],
            forgotten_topics_data=_forgotten(self.forgotten),
            rack_id="",
            acted_on=self.acted_on,
        )


def questions_of(request: FetchRequest, node: NodeId, life: BrokerEpoch) -> Questions:
    """What a follower's message says, whatever its version."""
    asked = [
        Asked(
            (TopicId(topic.topic_id), one.partition),
            one.current_leader_epoch,
            Offset(one.fetch_offset),
            LeaderEpoch(one.last_fetched_epoch),
            Offset(one.flushed_end),
            one.partition_max_bytes,
            Offset(one.log_start_offset),
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    forgotten = [
        (TopicId(topic.topic_id), partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]
    return Questions(
        node,
        life,
        request.acted_on,
        request.session_id,
        request.session_epoch,
        request.max_wait_ms,
        request.max_bytes,
        asked,
        forgotten,
    )


def read_questions(view: memoryview, version: int) -> Questions | None:
    """A follower's fetch, if it has the usual shape.

    HOT: once per fetch of anybody; a consumer's is left after a look at its end.
    """
    tail_at = len(view) - _TAIL.size
    if version != BY_HAND or tail_at <= _HEAD.size:
        return None
    who, node, life, acted_tag, acted_on = _TAIL.unpack_from(view, tail_at)
    if who != _WHO or acted_tag != _ACTED_ON or node < 0:
        return None
    head = _HEAD.unpack_from(view)
    if head[1] != _MIN_BYTES or head[3] != _ISOLATION:
        return None
    asked = _read_asked(view, _HEAD.size, tail_at)
    if asked is None:
        return None
    return Questions(node, life, acted_on, head[4], head[5], head[0], head[2], asked)


def _read_asked(view: memoryview, at: int, end: int) -> list[Asked] | None:
    asked: list[Asked] = []
    topics = view[at] - 1
    at += 1
    if not 0 <= topics < _FEW:
        return None
    for _ in range(topics):
        if at + _ID_BYTES >= end:
            return None
        topic_id = TopicId(uuid_of(bytes(view[at : at + _ID_BYTES])))
        count = view[at + _ID_BYTES] - 1
        at += _ID_BYTES + 1
        if not 0 <= count < _FEW or at + count * _ASKED.size >= end:
            return None
        for _ in range(count):
            index, epoch, offset, last, start, max_bytes, tag, flushed = _ASKED.unpack_from(
                view, at
            )
            if tag != _FLUSHED_END:
                return None
            asked.append(Asked((topic_id, index), epoch, offset, last, flushed, max_bytes, start))
            at += _ASKED.size
        if view[at]:
            return None
        at += 1
    return asked if at == end else None


class Answers:
    """One answer of a leader, as it is sent."""

    __slots__ = ("session_id", "told")

    def __init__(self, session_id: int, told: Sequence[Told]) -> None:
        self.session_id, self.told = session_id, told

    def encode_parts(self, version: int) -> list[Part]:
        """HOT: once per fetch of a follower.  Regions of files stay what they are."""
        written = self._by_hand() if version == BY_HAND else None
        return written if written is not None else self.declared().encode_parts(version)

    def _by_hand(self) -> list[Part] | None:
        topics = _by_topic(self.told)
        if len(topics) >= _FEW:
            return None
        parts: list[Part] = []
        before = _ANSWER_HEAD.pack(0, 0, self.session_id) + encode_uvarint(len(topics) + 1)
        for topic_id, told in topics.items():
            if len(told) >= _FEW:
                return None
            before += topic_id.bytes + encode_uvarint(len(told) + 1)
            for key, error, region, mark, start, diverging in told:
                if error is not None or diverging is not None:
                    return None
                before += _TOLD.pack(key[1], 0, mark, _NOT_STABLE, start, _NO_MORE)
                if region is None:
                    before += b"\x01\0"
                else:
                    parts.append(before + encode_uvarint(region.nbytes + 1))
                    parts.append(region)
                    before = _NOTHING
            before += _NOTHING
        parts.append(before + _NOTHING)
        return parts

    def declared(self) -> FetchResponse:
        """The same as a message."""
        return FetchResponse(
            session_id=self.session_id,
            responses=[
                FetchableTopicResponse(
                    topic="", topic_id=topic_id, partitions=[_partition(one) for one in some]
                )
                for topic_id, some in _by_topic(self.told).items()
            ],
        )


class Heard(NamedTuple):
    """One answer of a leader, as it came; its data lie in what was received."""

    error: ErrorCode
    session_id: int
    answers: list[tuple[Key, Answer]]
    nbytes: int
    """About how much there is to append; what is much has memory of its own."""


def read_answers(view: memoryview, version: int) -> Heard:
    """HOT: once per answer of a leader."""
    heard = _read_told(view) if version == BY_HAND else None
    return heard if heard is not None else _heard(FetchResponse.decode(view, version))


def _read_told(view: memoryview) -> Heard | None:
    end = len(view)
    if end <= _ANSWER_HEAD.size + 1:
        return None
    _, error, session_id = _ANSWER_HEAD.unpack_from(view)
    at = _ANSWER_HEAD.size + 1
    topics = view[at - 1] - 1
    if error or not 0 <= topics < _FEW:
        return None
    answers: list[tuple[Key, Answer]] = []
    for _ in range(topics):
        if at + _ID_BYTES >= end:
            return None
        topic_id = TopicId(uuid_of(bytes(view[at : at + _ID_BYTES])))
        count = view[at + _ID_BYTES] - 1
        at += _ID_BYTES + 1
        if not 0 <= count < _FEW:
            return None
        for _ in range(count):
            if at + _TOLD.size >= end:
                return None
            index, error, mark, stable, start, more = _TOLD.unpack_from(view, at)
            at += _TOLD.size
            if error or stable != _NOT_STABLE or more != _NO_MORE:
                return None
            length = view[at]
            at += 1
            if length > 127:
                shift, length = 7, length & 127
                while True:
                    if at >= end or shift > 28:
                        return None
                    octet = view[at]
                    at += 1
                    length |= (octet & 127) << shift
                    shift += 7
                    if octet < 128:
                        break
            behind = at + length - 1
            if length < 1 or behind >= end or view[behind]:
                return None
            data = view[at:behind] if behind > at else _EMPTY
            answers.append(((topic_id, index), Answer(ErrorCode.NONE, mark, start, None, data)))
            at = behind + 1
        if at >= end or view[at]:
            return None
        at += 1
    return Heard(ErrorCode.NONE, session_id, answers, end) if view[at:] == _NOTHING else None


def _heard(response: FetchResponse) -> Heard:
    answers = [
        ((TopicId(topic.topic_id), one.partition_index), _answer(one))
        for topic in response.responses
        for one in topic.partitions
    ]
    nbytes = sum(len(answer.data) for _, answer in answers)
    return Heard(ErrorCode(response.error_code), response.session_id, answers, nbytes)


def _answer(told: PartitionData) -> Answer:
    diverging = told.diverging_epoch
    return Answer(
        ErrorCode(told.error_code),
        Offset(told.high_watermark),
        Offset(told.log_start_offset),
        None
        if diverging is None
        else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
        memoryview(cast("memoryview", told.records or b"")),
    )


def _by_topic(named: Sequence[T]) -> dict[TopicId, list[T]]:
    """What is said of each topic; looked up once for all that stand one behind the other."""
    topics: dict[TopicId, list[T]] = {}
    last, some = None, []
    for one in named:
        topic_id = one[0][0]
        if topic_id is not last:
            last, some = topic_id, topics.setdefault(topic_id, [])
        some.append(one)
    return topics


def _declared(asked: Asked) -> FetchPartition:
    return FetchPartition(
        partition=asked.key[1],
        current_leader_epoch=asked.leader_epoch,
        fetch_offset=asked.offset,
        last_fetched_epoch=asked.last_epoch,
        log_start_offset=asked.log_start,
        partition_max_bytes=asked.max_bytes,
        flushed_end=asked.flushed_end,
    )


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [
        ForgottenTopic(topic="", topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]


def _partition(told: Told) -> PartitionData:
    answer = PartitionData(
        partition_index=told.key[1],
        high_watermark=told.high_watermark,
        log_start_offset=told.log_start,
        records=b"" if told.region is None else told.region,
    )
    if told.error is not None:
        answer.error_code = told.error.code
        if isinstance(told.error, NotLeaderError):
            answer.current_leader = LeaderIdAndEpoch(
                leader_id=-1 if told.error.leader is None else told.error.leader,
                leader_epoch=told.error.epoch,
            )
    elif told.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(
            epoch=told.diverging.epoch, end_offset=told.diverging.end
        )
    return answer
