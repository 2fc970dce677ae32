"""ElectLeaders: elections that an operator asks for."""

from waystation.apis.call import Call
from waystation.apis.deadline import within
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from waystation.model.errors import ErrorCode, RequestTimedOutError
from waystation.model.ids import TopicPartition


async def answer(broker: Broker, call: Call[ElectLeadersRequest]) -> ElectLeadersResponse:
    """What became of each partition; those elected are led so when this is answered."""
    request = call.message
    wanted = None
    if request.topic_partitions is not None:
        wanted = dict.fromkeys(
            TopicPartition(topic.topic, number)
            for topic in request.topic_partitions
            for number in topic.partitions
        )
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    preferred = request.election_type == PREFERRED
    elect = broker.moves.elect_preferred if preferred else broker.moves.elect_unclean
    try:
        outcomes = await within(request.timeout_ms, elect(wanted))
    except RequestTimedOutError as error:
        if wanted is None:
            return ElectLeadersResponse(error_code=error.code)
        outcomes = dict.fromkeys(wanted, error)
    topics: dict[str, list[PartitionResult]] = {}
    for where, refusal in outcomes.items():
        code, message = told(refusal)
        topics.setdefault(where.topic, []).append(
            PartitionResult(partition_id=where.partition, error_code=code, error_message=message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=results)
            for name, results in topics.items()
        ]
    )
