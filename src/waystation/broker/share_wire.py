"""What is asked of a share coordinator on another broker: its words on the wire, and back.

A request carries any number of commands of one kind about queues of one group, one topic entry
each and in order, so that two about the same queue keep theirs; answers come in the same order.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from waystation.client.errors import error_of
from waystation.messages import (
    delete_share_group_state as deleting,
)
from waystation.messages import (
    initialize_share_group_state as initializing,
)
from waystation.messages import (
    read_share_group_state as reading,
)
from waystation.messages import (
    read_share_group_state_summary as summarizing,
)
from waystation.messages import (
    write_share_group_state as writing,
)
from waystation.model.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    FencedStateEpochError,
    PeerUnreachableError,
    WaystationError,
)
from waystation.model.ids import LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.sharing.persister import (
    Delete,
    Initialize,
    Read,
    StateRead,
    StateSummary,
    Summarize,
    Write,
)
from waystation.sharing.state_records import Notes
from waystation.sharing.states import StateBatch
from waystation.wire.message import Message

Command = Initialize | Read | Write | Delete | Summarize

_FENCED: Final[dict[int, type[WaystationError]]] = {
    ErrorCode.FENCED_LEADER_EPOCH: FencedLeaderEpochError,
    ErrorCode.FENCED_STATE_EPOCH: FencedStateEpochError,
}


class Dialect(NamedTuple):
    """How commands of one kind are said, and their answers understood."""

    request: Any
    response: type[Message]
    topic: Any
    partition: Callable[[Any], Any]
    answer: Callable[[Any], object]


def request_of(group_id: str, commands: Sequence[Command]) -> Message:
    """The request; all commands are of one kind and group."""
    dialect = DIALECTS[type(commands[0])]
    topics = [
        dialect.topic(topic_id=one.queue.topic_id, partitions=[dialect.partition(one)])
        for one in commands
    ]
    request: Message = dialect.request(group_id=group_id, topics=topics)
    return request


def answers_of(node: NodeId, response: Any, commands: Sequence[Command]) -> list[object]:
    """What the coordinator on ``node`` says to each command, errors included."""
    found = [(topic.topic_id, one) for topic in response.results for one in topic.partitions]
    asked = [(one.queue.topic_id, one.queue.partition) for one in commands]
    if [(topic_id, one.partition) for topic_id, one in found] != asked:
        raise PeerUnreachableError(node, "it answers what it was not asked")
    answer = DIALECTS[type(commands[0])].answer
    return [
        _error(command, one.error_code, one.error_message) if one.error_code else answer(one)
        for command, (_, one) in zip(commands, found, strict=True)
    ]


def _error(command: Command, code: int, message: str | None) -> WaystationError:
    if code in _FENCED:
        return _FENCED[code](message or f"queue {command.queue} is fenced")
    return error_of(code, f"queue {command.queue}", message)


def _initialize(command: Initialize) -> initializing.PartitionData:
    return initializing.PartitionData(
        partition=command.queue.partition,
        state_epoch=command.state_epoch,
        start_offset=command.start,
    )


def _read(command: Read) -> reading.PartitionData:
    return reading.PartitionData(
        partition=command.queue.partition,
        leader_epoch=command.leader_epoch,
        log_end_offset=command.log.log_end,
        epochs=[
            reading.EpochStart(epoch=epoch, start_offset=start)
            for epoch, start in command.log.starts
        ],
    )


def _write(command: Write) -> writing.PartitionData:
    return writing.PartitionData(
        partition=command.queue.partition,
        state_epoch=command.state_epoch,
        leader_epoch=command.leader_epoch,
        start_offset=command.start,
        state_batches=[
            writing.StateBatch(
                first_offset=first,
                last_offset=end - 1,
                delivery_state=state,
                delivery_count=deliveries,
            )
            for first, end, state, deliveries in command.batches
        ],
        notes_version=command.notes.version,
        notes=command.notes.content,
    )


def _delete(command: Delete) -> deleting.PartitionData:
    return deleting.PartitionData(partition=command.queue.partition)


def _summarize(command: Summarize) -> summarizing.PartitionData:
    return summarizing.PartitionData(partition=command.queue.partition, leader_epoch=-1)


def _nothing(result: object) -> None:
    """The command was followed; there is no more to say."""


def _state_read(result: reading.PartitionResult) -> StateRead:
    batches = tuple(
        StateBatch(
            Offset(one.first_offset),
            Offset(one.last_offset + 1),
            one.delivery_state,
            one.delivery_count,
        )
        for one in result.state_batches
    )
    notes = Notes(result.notes_version, bytes(result.notes))
    return StateRead(result.state_epoch, Offset(result.start_offset), batches, notes)


def _summary(result: summarizing.PartitionResult) -> StateSummary:
    return StateSummary(
        result.state_epoch,
        LeaderEpoch(result.leader_epoch),
        Offset(result.start_offset),
        max(result.delivery_complete_count, 0),
    )


DIALECTS: Final[dict[type, Dialect]] = {
    Initialize: Dialect(
        initializing.InitializeShareGroupStateRequest,
        initializing.InitializeShareGroupStateResponse,
        initializing.InitializeStateData,
        _initialize,
        _nothing,
    ),
    Read: Dialect(
        reading.ReadShareGroupStateRequest,
        reading.ReadShareGroupStateResponse,
        reading.ReadStateData,
        _read,
        _state_read,
    ),
    Write: Dialect(
        writing.WriteShareGroupStateRequest,
        writing.WriteShareGroupStateResponse,
        writing.WriteStateData,
        _write,
        _nothing,
    ),
    Delete: Dialect(
        deleting.DeleteShareGroupStateRequest,
        deleting.DeleteShareGroupStateResponse,
        deleting.DeleteStateData,
        _delete,
        _nothing,
    ),
    Summarize: Dialect(
        summarizing.ReadShareGroupStateSummaryRequest,
        summarizing.ReadShareGroupStateSummaryResponse,
        summarizing.ReadStateSummaryData,
        _summarize,
        _summary,
    ),
}
