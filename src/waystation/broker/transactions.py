"""The transactions that this broker coordinates: a machine per partition of its internal topic.

How a transactional id finds its machine, and what a machine lives through, is in ``posts.py``.
Here is what makes them transactions: whoever writes asks to be admitted, and what is decided is
carried into the partitions (``markers.py``).

A decision of a machine that this node no longer leads is not carried on: the next one to load it
finds it in the log.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from waystation.broker.admission import Hear
from waystation.broker.machine_log import PartitionLog, load
from waystation.broker.markers import Ended, Markers
from waystation.broker.peers import Peers
from waystation.broker.posts import ID_BYTES_MAX, InternalTopic, Loaded, Posts, fits_into_a_key
from waystation.broker.replicas import Replicas
from waystation.broker.topics import Topics
from waystation.broker.transaction_records import encode, read_rows
from waystation.broker.verification import Verification
from waystation.cluster.image import ClusterImage
from waystation.model.errors import InvalidRequestError, NotCoordinatorError, WaystationError
from waystation.model.ids import LeaderEpoch, NodeId, ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.control import Marker
from waystation.runtime.clock import Clock
from waystation.runtime.host import Host
from waystation.runtime.timers import Timers
from waystation.telemetry.logs import get_logger
from waystation.telemetry.metrics import Counter, Registry
from waystation.transactions.commands import Add, Added, MarkersDue
from waystation.transactions.machine import Transactions
from waystation.transactions.records import (
    Ending,
    OutcomeStored,
    Record,
    TransactionStored,
    TxnState,
)
from waystation.transactions.settings import TransactionSettings

STATE_TOPIC = "__transaction_state"

_events = get_logger("transactions")


class TransactionLog(PartitionLog[Record]):
    """Counts how transactions end, and tells the operator of those that his limit ended."""

    __slots__ = ("aborts", "commits")

    aborts: Counter
    commits: Counter

    def append(self, records: Sequence[Record]) -> Offset:
        """Write records as one batch; where the log ends now."""
        end = super().append(records)
        for record in records:
            match record:
                case TransactionStored(state=TxnState.PREPARE_COMMIT):
                    self.commits.value += 1
                case TransactionStored(state=TxnState.PREPARE_ABORT):
                    self.aborts.value += 1
                case OutcomeStored(ending=Ending.ABORTED_BY_LIMIT):
                    _events.warning(
                        "prepared.aborted.by.limit",
                        transactional_id=record.transactional_id,
                        producer_id=record.producer_id,
                        epoch=record.epoch,
                    )
        return end


class _Clerk:
    """Takes what a machine has decided to the markers, and back to it what was written."""

    __slots__ = ("_host", "_markers")

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._host: Host[Record] | None = None

    def begin(self, host: Host[Record]) -> None:
        """Serve this host, which begins now: it may have found decisions in its log."""
        self._host = host
        host.start()

    def hear(self, due: object) -> None:
        """What the machine says; that its host has ended needs nothing more."""
        if isinstance(due, MarkersDue):
            marker = Marker(
                due.producer_id, due.epoch, due.coordinator_epoch, due.commit, due.bumped
            )
            written = partial(self._written, due)
            self._markers.carry_out(Ended(marker, due.partitions, written, self._is_wanted))

    def _is_wanted(self) -> bool:
        return self._host is not None and not self._host.ended

    def _written(self, due: MarkersDue) -> None:
        host = self._host
        assert host is not None, "a machine decided before it had begun"
        host.submit(lambda now: host.machine.markers_written(now, due, due.partitions))


class TransactionCoordinators(Posts[Record]):
    """The machines of transactions, on one broker."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        topics: Topics,
        settings: Callable[[], TransactionSettings],
        markers: Markers,
        peers: Peers,
        *,
        clock: Clock,
        timers: Timers,
        registry: Registry,
    ) -> None:
        super().__init__(
            STATE_TOPIC,
            "transactional id",
            node,
            replicas,
            topics,
            clock=clock,
            timers=timers,
            load_seconds=registry.histogram(
                "waystation_transaction_load_seconds",
                "How long a partition of __transaction_state took to load.",
            ),
        )
        self.markers = markers
        self._elsewhere = Verification(peers, self.leader_of, replicas, markers.inquiries, timers)
        self._settings = settings
        self._obeyed = settings()
        self._commits, self._aborts = (
            registry.counter(
                "waystation_transactions_total", "Transactions that ended.", outcome=outcome
            )
            for outcome in ("committed", "aborted")
        )

    def follow(self, image: ClusterImage) -> None:
        """Act on a new image: take up posts, give up others, write markers that had to wait."""
        self.lead(image)
        self.markers.try_now()
        before, self._obeyed = self._obeyed, self._settings()
        if self._obeyed != before:
            # What was not due by the old limits may be by the new.
            for host in self._hosts():
                host.submit(host.machine.tick)

    async def aclose(self) -> None:
        """Coordinate nothing any more, and ask nobody who does."""
        await super().aclose()
        await self._elsewhere.aclose()
        await self.markers.aclose()

    # --- who writes ---------------------------------------------------------------------------

    def ask(self, add: Add, hear: Hear) -> None:
        """Ask whether a producer may write to partitions, wherever its coordinator is.

        ``hear`` is called once, in the midst of an answer that still holds.
        """

        def to(answer: object) -> None:
            if isinstance(answer, WaystationError):
                hear(dict.fromkeys(add.partitions, answer))
            else:
                assert isinstance(answer, Added), f"adding partitions was answered by {answer!r}"
                hear(answer.errors)

        try:
            host = self.host_of(add.transactional_id)
        except NotCoordinatorError:
            self._elsewhere.ask(add, hear)
        except WaystationError as error:
            to(error)
        else:
            host.submit(lambda now: host.machine.add(now, add, to), to)

    async def admit(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        partitions: Iterable[TopicPartition],
        *,
        implicit: bool,
    ) -> None:
        """Raise unless the partitions are part of the producer's transaction.

        With ``implicit`` they become part of it; otherwise somebody must have added them before.
        """
        heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        wanted = frozenset(partitions)
        add = Add(
            transactional_id,
            producer_id,
            epoch,
            wanted,
            verify_only=not implicit,
            implicit=implicit,
        )

        def hear(verdict: object) -> None:
            if not heard.done():
                heard.set_result(verdict)

        self.ask(add, hear)
        verdict = await heard
        assert isinstance(verdict, dict)
        for error in verdict.values():
            if error is not None:
                raise error

    # --- what makes them transactions -----------------------------------------------------------

    def _check_id(self, name: str) -> None:
        if not name:
            raise InvalidRequestError("the transactional id is empty: give the producer a name")
        if not fits_into_a_key(name):
            raise InvalidRequestError(
                f"the transactional id has {len(name)} characters; {ID_BYTES_MAX} bytes may be"
            )

    def _wanted(self) -> InternalTopic:
        settings = self._settings()
        return InternalTopic(
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            settings.transaction_state_log_segment_bytes,
            settings.transaction_state_log_min_isr,
        )

    async def _replayed(
        self, partition: Partition, epoch: LeaderEpoch, end: Offset
    ) -> Loaded[Record]:
        clerk = _Clerk(self.markers)
        machine = Transactions(self._settings, epoch, clerk.hear)
        count = await load(partition, epoch, end, read_rows, machine.apply, self._clock)
        log = TransactionLog(partition, epoch, encode, self._clock)
        log.commits, log.aborts = self._commits, self._aborts
        return Loaded(machine, log, count, clerk.begin)
