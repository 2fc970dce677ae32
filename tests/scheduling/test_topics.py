"""Which topics have a companion, and which are one."""

import pytest

from waystation.model.errors import InvalidTopicError
from waystation.model.ids import TopicPartition
from waystation.scheduling.topics import companion_of, target_of, target_partition


def test_a_topic_and_its_companion_know_each_other() -> None:
    assert companion_of("orders") == "orders.delay"
    assert target_of("orders.delay") == "orders"
    assert target_partition(TopicPartition("orders.delay", 3)) == TopicPartition("orders", 3)


@pytest.mark.parametrize("topic", ["orders", ".delay", "orders.delay.delay", "__x.delay", "delay"])
def test_other_names_are_no_companions(topic: str) -> None:
    assert target_of(topic) is None


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("orders.delay", "itself a place where messages wait"),
        ("__consumer_offsets", "internal topic"),
        ("t" * 244, "at most 243 characters"),
        ("a b", "letters, digits"),
    ],
)
def test_a_topic_that_cannot_have_one_says_why(topic: str, why: str) -> None:
    with pytest.raises(InvalidTopicError, match=why):
        companion_of(topic)
