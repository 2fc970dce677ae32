"""What is asked of brokers about transactions: every version, and most mistakes a client can make.

The broker needs ``OPTIONS``.  Questions are about topics, groups and transactional ids whose names
begin with ``q-``; nothing else in the broker matters.
"""

import time
from collections.abc import Iterator
from typing import Any

from tests.apis.asking import fetch_request, produce_request
from tests.apis.kit import batch_of
from tests.apis.transacting import (
    CLASSIC,
    IMPLICIT,
    READ_COMMITTED,
    STATE_TOPIC,
    Writer,
    add_offsets_request,
    add_request,
    added,
    end_request,
    init_request,
    marker_request,
    txn_commit_request,
    write_request,
)
from tests.conformance.group_requests import until, versions
from tests.conformance.interview import Interview
from waystation.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from waystation.messages.describe_producers import DescribeProducersRequest, TopicRequest
from waystation.messages.describe_transactions import DescribeTransactionsRequest
from waystation.messages.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from waystation.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from waystation.messages.list_transactions import ListTransactionsRequest
from waystation.messages.produce import ProduceRequest, ProduceResponse
from waystation.messages.write_txn_markers import WriteTxnMarkersRequest
from waystation.model.errors import ErrorCode
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

TWO, ONE, ABSENT = "q-txn-two", "q-txn-one", "q-txn-absent"
GROUP_ID = "q-txn-group"
OPTIONS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_SOON = {ErrorCode.CONCURRENT_TRANSACTIONS}
_NOWHERE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_BY_ID_FROM = 13


def ask_all(interview: Interview) -> None:
    """Every question, in an order that matters: ids are what earlier questions made them."""
    prepare(interview)
    become(interview)
    add_partitions(interview)
    add_offsets(interview)
    write(interview)
    mix(interview)
    end(interview)
    take_over(interview)
    commit_offsets(interview)
    mark(interview)
    look(interview)
    read(interview)


def prepare(interview: Interview) -> None:
    interview.topic(TWO, 2)
    interview.topic(ONE, 1)
    for kind, key in ((TRANSACTION, "q-txn"), (GROUP, GROUP_ID)):
        until(lambda kind=kind, key=key: _is_found(interview, kind, key))
    until(lambda: not _init(interview, "q-txn-first").error_code)
    first = _describe("q-txn-first", "q-txn-nobody")
    interview.ask("describe: new", first, 0)


def _is_found(interview: Interview, kind: int, key: str) -> bool:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    (found,) = interview.line().ask(request, 4).coordinators
    return not found.error_code


def _init(interview: Interview, name: str, **asked: Any) -> Any:
    return interview.line().ask(init_request(name, **asked), 5)


def _settled(interview: Interview, question: str, request: Message, version: int) -> Any:
    """Ask until the markers of what came before are written, which takes Kafka its time."""
    deadline = time.monotonic() + 30
    while True:
        answer = interview.line().ask(request, version)
        if not set(_codes(answer)) & (_SOON | _NOWHERE):
            if isinstance(answer, ProduceResponse):
                interview.note_plain(question, _written(answer))
            else:
                interview.note(question, answer, version)
            return answer
        assert time.monotonic() < deadline, f"{question}: {answer}"
        time.sleep(0.02)


def _written(answer: ProduceResponse) -> list[list[int]]:
    """What counts of an answer to Produce; where it was written hangs on markers before it."""
    return [
        [one.index, one.error_code, min(one.base_offset, 0), one.log_start_offset]
        for topic in answer.responses
        for one in topic.partition_responses
    ]


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for one in value:
            yield from _codes(one)
    elif hasattr(value, "__fields__"):
        for name in value.__fields__:
            found = getattr(value, name)
            if name.endswith("error_code"):
                yield found
            else:
                yield from _codes(found)


def _second(interview: Interview, name: str) -> Writer:
    """A producer that has fenced another one."""
    _writer(interview, name)
    return _writer(interview, name)


def _writer(interview: Interview, name: str, **asked: Any) -> Writer:
    """A producer, once whatever it had before is over."""
    told: list[Any] = [None]

    def is_there() -> bool:
        told[0] = _init(interview, name, **asked)
        return told[0].error_code not in _SOON | _NOWHERE

    until(is_there)
    assert told[0].error_code == 0, told
    return Writer(name, told[0].producer_id, told[0].producer_epoch)


def _state_of(interview: Interview, name: str) -> str:
    (found,) = interview.line().ask(_describe(name), 0).transaction_states
    return str(found.transaction_state)


def _describe(*names: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(names))


# --- who a producer is ------------------------------------------------------------------------


def become(interview: Interview) -> None:
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        at, name = f"init v{version}", f"q-txn-init-{version}"
        first = _settled(interview, f"{at}: new", init_request(name), version)
        _settled(interview, f"{at}: again", init_request(name), version)
        for what, request in {
            "nameless": init_request(""),
            "no time": init_request(name, timeout_ms=0),
            "less than no time": init_request(name, timeout_ms=-1),
            "too long": init_request(name, timeout_ms=900_001),
            "as long as may be": init_request(f"{name}-long", timeout_ms=900_000),
            "without transactions": init_request(None),
        }.items():
            _settled(interview, f"{at}: {what}", request, version)
        if version >= 3:
            _go_on(interview, at, version, Writer(name, first.producer_id, 1))


def _go_on(interview: Interview, at: str, version: int, writer: Writer) -> None:
    """The producer says who it was."""
    name, mine = writer.name, writer.producer_id
    for what, request in {
        "goes on": init_request(name, producer_id=mine, epoch=1),
        "goes on, again": init_request(name, producer_id=mine, epoch=1),
        "was fenced": init_request(name, producer_id=mine, epoch=0),
        "from the future": init_request(name, producer_id=mine, epoch=9),
        "another's": init_request(name, producer_id=mine + 1_000_000, epoch=0),
        "an id alone": init_request(name, producer_id=mine),
        "an epoch alone": init_request(name, epoch=0),
        "of a name nobody has": init_request(f"{name}-new", producer_id=mine, epoch=0),
    }.items():
        _settled(interview, f"{at}: {what}", request, version)


# --- what a transaction writes to -------------------------------------------------------------


def add_partitions(interview: Interview) -> None:
    for version in versions(ApiKey.ADD_PARTITIONS_TO_TXN):
        at, name = f"add v{version}", f"q-txn-add-{version}"
        writer = _second(interview, name)
        stranger = Writer("q-txn-stranger", writer.producer_id, 0)
        for what, who, topics in (
            ("nothing", writer, {}),
            ("some", writer, {TWO: [0, 1], ONE: [0]}),
            ("again", writer, {TWO: [1]}),
            ("unknown topic", writer, {ABSENT: [0], ONE: [0]}),
            ("unknown partition", writer, {ONE: [0, 7]}),
            ("internal", writer, {STATE_TOPIC: [0], ONE: [0]}),
            ("unknown id", stranger, {ONE: [0]}),
            ("nameless", writer._replace(name=""), {ONE: [0]}),
            ("another's", writer._replace(producer_id=writer.producer_id + 999), {ONE: [0]}),
            ("fenced", writer.at(writer.epoch - 1), {ONE: [0]}),
            ("from the future", writer.at(writer.epoch + 5), {ONE: [0]}),
        ):
            request = add_request(who, topics, version=version)
            _settled(interview, f"{at}: {what}", request, version)
        if version >= 4:
            _add_many(interview, at, version, writer)
        interview.ask(f"{at}: described", _describe(name), 0)
        interview.line().ask(end_request(writer, commit=False), 4)


def _add_many(interview: Interview, at: str, version: int, writer: Writer) -> None:
    other = _writer(interview, f"{writer.name}-other")
    asked = [
        added(writer, {TWO: [0]}, verify_only=True),
        added(other, {TWO: [0]}, verify_only=True),
    ]
    _settled(interview, f"{at}: verified", AddPartitionsToTxnRequest(transactions=asked), version)
    asked = [added(other, {TWO: [0]}), added(writer, {ABSENT: [0]})]
    _settled(interview, f"{at}: several", AddPartitionsToTxnRequest(transactions=asked), version)
    asked = [added(other, {TWO: [0, 1]}, verify_only=True)]
    _settled(interview, f"{at}: half", AddPartitionsToTxnRequest(transactions=asked), version)
    interview.line().ask(end_request(other, commit=False), 4)


def add_offsets(interview: Interview) -> None:
    for version in versions(ApiKey.ADD_OFFSETS_TO_TXN):
        at, name = f"add offsets v{version}", f"q-txn-offsets-{version}"
        writer = _second(interview, name)
        stranger = Writer("q-txn-stranger", writer.producer_id, 0)
        for what, who in {
            "fine": writer,
            "again": writer,
            "unknown id": stranger,
            "another's": writer._replace(producer_id=writer.producer_id + 999),
            "fenced": writer.at(writer.epoch - 1),
            "from the future": writer.at(writer.epoch + 5),
        }.items():
            request = add_offsets_request(who, GROUP_ID)
            _settled(interview, f"{at}: {what}", request, version)
        interview.line().ask(end_request(writer, commit=False), 4)


# --- writing ----------------------------------------------------------------------------------


def _write(interview: Interview, request: ProduceRequest, version: int) -> ProduceRequest:
    if version >= _BY_ID_FROM:
        for topic in request.topic_data:
            topic.topic_id = interview.topic_id(topic.name)
    return request


def write(interview: Interview) -> None:
    for version in versions(ApiKey.PRODUCE):
        at, name = f"write v{version}", f"q-txn-write-{version}"
        writer = _second(interview, name)
        stranger = Writer("q-txn-stranger", writer.producer_id, writer.epoch)
        for what, request in {
            "not added": write_request(writer, ONE),
            "without a name": write_request(writer, ONE, name=None),
            "nameless": write_request(writer, TWO, name=""),
            "unknown id": write_request(stranger, ONE),
            "another's": write_request(
                writer._replace(producer_id=writer.producer_id + 999), TWO, partition=1
            ),
            "from the future": write_request(writer.at(writer.epoch + 5), TWO, partition=1),
        }.items():
            _settled(interview, f"{at}: {what}", _write(interview, request, version), version)
        if version < IMPLICIT:
            interview.line().ask(add_request(writer, {ONE: [0]}, version=3), 3)
            request = _write(interview, write_request(writer, ONE), version)
            _settled(interview, f"{at}: added", request, version)
        again = _write(interview, write_request(writer, ONE), version)
        _settled(interview, f"{at}: repeated", again, version)
        fenced = _write(interview, write_request(writer.at(writer.epoch - 1), ONE), version)
        _settled(interview, f"{at}: fenced", fenced, version)
        ended = _end(interview, writer, commit=True, version=5 if version >= IMPLICIT else 4)
        _late(interview, at, version, writer, ended)


def _late(interview: Interview, at: str, version: int, writer: Writer, ended: Writer) -> None:
    """Batches that come when their transaction is over, and its markers are written."""
    until(lambda: _state_of(interview, writer.name).startswith("Complete"))
    late = _write(interview, write_request(writer, ONE, sequence=1), version)
    _settled(interview, f"{at}: late", late, version)
    if version >= IMPLICIT:
        following = _write(interview, write_request(ended, ONE), version)
        _settled(interview, f"{at}: the next one", following, version)
        _end(interview, ended, commit=False, version=5)


def _end(interview: Interview, writer: Writer, *, commit: bool, version: int) -> Writer:
    told = interview.line().ask(end_request(writer, commit=commit), version)
    assert told.error_code == 0, told
    if version < 5:
        return writer
    return Writer(writer.name, told.producer_id, told.producer_epoch)


def mix(interview: Interview) -> None:
    """Transactional and plain writes, together and in turn."""
    writer, other = _writer(interview, "q-txn-mix"), _writer(interview, "q-txn-mix-other")
    plain = write_request(writer, ONE, transactional=False)
    interview.line().ask(add_request(writer, {TWO: [0], ONE: [0]}, version=3), 3)
    _settled(interview, "mix: begun", write_request(writer, ONE), CLASSIC)
    plain = write_request(writer, ONE, sequence=1, transactional=False)
    _settled(interview, "mix: plain within", plain, CLASSIC)
    nobody = produce_request(ONE, batch_of(b"plain"))
    _settled(interview, "mix: another's plain", nobody, CLASSIC)
    both = write_request(writer, TWO)
    both.topic_data += write_request(other, ONE).topic_data
    _settled(interview, "mix: two producers", both, CLASSIC)
    empty = ProduceRequest(transactional_id="q-txn-mix", acks=-1, timeout_ms=9_000, topic_data=[])
    _settled(interview, "mix: nothing", empty, CLASSIC)
    absent = write_request(writer, ABSENT)
    _settled(interview, "mix: unknown topic", absent, CLASSIC)
    internal = write_request(writer, STATE_TOPIC)
    _settled(interview, "mix: internal", internal, CLASSIC)
    control = _control(writer)
    _settled(interview, "mix: a marker of one's own", control, CLASSIC)
    _end(interview, writer, commit=True, version=4)


def _control(writer: Writer) -> ProduceRequest:
    from waystation.model.ids import ProducerEpoch, ProducerId
    from waystation.model.offsets import Millis
    from waystation.records.control import Marker, marker_batch

    marker = Marker(ProducerId(writer.producer_id), ProducerEpoch(writer.epoch), 0, True)
    request = produce_request(ONE, bytes(marker_batch(marker, Millis(int(time.time() * 1_000)))))
    request.transactional_id = writer.name
    return request


# --- ending -----------------------------------------------------------------------------------


def end(interview: Interview) -> None:
    for version in versions(ApiKey.END_TXN):
        at, name = f"end v{version}", f"q-txn-end-{version}"
        writer = _second(interview, name)
        stranger = Writer("q-txn-stranger", writer.producer_id, writer.epoch)
        for what, who in {
            "unknown id": stranger,
            "nameless": writer._replace(name=""),
            "another's": writer._replace(producer_id=writer.producer_id + 999),
            "fenced": writer.at(writer.epoch - 1),
            "from the future": writer.at(writer.epoch + 5),
        }.items():
            for commit in (True, False):
                request = end_request(who, commit=commit)
                question = f"{at}: {what}, {'commit' if commit else 'abort'}"
                _settled(interview, question, request, version)
        for what, began, commit in (
            ("nothing, commit", False, True),
            ("commit", True, True),
            ("abort", True, False),
        ):
            writer = _end_one(interview, f"{at}: {what}", version, name, commit, began=began)
        writer = _writer(interview, name)
        told = _settled(
            interview, f"{at}: nothing, abort", end_request(writer, commit=False), version
        )
        if told.error_code == 0 and version >= 5:
            repeat = end_request(writer, commit=False)
            _settled(interview, f"{at}: nothing, abort again", repeat, version)
        interview.ask(f"{at}: described", _describe(name), 0)


def _end_one(
    interview: Interview, at: str, version: int, name: str, commit: bool, *, began: bool
) -> Writer:
    writer = _writer(interview, name)
    if began:
        if version >= 5:
            interview.line().ask(write_request(writer, ONE), IMPLICIT)
        else:
            interview.line().ask(add_request(writer, {ONE: [0]}, version=3), 3)
    _settled(interview, at, end_request(writer, commit=commit), version)
    _settled(interview, f"{at}: again", end_request(writer, commit=commit), version)
    _settled(interview, f"{at}: otherwise", end_request(writer, commit=not commit), version)
    return writer


def take_over(interview: Interview) -> None:
    """A second instance comes while the first is in a transaction."""
    for version, produce in ((4, CLASSIC), (5, IMPLICIT)):
        at, name = f"take over v{version}", f"q-txn-over-{version}"
        first = _writer(interview, name)
        if produce < IMPLICIT:
            interview.line().ask(add_request(first, {ONE: [0]}, version=3), 3)
        _settled(interview, f"{at}: begun", write_request(first, ONE), produce)
        second = _settled(interview, f"{at}: second", init_request(name), 5)
        interview.ask(f"{at}: described", _describe(name), 0)
        late = write_request(first, ONE, sequence=1)
        _settled(interview, f"{at}: the first writes", late, produce)
        for commit in (True, False):
            question = f"{at}: the first ends, {'commit' if commit else 'abort'}"
            _settled(interview, question, end_request(first, commit=commit), version)
        going_on = init_request(name, producer_id=first.producer_id, epoch=first.epoch)
        _settled(interview, f"{at}: the first goes on", going_on, 5)
        new = Writer(name, second.producer_id, second.producer_epoch)
        if produce < IMPLICIT:
            interview.line().ask(add_request(new, {ONE: [0]}, version=3), 3)
        _settled(interview, f"{at}: the second writes", write_request(new, ONE), produce)
        _settled(interview, f"{at}: the second ends", end_request(new, commit=True), version)


# --- offsets ----------------------------------------------------------------------------------


def commit_offsets(interview: Interview) -> None:
    for version in versions(ApiKey.TXN_OFFSET_COMMIT):
        at, name = f"txn commit v{version}", f"q-txn-commit-{version}"
        writer, group = _second(interview, name), f"{GROUP_ID}-{version}"
        stranger = Writer("q-txn-stranger", writer.producer_id, writer.epoch)
        request = txn_commit_request(writer, group, ONE, 3)
        _settled(interview, f"{at}: not added", request, version)
        if version < 5:
            interview.line().ask(add_offsets_request(writer, group), 4)
        for what, request in {
            "fine": txn_commit_request(writer, group, ONE, 5),
            "unknown topic": txn_commit_request(writer, group, ABSENT, 5),
            "unknown partition": txn_commit_request(writer, group, ONE, 5, partition=7),
            "nameless group": txn_commit_request(writer, "", ONE, 5),
            "unknown id": txn_commit_request(stranger, f"{group}-b", ONE, 5),
            "fenced": txn_commit_request(writer.at(writer.epoch - 1), group, ONE, 5),
        }.items():
            _settled(interview, f"{at}: {what}", request, version)
        if version >= 3:
            for what, who in {
                "of a member": {"member_id": "ghost", "generation": 1},
                "of a generation": {"generation": 4},
                "of an instance": {"member_id": "m", "generation": 1, "instance_id": "i"},
            }.items():
                request = txn_commit_request(writer, group, ONE, 5, **who)
                _settled(interview, f"{at}: {what}", request, version)
        _settled(interview, f"{at}: end", end_request(writer, commit=True), 4)


# --- markers ----------------------------------------------------------------------------------


def mark(interview: Interview) -> None:
    """Markers from outside, as operators write them."""
    writer = _second(interview, "q-txn-mark")
    interview.line().ask(add_request(writer, {TWO: [0, 1]}, version=3), 3)
    interview.line().ask(write_request(writer, TWO), CLASSIC)
    version = 1
    for what, request in {
        "older producer": marker_request(writer.at(writer.epoch - 1), TWO, 0, commit=False),
        "abort": marker_request(writer, TWO, 0, commit=False, epoch=3),
        "again": marker_request(writer, TWO, 0, commit=False, epoch=3),
        "older coordinator": marker_request(writer, TWO, 0, commit=False, epoch=2),
        "nothing begun": marker_request(writer, TWO, 1, commit=True, epoch=3),
        "unknown topic": marker_request(writer, ABSENT, 0, commit=True),
        "unknown partition": marker_request(writer, TWO, 9, commit=True),
        "none": WriteTxnMarkersRequest(markers=[]),
    }.items():
        _settled(interview, f"mark: {what}", request, version)
    _producers(interview, "mark: producers", TWO, writer)


def _producers(interview: Interview, question: str, topic: str, writer: Writer) -> None:
    """What a partition knows of one producer."""
    asked = TopicRequest(name=topic, partition_indexes=[0])
    reply = interview.line().ask(DescribeProducersRequest(topics=[asked]), 0)
    partition = reply.topics[0].partitions[0]
    (mine,) = [one for one in partition.active_producers if one.producer_id == writer.producer_id]
    interview.note_plain(
        question,
        {
            "producer_epoch": mine.producer_epoch,
            "last_sequence": mine.last_sequence,
            "coordinator_epoch": mine.coordinator_epoch,
            "is_open": mine.current_txn_start_offset >= 0,
        },
    )


# --- operators --------------------------------------------------------------------------------


def look(interview: Interview) -> None:
    writer = _writer(interview, "q-txn-look", timeout_ms=30_000)
    interview.ask("describe: idle", _describe("q-txn-look"), 0)
    interview.line().ask(add_request(writer, {TWO: [1, 0], ONE: [0]}, version=3), 3)
    interview.ask("describe: ongoing", _describe("q-txn-look"), 0)
    interview.ask("describe: several", _describe("q-txn-nobody", "q-txn-init-5", ""), 0)
    interview.ask("describe: none", _describe(), 0)
    for version in versions(ApiKey.LIST_TRANSACTIONS):
        at = f"list v{version}"
        for what, filters in {
            "ongoing": {"state_filters": ["Ongoing"]},
            "of one": {"producer_id_filters": [writer.producer_id]},
            "of nobody": {"producer_id_filters": [1 << 40]},
            "both": {
                "state_filters": ["Empty"],
                "producer_id_filters": [writer.producer_id],
            },
            "no such state": {"state_filters": ["Nonsense"]},
            "some such state": {"state_filters": ["Nonsense", "Ongoing", "Dead"]},
        }.items():
            interview.ask(f"{at}: {what}", ListTransactionsRequest(**filters), version)
    longer = ListTransactionsRequest(state_filters=["Ongoing"], duration_filter=1_000_000)
    interview.ask("list v1: long ones", longer, 1)
    _end(interview, writer, commit=False, version=4)


# --- readers ----------------------------------------------------------------------------------


def read(interview: Interview) -> None:
    """What readers of both kinds are shown while transactions come and go."""
    topic = "q-txn-read"
    interview.topic(topic, 1)
    writer, other = _writer(interview, "q-txn-read-a"), _writer(interview, "q-txn-read-b")
    _shown(interview, "read: empty", topic)
    for who in (writer, other):
        interview.line().ask(add_request(who, {topic: [0]}, version=3), 3)
        interview.line().ask(write_request(who, topic, b"1", b"2"), CLASSIC)
    interview.line().ask(produce_request(topic, batch_of(b"plain")), CLASSIC)
    _shown(interview, "read: two open", topic)
    _end(interview, other, commit=False, version=4)
    until(lambda: _end_of(interview, topic) == 6)
    _shown(interview, "read: one aborted", topic)
    _end(interview, writer, commit=True, version=4)
    until(lambda: _end_of(interview, topic) == 7)
    _shown(interview, "read: none open", topic)


def _end_of(interview: Interview, topic: str) -> int:
    reply = interview.line().ask(fetch_request(topic), 11)
    return int(reply.responses[0].partitions[0].high_watermark)


def _shown(interview: Interview, question: str, topic: str) -> None:
    for level in (0, READ_COMMITTED):
        for version in (4, 11):
            request = fetch_request(topic, isolation_level=level)
            reply = interview.line().ask(request, version)
            partition = reply.responses[0].partitions[0]
            nbytes = 0 if partition.records is None else len(bytes(partition.records))
            aborted = partition.aborted_transactions
            interview.note_plain(
                f"{question}, level {level}, v{version}",
                {
                    "high_watermark": partition.high_watermark,
                    "last_stable_offset": partition.last_stable_offset,
                    "aborted": None
                    if aborted is None
                    else sorted(
                        [interview.producer(one.producer_id), one.first_offset] for one in aborted
                    ),
                    "nbytes": nbytes,
                },
            )
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
        request = ListOffsetsRequest(isolation_level=level, topics=topics)
        interview.ask(f"{question}, level {level}, latest", request, 3)
