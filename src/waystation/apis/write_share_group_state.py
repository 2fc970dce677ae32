"""WriteShareGroupState: a partition's leader has remembered what its queue delivered."""

from typing import Any

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.apis.queue_states import hand_over
from waystation.broker.broker import Broker
from waystation.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.persister import Write
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import Notes, QueueId
from waystation.sharing.states import StateBatch


def answer(broker: Broker, call: Call[WriteShareGroupStateRequest]) -> None:
    """The outcome for each partition."""
    hand_over(broker, call, _command, ShareStates.write, _response)


def _command(queue: QueueId, asked: PartitionData) -> Write:
    return Write(
        queue,
        asked.state_epoch,
        LeaderEpoch(asked.leader_epoch),
        Offset(asked.start_offset),
        tuple(
            StateBatch(
                Offset(one.first_offset),
                Offset(one.last_offset + 1),
                one.delivery_state,
                one.delivery_count,
            )
            for one in asked.state_batches
        ),
        Notes(asked.notes_version, bytes(asked.notes)),
    )


def _response(answers: list[tuple[TopicId, list[tuple[int, Any]]]]) -> WriteShareGroupStateResponse:
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(
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
