"""What consumers of queues say became of messages, from the wire to queues and back.

ShareFetch and ShareAcknowledge say it in the same words.  A request is answered when everything
it says is stored or refused, partition by partition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from waystation.broker.queue_host import QueueHost
from waystation.broker.queues import Queues
from waystation.messages.share_fetch import AcknowledgementBatch
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import (
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRecordStateError,
    InvalidRequestError,
    WaystationError,
)
from waystation.model.offsets import Offset
from waystation.sharing.redriven import REDRIVE_GROUP
from waystation.sharing.sessions import PartitionOf
from waystation.sharing.states import RENEW, Acknowledgement

_FOR_MS_MAX: Final = 24 * 60 * 60 * 1_000
# One range may not make the broker work for offsets that nobody could hold.
_TYPES_MAX: Final = 1_000_000

Outcomes = dict[PartitionOf, WaystationError | None]


def acknowledge(
    queues: Queues,
    group_id: str,
    member_id: str,
    said: Mapping[PartitionOf, Sequence[AcknowledgementBatch]],
    done: Callable[[Outcomes], None],
    *,
    may_renew: bool,
    for_ms: int = 0,
) -> None:
    """Have queues follow what a consumer says; ``done`` hears what became of it, once.

    HOT: once per request that acknowledges.
    """
    outcomes: Outcomes = {}
    left = len(said)

    def told(place: PartitionOf, answer: object) -> None:
        nonlocal left
        left -= 1
        outcomes[place] = answer if isinstance(answer, WaystationError) else None
        if not left:
            done(outcomes)

    if not said:
        done(outcomes)
    for place, batches in said.items():
        try:
            wishes = meant(batches, for_ms, may_renew=may_renew)
            host = holding(queues, group_id, place)
        except WaystationError as error:
            told(place, error)
        else:
            for batch in batches:
                if batch.reason:
                    host.reasons.add(batch.first_offset, batch.last_offset + 1, batch.reason)
            host.acknowledge(member_id, wishes, partial(told, place))


def code_of(error: WaystationError) -> ErrorCode:
    """What a consumer is told: that another leads, or that what it says came too late."""
    if isinstance(error, FencedLeaderEpochError):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if isinstance(error, FencedStateEpochError):
        return ErrorCode.INVALID_RECORD_STATE
    return error.code


def check_ids(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """The two ids that every request names."""
    if not group_id or not member_id:
        missing = "group id" if not group_id else "member id"
        raise InvalidRequestError(f"the request has no {missing}: a queue's consumer says both")
    if group_id == REDRIVE_GROUP:
        raise InvalidRequestError(f"{REDRIVE_GROUP} is the cluster's own, which nobody consumes")
    return group_id, member_id


def check_for_ms(for_ms: int) -> int:
    """How long something is to wait, or to be locked; a day at most."""
    if not 0 <= for_ms <= _FOR_MS_MAX:
        raise InvalidRequestError(
            f"messages cannot wait, or be locked, for {for_ms} ms: 0 to {_FOR_MS_MAX} is possible"
        )
    return for_ms


def holding(queues: Queues, group_id: str, place: PartitionOf) -> QueueHost:
    """The queue that a consumer may hold something of."""
    queues.check_led(*place)
    host = queues.find(group_id, *place)
    if host is None or host.leader is None:
        raise InvalidRecordStateError(
            f"nothing of partition {place[1]} is held in group {group_id!r} since this broker "
            "leads it: whatever was acquired before is given to others"
        )
    return host


def meant(
    batches: Iterable[AcknowledgementBatch], for_ms: int, *, may_renew: bool
) -> Sequence[Acknowledgement]:
    """Ranges with one meaning each."""
    found: list[Acknowledgement] = []
    for batch in batches:
        first, end, types = batch.first_offset, batch.last_offset + 1, batch.acknowledge_types
        if len(types) == 1:
            found.append(Acknowledgement(Offset(first), Offset(end), types[0], for_ms))
            continue
        if len(types) != end - first or len(types) > _TYPES_MAX:
            raise InvalidRequestError(
                f"{len(types)} acknowledgements are named for offsets [{first}, {end}): name one "
                "for all of them, or one for each"
            )
        for kind, run in groupby(types):
            behind = first + sum(1 for _ in run)
            found.append(Acknowledgement(Offset(first), Offset(behind), kind, for_ms))
            first = behind
    if not may_renew and any(one.kind == RENEW for one in found):
        raise InvalidRequestError(
            "messages are renewed by requests that say so: set is_renew_ack, from version 2 on"
        )
    return found
