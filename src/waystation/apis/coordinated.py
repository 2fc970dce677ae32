"""From a handler to the machine of a group, and back.

A group's machine decides at once; its answer may come much later, when a rebalance is over or
what was decided is committed.  A client that has hung up by then is simply not told.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from waystation.apis.call import Call
from waystation.broker.all_groups import AllGroups
from waystation.broker.broker import Broker
from waystation.model.errors import InvalidGroupIdError, WaystationError
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.wire.message import Message

Q = TypeVar("Q", bound=Message)

Decide = Callable[[AllGroups, Millis, Waiter], Outcome[Any]]
"""What a machine is asked; whom it shall answer goes with it."""

GROUP_OPERATIONS = sum(1 << n for n in (3, 6, 8, 10, 11))
"""All that may be done with a group: read, delete, describe, describe and alter configs."""


def hand_over(
    broker: Broker,
    call: Call[Q],
    group_id: str,
    decide: Decide,
    respond: Callable[[Any], Message],
) -> None:
    """Let the group's coordinator decide; ``respond`` makes the reply of its answer or error."""
    to = replying(call, respond)
    if not group_id:
        to(nameless())
        return
    ask(broker, group_id, decide, to)


def ask(broker: Broker, group_id: str, decide: Decide, to: Waiter) -> None:
    """Ask the group's coordinator; ``to`` is called once, with the answer or an error."""
    try:
        host = broker.groups.host_of(group_id)
    except WaystationError as error:
        to(error)
    else:
        host.submit(lambda now: decide(host.machine, now, to), to)


def ask_each(
    broker: Broker, questions: Iterable[tuple[str, Decide]], done: Callable[[list[Any]], None]
) -> None:
    """Ask about several groups; ``done`` gets the answers and errors in the questions' order."""
    asked = list(questions)
    answers: list[Any] = [None] * len(asked)
    unanswered = len(asked)

    def note(index: int, answer: object) -> None:
        nonlocal unanswered
        answers[index] = answer
        unanswered -= 1
        if not unanswered:
            done(answers)

    if not asked:
        done([])
    for index, (group_id, decide) in enumerate(asked):
        ask(broker, group_id, decide, partial(note, index))


def replying(call: Call[Q], respond: Callable[[Any], Message]) -> Waiter:
    """One who waits for an answer and makes the reply of it.

    He is called from the midst of a machine's host, so a reply that cannot be made is his own
    affair: it costs this client its connection, and the group nothing.
    """

    def reply(answer: object) -> None:
        try:
            call.reply(respond(answer))
        except Exception as error:  # the outermost frame of this request
            call.fail(error)

    return reply


def nameless() -> InvalidGroupIdError:
    """The refusal of a group id that is empty, where Kafka does not let that pass."""
    return InvalidGroupIdError("the group id is empty: give the group a name")


def client_host(call: Call[Q]) -> str:
    """Where the client is, in the spelling of Kafka's tools."""
    return f"/{call.connection.host}"
