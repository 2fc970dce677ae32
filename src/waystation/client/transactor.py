"""Begins and ends one producer's transactions: the waiting that ``standing.py`` leaves out.

To commit is to let every record reach its broker and every offset its group, and then to tell the
coordinator; to abort is to send nothing more, to wait for what is under way, and to tell it too.
Either is asked again while the answer is missing, for ``delivery_timeout_ms`` at most.

Whoever is cancelled while the coordinator decides does not know what it decided: the producer is
dead then, and a new one with the same transactional id finds the transaction ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from waystation.client.coordinator import TRANSACTION, Coordinator
from waystation.client.delivery import Identity
from waystation.client.errors import ClosedError, OutcomeUnknownError, is_retriable
from waystation.client.group_offsets import CommittedOffset
from waystation.client.group_offsets import Identity as MemberIdentity
from waystation.client.router import Router
from waystation.client.settings import ProducerSettings
from waystation.client.standing import Phase, Standing
from waystation.client.txn_requests import (
    add_offsets,
    add_partitions,
    commit_offsets_in,
    end_transaction,
    initialise,
    prepare_transaction,
)
from waystation.model.errors import (
    InvalidTxnStateError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.runtime.clock import Clock
from waystation.runtime.tasks import Tasks

__all__ = ["GroupOffsets", "Outlet", "PreparedTransaction", "Transactor", "end_prepared"]

T = TypeVar("T")

FEATURE = "transaction.version"
_IMPLICIT_LEVEL = 2


class PreparedTransaction(NamedTuple):
    """A transaction that waits for its outcome; whoever holds these three may decide it."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch


class GroupOffsets(NamedTuple):
    """How far a group has got, to be kept if a transaction commits.

    ``member`` says who commits, again for every attempt; it raises once the offsets are no longer
    that member's to commit.  ``may_repeat`` says whether it may be tried again after an error.
    """

    coordinator: Coordinator
    offsets: Mapping[TopicPartition, CommittedOffset]
    member: Callable[[], MemberIdentity]
    may_repeat: Callable[[WaystationError, MemberIdentity], bool]


class Outlet(Protocol):
    """The sender, as a transactor sees it."""

    def hurry_all(self) -> None:
        """Let no batch wait for more records."""

    def admitted(self) -> None:
        """Partitions have become part of the transaction: look at those that wait for that."""

    def abandon(self, error: WaystationError) -> None:
        """Send nothing more of what there is, and do not repeat what is under way."""

    async def settled(self) -> None:
        """Return once nothing is under way."""

    async def flushed(self) -> None:
        """Send what waits and return when all of it is answered; raises if any of it failed."""

    def renew(self, identity: Identity) -> None:
        """Number what comes next under ``identity``, from zero."""

    @property
    def has_gaps(self) -> bool:
        """Whether numbers were given up that the broker may miss or not."""


class Transactor:
    """The transactions of one producer, one after the other."""

    def __init__(self, router: Router, settings: ProducerSettings, clock: Clock) -> None:
        assert settings.transactional_id is not None, "a producer without transactional id"
        self.standing = Standing(settings.transactional_id, settings.transaction_timeout_ms)
        self.coordinator = Coordinator(router, settings.transactional_id, TRANSACTION)
        self._router, self._settings, self._clock = router, settings, clock
        self._outlet: Outlet | None = None
        self._tasks = Tasks()
        self._adding: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self, outlet: Outlet) -> Identity:
        """Take the transactional id over; what another has left open under it is aborted."""
        self._outlet = outlet
        within_ms = self._router.settings.request_timeout_ms
        identity = await self._router.retrying(self._initialise, within_ms)
        self.standing.initialised(identity)
        return identity

    async def close(self) -> None:
        """Ask for nothing more."""
        self.standing.died(ClosedError("the producer was closed"), self._now())
        await self._tasks.aclose()
        await self.coordinator.close()

    # --- while it is open -------------------------------------------------------------------

    @property
    def transactional_id(self) -> str:
        """The name under which the coordinator knows this producer."""
        return self.standing.transactional_id

    async def begin(self) -> None:
        """Open a transaction, the newer way where the cluster has that."""
        self.standing.check_alive()
        connection = await self._patiently(self.coordinator.connection)
        implicit = connection.level_of(FEATURE) >= _IMPLICIT_LEVEL
        self.standing.begin(self._now(), implicit=implicit)

    def takes(self, partition: TopicPartition) -> bool:
        """Whether a batch may leave for ``partition``; one that must be added is, soon."""
        if self.standing.takes(partition):
            return True
        if self.standing.unadded and (self._adding is None or self._adding.done()):
            self._adding = self._tasks.spawn(self._add(), "producer-add-partitions")
        return False

    def hurry(self) -> None:
        """Let no record linger: the end is near."""
        self._sending.hurry_all()

    def failed(self, error: WaystationError) -> None:
        """A record was not delivered, or an offset not taken: abort is all that is left."""
        if self.standing.failed(error, self._now()):
            reason = self._reason()
            dead = self.standing.phase is Phase.DEAD
            self._sending.abandon(reason if dead else self.standing.abortable(reason))

    def explained(self, error: WaystationError) -> WaystationError:
        """``error``, or why this producer may write no more if that is what it says."""
        return self.standing.explained(error, self._now())

    async def commit_offsets(self, group: GroupOffsets) -> None:
        """Keep a group's offsets if the transaction commits; raises if they are not taken."""
        self.standing.check_open()
        if not group.offsets:
            return
        self.standing.has_offsets = True
        try:
            if not self.standing.implicit:
                await self._patiently(
                    lambda: add_offsets(self.coordinator, self._identity, group.coordinator.key)
                )
            await self._tell_group(group)
        except WaystationError as error:
            self.failed(error)
            self.standing.check_alive()
            raise self.standing.abortable(error) from error
        except BaseException:
            # Whoever goes on all the same must not commit without knowing that they are in it.
            self.failed(InvalidTxnStateError("committing offsets in it was interrupted"))
            raise

    # --- how it ends ------------------------------------------------------------------------

    async def commit(self) -> None:
        """End the transaction so that all of it counts.

        Raises ``TransactionAbortableError`` if it had to be aborted; another error says that this
        producer is dead, and what is known of the transaction.
        """
        await self._close_or_abort()
        if self.standing.is_empty:
            self._over(None)
            return
        try:
            await self._end(commit=True)
        except TransactionAbortableError as error:
            await self.abort()
            raise self.standing.abortable(error) from error

    async def abort(self) -> None:
        """End the transaction so that nothing of it counts."""
        self.standing.check_alive()
        if self.standing.phase is Phase.IDLE:
            return
        reason = self._reason()
        self.standing.ending()
        self._sending.abandon(self.standing.abortable(reason))
        await self._sending.settled()
        if self._adding is not None and not self._adding.done():
            await asyncio.wait([self._adding])
        if self.standing.is_empty:
            self._over(None)
            return
        await self._end(commit=False)

    async def prepare(self) -> PreparedTransaction:
        """Let the transaction wait for its outcome; raises as ``commit`` does."""
        await self._close_or_abort()
        if self.standing.is_empty:
            raise InvalidTxnStateError(
                f"the transaction of transactional id {self.transactional_id} is empty: there is "
                "nothing to prepare; leave the block"
            )
        await self._decided(lambda: prepare_transaction(self.coordinator, self._identity))
        self.standing.prepared()
        return self._prepared

    async def end(self, *, commit: bool) -> None:
        """Decide this producer's own prepared transaction.

        Raises ``InvalidTxnStateError`` if somebody has decided otherwise; the next one may begin.
        """
        self.standing.ending()
        try:
            identity = await self._decided(lambda: self._ask_end(commit=commit, bumps=True))
        except InvalidTxnStateError:
            self._over(await self._renewed())
            raise
        self._over(identity)

    def holds(self, prepared: PreparedTransaction) -> bool:
        """Whether ``prepared`` is this producer's own."""
        return self.standing.phase is Phase.PREPARED and prepared == self._prepared

    # --- behind the scenes ------------------------------------------------------------------

    @property
    def _sending(self) -> Outlet:
        assert self._outlet is not None, "a transaction before the producer was started"
        return self._outlet

    @property
    def _identity(self) -> Identity:
        assert self.standing.identity is not None, "a transaction without an identity"
        return self.standing.identity

    @property
    def _prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self.transactional_id, *self._identity)

    def _now(self) -> float:
        return self._clock.monotonic()

    def _reason(self) -> WaystationError:
        return self.standing.cause or InvalidTxnStateError("it was aborted")

    async def _initialise(self) -> Identity:
        timeout_ms = self._settings.transaction_timeout_ms
        return await initialise(self.coordinator, timeout_ms, self.standing.identity)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._router.retrying(attempt, self._settings.delivery_timeout_ms)

    async def _add(self) -> None:
        """Add what is to be added, until nothing is."""
        while self.standing.unadded:
            try:
                added = await self._patiently(self._add_once)
            except WaystationError as error:
                self.failed(error)
                return
            self.standing.added(added)
            self._sending.admitted()

    async def _add_once(self) -> list[TopicPartition]:
        # A repeated request must not come behind the end: it would begin another transaction.
        if not self.standing.writes:
            raise InvalidTxnStateError("the transaction is ending")
        wanted = list(self.standing.unadded)
        await add_partitions(self.coordinator, self._identity, wanted)
        return wanted

    async def _tell_group(self, group: GroupOffsets) -> None:
        """Repeat while the group's coordinator may still take the offsets from this member."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._router.settings.request_timeout_ms / 1_000
        failures = 0
        while True:
            member = group.member()
            try:
                await commit_offsets_in(
                    self.transactional_id,
                    self._identity,
                    group.coordinator,
                    member,
                    group.offsets,
                    implicit=self.standing.implicit,
                )
                return
            except WaystationError as error:
                failures += 1
                wait_s = self._router.backoff.delay_s(failures)
                if not group.may_repeat(error, member) or loop.time() + wait_s > deadline:
                    raise
            await asyncio.sleep(wait_s)

    async def _close_or_abort(self) -> None:
        """Take no more records and deliver those there are; if that fails, abort and say so."""
        standing = self.standing
        if standing.phase is not Phase.FAILED:
            standing.closing()
            try:
                await self._sending.flushed()
            except WaystationError as error:
                standing.failed(error, self._now())
        standing.check_alive()
        if standing.phase is Phase.FAILED:
            reason = self._reason()
            await self.abort()
            raise standing.abortable(reason) from reason

    async def _end(self, *, commit: bool) -> None:
        bumps = self.standing.implicit
        self.standing.ending()
        try:
            identity = await self._decided(lambda: self._ask_end(commit=commit, bumps=bumps))
        except InvalidTxnStateError as error:
            if commit:
                self.standing.died(error, self._now())
                raise
            # The coordinator never heard of it, or somebody else has aborted it.
            identity = await self._renewed()
        else:
            if not bumps and self._sending.has_gaps:
                identity = await self._renewed()
        self._over(identity)

    async def _ask_end(self, *, commit: bool, bumps: bool) -> Identity | None:
        return await end_transaction(
            self.coordinator, self._identity, commit=commit, implicit=bumps
        )

    async def _renewed(self) -> Identity:
        """Who this producer is now that its transaction is over; dead if nobody says."""
        try:
            return await self._decided(self._initialise)
        except WaystationError as error:
            self.standing.died(error, self._now())
            raise

    async def _decided(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Ask the coordinator until it answers; without an answer this producer is dead."""
        try:
            return await self._patiently(attempt)
        except (InvalidTxnStateError, TransactionAbortableError):
            raise
        except WaystationError as error:
            told = self._unknown(str(error)) if is_retriable(error) else error
            self.standing.died(told, self._now())
            self.standing.check_alive()
            raise
        except BaseException:
            self.standing.died(self._unknown("it was interrupted"), self._now())
            raise

    def _unknown(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(self.transactional_id, why)

    def _over(self, identity: Identity | None) -> None:
        self.standing.ended(identity)
        if identity is not None:
            self._sending.renew(identity)


async def end_prepared(
    router: Router, prepared: PreparedTransaction, within_ms: int, *, commit: bool
) -> None:
    """Decide a prepared transaction of whatever producer; to decide the same again is harmless."""
    coordinator = Coordinator(router, prepared.transactional_id, TRANSACTION)
    who = Identity(prepared.producer_id, prepared.epoch)
    try:
        await router.retrying(
            lambda: end_transaction(coordinator, who, commit=commit, implicit=True), within_ms
        )
    finally:
        await coordinator.close()
