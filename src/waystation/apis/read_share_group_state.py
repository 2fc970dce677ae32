"""ReadShareGroupState: a partition's new leader loads its queue, and fences those before it."""

from waystation.apis.call import Call
from waystation.apis.queue_states import hand_over
from waystation.broker.broker import Broker
from waystation.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import LeaderEpoch, TopicId
from waystation.model.offsets import Offset
from waystation.sharing.lineage import Lineage
from waystation.sharing.persister import Read, StateRead
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId

_Answer = StateRead | WaystationError


def answer(broker: Broker, call: Call[ReadShareGroupStateRequest]) -> None:
    """All that is known of each partition."""
    hand_over(broker, call, _command, ShareStates.read, _response)


def _command(queue: QueueId, asked: PartitionData) -> Read:
    starts = tuple((LeaderEpoch(one.epoch), Offset(one.start_offset)) for one in asked.epochs)
    lineage = Lineage(Offset(asked.log_end_offset), starts)
    return Read(queue, LeaderEpoch(asked.leader_epoch), lineage)


def _response(
    answers: list[tuple[TopicId, list[tuple[int, _Answer]]]],
) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(topic_id=topic_id, partitions=[_result(*one) for one in partitions])
            for topic_id, partitions in answers
        ]
    )


def _result(partition: int, answer: _Answer) -> PartitionResult:
    if isinstance(answer, WaystationError):
        return PartitionResult(
            partition=partition, error_code=answer.code, error_message=str(answer)
        )
    return PartitionResult(
        partition=partition,
        state_epoch=answer.state_epoch,
        start_offset=answer.start,
        state_batches=[
            StateBatch(
                first_offset=first,
                last_offset=end - 1,
                delivery_state=state,
                delivery_count=deliveries,
            )
            for first, end, state, deliveries in answer.batches
        ],
        notes_version=answer.notes.version,
        notes=answer.notes.content,
    )
