"""DescribeScheduled: one message that waits (``docs/protocol/schedules.md``)."""

from waystation.apis.call import Call
from waystation.apis.scheduled import place_of
from waystation.broker.broker import Broker
from waystation.messages.describe_scheduled import (
    DescribeScheduledRequest,
    DescribeScheduledResponse,
    ScheduledHeader,
)
from waystation.model.errors import WaystationError
from waystation.model.offsets import Offset
from waystation.scheduling.errors import NotPendingError


async def answer(broker: Broker, call: Call[DescribeScheduledRequest]) -> DescribeScheduledResponse:
    """The message, or why it does not wait."""
    request = call.message
    try:
        place = place_of(request.topic, request.partition)
        found, row = await broker.schedules.look_up(*place, Offset(request.offset))
        if row is None:
            name = f"{request.partition}-{request.offset}"
            raise NotPendingError(name, "somebody deleted it")
    except WaystationError as error:
        return DescribeScheduledResponse(error_code=error.code, error_message=str(error))
    _, sent_ms, key, value, headers = row
    return DescribeScheduledResponse(
        due_ms=found.due,
        cron=None if found.cron is None else found.cron.text,
        zone=None if found.cron is None else found.cron.zone,
        sent_ms=sent_ms,
        key=key,
        value=value,
        headers=[ScheduledHeader(name=name, value=said) for name, said in headers],
    )
