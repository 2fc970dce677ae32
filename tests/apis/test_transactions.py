"""Transactions over the wire: all of it or nothing, in the classic flow and in the newer one."""

from typing import NamedTuple

import pytest

from tests.apis.conftest import MakeNode
from tests.apis.kit import versions
from tests.apis.transacting import (
    CLASSIC,
    IMPLICIT,
    READ_COMMITTED,
    STATE_TOPIC,
    Transacting,
    Writer,
    add_request,
    added,
    all_values,
)
from waystation.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


class Flow(NamedTuple):
    """The versions that clients of one age use."""

    produce: int
    end: int
    commit_offsets: int


FLOWS = {"classic": Flow(CLASSIC, 4, 4), "newer": Flow(IMPLICIT, 5, 5), "by id": Flow(13, 5, 5)}
EVERY_FLOW = pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)


def begin(
    client: Transacting,
    flow: Flow,
    writer: Writer,
    topic: str,
    *values: bytes,
    partition: int = 0,
    sequence: int = 0,
) -> None:
    """Write in the transaction; clients of old announce it."""
    if flow.produce < IMPLICIT:
        assert client.add(writer, topic, partition) == [0]
    code = client.write(
        writer,
        topic,
        *values,
        partition=partition,
        sequence=sequence,
        version=flow.produce,
    )
    assert code == 0, ErrorCode(code)


# --- who a producer is --------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_a_transactional_id_keeps_its_producer_id_under_newer_epochs(
    tess: Transacting, topic: str, version: int
) -> None:
    first = tess.writer(topic, version=version)
    second = tess.writer(topic, version=version)

    assert (first.producer_id, first.epoch + 1) == (second.producer_id, second.epoch)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_goes_on_after_an_error_names_itself(
    tess: Transacting, topic: str, version: int
) -> None:
    first = tess.writer(topic)
    told = tess.init(topic, producer_id=first.producer_id, epoch=first.epoch, version=version)

    assert (told.error_code, told.producer_id) == (0, first.producer_id)
    assert told.producer_epoch == first.epoch + 1

    tess.writer(topic)
    late = tess.init(topic, producer_id=first.producer_id, epoch=first.epoch, version=version)

    fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.error_code == fenced


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_beyond_bounds_is_refused(
    tess: Transacting, topic: str, timeout_ms: int
) -> None:
    tess.writer(topic)
    told = tess.init(topic, timeout_ms=timeout_ms)

    assert told.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_every_version_finds_a_coordinator(tess: Transacting, topic: str, version: int) -> None:
    if version == 0:  # which knows of groups only
        return
    found = tess.find_transaction(topic, version=version)

    assert (found.error_code, found.node_id) == (0, 1)


def test_a_name_that_is_none_has_no_coordinator(tess: Transacting) -> None:
    for name in ("", "x" * 40_000):
        assert tess.find_transaction(name).error_code == ErrorCode.INVALID_REQUEST
        assert tess.init(name).error_code == ErrorCode.INVALID_REQUEST


# --- all or nothing -----------------------------------------------------------------------------


@EVERY_FLOW
def test_what_is_committed_is_shown_at_once_and_only_then(
    tess: Transacting, topic: str, flow: Flow
) -> None:
    tess.create(topic, 2)
    writer = tess.writer(topic)
    begin(tess, flow, writer, topic, b"a", b"b")
    begin(tess, flow, writer, topic, b"c", partition=1)

    assert tess.committed(topic) == tess.committed(topic, partition=1) == []
    assert all_values(tess, topic) == [b"a", b"b"]

    tess.commit(writer, version=flow.end)
    for partition in (0, 1):
        tess.await_stable(topic, partition=partition)

    assert tess.committed(topic) == [b"a", b"b"]
    assert tess.committed(topic, partition=1) == [b"c"]


@EVERY_FLOW
def test_what_is_aborted_is_never_shown(tess: Transacting, topic: str, flow: Flow) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    for round_, commit in enumerate((False, True, False, True)):
        sequence = 0 if flow.end >= 5 else 2 * round_
        begin(tess, flow, writer, topic, b"%d" % round_, b"-", sequence=sequence)
        told = tess.end(writer, commit=commit, version=flow.end)
        assert told.error_code == 0, told
        if flow.end >= 5:
            assert told.producer_epoch == writer.epoch + 1
            writer = writer.at(told.producer_epoch)
    tess.await_stable(topic)

    assert tess.committed(topic) == [b"1", b"-", b"3", b"-"]
    assert len(all_values(tess, topic)) == 8


@EVERY_FLOW
def test_offsets_count_together_with_what_was_written(
    tess: Transacting, group: str, topic: str, flow: Flow
) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    for commit, offset in ((True, 7), (False, 9)):
        if flow.produce < IMPLICIT:
            assert tess.add_offsets(writer, group) == 0
        code = tess.commit_offsets(writer, group, topic, offset, version=flow.commit_offsets)
        assert code == 0, ErrorCode(code)
        told = tess.end(writer, commit=commit, version=flow.end)
        assert told.error_code == 0, told
        if flow.end >= 5:
            writer = writer.at(told.producer_epoch)

        assert tess.stable_offset(group, topic) == 7


def test_a_transaction_that_wrote_nothing_can_be_aborted_not_committed(
    tess: Transacting, topic: str
) -> None:
    writer = tess.writer(topic)

    assert tess.end(writer, commit=True, version=4).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
def test_ending_can_be_repeated_and_not_undone(tess: Transacting, topic: str, version: int) -> None:
    tess.create(topic)
    flow = FLOWS["newer" if version >= 5 else "classic"]
    for commit in (True, False):
        writer = tess.writer(topic)
        begin(tess, flow, writer, topic, b"x")
        first = tess.end(writer, commit=commit, version=version)
        again = tess.end(writer, commit=commit, version=version)
        undone = tess.end(writer, commit=not commit, version=version)

        assert first.error_code == again.error_code == 0
        assert undone.error_code == ErrorCode.INVALID_TXN_STATE
        assert (first.producer_id, first.producer_epoch) == (
            again.producer_id,
            again.producer_epoch,
        )


# --- who may not --------------------------------------------------------------------------------


@EVERY_FLOW
def test_a_second_instance_fences_the_first_and_aborts_what_it_wrote(
    tess: Transacting, tim: Transacting, topic: str, flow: Flow
) -> None:
    tess.create(topic)
    first = tess.writer(topic)
    begin(tess, flow, first, topic, b"lost")
    second = tim.writer(topic)

    code = tess.write(first, topic, b"late", sequence=1, version=flow.produce)
    assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        told = tess.end(first, commit=commit, version=flow.end)
        assert told.error_code == ErrorCode.PRODUCER_FENCED
    begin(tim, flow, second, topic, b"kept")
    tim.commit(second, version=flow.end)
    tim.await_stable(topic)

    assert tim.committed(topic) == [b"kept"]


def test_those_who_know_nothing_of_fencing_are_told_of_a_wrong_epoch(
    tess: Transacting, topic: str
) -> None:
    tess.create(topic)
    first = tess.writer(topic)
    tess.writer(topic)

    for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)):
        assert tess.add(first, topic, 0, version=version) == [code]
        assert tess.add_offsets(first, "any", version=version) == code
        assert tess.end(first, commit=True, version=version).error_code == code


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_partition_that_nobody_added_is_not_written_to(
    tess: Transacting, topic: str, version: int, code: ErrorCode
) -> None:
    tess.create(topic, 2)
    writer = tess.writer(topic)

    assert tess.write(writer, topic, b"x", version=version) == code
    assert tess.add(writer, topic, 0) == [0]
    assert tess.write(writer, topic, b"x", partition=1, version=version) == code
    assert tess.write(writer, topic, b"x", version=version) == 0

    tess.commit(writer, version=4)

    # Its first batch of the next transaction, or a late one of this.
    assert tess.write(writer, topic, b"y", sequence=1, version=version) == code
    tess.await_stable(topic)
    assert tess.committed(topic) == [b"x"]
    assert tess.start_and_end(topic) == (0, 2)


def test_a_batch_of_a_transaction_that_ended_cannot_join_the_next(
    tess: Transacting, topic: str
) -> None:
    tess.create(topic, 2)
    writer = tess.writer(topic)
    assert tess.write(writer, topic, b"a") == 0
    following = tess.commit(writer)

    for partition in (0, 1):
        late = tess.write(writer, topic, b"late", sequence=1, partition=partition)
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert tess.write(following, topic, b"b") == 0
    for partition in (0, 1):
        late = tess.write(writer, topic, b"late", sequence=1, partition=partition)
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    tess.commit(following)
    tess.await_stable(topic)
    assert tess.committed(topic) == [b"a", b"b"]


def test_nobody_writes_under_an_id_that_is_not_known(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    stranger = writer._replace(name=f"{topic}-nobody")
    another = writer._replace(producer_id=writer.producer_id + 1_000)

    for who in (stranger, another):
        assert tess.write(who, topic, b"x") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert tess.add(who, topic, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        told = tess.end(who, commit=True)
        assert told.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tess.start_and_end(topic) == (0, 0)


# --- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_all_partitions_of_a_request_are_added_or_none(
    tess: Transacting, topic: str, version: int
) -> None:
    tess.create(topic, 3)
    writer = tess.writer(topic)
    skipped, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert tess.add(writer, topic, 0, 3, version=version) == [skipped, unknown]
    assert tess.describe(topic)[0].topics == []
    assert tess.add(writer, topic, 2, 0, version=version) == [0, 0]
    (described,) = tess.describe(topic)
    assert [(one.topic, one.partitions) for one in described.topics] == [(topic, [0, 2])]

    missing = tess.add(writer, f"{topic}-absent", 0, version=version)

    assert missing == [unknown]


def test_clients_add_no_internal_topic(tess: Transacting, topic: str) -> None:
    writer = tess.writer(topic)

    assert tess.add(writer, STATE_TOPIC, 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert tess.add(writer, STATE_TOPIC, 0, version=4) == [0]


def test_brokers_ask_about_many_transactions_at_once(tess: Transacting, topic: str) -> None:
    tess.create(topic, 2)
    one, other = tess.writer(f"{topic}-a"), tess.writer(f"{topic}-b")
    tess.add(one, topic, 0)
    asked = [
        added(one, {topic: [0, 1]}, verify_only=True),
        added(other, {topic: [0]}, verify_only=True),
        added(other, {topic: [1]}),
    ]
    told = tess.ask(AddPartitionsToTxnRequest(transactions=asked), 5).results_by_transaction

    assert [result.transactional_id for result in told] == [one.name, other.name, other.name]
    codes = [
        [
            partition.partition_error_code
            for partition in result.topic_results[0].results_by_partition
        ]
        for result in told
    ]
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert codes == [[0, abortable], [abortable], [0]]
    assert tess.ask(AddPartitionsToTxnRequest(transactions=[]), 4).results_by_transaction == []


def test_a_request_about_no_partition_is_answered(tess: Transacting, topic: str) -> None:
    writer = tess.writer(topic)
    told = tess.ask(add_request(writer, {}, version=3), 3)

    assert told.results_by_topic_v3_and_below == []


def test_a_deleted_topic_keeps_no_transaction_from_its_end(tess: Transacting, topic: str) -> None:
    kept, gone = f"{topic}-kept", f"{topic}-gone"
    tess.create(kept)
    tess.create(gone)
    writer = tess.writer(topic)
    for name in (kept, gone):
        assert tess.write(writer, name, b"x") == 0
    tess.delete(gone)
    following = tess.commit(writer)
    tess.await_stable(kept)

    assert tess.committed(kept) == [b"x"]
    # It waits until the transaction before has come to its end.
    assert tess.write(following, kept, b"y") == 0


# --- time ---------------------------------------------------------------------------------------


@EVERY_FLOW
def test_a_transaction_that_takes_too_long_is_aborted(
    tess: Transacting, topic: str, flow: Flow
) -> None:
    tess.create(topic)
    writer = tess.writer(topic, timeout_ms=100)
    begin(tess, flow, writer, topic, b"slow")
    tess.await_stable(topic)

    assert tess.committed(topic) == []
    told = tess.end(writer, commit=True, version=flow.end)
    assert told.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    (described,) = tess.describe(topic)
    assert described.transaction_state == "CompleteAbort"

    again = tess.writer(topic)
    begin(tess, flow, again, topic, b"quick")
    tess.commit(again, version=flow.end)
    tess.await_stable(topic)

    assert tess.committed(topic) == [b"quick"]


def test_a_restart_ends_no_transaction_and_forgets_none(make_node: MakeNode) -> None:
    options = {"transaction_state_log_num_partitions": "3", "offsets_topic_num_partitions": "3"}
    running = make_node(**options)
    with Transacting(*running.address) as client:
        client.create("orders", 2)
        done, open_ = client.writer("done"), client.writer("open")
        for writer in (done, open_):
            assert client.write(writer, "orders", b"first") == 0
        client.abort(done)
    running.stop()
    running = make_node(**options)
    with Transacting(*running.address) as client:
        running.until(lambda: not running.node.broker.transactions.loading)
        assert client.write(open_, "orders", b"second", sequence=1) == 0
        assert client.write(open_, "orders", b"third", partition=1) == 0
        following = client.commit(open_)
        for partition in (0, 1):
            client.await_stable("orders", partition=partition)

        assert client.committed("orders") == [b"first", b"second"]
        assert client.committed("orders", partition=1) == [b"third"]
        assert client.writer("open") == following.at(following.epoch + 1)


# --- operators ----------------------------------------------------------------------------------


def test_transactions_are_described_and_listed(tess: Transacting, topic: str) -> None:
    tess.create(topic, 2)
    writer = tess.writer(topic, timeout_ms=12_345)

    (new,) = tess.describe(topic)
    assert (new.transaction_state, new.transaction_start_time_ms) == ("Empty", -1)

    tess.write(writer, topic, b"x", partition=1)
    (found, absent) = tess.describe(topic, f"{topic}-absent")

    assert absent.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 12_345)
    assert (found.producer_id, found.producer_epoch) == (writer.producer_id, writer.epoch)
    assert found.transaction_start_time_ms > 1_600_000_000_000
    assert [(one.topic, one.partitions) for one in found.topics] == [(topic, [1])]

    mine = {"producer_id_filters": [writer.producer_id]}
    (listed,) = tess.list_transactions(**mine).transaction_states
    assert (listed.transactional_id, listed.transaction_state) == (topic, "Ongoing")
    for filters in (
        {"state_filters": ["Empty"]},
        {"duration_filter": 1_000_000},
        {"state_filters": ["Nonsense"]},
    ):
        assert tess.list_transactions(**mine, **filters).transaction_states == []
    told = tess.list_transactions(state_filters=["Nonsense", "Ongoing", "Dead"])
    assert told.unknown_state_filters == ["Nonsense"]
    assert topic in [one.transactional_id for one in told.transaction_states]


def test_a_marker_from_outside_ends_what_is_open(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)
    tess.write(writer, topic, b"x")
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED

    assert tess.mark(writer, f"{topic}-absent", 0, commit=False) == 3
    assert tess.mark(writer, topic, 5, commit=False) == 3
    assert tess.mark(writer, topic, 0, commit=False, epoch=5) == 0
    assert tess.mark(writer, topic, 0, commit=False, epoch=4) == fenced
    older = writer.at(writer.epoch - 1)
    assert tess.mark(older, topic, 0, commit=False, epoch=9) == ErrorCode.INVALID_PRODUCER_EPOCH
    found = tess.fetch(topic, 0, isolation_level=READ_COMMITTED)
    assert (found.last_stable_offset, found.high_watermark) == (2, 2)
    assert tess.committed(topic) == []


def test_a_marker_that_comes_late_does_not_end_the_next_transaction(
    tess: Transacting, topic: str
) -> None:
    tess.create(topic)
    first = tess.writer(topic)
    tess.write(first, topic, b"first")
    ended = tess.end(first, commit=True)
    second = Writer(first.name, ended.producer_id, ended.producer_epoch)
    assert tess.write(second, topic, b"second") == 0

    late = {"commit": True, "epoch": 1_000, "rules": 2}
    assert tess.mark(second, topic, 0, **late) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert tess.committed(topic) == [b"first"]
    assert tess.end(second, commit=False).error_code == 0
    assert tess.committed(topic) == [b"first"]


def test_producers_are_told_before_there_is_any_coordinator(make_node: MakeNode) -> None:
    running = make_node()
    with Transacting(*running.address) as client:
        client.create("orders")
        writer = Writer("nobody", 5, 0)

        assert client.init("nobody").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.write(writer, "orders", b"x") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert client.end(writer, commit=True).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.add_offsets(writer, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.start_and_end("orders") == (0, 0)
