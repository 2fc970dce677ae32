"""DeleteShareGroupState: a group or a topic is gone, and so is what was delivered of it."""

from typing import Any

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.queue_states import hand_over
from waystation.broker.broker import Broker
from waystation.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from waystation.model.ids import TopicId
from waystation.sharing.persister import Delete
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId


def answer(broker: Broker, call: Call[DeleteShareGroupStateRequest]) -> None:
    """The outcome for each partition."""
    hand_over(broker, call, _command, ShareStates.delete, _response)


def _command(queue: QueueId, asked: PartitionData) -> Delete:
    return Delete(queue)


def _response(
    answers: list[tuple[TopicId, list[tuple[int, Any]]]],
) -> DeleteShareGroupStateResponse:
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(
                topic_id=topic_id,
                partitions=[
                    PartitionResult(
                        partition=partition,
                        error_code=told(error).code,
                        error_message=told(error).message,
                    )
                    for partition, error in partitions
                ],
            )
            for topic_id, partitions in answers
        ]
    )
