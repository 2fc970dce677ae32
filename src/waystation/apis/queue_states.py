"""From a handler to the machines that keep the states of queues, and back: keys 83 to 87.

A request is about queues of one group and maybe of several machines; it is answered as a whole,
when each of them has answered.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from waystation.apis.call import Call
from waystation.apis.coordinated import nameless, replying
from waystation.broker.broker import Broker
from waystation.broker.share_states import coordinator_key
from waystation.broker.share_wire import Command
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import QueueId, StateRecord
from waystation.wire.message import Message

Decide = Callable[[ShareStates, Millis, Any, Waiter], Outcome[StateRecord]]


def hand_over(
    broker: Broker,
    call: Call[Any],
    command: Callable[[QueueId, Any], Command],
    decide: Decide,
    respond: Callable[[list[tuple[TopicId, list[tuple[int, Any]]]]], Message],
) -> None:
    """Ask about each partition named; ``respond`` gets answers and errors, topic by topic."""
    request = call.message
    queues = [
        (QueueId(request.group_id, TopicId(topic.topic_id), one.partition), one)
        for topic in request.topics
        for one in topic.partitions
    ]

    def done(answers: list[Any]) -> Message:
        rest = iter(answers)
        return respond(
            [
                (TopicId(topic.topic_id), [(one.partition, next(rest)) for one in topic.partitions])
                for topic in request.topics
            ]
        )

    to = replying(call, done)
    if not request.group_id:
        to([nameless()] * len(queues))
        return
    _ask_each(broker, [command(*queue) for queue in queues], decide, to)


def _ask_each(broker: Broker, commands: Sequence[Command], decide: Decide, done: Waiter) -> None:
    answers: list[Any] = [None] * len(commands)
    unanswered = len(commands)

    def note(index: int, answer: object) -> None:
        nonlocal unanswered
        answers[index] = answer
        unanswered -= 1
        if not unanswered:
            done(answers)

    if not commands:
        done([])
    for index, command in enumerate(commands):
        _ask(broker, command, decide, partial(note, index))


def _ask(broker: Broker, command: Command, decide: Decide, to: Waiter) -> None:
    try:
        host = broker.share_states.host_of(coordinator_key(command.queue))
    except WaystationError as error:
        to(error)
    else:
        host.submit(lambda now: decide(host.machine, now, command, to), to)
