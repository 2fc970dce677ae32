"""AddOffsetsToTxn: a group's offsets become part of a transaction, as the partition they are in."""

from waystation.apis.call import Call
from waystation.apis.transactional import answer_of, code_of
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.transactions.commands import Add, Added


async def answer(broker: Broker, call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    """Whether the offsets may be committed in the transaction."""
    try:
        error = await _add(broker, call.message)
    except WaystationError as refusal:
        error = refusal
    return AddOffsetsToTxnResponse(error_code=code_of(error, call.version))


async def _add(broker: Broker, request: AddOffsetsToTxnRequest) -> WaystationError | None:
    # Whoever only writes offsets may be the first to need the topic that keeps them.
    await broker.groups.find(request.group_id)
    offsets = TopicPartition(OFFSETS_TOPIC, broker.groups.number_of(request.group_id))
    name = request.transactional_id
    add = Add(
        name,
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
        frozenset((offsets,)),
    )
    added: Added = await answer_of(
        broker, name, lambda transactions, now, to: transactions.add(now, add, to)
    )
    return added.errors[offsets]
