"""ListPartitionReassignments: what is on its way to other replicas."""

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.cluster.reassignment import under_way
from waystation.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def answer(
    broker: Broker, call: Call[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """The moves under way, of the partitions asked for or of all; others are left out."""
    asked = call.message.topics
    wanted = (
        None
        if asked is None
        else {(topic.name, number) for topic in asked for number in topic.partition_indexes}
    )
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for one in under_way(broker.image):
        if wanted is None or one.partition in wanted:
            topics.setdefault(one.partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=one.partition.partition,
                    replicas=list(one.replicas),
                    adding_replicas=list(one.adding),
                    removing_replicas=list(one.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=some) for name, some in topics.items()
        ]
    )
