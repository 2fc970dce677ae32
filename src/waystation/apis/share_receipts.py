"""ShareAcknowledge by receipts: many who hold messages, each under a name of its own, at once.

1. Each batch is followed or refused by itself: one that is over spoils no other.
2. What all of a partition say is stored together, and answered then.
3. What was followed and could not be stored here is told as not known: it may be stored.
"""

from collections.abc import Callable
from functools import partial

from waystation.apis.call import Call
from waystation.apis.share_acknowledged import partition_told, response_of
from waystation.apis.share_acknowledging import code_of, holding, meant
from waystation.broker.broker import Broker
from waystation.broker.queue_host import QueueHost
from waystation.broker.queues import Queues
from waystation.messages.share_acknowledge import (
    AcknowledgePartition,
    PartitionData,
    ShareAcknowledgeRequest,
)
from waystation.messages.share_fetch import AcknowledgementBatch
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import WaystationError
from waystation.model.ids import TopicId
from waystation.sharing.sessions import PartitionOf

_RENEWS_FROM_VERSION = 2


def settle(broker: Broker, call: Call[ShareAcknowledgeRequest], group_id: str, for_ms: int) -> None:
    """HOT: once per request; the reply leaves when what it says is stored."""
    request, queues = call.message, broker.queues
    parts = [
        _Part(
            (TopicId(topic.topic_id), one.partition_index),
            one,
            request.member_id or "",
            for_ms,
            may_renew=call.version >= _RENEWS_FROM_VERSION and request.is_renew_ack,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    left = len(parts)

    def done() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            told = [(one.place, one.told()) for one in parts]
            call.reply(response_of(broker, call, group_id, told, [one.error for one in parts]))

    if not parts:
        done()
    for one in parts:
        one.begin(queues, group_id, done)


class _Part:
    """What is said of one partition."""

    __slots__ = (
        "_batches",
        "_codes",
        "_for_ms",
        "_left",
        "_may_renew",
        "_member_id",
        "error",
        "place",
    )

    def __init__(
        self,
        place: PartitionOf,
        said: AcknowledgePartition,
        member_id: str,
        for_ms: int,
        *,
        may_renew: bool,
    ) -> None:
        self.place, self._batches = place, said.acknowledgement_batches
        self._member_id, self._for_ms, self._may_renew = member_id, for_ms, may_renew
        self._codes = [int(ErrorCode.NONE)] * len(self._batches)
        self._left = len(self._batches)
        self.error: WaystationError | None = None
        """Why nothing at all was followed, if so."""

    def begin(self, queues: Queues, group_id: str, done: Callable[[], None]) -> None:
        """Have the queue follow; ``done`` is called once, when all is stored or refused."""
        try:
            said = [meant((one,), self._for_ms, may_renew=self._may_renew) for one in self._batches]
            host = holding(queues, group_id, self.place)
        except WaystationError as error:
            self.error = error
            self._codes = [int(code_of(error))] * len(self._batches)
            done()
            return
        if not said:
            done()
            return
        is_followed = False

        def told(number: int, answer: object) -> None:
            self._left -= 1
            if isinstance(answer, WaystationError):
                code = ErrorCode.REQUEST_TIMED_OUT if is_followed else code_of(answer)
                self._codes[number] = int(code)
            elif reason := self._batches[number].reason:
                _explain(host, self._batches[number], reason)
            if not self._left:
                done()

        host.settle(
            (batch.member_id or self._member_id, wishes, partial(told, number))
            for number, (batch, wishes) in enumerate(zip(self._batches, said, strict=True))
        )
        is_followed = True

    def told(self) -> PartitionData:
        """As it goes out: who does not look at single batches is told of the first refusal."""
        told = partition_told(self.place[1], self.error)
        told.error_code = told.error_code or next(filter(None, self._codes), 0)
        told.batch_error_codes = self._codes
        return told


def _explain(host: QueueHost, batch: AcknowledgementBatch, reason: str) -> None:
    host.reasons.add(batch.first_offset, batch.last_offset + 1, reason)
