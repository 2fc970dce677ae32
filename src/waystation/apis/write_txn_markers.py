"""WriteTxnMarkers: end transactions in partitions that this broker leads.

Coordinators on other brokers ask it, and operators who end what no coordinator knows of.  What
cannot be written, or not committed in a short while, is told and not tried again: whoever asked
does that.

A request that comes late, or twice, does not end the producer's next transaction if it says
``transaction_version`` 2.  Without that (before v2, or in the classic flow) nothing tells a marker
of the same epoch from one that is due: Kafka's rule, too.
"""

import asyncio

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.write_txn_markers import (
    EPOCH_PER_TRANSACTION,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.model.errors import RequestTimedOutError, WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.records.control import Marker

PATIENCE_S = 2.0
"""How long a marker may wait for its commit: the markers of others wait behind it."""


async def answer(broker: Broker, call: Call[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    """The outcome for each partition, once the markers are committed."""
    results = await asyncio.gather(*(_write(broker, one) for one in call.message.markers))
    return WriteTxnMarkersResponse(markers=results)


async def _write(broker: Broker, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        ProducerId(asked.producer_id),
        ProducerEpoch(asked.producer_epoch),
        asked.coordinator_epoch,
        asked.transaction_result,
        bumped=asked.transaction_version >= EPOCH_PER_TRANSACTION,
    )
    names = [
        TopicPartition(topic.name, number)
        for topic in asked.topics
        for number in topic.partition_indexes
    ]
    errors = dict(
        zip(
            names,
            await asyncio.gather(*(_mark(broker, name, marker) for name in names)),
            strict=True,
        )
    )
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=number,
                        error_code=told(errors[TopicPartition(topic.name, number)]).code,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


async def _mark(broker: Broker, name: TopicPartition, marker: Marker) -> WaystationError | None:
    outcome: asyncio.Future[WaystationError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.markers.write(
        name, marker, lambda error: None if outcome.done() else outcome.set_result(error)
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await outcome
    except TimeoutError:
        return RequestTimedOutError(f"the marker is not committed in {name} after {PATIENCE_S:g} s")
