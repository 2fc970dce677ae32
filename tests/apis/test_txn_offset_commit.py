"""TxnOffsetCommit: positions in a transaction, who may commit them, and what they leave behind."""

from typing import Any

import pytest

from tests.apis.conftest import MakeNode, coordinate
from tests.apis.grouping import OFFSETS_TOPIC, Grouping
from tests.apis.kit import ThreadedNode, versions
from tests.apis.transacting import Transacting, Writer, txn_commit_request
from waystation.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from waystation.messages.txn_offset_commit import (
    IMPLICIT_FROM,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from waystation.model.errors import ErrorCode
from waystation.records.control import read_marker
from waystation.records.header import batches
from waystation.wire.versions import ApiKey

VERSIONS = versions(ApiKey.TXN_OFFSET_COMMIT)
MEMBERS_FROM, ABORTABLE_FROM = 3, 4
FETCH_VERSIONS = range(7, versions(ApiKey.OFFSET_FETCH)[-1] + 1)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def begun(tess: Transacting, group: str, topic: str) -> Writer:
    """A producer whose open transaction moves the group to 7."""
    tess.create(topic, partitions=2)
    writer = tess.writer(topic)
    assert tess.commit_offsets(writer, group, topic, 7) == 0
    return writer


# --- when they count ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_count_if_the_transaction_is_committed_in_every_version(
    tess: Transacting, ann: Grouping, group: str, topic: str, version: int
) -> None:
    tess.create(topic)
    writer, told = tess.writer(topic), []
    for commit, offset in ((False, 5), (True, 7), (False, 9)):
        if version < IMPLICIT_FROM:
            assert tess.add_offsets(writer, group) == 0
        assert tess.commit_offsets(writer, group, topic, offset, version=version) == 0
        told.append(ann.committed(group, topic).committed_offset)
        writer = tess.commit(writer) if commit else tess.abort(writer)
        told.append(tess.stable_offset(group, topic))

    assert told == [-1, -1, -1, 7, 7, 7]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_who_requires_stable_offsets_is_told_to_ask_again(
    tess: Transacting, ann: Grouping, group: str, topic: str, version: int
) -> None:
    begun(tess, group, topic)
    ann.commit(group, topic, 3)
    ann.commit(group, topic, 4, partition=1)
    topic_id = ann.topic_id(topic)
    wanted = OffsetFetchRequestTopic(name=topic, topic_id=topic_id, partition_indexes=[0, 1])

    for topics in ([wanted], None):
        assert fetched(ann, group, topics, version, stable=True) == [(-1, UNSTABLE), (4, 0)]
        assert fetched(ann, group, topics, version, stable=False) == [(3, 0), (4, 0)]


def fetched(
    ann: Grouping,
    group: str,
    topics: list[OffsetFetchRequestTopic] | None,
    version: int,
    *,
    stable: bool,
) -> list[tuple[int, int]]:
    """The positions in one topic, each with its code."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
    request = OffsetFetchRequest(
        group_id=group, topics=topics, groups=[asked], require_stable=stable
    )
    reply = ann.ask(request, version)
    told = reply.groups[0] if version >= 8 else reply
    assert told.error_code == 0
    return [(one.committed_offset, one.error_code) for one in told.topics[0].partitions]


def test_a_later_plain_commit_wins(
    tess: Transacting, ann: Grouping, group: str, topic: str
) -> None:
    writer = begun(tess, group, topic)
    ann.commit(group, topic, 3)
    tess.commit(writer)

    assert tess.stable_offset(group, topic) == 3


def test_a_second_instance_aborts_what_the_first_has_left_open(
    tess: Transacting, tim: Transacting, group: str, topic: str
) -> None:
    first = begun(tess, group, topic)
    second = tim.writer(topic)

    assert tess.commit_offsets(first, group, topic, 8) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert tim.stable_offset(group, topic) == -1

    assert tim.commit_offsets(second, group, topic, 9) == 0
    tim.commit(second)
    assert tim.stable_offset(group, topic) == 9


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart_leaves_open_what_was_open(make_node: MakeNode, topic: str, commit: bool) -> None:
    group, options = "readers", {"offsets_topic_num_partitions": "1"}
    node = make_node(**options)
    coordinate(node)
    with Transacting(*node.address) as tess:
        writer = begun(tess, group, topic)
    node.stop()
    node = make_node(**options)
    coordinate(node)

    with Transacting(*node.address) as tess, Grouping(*node.address) as ann:
        assert fetched(ann, group, [asked_of(topic)], 7, stable=True) == [(-1, UNSTABLE)]
        tess.writer("somebody")  # transactions have their coordinator then
        assert tess.end(writer, commit=commit).error_code == 0
        assert tess.stable_offset(group, topic) == (7 if commit else -1)


def asked_of(topic: str) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=topic, partition_indexes=[0])


def test_the_log_holds_them_as_kafka_writes_them(
    tess: Transacting, group: str, topic: str, coordinator: ThreadedNode
) -> None:
    writer = begun(tess, group, topic)
    tess.abort(writer)
    tess.stable_offset(group, topic)
    number = coordinator.call(lambda: coordinator.node.broker.groups.number_of(group))
    found = tess.fetch(OFFSETS_TOPIC, 0, partition=number, max_bytes=1 << 20)
    data = bytes(found.records or b"")
    mine = [(at, one) for at, one in batches(data) if one.producer_id == writer.producer_id]
    (_, offsets), (at, end) = mine

    assert (offsets.is_transactional, offsets.is_control) == (True, False)
    assert (offsets.producer_epoch, offsets.base_sequence) == (writer.epoch, -1)
    assert (end.is_transactional, end.is_control) == (True, True)
    marker = read_marker(data, at)
    assert marker is not None
    assert (marker.producer_epoch, marker.committed) == (writer.epoch + 1, False)


# --- who may commit them --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(IMPLICIT_FROM))
def test_old_clients_must_have_announced_the_offsets(
    tess: Transacting, group: str, topic: str, version: int
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    refused = ErrorCode.TRANSACTION_ABORTABLE
    if version < ABORTABLE_FROM:
        refused = ErrorCode.INVALID_TXN_STATE

    assert tess.commit_offsets(writer, group, topic, 7, version=version) == refused
    assert tess.stable_offset(group, topic) == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_not_the_producer_is_refused_in_every_version(
    tess: Transacting, group: str, topic: str, version: int
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    assert tess.add_offsets(writer, group) == 0

    def refused(who: Writer) -> int:
        return tess.commit_offsets(who, group, topic, 7, version=version)

    assert refused(writer.at(writer.epoch + 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(writer._replace(producer_id=1 << 40)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(writer._replace(name="nobody")) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(writer._replace(name="")) == ErrorCode.INVALID_REQUEST


def test_a_transaction_that_has_ended_takes_no_more(
    tess: Transacting, group: str, topic: str, coordinator: ThreadedNode
) -> None:
    machines = coordinator.call(coordinator.node.broker.groups.machines)
    old = begun(tess, group, topic)
    tess.commit(old)

    assert tess.commit_offsets(old, group, topic, 8) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert tess.stable_offset(group, topic) == 7
    assert coordinator.call(coordinator.node.broker.groups.machines) == machines


@pytest.mark.parametrize("version", range(MEMBERS_FROM, VERSIONS[-1] + 1))
def test_a_member_says_which_one_it_is(
    tess: Transacting, ann: Grouping, group: str, topic: str, version: int
) -> None:
    tess.create(topic)
    seat = ann.sit_alone(group, topic, instance_id="a")
    writer = tess.writer(topic)
    assert tess.add_offsets(writer, group) == 0

    def code(**who: Any) -> int:
        return tess.commit_offsets(writer, group, topic, 7, version=version, **who)

    generation, member = seat.generation, seat.member_id
    assert code(generation=generation, member_id=member, instance_id="a") == 0
    assert code() == 0
    assert code(generation=generation + 1, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert code(generation=generation, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        code(generation=generation, member_id="stranger", instance_id="a")
        == ErrorCode.FENCED_INSTANCE_ID
    )


def test_a_generation_of_a_group_that_is_not_there_is_refused(
    tess: Transacting, group: str, topic: str
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    code = tess.commit_offsets(writer, group, topic, 7, generation=1, member_id="m")

    assert code == ErrorCode.ILLEGAL_GENERATION


# --- bad input ------------------------------------------------------------------------------------


def test_each_partition_has_an_outcome_of_its_own(
    tess: Transacting, group: str, topic: str
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    request = txn_commit_request(writer, group, topic, 7)
    for index, note in ((1, ""), (-1, ""), (0, "x" * 5_000)):
        position = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=9, committed_metadata=note
        )
        request.topics[0].partitions.append(position)
    absent = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request.topics.append(TxnOffsetCommitRequestTopic(name="absent", partitions=[absent]))
    reply = tess.ask(request, VERSIONS[-1])
    tess.commit(writer)

    codes = [[one.error_code for one in told.partitions] for told in reply.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[0, unknown, unknown, ErrorCode.OFFSET_METADATA_TOO_LARGE], [unknown]]
    assert tess.stable_offset(group, topic) == 7


def test_a_group_needs_a_name(tess: Transacting, group: str, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)

    assert tess.commit_offsets(writer, "", topic, 7) == ErrorCode.INVALID_GROUP_ID


def test_nothing_to_commit_begins_no_transaction(tess: Transacting, group: str, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    request = txn_commit_request(writer, group, topic, 7)
    request.topics = []

    assert tess.ask(request, VERSIONS[-1]).topics == []
    assert [one.transaction_state for one in tess.describe(topic)] == ["Empty"]


# --- what is deleted meanwhile --------------------------------------------------------------------


def test_a_deleted_group_stays_deleted(
    tess: Transacting, ann: Grouping, group: str, topic: str
) -> None:
    writer = begun(tess, group, topic)

    assert ann.delete_groups(group) == [(group, 0)]
    tess.commit(writer)

    assert tess.stable_offset(group, topic) == -1
    assert group not in ann.listed()


def test_deleted_offsets_stay_deleted(
    tess: Transacting, ann: Grouping, group: str, topic: str
) -> None:
    writer = begun(tess, group, topic)
    ann.delete_offsets(group, topic, 0)
    tess.commit(writer)

    assert tess.stable_offset(group, topic) == -1


def test_offsets_of_a_topic_made_anew_stay_away(tess: Transacting, group: str, topic: str) -> None:
    writer = begun(tess, group, topic)
    tess.delete(topic)
    tess.create(topic)
    tess.commit(writer)

    assert tess.stable_offset(group, topic) == -1
