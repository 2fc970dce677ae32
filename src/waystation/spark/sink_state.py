"""What is remembered of a sink, as one record under its name, and who may ask about it.

A sink is the name under which one query writes into topics.  Its record says which query that
is, which run of it may write now, and which batch was decided last by which transactions: of
those rows, and no others, the topics show each exactly once.  What follows from the record is
decided in ``decisions.py``; it is kept by ``ledger.py``.
"""

import json
import re
from typing import Any, Final, NamedTuple

from waystation.client.transactor import PreparedTransaction
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.spark.sink_errors import LedgerFormatError

__all__ = [
    "CLEANING",
    "NO_BATCH",
    "PAST_RUNS_MAX",
    "ROWS_UNKNOWN",
    "WRITING",
    "Attempt",
    "SinkState",
    "Task",
    "decode_state",
    "encode_state",
    "is_of_batch",
    "is_sink_id",
    "mutex_id",
    "task_of",
    "transactional_id",
]

CLEANING, WRITING = "cleaning", "writing"
"""A run first ends what others left behind; only then do its tasks write."""

NO_BATCH: Final = -1
ROWS_UNKNOWN: Final = -1

PAST_RUNS_MAX: Final = 32
"""How many former runs are remembered.  One that sleeps through more than so many others, and
finds not a single batch decided by any of them, would be taken for a new one."""

_VERSION: Final = 1
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_PREFIX: Final = "waystation.sink."
_OF_TASK: Final = re.compile(r"([01])\.(\d+)\.(\d+)\.(\d+)")


class Attempt(NamedTuple):
    """A run of a query that wants to write one batch into a sink.

    ``batch`` is ``None`` where the batch has no number of its own: it gets the next one.
    """

    sink: str
    query: str
    run: str
    batch: int | None


class Task(NamedTuple):
    """Which part of a batch, and for the how-manieth time.

    ``spare`` is counted up where something is open under the task's transactional id already.
    """

    partition: int
    attempt: int = 0
    spare: int = 0


class SinkState(NamedTuple):
    """One sink; ``decided`` are the transactions that hold the rows of ``batch``."""

    query: str
    run: str
    """Which may write; empty if none may before it has claimed the sink."""
    phase: str = CLEANING
    past_runs: tuple[str, ...] = ()
    batch: int = NO_BATCH
    decided: tuple[PreparedTransaction, ...] = ()
    ended: bool = True
    """Whether all of ``decided`` are known to be committed."""
    decided_by: str = ""
    """The run that decided ``batch``."""
    rows: int = ROWS_UNKNOWN
    """How many ``batch`` has."""


# --- names --------------------------------------------------------------------------------------


def is_sink_id(text: str) -> bool:
    """Whether a sink may be called that: letters, digits, '.', '_' and '-', at most 200."""
    return _SINK_ID.fullmatch(text) is not None


def mutex_id(sink: str) -> str:
    """The transactional id whose producer may change the sink's record."""
    return f"{_PREFIX}{sink}"


def transactional_id(sink: str, batch: int, task: Task) -> str:
    """The id under which a task writes; the next batch has others, the one after it the same.

    What follows the slash is never part of a sink's name: no sink takes another's transactions
    for its own, whatever they are called.
    """
    numbers = f"{batch % 2}.{task.partition}.{task.attempt}.{task.spare}"
    return f"{_task_prefix(sink)}{numbers}"


def task_of(sink: str, transactional_id: str) -> Task | None:
    """The task that writes under that id; ``None`` if it is not one of this sink."""
    numbers = _numbers(sink, transactional_id)
    return None if numbers is None else Task(*numbers[1:])


def is_of_batch(sink: str, batch: int, transactional_id: str) -> bool:
    """Whether tasks of that batch may write under that id."""
    numbers = _numbers(sink, transactional_id)
    return numbers is not None and numbers[0] == batch % 2


def _numbers(sink: str, transactional_id: str) -> list[int] | None:
    prefix = _task_prefix(sink)
    if not transactional_id.startswith(prefix):
        return None
    found = _OF_TASK.fullmatch(transactional_id.removeprefix(prefix))
    return None if found is None else list(map(int, found.groups()))


def _task_prefix(sink: str) -> str:
    return f"{_PREFIX}{sink}/"


# --- as bytes -----------------------------------------------------------------------------------


def encode_state(sink: str, state: SinkState) -> bytes:
    """As JSON, with its version; what all transactional ids begin with is left out."""
    prefix = _task_prefix(sink)
    told = {"version": _VERSION, **state._asdict()}
    told["decided"] = [(one[0].removeprefix(prefix), *one[1:]) for one in state.decided]
    return json.dumps(told, separators=(",", ":")).encode()


def decode_state(sink: str, content: bytes) -> SinkState:
    """The state that ``encode_state`` wrote; what is added later may be missing, or unknown."""
    try:
        told: dict[str, Any] = json.loads(content)
        if told["version"] != _VERSION:
            raise LedgerFormatError(sink, f"version {told['version']}, not {_VERSION}")
        known = {name: told[name] for name in SinkState._fields if name in told}
        known["past_runs"] = tuple(told.get("past_runs", ()))
        known["decided"] = tuple(_prepared(sink, *one) for one in told.get("decided", ()))
        return SinkState(**known)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerFormatError(sink, f"{type(error).__name__}: {error}") from error


def _prepared(sink: str, name: str, producer: int, epoch: int) -> PreparedTransaction:
    return PreparedTransaction(
        f"{_task_prefix(sink)}{name}", ProducerId(producer), ProducerEpoch(epoch)
    )
