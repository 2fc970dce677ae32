"""What a transactional producer may do at the moment, and as whom.

A pure machine: it is told what happens and asked what is allowed; ``transactor.py`` does the
waiting.  Promises:

1. nothing leaves for a partition that is not part of the transaction, or cannot become part of it
   by being written to;
2. after a failure nothing more leaves: the transaction can only be aborted, and the first reason
   is kept for whoever asks;
3. a producer that was fenced, or does not know what became of its transaction, is dead: only a new
   one with the same transactional id finds out.

Two flows exist.  In the older one a partition is added at the coordinator before anything is
written to it; where the cluster has ``transaction.version`` 2 writing to it adds it (``implicit``),
and every transaction has an epoch of its own.
"""

from collections.abc import Iterable
from enum import Enum

from waystation.client.delivery import Identity
from waystation.model.errors import (
    ErrorCode,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import TopicPartition

__all__ = ["Phase", "Standing", "is_fatal"]

_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_FATAL = (
    *_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)


def is_fatal(error: WaystationError) -> bool:
    """Whether a transactional producer cannot go on after ``error``, not even by aborting."""
    return error.code in _FATAL


class Phase(Enum):
    """Where a producer is between one transaction and the next."""

    IDLE = "idle"
    OPEN = "open"
    CLOSING = "closing"  # takes no more records; those it has are on their way
    FAILED = "failed"
    ENDING = "ending"
    PREPARED = "prepared"
    DEAD = "dead"


_WRITES = (Phase.OPEN, Phase.CLOSING)


class Standing:
    """One producer's; ``identity`` is what its batches carry, ``cause`` why it failed or died."""

    __slots__ = (
        "_began_at",
        "_partitions",
        "_timeout_ms",
        "cause",
        "has_offsets",
        "identity",
        "implicit",
        "phase",
        "transactional_id",
        "unadded",
    )

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.IDLE
        self.identity: Identity | None = None
        self.cause: WaystationError | None = None
        self.implicit = False
        self.has_offsets = False
        self.unadded: dict[TopicPartition, None] = {}
        self._partitions: set[TopicPartition] = set()
        self._timeout_ms = timeout_ms
        self._began_at = 0.0

    # --- asking -----------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether batches may leave, and be sent again."""
        return self.phase in _WRITES

    @property
    def is_decided(self) -> bool:
        """Whether there is nothing to commit or abort, or only for who holds what was prepared."""
        return self.phase in (Phase.IDLE, Phase.PREPARED)

    @property
    def is_empty(self) -> bool:
        """Whether the brokers cannot know of the transaction, so that none need be told its end."""
        return not (self._partitions or self.unadded or self.has_offsets)

    def check_alive(self) -> None:
        """Raise why this producer is no more, if it is."""
        if self.phase is Phase.DEAD and self.cause is not None:
            raise self.cause

    def check_open(self) -> None:
        """Raise unless records and offsets may join the transaction."""
        self.check_alive()
        if self.phase is Phase.FAILED and self.cause is not None:
            raise self.abortable(self.cause)
        if self.phase is not Phase.OPEN:
            raise InvalidTxnStateError(
                f"transactional id {self.transactional_id} has no open transaction: send inside "
                "`async with producer.transaction()`"
            )

    def takes(self, partition: TopicPartition) -> bool:
        """Whether a batch may leave for ``partition`` now; if that must be added, it is noted."""
        if not self.writes:
            return False
        if partition in self._partitions:
            return True
        if self.implicit:
            self._partitions.add(partition)
            return True
        self.unadded[partition] = None
        return False

    def explained(self, error: WaystationError, now_s: float) -> WaystationError:
        """``error`` itself, unless it says that somebody else is this producer now."""
        return self._fenced(now_s) if error.code in _FENCED else error

    def abortable(self, cause: WaystationError) -> TransactionAbortableError:
        """Says that nothing of the transaction counts, and that it may be tried again."""
        told = TransactionAbortableError(
            f"nothing of the transaction of transactional id {self.transactional_id} counts, it "
            f"may be run again; the reason: {cause}"
        )
        told.__cause__ = cause
        return told

    # --- what happened ----------------------------------------------------------------------

    def initialised(self, identity: Identity) -> None:
        """The coordinator has said who this producer is; whatever was open is aborted."""
        self.identity = identity
        self._forget()

    def begin(self, now_s: float, *, implicit: bool) -> None:
        """Open a transaction; raises if another is open, or this producer is dead."""
        self.check_alive()
        if self.phase is not Phase.IDLE:
            raise InvalidTxnStateError(
                f"transactional id {self.transactional_id} has a transaction that is "
                f"{self.phase.value}: end it first; a producer writes one at a time"
            )
        self.phase, self.implicit, self._began_at = Phase.OPEN, implicit, now_s

    def closing(self) -> None:
        """No more records join; raises if the transaction has failed or is over."""
        self.check_open()
        self.phase = Phase.CLOSING

    def added(self, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator counts these in."""
        for where in partitions:
            self.unadded.pop(where, None)
            self._partitions.add(where)

    def failed(self, error: WaystationError, now_s: float) -> bool:
        """Something of the transaction went wrong; true if that is news."""
        if is_fatal(error):
            return self.died(error, now_s)
        if not self.writes:
            return False
        self.phase, self.cause = Phase.FAILED, error
        return True

    def died(self, error: WaystationError, now_s: float) -> bool:
        """Nothing more can be done as this producer; true if that is news."""
        if self.phase is Phase.DEAD:
            return False
        self.cause = self.explained(error, now_s)
        self.phase = Phase.DEAD
        return True

    def ending(self) -> None:
        """The coordinator is asked to commit or abort: nothing leaves any more."""
        self.phase = Phase.ENDING

    def prepared(self) -> None:
        """The transaction waits for its outcome."""
        self.phase = Phase.PREPARED

    def ended(self, identity: Identity | None) -> None:
        """The transaction is over; the next one is written as ``identity``, if that changed."""
        self.identity = identity or self.identity
        self._forget()

    # --- behind the scenes ------------------------------------------------------------------

    def _forget(self) -> None:
        self.phase, self.cause = Phase.IDLE, None
        self.has_offsets = False
        self.unadded.clear()
        self._partitions.clear()

    def _fenced(self, now_s: float) -> ProducerFencedError:
        """The broker does not tell its two reasons apart; the clock does."""
        open_ms = int((now_s - self._began_at) * 1_000)
        if self.phase is not Phase.IDLE and open_ms >= self._timeout_ms:
            return ProducerFencedError(
                f"transactional id {self.transactional_id}: the broker has aborted the "
                f"transaction, which was open for {open_ms} ms, longer than transaction_timeout_ms "
                f"({self._timeout_ms}); start the producer anew, and send less per transaction"
            )
        return ProducerFencedError(
            f"transactional id {self.transactional_id} was taken over by a newer producer: this "
            "one can write nothing more; close it, and give every producer an id of its own"
        )
