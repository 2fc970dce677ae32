"""What a client believes about the cluster, response after response."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from waystation.client.bootstrap import Address
from waystation.client.metadata import BrokerView, ClusterView
from waystation.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from waystation.model.errors import ErrorCode
from waystation.model.ids import NodeId, TopicPartition

ORDERS = TopicPartition("orders", 0)


def told(leader: int, epoch: int, *, topic_id: int = 1, partitions: int = 1) -> MetadataResponse:
    """A cluster of three nodes in which ``leader`` leads every partition of orders."""
    return MetadataResponse(
        controller_id=1,
        brokers=[MetadataResponseBroker(node_id=n, host=f"n{n}", port=9092) for n in (1, 2, 3)],
        topics=[
            MetadataResponseTopic(
                name="orders",
                topic_id=UUID(int=topic_id),
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index, leader_id=leader, leader_epoch=epoch
                    )
                    for index in reversed(range(partitions))
                ],
            )
        ],
    )


def test_the_leader_is_who_the_response_says() -> None:
    view = ClusterView().after(told(leader=2, epoch=5))

    assert view.leader(ORDERS) == 2
    assert view.leader(TopicPartition("orders", 1)) is None
    assert view.leader(TopicPartition("other", 0)) is None


def test_an_older_leader_epoch_is_not_believed() -> None:
    view = ClusterView().after(told(leader=2, epoch=5)).after(told(leader=3, epoch=4))

    assert view.leader(ORDERS) == 2


def test_a_response_that_brings_nothing_new_makes_an_equal_image() -> None:
    """By which a client notices that it asks a broker in vain, and asks another."""
    view = ClusterView().after(told(leader=2, epoch=5))

    assert view.after(told(leader=2, epoch=5)) == view
    assert view.after(told(leader=3, epoch=4)) == view
    assert view.after(told(leader=3, epoch=6)) != view


def test_a_topic_made_anew_is_believed_from_its_first_epoch() -> None:
    view = ClusterView().after(told(leader=2, epoch=5))
    view = view.after(told(leader=3, epoch=0, topic_id=2))

    assert view.leader(ORDERS) == 3


def test_partitions_come_in_order_whatever_order_they_are_told_in() -> None:
    view = ClusterView().after(told(leader=1, epoch=0, partitions=4))

    assert [one.partition for one in view.topics["orders"].partitions] == [0, 1, 2, 3]


def test_a_partition_without_leader_is_known_but_not_led() -> None:
    view = ClusterView().after(told(leader=-1, epoch=0))

    assert view.leader(ORDERS) is None
    assert view.find(ORDERS) is not None
    assert view.topics["orders"].led == ()


def test_a_refused_topic_is_remembered_until_it_is_there() -> None:
    gone = MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=3)])
    view = ClusterView().after(told(leader=1, epoch=0)).after(gone)

    assert "orders" not in view.topics
    assert view.refused == {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    view = view.after(told(leader=1, epoch=1))

    assert view.refused == {}
    assert view.leader(ORDERS) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), max_size=30))
def test_epochs_never_run_back(responses: list[tuple[int, int]]) -> None:
    view = ClusterView()
    highest = -1
    for leader, epoch in responses:
        view = view.after(told(leader, epoch))
        highest = max(highest, epoch)
        found = view.find(ORDERS)

        assert found is not None
        assert found.epoch == highest


def at(node: int) -> dict[int, BrokerView]:
    return {node: BrokerView(NodeId(node), Address(f"n{node}", 9092))}


def test_a_refusal_names_the_next_leader_and_where_it_is() -> None:
    view = ClusterView().after(told(leader=1, epoch=5)).led_by(ORDERS, 4, 6, at(4))

    assert view.leader(ORDERS) == 4
    assert view.brokers[NodeId(4)].address == Address("n4", 9092)
    assert view.after(told(leader=1, epoch=5)).find(ORDERS).epoch == 6  # type: ignore[union-attr]


def test_a_refusal_that_knows_no_more_is_no_news() -> None:
    view = ClusterView().after(told(leader=1, epoch=5))

    assert view.led_by(ORDERS, 2, 5, at(2)) is view
    assert view.led_by(ORDERS, -1, 6, {}) is view
    assert view.led_by(ORDERS, 9, 6, {}) is view, "nobody says where that is"
    assert view.led_by(TopicPartition("orders", 7), 2, 6, at(2)) is view
    assert view.led_by(TopicPartition("other", 0), 2, 6, at(2)) is view
