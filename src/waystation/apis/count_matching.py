"""CountMatching: how far behind a reader of a view is, in messages (``docs/protocol/views.md``)."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.broker.view_lag import counted
from waystation.messages.count_matching import CountMatchingRequest, CountMatchingResponse
from waystation.model.errors import UnknownTopicError, WaystationError
from waystation.model.ids import NO_LEADER_EPOCH
from waystation.model.offsets import Offset


async def answer(broker: Broker, call: Call[CountMatchingRequest]) -> CountMatchingResponse:
    """The count, once the log was looked through."""
    request = call.message
    try:
        view = broker.views.named(request.view)
        if view is None:
            raise UnknownTopicError(f"there is no view {request.view!r}")
        part = broker.views.partition(view, request.partition)
        if isinstance(part, WaystationError):
            raise part
        part.base.check_epoch(NO_LEADER_EPOCH)
        found = await counted(broker.scanner, part, Offset(request.offset), request.max_bytes)
    except WaystationError as error:
        code, message = told(error)
        return CountMatchingResponse(error_code=code, error_message=message)
    return CountMatchingResponse(
        matches=found.matches, next_offset=found.next_offset, end=found.end
    )
