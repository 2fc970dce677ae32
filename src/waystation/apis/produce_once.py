"""ProduceOnce: store messages that were not stored before, answer when all are committed."""

import asyncio
from typing import Final

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.produce_once import OncePlace, ProduceOnceRequest, ProduceOnceResponse
from waystation.model.errors import (
    CorruptBatchError,
    InvalidRecordError,
    InvalidRequestError,
    RequestTimedOutError,
    WaystationError,
)
from waystation.model.offsets import Offset
from waystation.partition.once import RECORDS_MAX, Room, Stored, store
from waystation.partition.partition import Partition
from waystation.records.batch import rows_of
from waystation.records.header import check_produced
from waystation.records.record import Row

_WAIT_MAX_MS: Final = 300_000


async def answer(broker: Broker, call: Call[ProduceOnceRequest]) -> ProduceOnceResponse:
    """Everything is decided and appended before the first wait."""
    request = call.message
    try:
        stored = await _store(broker, request)
    except WaystationError as error:
        code, message = told(error)
        return ProduceOnceResponse(error_code=code, error_message=message)
    return ProduceOnceResponse(
        places=[
            OncePlace(fate=fate, offset=one.offset, timestamp_ms=one.timestamp)
            for fate, one in zip(stored.fates, stored.places, strict=True)
        ]
    )


async def _store(broker: Broker, request: ProduceOnceRequest) -> Stored:
    partition = broker.replicas.get(request.topic, request.partition)
    broker.check_writable(partition.name.topic)
    room = Room(broker.replicas.keys_known, broker.settings.idempotency_broker_keys_max)
    stored = store(partition, _rows(request), broker.clock.now(), room)
    broker.replicas.keys_known += stored.fresh
    await _committed(partition, stored.end, request.timeout_ms)
    return stored


def _rows(request: ProduceOnceRequest) -> list[Row]:
    try:
        header = check_produced(request.records)
        if header.records_count > RECORDS_MAX:
            raise InvalidRequestError(
                f"{header.records_count} records at once: at most {RECORDS_MAX} may be"
            )
        if header.is_transactional:
            raise InvalidRequestError("messages with idempotency keys are in no transaction")
        return rows_of(request.records)
    except CorruptBatchError as error:
        raise InvalidRecordError(str(error)) from error


async def _committed(partition: Partition, end: Offset, timeout_ms: int) -> None:
    """Return once everything before ``end`` is committed; what was stored before may not be."""
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(error: WaystationError | None) -> None:
        if waiting.done():
            return
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)

    if partition.when_committed(end, tell):
        return
    try:
        async with asyncio.timeout(min(max(timeout_ms, 0), _WAIT_MAX_MS) / 1_000):
            await waiting
    except TimeoutError:
        raise RequestTimedOutError(
            f"not committed within the {timeout_ms} ms the client allowed"
        ) from None
