"""From a handler to the machine of a transactional id, and back.

As ``coordinated.py`` is for groups; what differs is who is asked, and that clients of old do not
know what it means to be fenced.
"""

from collections.abc import Callable
from typing import Any, Final

from waystation.broker.broker import Broker
from waystation.model.errors import ErrorCode, ProducerFencedError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.transactions.machine import Transactions
from waystation.transactions.records import Record

Decide = Callable[[Transactions, Millis, Waiter], Outcome[Record]]
"""What a machine is asked; whom it shall answer goes with it."""

FENCED_FROM_VERSION: Final = 2
"""Of most APIs of transactions: who speaks older versions takes fencing for a wrong epoch."""


def ask(broker: Broker, transactional_id: str, decide: Decide, to: Waiter) -> None:
    """Ask the id's coordinator; ``to`` is called once, with the answer or an error."""
    try:
        host = broker.transactions.host_of(transactional_id)
    except WaystationError as error:
        to(error)
    else:
        host.submit(lambda now: decide(host.machine, now, to), to)


async def answer_of(broker: Broker, transactional_id: str, decide: Decide) -> Any:
    """What the id's coordinator answers; raised if it is an error."""
    host = broker.transactions.host_of(transactional_id)
    return await host.ask(lambda now, to: decide(host.machine, now, to))


async def id_if_needed(
    broker: Broker, transactional_id: str, producer_id: ProducerId, epoch: ProducerEpoch
) -> ProducerId | None:
    """A new producer id, if the coordinator will need one for its answer.

    It is taken beforehand, since a machine does not wait.
    """
    machine: Transactions = broker.transactions.host_of(transactional_id).machine
    if not machine.needs_id(transactional_id, producer_id, epoch):
        return None
    return await broker.producer_ids.take()


def code_of(
    error: WaystationError | None, version: int, fenced_from: int = FENCED_FROM_VERSION
) -> int:
    """The code for ``error`` in a request of that version."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, ProducerFencedError) and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
