"""What a task of a write does with its rows.

It sends them as they come (``sending.py``), packed by ``encode.py``.  At least once, they are
seen at once, and a task that is repeated sends them again.  Exactly once, the task asks the sink
first (``sink_steps.py``), writes in one transaction, and leaves that *prepared*: neither its own
death nor a time-out ends it then, and the driver decides.  A task without rows asks nobody.

A broker that is away when a task begins is waited for, ``kafka.max.block.ms`` at most: its
restart costs a query time, not its life.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.client.errors import BrokerUnreachableError
from waystation.model.errors import (
    ConcurrentTransactionsError,
    InvalidTransactionTimeoutError,
    WaystationError,
)
from waystation.spark.errors import BadOptionError
from waystation.spark.sending import Sending
from waystation.spark.sink_cluster import open_sink
from waystation.spark.sink_options import WriteOptions
from waystation.spark.sink_state import Attempt, Task
from waystation.spark.sink_steps import Admitted, Dropped, SinkSteps, TaskMessage

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Part", "write_at_least_once", "write_exactly_once"]

_PAUSE_S: Final = 0.25
_IDS_TRIED: Final = 5


class Part(NamedTuple):
    """Which part of which batch a task writes."""

    attempt: Attempt
    task: Task


def write_at_least_once(options: WriteOptions, batches: "Iterable[pa.RecordBatch]") -> int:
    """Send all rows, and wait until brokers have them; how many there were."""
    rows = _with_rows(batches)
    if rows is None:
        return 0
    with Sending(options.bootstrap, options.producer) as sending:
        _patiently(options, sending.start)
        count = _send(options, sending, rows)
        sending.flush()
        return count


def write_exactly_once(
    options: WriteOptions, part: Part, batches: "Iterable[pa.RecordBatch]"
) -> TaskMessage | None:
    """Prepare all rows, or pass over them if they are there already; what the driver is told."""
    rows = _with_rows(batches)
    if rows is None:
        return None
    with Sending(options.bootstrap, options.producer) as sending:
        held = AsyncExitStack()
        try:
            steps = sending.run(_opened(options, held))
            admitted = sending.run(steps.admit(*part))
            if isinstance(admitted, Dropped):
                return admitted.message(sum(batch.num_rows for batch in rows))
            return _prepare(options, sending, steps, admitted, rows)
        finally:
            sending.run(held.aclose())


async def _opened(options: WriteOptions, held: AsyncExitStack) -> SinkSteps:
    return await held.enter_async_context(open_sink(options.bootstrap, **options.connection))


def _prepare(
    options: WriteOptions,
    sending: Sending,
    steps: SinkSteps,
    admitted: Admitted,
    rows: "Iterator[pa.RecordBatch]",
) -> TaskMessage:
    admitted = _begin(options, sending, steps, admitted)
    try:
        count = _send(options, sending, rows)
        prepared = sending.prepare()
    except BaseException:
        with suppress(WaystationError):  # then whoever cleans up next does it
            sending.abort()
        raise
    return sending.run(steps.written(admitted, prepared, count))


def _begin(
    options: WriteOptions, sending: Sending, steps: SinkSteps, admitted: Admitted
) -> Admitted:
    """Open a transaction under an id that nobody else has prepared anything under."""
    for tries_left in reversed(range(_IDS_TRIED)):
        admitted = sending.run(steps.make_way(admitted))
        try:
            _patiently(options, partial(sending.start, admitted.transactional_id))
            break
        except ConcurrentTransactionsError:
            if not tries_left:
                raise
        except InvalidTransactionTimeoutError as error:
            raise BadOptionError(
                f"transactionTimeout is {options.transaction_timeout_ms} ms, and the brokers allow "
                f"less: lower it, or raise transaction.max.timeout.ms there ({error})"
            ) from None
    return admitted


def _send(options: WriteOptions, sending: Sending, rows: "Iterator[pa.RecordBatch]") -> int:
    encoder = sending.encoder(options.topic)
    for batch in rows:
        for packed in encoder.add(batch):
            sending.put(packed)
    for packed in encoder.flush():
        sending.put(packed)
    return encoder.rows


def _with_rows(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch] | None":
    """The same batches, if there is any row in them."""
    rest = iter(batches)
    for batch in rest:
        if batch.num_rows:
            return chain([batch], rest)
    return None


def _patiently(options: WriteOptions, reach: Callable[[], None]) -> None:
    """Reach brokers, again and again while none answers."""
    deadline = time.monotonic() + options.patience_ms / 1_000
    while True:
        try:
            return reach()
        except BrokerUnreachableError:
            if time.monotonic() + _PAUSE_S > deadline:
                raise
        time.sleep(_PAUSE_S)
