"""A transaction as an application writes one: a block in which everything sent counts as one.

    async with producer.transaction() as transaction:
        await transaction.send("invoices", invoice)
        await transaction.commit_offsets(consumer)

Promises:

1. leaving the block commits: then all of it is visible to those who read what is committed;
2. an exception that leaves the block aborts, and goes on: then nothing of it is;
3. if something of it failed and the block ends all the same, it is aborted too, and
   ``TransactionAbortableError`` says that it may be run again;
4. a prepared transaction is left as it is.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from waystation.client.group_offsets import CommittedOffset
from waystation.client.outgoing import Delivered, RecordMetadata
from waystation.client.transactor import GroupOffsets, PreparedTransaction, Transactor
from waystation.model.errors import InvalidTxnStateError, WaystationError

if TYPE_CHECKING:
    from waystation.client.producer import HeadersLike, Payload, Producer

__all__ = ["OffsetSource", "Transaction"]

PATIENCE_WHEN_CANCELLED_MS = 5_000
"""How long an abort may hold up who wants to end; then the broker aborts, in time."""


class OffsetSource(Protocol):
    """A consumer, as a transaction sees it."""

    def offsets_to_commit(
        self, positions: Mapping[tuple[str, int], int | CommittedOffset] | None = None
    ) -> GroupOffsets:
        """What it has handed out so far, or ``positions``, on behalf of its group."""


class Transaction:
    """One transaction of one producer; ``Producer.transaction`` makes it."""

    def __init__(self, producer: "Producer", transactor: Transactor) -> None:
        self.is_committed = False
        """Whether it is known to be committed, after the block."""
        self._producer, self._transactor = producer, transactor
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._transactor.begin()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Commit, or abort after an error, which is not hidden by one of aborting."""
        if not self._is_open or self._transactor.standing.is_decided:
            return None
        self._is_open = False
        if error is None:
            await self._commit()
        else:
            await self._abort_after(error)
        return None

    async def send(
        self,
        topic: str,
        value: "Payload" = None,
        *,
        key: "Payload" = None,
        headers: "HeadersLike" = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until the broker has it; it counts once the block ends."""
        self._check_open()
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    def submit(
        self,
        topic: str,
        value: "Payload" = None,
        *,
        key: "Payload" = None,
        headers: "HeadersLike" = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivered:
        """Hand one record over without waiting, as ``Producer.submit``; the end waits for all."""
        self._check_open()
        return self._producer.submit(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def drain(self) -> None:
        """Between many submits: wait while the buffer is nearly full."""
        await self._producer.drain()

    async def commit_offsets(
        self,
        consumer: OffsetSource,
        positions: Mapping[tuple[str, int], int | CommittedOffset] | None = None,
    ) -> None:
        """Keep for the consumer's group what it has handed out so far, or ``positions``.

        It counts if and when the transaction commits.  The consumer must not commit by itself:
        ``auto_commit=False``.
        """
        self._check_open()
        await self._transactor.commit_offsets(consumer.offsets_to_commit(positions))

    async def abort(self) -> None:
        """Take everything back now; leaving the block then does nothing more."""
        self._is_open = False
        await self._transactor.abort()

    async def prepare(self) -> PreparedTransaction:
        """First phase of two (``Producer.prepare``); leaving the block then does nothing more."""
        prepared = await self._transactor.prepare()
        self._is_open = False
        return prepared

    # --- behind the scenes ------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidTxnStateError(
                "this transaction is over, or has not begun: `async with producer.transaction()` "
                "begins one"
            )

    async def _commit(self) -> None:
        try:
            await self._transactor.commit()
            self.is_committed = True
        except asyncio.CancelledError as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort; what does not work is told to whoever begins the next transaction."""
        patience_s = None
        if not isinstance(error, Exception):
            patience_s = PATIENCE_WHEN_CANCELLED_MS / 1_000
        with suppress(WaystationError, TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._transactor.abort()
