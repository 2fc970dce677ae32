"""OnceKeys: the leader of a partition tells a replica which idempotency keys it remembers."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.storage.once_window import PAGES


async def answer(broker: Broker, call: Call[OnceKeysRequest]) -> OnceKeysResponse:
    """One page; only of messages that no other leader can take back."""
    request = call.message
    try:
        if not 0 <= request.page < PAGES:
            raise InvalidRequestError(f"page {request.page}: 0 to {PAGES - 1} may be asked for")
        partition = broker.replicas.get("", request.partition, TopicId(request.topic_id))
        partition.check_epoch(request.leader_epoch)
        mark = partition.high_watermark
        end = mark if request.end < 0 else min(Offset(request.end), mark)
        keys, next_page = partition.log.once.page(request.page, end)
    except WaystationError as error:
        code, message = told(error)
        return OnceKeysResponse(error_code=code, error_message=message)
    return OnceKeysResponse(end=end, next_page=next_page, keys=keys)
