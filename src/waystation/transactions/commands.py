"""What producers, brokers and operators ask of a transaction, and what they are told.

A command's answer is the class named in its docstring, or a ``WaystationError``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from waystation.model.errors import WaystationError
from waystation.model.ids import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from waystation.model.offsets import Millis

# --- producers --------------------------------------------------------------------------------


class Init(NamedTuple):
    """Take over a transactional id and fence whoever had it; answered by ``Initialised``."""

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER
    """What a producer that goes on after an error was told before; none if it is a new one."""
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    fresh: ProducerId | None = None
    """A producer id that nobody has, where ``Transactions.needs_id`` says so."""
    two_phase: bool = False
    """Whether its transactions have no time-out at all (enable2Pc)."""


class Initialised(NamedTuple):
    """Who the producer is from now on."""

    producer_id: ProducerId
    epoch: ProducerEpoch


class Add(NamedTuple):
    """Make partitions part of the transaction, which begins with the first; answered by ``Added``.

    ``implicit`` where a write itself adds its partition (Produce v12+, TxnOffsetCommit v5+).
    ``verify_only`` adds nothing and tells which are part of it.  While the markers of the last
    transaction are written it is ``patient``, or told so at once.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    verify_only: bool = False
    implicit: bool = False
    patient: bool = True


class Added(NamedTuple):
    """For each partition: ``None``, or why it is not part of the transaction.

    A request that is wrong as a whole is answered by its error instead.
    """

    errors: Mapping[TopicPartition, WaystationError | None]


class End(NamedTuple):
    """Commit or abort; answered by ``Ended`` as soon as nothing can change it any more.

    ``bumps`` where the next transaction shall have an epoch of its own (EndTxn v5+).
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    commit: bool
    bumps: bool = False
    fresh: ProducerId | None = None
    """As in ``Init``: which follows where the epochs are used up."""


class Ended(NamedTuple):
    """Who the producer is in its next transaction.

    None (-1, -1) where a repeat asks about a transaction after which others have come already.
    """

    producer_id: ProducerId
    epoch: ProducerEpoch


# --- two-phase commit -------------------------------------------------------------------------


class Prepare(NamedTuple):
    """Promise that the transaction can be committed, whatever happens; answered by ``Prepared``.

    From then on only ``End`` with these three, the operator, or the operator's limit ends it.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch


class Prepared(NamedTuple):
    """The transaction waits for its end, however long."""


ONGOING, PREPARED = "ongoing", "prepared"
COMMITTING, ABORTING = "committing", "aborting"
COMMITTED, ABORTED, ABORTED_BY_LIMIT = "committed", "aborted", "aborted_by_limit"
UNKNOWN = "unknown"


class TransactionOutcome(NamedTuple):
    """How a transaction stands or ended (one of the words above), and since when; -1 if unknown."""

    state: str
    at: Millis


# --- markers ----------------------------------------------------------------------------------


class MarkersDue(NamedTuple):
    """It is decided and committed how a transaction ends: say so in each of its partitions.

    Told to the coordinator's ``markers``, once per decision and again after each load.  Whoever
    writes them says so by ``Transactions.markers_written(now, due, partitions)``, as often as it
    likes, with this very object: in the classic flow two transactions of a producer have all of
    its fields in common, and the markers of one must not count for the other.

    ``markers`` is told ``NotCoordinatorError`` instead where the coordinator went before the
    decision was committed; whoever coordinates next finds what there is to do.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    """Of the markers: newer than that of the writes, where that fences or bumps."""
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    bumped: bool = False
    """Whether the next transaction will have the markers' epoch: a late one must not end it."""


# --- operators --------------------------------------------------------------------------------


class TransactionDescription(NamedTuple):
    """A transactional id in full; times are -1 where nothing is under way."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    state: str
    """Kafka's word, or "Prepared"."""
    timeout_ms: int
    started_at: Millis
    updated_at: Millis
    prepared_at: Millis
    partitions: tuple[TopicPartition, ...]


class TransactionListing(NamedTuple):
    """One line of a list of transactions."""

    transactional_id: str
    producer_id: ProducerId
    state: str
