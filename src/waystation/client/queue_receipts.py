"""Messages that outlive the process that received them: held by a receipt, settled by anybody.

Kafka's protocol ends what a consumer holds with its connection, so that a command, or a call over
HTTP, which receives a message could never leave it to another to acknowledge it.  Our brokers let
messages be acquired without a session (``by_receipt``, a tagged field of ShareFetch, which others
pass over), under a member id that nobody else knows: a receipt names it, and whoever has it settles
the message.

1. A receipt settles its message once, and not after its lock is over.
2. Whoever loses a receipt loses nothing: its message is delivered again when its lock is over.
3. Any number of calls may ask, wait and settle at once (``receipt_gathering.py``,
   ``receipt_waiting.py``, ``receipt_lines.py``): together they are one member of the group, and
   some requests at each leader.
"""

import asyncio
from collections.abc import Iterable
from random import Random
from types import TracebackType
from typing import Self, Unpack

from waystation.client.bootstrap import DEFAULT_BOOTSTRAP
from waystation.client.coordinator import Coordinator
from waystation.client.errors import error_of, is_retriable
from waystation.client.queue_errors import NotHeldError, unknown_queue
from waystation.client.queue_member import Assignment, QueueMember
from waystation.client.queue_settings import QueueOptions, queue_settings
from waystation.client.receipt_acquiring import Acquiring
from waystation.client.receipt_descriptions import HeldMessage, Receipt
from waystation.client.receipt_gathering import Gathering
from waystation.client.receipt_settling import Outcomes, ReceiptSettling
from waystation.client.receipt_waiting import Waiting
from waystation.client.router import Router
from waystation.client.timing import Delay, delay_ms
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import (
    ErrorCode,
    InvalidRequestError,
    UnknownTopicError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import NodeId, uuid_text
from waystation.runtime.chance import SeededChance
from waystation.runtime.tasks import Tasks
from waystation.sharing.states import ACCEPT, REJECT, RELEASE, RENEW
from waystation.wire.versions import ApiKey

__all__ = ["HeldMessage", "Receipt", "Receipts"]


class Receipts:
    """Receives messages of a queue and lets others settle them."""

    def __init__(
        self,
        name: str,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        group: str | None = None,
        connect: Connect = connect_tcp,
        chance: Random | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        self.name, self.group_id = name, name if group is None else group
        settings, connection = queue_settings(options)
        self._router = Router(bootstrap, connection, connect=connect, chance=chance)
        self._settling = ReceiptSettling(self._router, name, self.group_id)
        self._acquiring = Acquiring(self._router, settings, name, self.group_id, self._settling)
        self._waiting = Waiting(self._router, self._acquiring, self._settling)
        self._gathering = Gathering(self._acquiring, self._waiting.give_back)
        self._coordinator = Coordinator(self._router, self.group_id)
        self._member = QueueMember(
            self._router,
            self._coordinator,
            name,
            uuid_text(SeededChance(self._router.chance.getrandbits(128)).new_id()),
            settings.client_rack,
            self._take,
        )
        self._life = Tasks()
        self._membership: asyncio.Task[None] | None = None
        self._trouble: WaystationError | None = None
        self._has_joined = asyncio.Event()

    async def start(self) -> Self:
        """Reach the cluster; ``async with`` does this."""
        await self._router.start()
        return self

    async def close(self) -> None:
        """Leave the group; what is held stays so."""
        await self._gathering.close()
        await self._waiting.close()
        await self._acquiring.close()
        await self._life.aclose()
        await self._member.leave()
        await self._coordinator.close()
        await self._router.close()
        await self._settling.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- receiving ------------------------------------------------------------------------------

    async def hold(
        self, max_messages: int = 1, wait_ms: int = 1000, *, lock_ms: int | None = None
    ) -> list[HeldMessage]:
        """Up to ``max_messages``; an empty list if none came in time.

        They are held for ``lock_ms``, or for as long as the group says.
        """
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1_000
        await self._join()
        found = await self._at_once(max_messages)
        if not found and asyncio.get_running_loop().time() < ends_at:
            found = await self._waiting.wait(max_messages, ends_at)
        if lock_ms is None or not found:
            return found
        try:
            return await self._locked(found, lock_ms)
        except asyncio.CancelledError:
            self._waiting.give_back(found)
            raise

    async def _locked(self, found: list[HeldMessage], lock_ms: int) -> list[HeldMessage]:
        outcomes = await self.extend_all([one.receipt for one in found], lock_ms)
        return [one._replace(lock_ms=lock_ms) for one in found if outcomes[one.receipt] is None]

    async def _at_once(self, most: int) -> list[HeldMessage]:
        """What is there now; a leader that cannot be asked counts only if no other can."""

        async def attempt() -> list[HeldMessage]:
            leaders = list(await self._acquiring.leaders())
            if len(leaders) > 1:
                self._router.chance.shuffle(leaders)
            found: list[HeldMessage] = []
            try:
                await self._asked(leaders, most, found)
            except asyncio.CancelledError:
                self._waiting.give_back(found)
                raise
            return found

        return await self._router.retrying(attempt, self._router.settings.metadata_timeout_ms)

    async def _asked(self, leaders: list[NodeId], most: int, found: list[HeldMessage]) -> None:
        trouble: WaystationError | None = error_of(
            ErrorCode.LEADER_NOT_AVAILABLE, f"queue {self.name}"
        )
        for leader in leaders:
            try:
                found += await self._gathering.take(leader, most - len(found))
                trouble = None
            except WaystationError as error:
                if not is_retriable(error) and not found:
                    raise
                trouble = trouble and error
            if len(found) >= most:
                break
        if trouble is not None and not found:
            raise trouble

    # --- settling -------------------------------------------------------------------------------

    async def ack(self, receipts: Receipt | Iterable[Receipt]) -> None:
        """Settle messages for good; ``NotHeldError`` names those that are not held any more."""
        _raise_refused(await self.ack_all(_listed(receipts)))

    async def nack(
        self,
        receipts: Receipt | Iterable[Receipt],
        *,
        requeue: bool = True,
        delay: Delay | None = None,
        why: str = "",
    ) -> None:
        """Give messages back, to come again after a ``delay``, or with ``requeue=False`` up.

        ``why`` they were given up goes with them to the dead-letter topic.
        """
        listed = _listed(receipts)
        _raise_refused(await self.nack_all(listed, requeue=requeue, delay=delay, why=why))

    async def extend(
        self, receipts: Receipt | Iterable[Receipt], lock_ms: int | None = None
    ) -> None:
        """Let locks begin anew, for ``lock_ms`` or as the group says; receipts stay the same."""
        _raise_refused(await self.extend_all(_listed(receipts), lock_ms))

    async def ack_all(self, receipts: Iterable[Receipt]) -> Outcomes:
        """What became of each: ``None``, or why it could not be settled."""
        return await self._told(receipts, ACCEPT)

    async def nack_all(
        self,
        receipts: Iterable[Receipt],
        *,
        requeue: bool = True,
        delay: Delay | None = None,
        why: str = "",
    ) -> Outcomes:
        """As ``nack``; one that is refused spoils no other."""
        if why and requeue:
            raise InvalidRequestError("why is for what is given up: say requeue=False as well")
        if delay is not None and not requeue:
            raise InvalidRequestError("a delay is for what comes again: leave requeue=False away")
        for_ms = 0 if delay is None else delay_ms(delay, "delay")
        return await self._told(receipts, RELEASE if requeue else REJECT, for_ms, why)

    async def extend_all(self, receipts: Iterable[Receipt], lock_ms: int | None = None) -> Outcomes:
        """As ``extend``; one that is refused spoils no other."""
        return await self._told(receipts, RENEW, lock_ms or 0)

    async def _told(
        self, receipts: Iterable[Receipt], kind: int, for_ms: int = 0, why: str = ""
    ) -> Outcomes:
        await self._check_topic()
        return await self._settling.settle(receipts, kind, for_ms, why)

    # --- membership -----------------------------------------------------------------------------

    async def _join(self) -> None:
        """Be a member while this is open: queues are prepared for those who have members."""
        if self._has_joined.is_set() and self._membership and not self._membership.done():
            return
        if self._membership is None or self._membership.done():
            await self._check_kept()
            await self._check_topic()
            if self._membership is None or self._membership.done():
                self._membership = self._life.spawn(self._stay(), f"queue-member {self.group_id}")
        joined = asyncio.ensure_future(self._has_joined.wait())
        try:
            await asyncio.wait((joined, self._membership), return_when=asyncio.FIRST_COMPLETED)
        finally:
            joined.cancel()
        if self._trouble is not None:
            raise self._trouble

    async def _stay(self) -> None:
        self._trouble = None
        self._has_joined.clear()
        try:
            await self._member.run()
        except WaystationError as error:
            self._trouble = error

    def _take(self, assignment: Assignment) -> None:
        """It reads all partitions, whichever are its own: somebody has been given some."""
        if any(assignment.values()):
            self._has_joined.set()

    async def _check_topic(self) -> None:
        try:
            await self._router.topic(self.name)
        except UnknownTopicError:
            raise unknown_queue(self.name) from None

    async def _check_kept(self) -> None:
        """Raise unless the brokers are ours: others would end the sessions behind our back."""
        connection = await self._router.to_any()
        if not connection.speaks(ApiKey.CLUSTER_STATUS):
            raise UnsupportedVersionError(
                f"the broker at {connection.address} is not Waystation's, and would take messages "
                "back when this command ends: receive without holding"
            )


def _listed(receipts: Receipt | Iterable[Receipt]) -> Iterable[Receipt]:
    # A receipt is a tuple itself.
    return [receipts] if isinstance(receipts, Receipt) else receipts


def _raise_refused(outcomes: Outcomes) -> None:
    refused = [error for error in outcomes.values() if error is not None]
    for error in refused:
        if not isinstance(error, NotHeldError):
            raise error
    if refused:
        raise NotHeldError(
            [one for error in refused if isinstance(error, NotHeldError) for one in error.refused]
        )
