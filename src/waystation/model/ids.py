"""Names of the things a cluster is made of.

Each id is a distinct type, so that a leader epoch is never passed where a node id is meant.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicId = NewType("TopicId", UUID)

NO_NODE = NodeId(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_TOPIC_ID = TopicId(UUID(int=0))


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as its directory is named."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(uuid: UUID) -> str:
    """The 22 characters by which Kafka's tools and files show a topic or cluster id."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def uuid_of(text: str) -> UUID:
    """The id that ``text`` shows; ``ValueError`` if it shows none."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))
