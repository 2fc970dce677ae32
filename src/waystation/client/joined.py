"""A transaction that anyone may write to and end who holds its identity, from wherever.

A producer keeps its numbers in memory and is the only one that writes under them.  Here nothing
is kept that could not be asked for: who joins a transaction learns from the partitions how far it
has been numbered, and from its coordinator how it stands.  Promises:

1. what was added and answered is in the transaction, wherever it is ended, and once;
2. two who add at once do not harm each other: each batch is stored under a number of its own,
   and who finds its number taken takes the next;
3. to commit or to abort again is answered as the first time; to ask for the other is refused.

The second needs care.  A broker takes a batch whose numbers it has seen for a repetition, and
answers where the first one is, whatever either holds.  A broker of ours says that it did
(``REPEATED``): who has sent under that number for the first time then knows that somebody else
has, too.  Who sends again, because an answer was lost, looks what was stored.

Whoever gives up on an answer does not know whether the batch is there: ``RequestTimedOutError``,
and the transaction should be aborted.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from waystation.client.coordinator import GROUP, TRANSACTION, Coordinator
from waystation.client.delivery import Identity
from waystation.client.errors import error_of, is_retriable
from waystation.client.group_offsets import CommittedOffset
from waystation.client.group_offsets import Identity as MemberIdentity
from waystation.client.producer_states import producers_in
from waystation.client.raw import PartitionReader
from waystation.client.router import Router
from waystation.client.settings import ConsumerSettings
from waystation.client.txn_requests import commit_offsets_in, end_transaction, initialise
from waystation.messages.produce import (
    REPEATED,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from waystation.model.errors import (
    ConcurrentTransactionsError,
    ErrorCode,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.ids import NO_TOPIC_ID, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.records.batch import BatchBuilder, rows_of
from waystation.records.record import Headers
from waystation.wire.versions import ApiKey

__all__ = ["JoinedTransaction", "TransactionRecord", "begin_transaction"]

_SEQUENCES: Final = 1 << 31
_BATCH_BYTES: Final = 128 << 10
_NUMBERS_TRIED: Final = 16
_LAST_WITH_NAMES: Final = 12
_STORED_ANYWAY: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""What a broker answers although it has appended the batch, and may yet lose or keep it."""


class TransactionRecord(NamedTuple):
    """A record to add."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: Millis


async def begin_transaction(
    router: Router, transactional_id: str, timeout_ms: int, within_ms: int
) -> Identity:
    """Who may write from now on; what was open under ``transactional_id`` is aborted."""
    coordinator = Coordinator(router, transactional_id, TRANSACTION)
    return await router.retrying(lambda: initialise(coordinator, timeout_ms), within_ms)


class JoinedTransaction:
    """One transaction; ``within_ms`` is how long each call may take.

    Of one that ``is_new`` nobody is asked how far it is numbered: as a rule that is not at all, and
    whoever was told its name meanwhile is noticed as everyone is.
    """

    def __init__(
        self,
        router: Router,
        transactional_id: str,
        identity: Identity,
        within_ms: int,
        *,
        is_new: bool = False,
    ) -> None:
        self._router, self._identity, self._within_ms = router, identity, within_ms
        self._coordinator = Coordinator(router, transactional_id, TRANSACTION)
        self._numbers: dict[TopicPartition, int] = {}
        self._is_new = is_new
        self._writing = asyncio.Lock()

    async def add(
        self, records: Mapping[TopicPartition, Sequence[TransactionRecord]]
    ) -> dict[TopicPartition, list[Offset]]:
        """Where the records are, in the order given for each partition.

        If it raises, some of them may be in the transaction.
        """
        async with self._writing:
            await self._number([where for where in records if where not in self._numbers])
            tasks = [
                asyncio.ensure_future(self._add(where, some)) for where, some in records.items()
            ]
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for one in done:
                if isinstance(one, BaseException):
                    self._numbers.clear()
                    self._is_new = False
                    raise one
            return dict(zip(records, (one for one in done if isinstance(one, list)), strict=True))

    async def commit_offsets(
        self,
        group: str,
        member: MemberIdentity,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Keep a group's offsets if the transaction commits."""
        coordinator = Coordinator(self._router, group, GROUP)
        key, who = self._coordinator.key, self._identity
        await self._router.retrying(
            lambda: commit_offsets_in(key, who, coordinator, member, offsets, implicit=True),
            self._within_ms,
        )

    async def end(self, *, commit: bool) -> None:
        """Commit or abort; ``InvalidTxnStateError`` if it has ended otherwise, or is empty."""
        await self._router.retrying(
            lambda: end_transaction(
                self._coordinator, self._identity, commit=commit, implicit=True
            ),
            self._within_ms,
        )

    # --- one partition --------------------------------------------------------------------------

    async def _add(
        self, where: TopicPartition, records: Sequence[TransactionRecord]
    ) -> list[Offset]:
        places: list[Offset] = []
        for builder in _batches(records):
            base = await _Batch(self, where, builder).stored()
            places += [Offset(base + delta) for delta in range(builder.records_count)]
        return places

    async def _number(self, partitions: list[TopicPartition]) -> None:
        """Begin with these partitions."""
        if self._is_new:
            self._numbers.update(dict.fromkeys(partitions, 0))
        elif partitions:
            await self._learn(partitions)

    async def _learn(self, wanted: list[TopicPartition]) -> None:
        """Ask how far the transaction is numbered in these partitions."""
        found = await self._router.retrying(
            lambda: producers_in(self._router, wanted), self._within_ms
        )
        for where in wanted:
            self._numbers[where] = 0
            for one in found[where]:
                if (one.producer, one.epoch) == self._identity:
                    self._numbers[where] = (one.last_sequence + 1) % _SEQUENCES

    # --- for batches ----------------------------------------------------------------------------

    def numbered(self, where: TopicPartition, count: int) -> None:
        """So many records were stored under the number and those after it."""
        self._numbers[where] = (self._numbers[where] + count) % _SEQUENCES

    async def renumber(self, where: TopicPartition) -> None:
        """The number was taken by somebody else."""
        await self._learn([where])

    async def produce(
        self, where: TopicPartition, builder: BatchBuilder
    ) -> PartitionProduceResponse:
        """Send a batch once."""
        router = self._router
        leader = await router.leader_of(where)
        connection = await router.to_node(leader)
        builder.producer_id, builder.producer_epoch = self._identity
        builder.base_sequence = self._numbers[where]
        version = connection.version_of(ApiKey.PRODUCE)
        id_ = router.view.topics[where.topic].id
        if id_ == NO_TOPIC_ID:
            version = min(version, _LAST_WITH_NAMES)
        timeout_ms = router.settings.request_timeout_ms
        content = PartitionProduceData(index=where.partition, records=memoryview(builder.build()))
        request = ProduceRequest(
            transactional_id=self._coordinator.key,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=where.topic, topic_id=id_, partition_data=[content])],
        )
        answer = connection.ask(request, ProduceResponse, timeout_ms / 1_000, version)
        return (await answer).responses[0].partition_responses[0]

    async def holds(self, where: TopicPartition, at: Offset, builder: BatchBuilder) -> bool:
        """Whether the batch at an offset is this one, whatever became of its form."""
        settings = ConsumerSettings(isolation="read_uncommitted", fetch_max_wait_ms=0)
        reader = PartitionReader(self._router, settings, where)
        await reader.open()
        fetched = await reader.fetch(at, _BATCH_BYTES)
        if not fetched.batches or fetched.batches[0][1].base_offset != at:
            return False
        stored = rows_of(fetched.records, fetched.batches[0][0])
        return [row[2:] for row in stored] == [row[2:] for row in rows_of(builder.build())]

    @property
    def backoff_s(self) -> float:
        """How long to wait before a batch is sent again."""
        return self._router.backoff.delay_s(1)

    @property
    def deadline_s(self) -> float:
        """Until when something that begins now may take."""
        return asyncio.get_running_loop().time() + self._within_ms / 1_000

    def want_refresh(self) -> None:
        """The leader may be another one."""
        self._router.want_refresh()


class _Batch:
    """One batch on its way into a partition."""

    def __init__(
        self, transaction: JoinedTransaction, where: TopicPartition, builder: BatchBuilder
    ) -> None:
        self._transaction, self._where, self._builder = transaction, where, builder
        self._in_doubt = False
        """Whether it may be there under its present number."""

    async def stored(self) -> Offset:
        """Where it is."""
        transaction, deadline_s = self._transaction, self._transaction.deadline_s
        for _ in range(_NUMBERS_TRIED):
            told = await self._answered(deadline_s)
            if told.error_code:  # out of order: its number is not the next one
                if self._in_doubt:
                    raise _unknown(self._where, "others were stored after it")
            elif told.error_message != REPEATED or await self._is_mine(Offset(told.base_offset)):
                transaction.numbered(self._where, self._builder.records_count)
                return Offset(told.base_offset)
            self._in_doubt = False
            await transaction.renumber(self._where)
        raise ConcurrentTransactionsError(
            f"too many add to {self._where} in this transaction at once"
        )

    async def _is_mine(self, at: Offset) -> bool:
        """Whether what was stored under its number is this batch, sent before."""
        return self._in_doubt and await self._transaction.holds(self._where, at, self._builder)

    async def _answered(self, deadline_s: float) -> PartitionProduceResponse:
        """What the leader says: that it is there, or that its number is not the next."""
        while True:
            try:
                told = await self._transaction.produce(self._where, self._builder)
                code = told.error_code
                if not code or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    return told
                self._in_doubt = self._in_doubt or code in _STORED_ANYWAY
                error = error_of(code, f"partition {self._where}", told.error_message)
            except WaystationError as lost:
                self._in_doubt, error = True, lost
            if not is_retriable(error):
                raise error
            wait_s = self._transaction.backoff_s
            if asyncio.get_running_loop().time() + wait_s > deadline_s:
                raise _unknown(self._where, str(error)) if self._in_doubt else error
            self._transaction.want_refresh()
            await asyncio.sleep(wait_s)


def _unknown(where: TopicPartition, why: str) -> RequestTimedOutError:
    return RequestTimedOutError(
        f"whether all that was added to {where} is there is not known ({why}): abort it"
    )


def _batches(records: Sequence[TransactionRecord]) -> Iterable[BatchBuilder]:
    """Builders of not too large batches; a large record has one for itself."""
    builder = _builder(_BATCH_BYTES)
    for one in records:
        if not builder.append(one.key, one.value, one.headers, timestamp=one.timestamp):
            if builder.records_count:
                yield builder
            builder = _builder(_BATCH_BYTES)
            if not builder.append(one.key, one.value, one.headers, timestamp=one.timestamp):
                alone = _builder(_SEQUENCES)
                alone.append(one.key, one.value, one.headers, timestamp=one.timestamp)
                yield alone
    if builder.records_count:
        yield builder


def _builder(limit_bytes: int) -> BatchBuilder:
    return BatchBuilder(is_transactional=True, limit_bytes=limit_bytes)
