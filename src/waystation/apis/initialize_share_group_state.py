"""InitializeShareGroupState: a group begins, or begins anew, at an offset of a partition."""

from typing import Any

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.queue_states import hand_over
from waystation.broker.broker import Broker
from waystation.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.sharing.persister import Initialize
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId


def answer(broker: Broker, call: Call[InitializeShareGroupStateRequest]) -> None:
    """The outcome for each partition."""
    hand_over(broker, call, _command, ShareStates.initialize, _response)


def _command(queue: QueueId, asked: PartitionData) -> Initialize:
    return Initialize(queue, asked.state_epoch, Offset(asked.start_offset))


def _response(
    answers: list[tuple[TopicId, list[tuple[int, Any]]]],
) -> InitializeShareGroupStateResponse:
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(
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
