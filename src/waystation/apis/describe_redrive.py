"""DescribeRedrive: which dead letters went back (``docs/protocol/dead-letters.md``)."""

from waystation.apis.call import Call
from waystation.apis.redrives import told_redrive
from waystation.broker.broker import Broker
from waystation.messages.describe_redrive import (
    DescribeRedriveRequest,
    DescribeRedriveResponse,
    RedrivenSpan,
)
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.model.offsets import Offset

_LIMIT_MAX = 10_000


async def answer(broker: Broker, call: Call[DescribeRedriveRequest]) -> DescribeRedriveResponse:
    """Nothing, where no order was ever given."""
    request = call.message
    try:
        if not 1 <= request.limit <= _LIMIT_MAX:
            raise InvalidRequestError(f"a limit of {request.limit}: 1 to {_LIMIT_MAX} may be")
        desk = broker.redrives.desk(request.topic, request.partition)
        await desk.load(begin=False)
    except WaystationError as error:
        return DescribeRedriveResponse(error_code=error.code, error_message=str(error))
    response = DescribeRedriveResponse(redrive=told_redrive(desk.redrive))
    if desk.redriven is not None:
        spans = desk.redriven.settled_spans(Offset(request.first_offset), request.limit)
        response.redriven = [
            RedrivenSpan(first_offset=first, end_offset=end) for first, end in spans
        ]
        if len(spans) == request.limit:
            response.next_offset = spans[-1].end
    return response
