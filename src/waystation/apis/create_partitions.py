"""CreatePartitions: more partitions for topics that exist."""

from waystation.apis.call import Call
from waystation.apis.deadline import within
from waystation.apis.errors import FINE, told
from waystation.apis.repeated import repeated
from waystation.broker.broker import Broker
from waystation.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.ids import NodeId


async def answer(broker: Broker, call: Call[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    """The outcome for each topic."""
    request = call.message
    twice = repeated(topic.name for topic in request.topics)
    results = [_refused(name) for name in twice] + [
        await _add(broker, topic, request) for topic in request.topics if topic.name not in twice
    ]
    return CreatePartitionsResponse(results=results)


def _refused(name: str) -> CreatePartitionsTopicResult:
    code, message = told(InvalidRequestError(f"topic {name!r} is named twice"))
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


async def _add(
    broker: Broker, topic: CreatePartitionsTopic, request: CreatePartitionsRequest
) -> CreatePartitionsTopicResult:
    assignments = None
    if topic.assignments is not None:
        assignments = [[NodeId(node) for node in one.broker_ids] for one in topic.assignments]
    outcome = FINE
    try:
        adding = broker.topics.add_partitions(
            topic.name, topic.count, assignments, validate_only=request.validate_only
        )
        await within(request.timeout_ms, adding)
    except WaystationError as error:
        outcome = told(error)
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=outcome.code, error_message=outcome.message
    )
