"""Every option of transactions does something; the live ones without a restart."""

import time
from collections.abc import Callable

from tests.apis.asking import BROKER, TOPIC
from tests.apis.conftest import MakeNode
from tests.apis.options import shows
from tests.apis.transacting import STATE_TOPIC, Transacting, Writer
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.model.errors import ErrorCode

ONE_COORDINATOR = {"transaction_state_log_num_partitions": "1"}


def prepared(client: Transacting, name: str) -> Writer:
    """A transaction that is prepared, of a producer and a topic of that name."""
    client.create(name)
    writer = client.writer(name)
    assert client.write(writer, name, b"x") == 0
    assert client.prepare(writer).error_code == 0
    return writer


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.01)


@shows("transaction.max.timeout.ms")
def test_time_outs_are_as_long_as_the_broker_allows(make_node: MakeNode) -> None:
    running = make_node(**ONE_COORDINATOR, transaction_max_timeout_ms="5000")
    with Transacting(*running.address) as client:
        client.writer("any", timeout_ms=5_000)

        refused = client.init("any", timeout_ms=5_001).error_code
        assert refused == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        client.configure(BROKER, "1", transaction_max_timeout_ms="5001")
        assert client.init("any", timeout_ms=5_001).error_code == 0


@shows("transaction.abort.timed.out.transaction.cleanup.interval.ms")
def test_transactions_that_are_overdue_end_no_more_often_than_told(make_node: MakeNode) -> None:
    interval = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "600"}
    with Transacting(*make_node(**ONE_COORDINATOR, **interval).address) as client:
        client.create("orders")

        def ends_at() -> float:
            client.write(client.writer("slow", timeout_ms=20), "orders", b"x")
            client.await_stable("orders")
            return time.monotonic()

        first, second = ends_at(), ends_at()

        assert second - first > 0.4


@shows(
    "transactional.id.expiration.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.outcome.retention.ms",
)
def test_ids_and_outcomes_are_forgotten_when_told(make_node: MakeNode) -> None:
    options = {
        "transactional_id_expiration_ms": "200",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "20",
        "transaction_outcome_retention_ms": "100",
    }
    with Transacting(*make_node(**ONE_COORDINATOR, **options).address) as client:
        first = prepared(client, "orders")
        client.commit(first)

        until(lambda: client.outcome(first).state == "unknown")
        unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        until(lambda: client.describe("orders")[0].error_code == unknown)
        again = client.writer("orders")
        assert again.producer_id != first.producer_id


@shows("transaction.prepared.max.ms")
def test_a_limit_ends_what_is_prepared_already(make_node: MakeNode) -> None:
    with Transacting(*make_node(**ONE_COORDINATOR).address) as client:
        writer = prepared(client, "orders")
        assert client.outcome(writer).state == "prepared"
        client.configure(BROKER, "1", transaction_prepared_max_ms="1")
        client.await_stable("orders")

        assert client.outcome(writer).state in ("aborting", "aborted_by_limit")


@shows(
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.segment.bytes",
)
def test_the_internal_topic_is_made_as_told(make_node: MakeNode) -> None:
    running = make_node(
        transaction_state_log_num_partitions="7",
        transaction_state_log_replication_factor="3",
        transaction_state_log_min_isr="2",
        transaction_state_log_segment_bytes="5000000",
    )
    with Transacting(*running.address) as client:
        client.writer("any")
        named = MetadataRequestTopic(name=STATE_TOPIC)
        (made,) = client.ask(MetadataRequest(topics=[named]), 9).topics
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=STATE_TOPIC)
        (told,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results

        # There is one broker, so there is one replica, and more cannot be asked for.
        assert [one.replica_nodes for one in made.partitions] == [[1]] * 7
        options = {one.name: one.value for one in told.configs}
        assert options["segment.bytes"] == "5000000"
        assert options["min.insync.replicas"] == "1"
        assert options["cleanup.policy"] == "compact"
        assert options["durability"] == "disk"
