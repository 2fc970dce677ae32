"""ShareAcknowledge: what became of messages, answered when it is stored.

Of one consumer's session, or of many who hold messages by receipt (``share_receipts.py``).
"""

from waystation.apis.call import Call
from waystation.apis.share_acknowledged import partition_told, response_of
from waystation.apis.share_acknowledging import (
    Outcomes,
    acknowledge,
    check_for_ms,
    check_ids,
    code_of,
)
from waystation.apis.share_receipts import settle
from waystation.broker.broker import Broker
from waystation.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId

_RENEWS_FROM_VERSION = 2


def answer(broker: Broker, call: Call[ShareAcknowledgeRequest]) -> None:
    """HOT: once per request; the reply leaves when what it says is stored."""
    request, queues = call.message, broker.queues
    try:
        group_id, member_id = check_ids(request.group_id, request.member_id)
        for_ms = check_for_ms(request.for_ms)
        if request.by_receipt:
            settle(broker, call, group_id, for_ms)
            return
        turn = queues.sessions.acknowledge(group_id, member_id, request.share_session_epoch)
    except WaystationError as error:
        call.reply(ShareAcknowledgeResponse(error_code=code_of(error), error_message=str(error)))
        return

    def done(outcomes: Outcomes) -> None:
        told = [(place, partition_told(place[1], error)) for place, error in outcomes.items()]
        call.reply(response_of(broker, call, group_id, told, outcomes.values()))

    said = {
        (TopicId(topic.topic_id), one.partition_index): one.acknowledgement_batches
        for topic in request.topics
        for one in topic.partitions
    }
    may_renew = call.version >= _RENEWS_FROM_VERSION and request.is_renew_ack
    acknowledge(queues, group_id, member_id, said, done, may_renew=may_renew, for_ms=for_ms)
    queues.follow(group_id, member_id, turn)
