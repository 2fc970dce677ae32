"""ReadShareGroupStateSummary: where a group's queues begin; nobody is fenced by asking."""

from waystation.apis.call import Call
from waystation.apis.queue_states import hand_over
from waystation.broker.broker import Broker
from waystation.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId
from waystation.sharing.persister import StateSummary, Summarize
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId

_Answer = StateSummary | WaystationError


def answer(broker: Broker, call: Call[ReadShareGroupStateSummaryRequest]) -> None:
    """Where each partition's queue begins."""
    hand_over(broker, call, _command, ShareStates.summarize, _response)


def _command(queue: QueueId, asked: PartitionData) -> Summarize:
    return Summarize(queue)


def _response(
    answers: list[tuple[TopicId, list[tuple[int, _Answer]]]],
) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(
                topic_id=topic_id, partitions=[_result(*one) for one in partitions]
            )
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
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start,
        delivery_complete_count=answer.settled,
    )
