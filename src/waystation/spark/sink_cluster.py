"""A sink's steps over real brokers: its record in a topic, its transactions at coordinators."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Final, Unpack

from waystation.client.admin_transactions import TransactionAdministration
from waystation.client.options import ConnectionOptions, connection_settings
from waystation.client.router import Router
from waystation.client.transaction_descriptions import ONGOING, PREPARED
from waystation.client.transactor import PreparedTransaction, end_prepared
from waystation.client.transport import Connect, connect_tcp
from waystation.model.errors import TransactionalIdNotFoundError
from waystation.runtime.clock import Clock, SystemClock
from waystation.spark.ledger import Ledger
from waystation.spark.ledger_topic import TopicShelf
from waystation.spark.sink_errors import NoTwoPhaseCommitError
from waystation.spark.sink_state import SinkState, task_of
from waystation.spark.sink_steps import OpenTransaction, SinkSteps
from waystation.wire.versions import ApiKey

__all__ = ["PATIENCE_MS", "Sinks", "check_two_phase", "open_sink", "open_sinks"]

PATIENCE_MS: Final = 60_000
"""How long a step waits for brokers that restart, and for others who change the same record."""

_AT_ONCE: Final = 32


class Coordinators(TransactionAdministration):
    """The transactions of sinks, as their coordinators know them."""

    def __init__(self, router: Router, clock: Clock, patience_ms: int) -> None:
        self._router, self._clock, self._patience_ms = router, clock, patience_ms

    async def open_of(self, sink: str) -> list[OpenTransaction]:
        """Those of the sink's tasks that have not ended."""
        listed = await self.list_transactions(states=(ONGOING, PREPARED))
        mine = [one.transactional_id for one in listed if task_of(sink, one.transactional_id)]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def look(transactional_id: str) -> OpenTransaction | None:
            async with limit:
                return await self.open_under(transactional_id)

        found = await asyncio.gather(*map(look, mine))
        return [one for one in found if one is not None]

    async def open_under(self, transactional_id: str) -> OpenTransaction | None:
        """The one that has not ended under this id, if there is any."""
        with suppress(TransactionalIdNotFoundError):
            found = (await self.describe_transactions(transactional_id))[transactional_id]
            if found.open:
                who = PreparedTransaction(transactional_id, found.producer, found.epoch)
                return OpenTransaction(who, found.state == PREPARED)
        return None

    async def holder(self, transactional_id: str) -> object:
        """Which producer has the id now, and what it does; ``None`` if none ever had it."""
        with suppress(TransactionalIdNotFoundError):
            found = (await self.describe_transactions(transactional_id))[transactional_id]
            return found.producer, found.epoch, found.state
        return None

    async def outcome(self, transaction: PreparedTransaction) -> str:
        """What became of it."""
        return (await self.transaction_outcome(*transaction)).state

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort it."""
        await end_prepared(self._router, transaction, self._patience_ms, commit=commit)


class Sinks:
    """All sinks of a cluster: the steps, and the records as a whole."""

    def __init__(self, steps: SinkSteps, shelf: TopicShelf, coordinators: Coordinators) -> None:
        self.steps = steps
        self._shelf, self._coordinators = shelf, coordinators

    async def every(self) -> dict[str, SinkState]:
        """Their records, by name."""
        return await self._shelf.read_all()

    async def open_of(self, sink: str) -> list[OpenTransaction]:
        """The transactions of a sink's tasks that have not ended."""
        return await self._coordinators.open_of(sink)

    async def outcome(self, transaction: PreparedTransaction) -> str:
        """What became of a transaction."""
        return await self._coordinators.outcome(transaction)


@asynccontextmanager
async def open_sinks(
    bootstrap: str,
    *,
    connect: Connect = connect_tcp,
    clock: Clock | None = None,
    chance: Random | None = None,
    patience_ms: int = PATIENCE_MS,
    **options: Unpack[ConnectionOptions],
) -> AsyncIterator[Sinks]:
    """Reach the cluster; brokers that are restarting are waited for, as long as for a topic."""
    clock, chance = clock or SystemClock(), chance or Random()
    settings = connection_settings(options)
    router = Router(bootstrap, settings, connect=connect, chance=chance)
    coordinators = Coordinators(router, clock, patience_ms)
    shelf = TopicShelf(
        bootstrap,
        router,
        options,
        holder=coordinators.holder,
        connect=connect,
        chance=chance,
        patience_ms=patience_ms,
    )
    try:
        await router.retrying(router.start, settings.metadata_timeout_ms)
        ledger = Ledger(shelf, clock, chance, patience_ms)
        yield Sinks(SinkSteps(ledger, coordinators), shelf, coordinators)
    finally:
        await shelf.close()
        await router.close()


@asynccontextmanager
async def open_sink(
    bootstrap: str, **options: Unpack[ConnectionOptions]
) -> AsyncIterator[SinkSteps]:
    """The steps of tasks and drivers."""
    async with open_sinks(bootstrap, **options) as sinks:
        yield sinks.steps


async def check_two_phase(bootstrap: str, sink: str, **options: Unpack[ConnectionOptions]) -> None:
    """Raise ``NoTwoPhaseCommitError`` unless the brokers can prepare transactions."""
    router = Router(bootstrap, connection_settings(options))
    try:
        connection = await router.to_any()
        if not (connection.speaks(ApiKey.PREPARE_TXN) and connection.speaks(ApiKey.TXN_OUTCOME)):
            raise NoTwoPhaseCommitError(sink, bootstrap)
    finally:
        await router.close()
