"""What the broker says becomes an error with a class, a subject and a remedy."""

import pytest

from waystation.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConnectionLostError,
    NoSuchPartitionError,
    error_of,
    is_retriable,
)
from waystation.model.errors import (
    ErrorCode,
    MessageTooLargeError,
    NotCoordinatorError,
    TopicExistsError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import TopicPartition


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicError),
        (ErrorCode.TOPIC_ALREADY_EXISTS, TopicExistsError),
        (ErrorCode.MESSAGE_TOO_LARGE, MessageTooLargeError),
        (ErrorCode.NOT_COORDINATOR, NotCoordinatorError),
        (ErrorCode.NOT_CONTROLLER, BrokerError),
    ],
)
def test_a_code_becomes_its_class(code: ErrorCode, cls: type[WaystationError]) -> None:
    error = error_of(code, "topic orders")

    assert isinstance(error, cls)
    assert error.code is code
    assert "topic orders" in str(error)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_code_becomes_an_error(code: ErrorCode) -> None:
    assert error_of(code, "topic orders", "said the broker").code is code


def test_a_code_from_the_future_is_an_unknown_error() -> None:
    assert error_of(30_000, "topic orders").code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_brokers_own_words_are_kept_unless_ours_say_more() -> None:
    assert str(error_of(ErrorCode.INVALID_CONFIG, "topic t", "x is 3")) == "topic t: x is 3"
    ours = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t", "no such thing")
    assert "waystation topic create" in str(ours)


def test_what_may_be_tried_again_is_known() -> None:
    assert is_retriable(ConnectionLostError("gone"))
    assert is_retriable(BrokerUnreachableError({"a:1": "refused"}))
    assert is_retriable(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "p"))
    assert not is_retriable(error_of(ErrorCode.INVALID_RECORD, "p"))
    assert not is_retriable(NoSuchPartitionError(TopicPartition("orders", 9), 3))
