"""What goes wrong with queues, said in their words."""

from collections.abc import Mapping, Sequence

from waystation.model.errors import (
    ErrorCode,
    InvalidRecordStateError,
    InvalidRequestError,
    UnknownTopicError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import TopicPartition

__all__ = [
    "STRAYED",
    "NotHeldError",
    "SettlementUnknownError",
    "not_served",
    "not_this_kind",
    "unknown_queue",
]

STRAYED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""A partition is not to be had from this leader, and nothing of it is held any more."""
_SHOWN = 5


class NotHeldError(InvalidRecordStateError):
    """Messages that were settled, and are not this consumer's (any more); others may get them.

    ``refused`` names each, by partition and offset, with its reason; the others of the same call
    were settled.
    """

    def __init__(self, refused: Sequence[tuple[TopicPartition, int, str]]) -> None:
        self.refused = tuple(refused)
        first = ", ".join(f"{at} of {where}" for where, at, _ in self.refused[:_SHOWN])
        more = len(self.refused) - _SHOWN
        named = f"{first} and {more} more" if more > 0 else first
        super().__init__(f"message {named} {self.refused[0][2]}")


class SettlementUnknownError(WaystationError):
    """Nobody answered: the messages are settled, or will be delivered again."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(
        self, offsets: Mapping[TopicPartition, Sequence[int]], cause: WaystationError
    ) -> None:
        self.offsets = {where: tuple(each) for where, each in offsets.items()}
        count = sum(map(len, self.offsets.values()))
        messages = "1 message is" if count == 1 else f"{count} messages are"
        super().__init__(
            f"whether {messages} settled is not known ({cause}): what is not, is delivered again"
        )


def unknown_queue(topic: str) -> UnknownTopicError:
    """There is no such topic."""
    return UnknownTopicError(
        f"queue {topic} does not exist: check the name, or create it with "
        f"`waystation queue create {topic}`"
    )


def not_this_kind(group_id: str, said: WaystationError) -> InvalidRequestError:
    """The group exists, and is none that shares messages."""
    return InvalidRequestError(
        f"group {group_id} is a consumer group, which has partitions, not messages, to share "
        f"({said}): give the queue another one with group="
    )


def not_served(said: WaystationError) -> UnsupportedVersionError:
    """A broker without share groups."""
    return UnsupportedVersionError(
        f"this cluster serves no queues ({said}): upgrade it, or on Apache Kafka 4.1 switch the "
        "feature share.version on"
    )
