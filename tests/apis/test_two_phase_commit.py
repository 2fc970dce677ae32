"""Two-phase commit: a prepared transaction waits for whoever holds it, and for nobody else."""

import pytest

from tests.apis.conftest import MakeNode
from tests.apis.transacting import CLASSIC, Transacting, Writer
from waystation.model.errors import ErrorCode


def prepared(client: Transacting, topic: str, **asked: int) -> Writer:
    """A transaction that wrote one record and is prepared."""
    writer = client.writer(topic, **asked)
    assert client.write(writer, topic, b"x") == 0
    told = client.prepare(writer)
    assert (told.error_code, told.error_message) == (0, None)
    return writer


def test_a_prepared_transaction_outlives_its_time_out_and_its_producer(
    tess: Transacting, tim: Transacting, topic: str
) -> None:
    tess.create(topic)
    writer = prepared(tess, topic, timeout_ms=50)
    # A transaction with the same time-out that began later is over first.
    other = tess.writer(f"{topic}-other", timeout_ms=50)
    tess.create(f"{topic}-other")
    tess.write(other, f"{topic}-other", b"x")
    tess.await_stable(f"{topic}-other")

    assert tess.describe(topic)[0].transaction_state == "Prepared"
    assert tim.init(topic).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tim.outcome(writer).state == "prepared"
    assert tim.committed(topic) == []

    following = tim.commit(writer)
    tim.await_stable(topic)

    assert tim.committed(topic) == [b"x"]
    assert tim.init(topic).producer_epoch > following.epoch


@pytest.mark.parametrize("commit", [True, False])
def test_its_end_can_be_repeated_also_when_others_came_after_it(
    tess: Transacting, tim: Transacting, topic: str, commit: bool
) -> None:
    tess.create(topic)
    writer = prepared(tess, topic)
    first = tess.end(writer, commit=commit)
    following = Writer(topic, first.producer_id, first.producer_epoch)
    for _ in range(3):
        assert tess.write(following, topic, b"y") == 0
        following = tess.commit(following)

    assert tim.end(writer, commit=commit).error_code == 0
    assert tim.end(writer, commit=not commit).error_code == ErrorCode.INVALID_TXN_STATE
    found = tim.outcome(writer)
    assert (found.error_code, found.state) == (0, "committed" if commit else "aborted")
    assert found.at_ms > 1_600_000_000_000
    tess.await_stable(topic)
    assert tess.committed(topic) == [b"x"] * commit + [b"y"] * 3


def test_preparing_can_be_repeated_and_takes_no_more_partitions(
    tess: Transacting, topic: str
) -> None:
    tess.create(topic, 2)
    writer = prepared(tess, topic)

    assert tess.prepare(writer).error_code == 0
    for version in (CLASSIC, 12):
        code = tess.write(writer, topic, b"late", partition=1, version=version)
        assert code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert tess.add(writer, topic, 1) == [ErrorCode.INVALID_TXN_STATE]

    tess.abort(writer)


def test_what_cannot_be_prepared_is_told(tess: Transacting, topic: str) -> None:
    tess.create(topic)
    writer = tess.writer(topic)

    nothing = tess.prepare(writer)
    assert nothing.error_code == ErrorCode.INVALID_TXN_STATE
    assert nothing.error_message

    tess.write(writer, topic, b"x")
    for who, code in (
        (writer._replace(name=f"{topic}-nobody"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (writer._replace(producer_id=writer.producer_id + 999), 49),
        (writer.at(writer.epoch + 1), ErrorCode.PRODUCER_FENCED),
        (writer._replace(name=""), ErrorCode.INVALID_REQUEST),
    ):
        assert tess.prepare(who).error_code == code
    assert tess.outcome(writer).state == "ongoing"

    following = tess.commit(writer)

    assert tess.prepare(writer).error_code in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    )
    assert tess.outcome(following).state == "unknown"
    assert tess.outcome(Writer(f"{topic}-nobody", 1, 1)).state == "unknown"
    assert tess.outcome(Writer("", 1, 1)).error_code == ErrorCode.INVALID_REQUEST


def test_a_restart_keeps_what_is_prepared_and_what_became_of_it(make_node: MakeNode) -> None:
    options = {"transaction_state_log_num_partitions": "3"}
    running = make_node(**options)
    with Transacting(*running.address) as client:
        client.create("orders")
        done = prepared(client, "orders")
        client.commit(done)
        client.create("other")
        waiting = prepared(client, "other", timeout_ms=20)
    running.stop()
    running = make_node(**options)
    with Transacting(*running.address) as client:
        running.until(lambda: not running.node.broker.transactions.loading)

        assert client.outcome(done).state == "committed"
        assert client.end(done, commit=True).error_code == 0
        assert client.outcome(waiting).state == "prepared"
        assert client.committed("other") == []

        client.commit(waiting)
        client.await_stable("other")

        assert client.committed("other") == [b"x"]


def test_the_operators_limit_ends_it_and_is_told_apart(make_node: MakeNode) -> None:
    running = make_node(transaction_state_log_num_partitions="1", transaction_prepared_max_ms="200")
    with Transacting(*running.address) as client:
        client.create("orders")
        writer = prepared(client, "orders")
        client.await_stable("orders")

        assert client.committed("orders") == []
        assert client.outcome(writer).state == "aborted_by_limit"
        told = client.end(writer, commit=True)
        assert told.error_code == ErrorCode.INVALID_TXN_STATE
        assert client.end(writer, commit=False).error_code == 0
