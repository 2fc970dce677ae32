"""The share coordinators of the cluster, for those who have queues: here, or on other brokers.

1. Each command is answered once, by its coordinator's own word or, if none could be found for
   ``PATIENCE_S``, by ``CoordinatorNotAvailableError``: then nobody knows whether it was followed.
2. Until then it is repeated, at whoever coordinates the queue by then.  All commands may be.
3. What goes to one broker in one turn of the loop about one group goes in one request.

Where this broker coordinates the queue itself nothing is encoded and no task is made.
"""

from functools import partial
from typing import Final

from waystation.broker.gathering import Gathering
from waystation.broker.peers import Peers
from waystation.broker.share_states import ShareCoordinators, coordinator_key
from waystation.broker.share_wire import DIALECTS, Command, answers_of, request_of
from waystation.model.errors import (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    PeerUnreachableError,
    WaystationError,
)
from waystation.model.ids import NodeId
from waystation.model.machines import Waiter
from waystation.runtime.tasks import Tasks
from waystation.runtime.timers import Timers
from waystation.sharing.persister import Delete, Initialize, Read, Summarize, Write

PATIENCE_S: Final = 20.0

_PURPOSE: Final = "queue-states"
_RETRY_S, _RETRY_MAX_S = 0.02, 0.5
_METHODS: Final[dict[type, str]] = {
    Initialize: "initialize",
    Read: "read",
    Write: "write",
    Delete: "delete",
    Summarize: "summarize",
}
# What says nothing about the command but that its coordinator is to be looked for again.
_LATER = (
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    PeerUnreachableError,
)

_Receiver = tuple[NodeId, type, str]
"""A broker, a kind of command and a group: what one request may carry."""


class _Order:
    """A command until it is answered."""

    __slots__ = ("command", "failures", "to", "until_s")

    def __init__(self, command: Command, to: Waiter, until_s: float) -> None:
        self.command = command
        self.to = to
        self.until_s = until_s
        self.failures = 0


class SharePersister:
    """A ``sharing.persister.Persister`` of one broker."""

    def __init__(self, states: ShareCoordinators, peers: Peers, timers: Timers) -> None:
        self._states = states
        self._peers = peers
        self._timers = timers
        self._gathering: Gathering[_Receiver, _Order] = Gathering(self._send, "queue-states")
        self._tasks = Tasks()
        self._making = self._closed = False

    def initialize(self, command: Initialize, to: Waiter) -> None:
        """Answered by ``None``."""
        self._begin(command, to)

    def read(self, command: Read, to: Waiter) -> None:
        """Answered by ``StateRead``."""
        self._begin(command, to)

    def write(self, command: Write, to: Waiter) -> None:
        """Answered by ``None``.  HOT: once per group commit of a queue's leader."""
        self._begin(command, to)

    def delete(self, command: Delete, to: Waiter) -> None:
        """Answered by ``None``."""
        self._begin(command, to)

    def summarize(self, command: Summarize, to: Waiter) -> None:
        """Answered by ``StateSummary``."""
        self._begin(command, to)

    async def aclose(self) -> None:
        """Ask nobody any more, and tell nobody."""
        self._closed = True
        await self._gathering.aclose()
        await self._tasks.aclose()

    # --- asking ---------------------------------------------------------------------------------

    def _begin(self, command: Command, to: Waiter) -> None:
        self._try(_Order(command, to, self._timers.now_s() + PATIENCE_S))

    def _try(self, order: _Order) -> None:
        if self._closed:
            return
        command = order.command
        name = coordinator_key(command.queue)
        try:
            host = self._states.host_of(name)
        except NotCoordinatorError:
            self._try_elsewhere(order, name)
        except WaystationError as error:
            self._heard(order, error)
        else:
            decide = getattr(host.machine, _METHODS[type(command)])
            to = partial(self._heard, order)
            host.submit(lambda now: decide(now, command, to), to)

    def _try_elsewhere(self, order: _Order, name: str) -> None:
        try:
            node = self._states.leader_of(name)
        except WaystationError as error:
            self._heard(order, error)
            return
        receiver = node, type(order.command), order.command.queue.group_id
        self._gathering.add(receiver, order)

    async def _send(self, receiver: _Receiver, orders: list[_Order]) -> None:
        node, kind, group_id = receiver
        commands = [order.command for order in orders]
        try:
            response = await self._peers.ask(
                node, request_of(group_id, commands), DIALECTS[kind].response, purpose=_PURPOSE
            )
            answers = answers_of(node, response, commands)
        except WaystationError as error:
            answers = [error] * len(orders)
        for order, answer in zip(orders, answers, strict=True):
            self._heard(order, answer)

    # --- hearing --------------------------------------------------------------------------------

    def _heard(self, order: _Order, answer: object) -> None:
        if not isinstance(answer, _LATER):
            order.to(answer)
        elif self._timers.now_s() < order.until_s:
            self._try_later(order)
        else:
            order.to(
                CoordinatorNotAvailableError(
                    f"nobody has kept the state of queue {order.command.queue} for "
                    f"{PATIENCE_S:g} s: {answer}"
                )
            )

    def _try_later(self, order: _Order) -> None:
        delay_s = min(_RETRY_S * 2**order.failures, _RETRY_MAX_S)
        order.failures = min(order.failures + 1, 10)
        self._timers.call_later(delay_s, lambda: self._try(order))
        if not self._states.exists and not self._making:
            self._making = True
            self._tasks.spawn(self._make(coordinator_key(order.command.queue)), "queue-states")

    async def _make(self, name: str) -> None:
        """Have the internal topic made; what keeps it from that is met again by who retries."""
        try:
            await self._states.find(name)
        except WaystationError:
            pass
        finally:
            self._making = False
