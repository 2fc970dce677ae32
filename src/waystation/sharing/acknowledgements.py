"""What a consumer may say of messages, whoever it is and whatever it holds."""

from collections.abc import Sequence

from waystation.model.errors import InvalidRecordStateError, InvalidRequestError
from waystation.model.offsets import Offset
from waystation.sharing.states import ACKNOWLEDGE_TYPES, Acknowledgement


def check(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Refuse what contradicts itself, whoever says it."""
    last: Offset | None = None
    for first, end, kind, _ in acknowledgements:
        if first >= end or (last is not None and first < last):
            raise InvalidRequestError(
                f"the acknowledgement of [{first}, {end}) is empty, or repeats offsets before "
                f"{last}: acknowledge each offset once, in rising order"
            )
        if kind not in ACKNOWLEDGE_TYPES:
            raise InvalidRequestError(
                f"{kind} is no way to acknowledge; 0 to 4 are gap, accept, release, reject, renew"
            )
        last = end


def not_held(member_id: str, first: Offset, end: Offset, why: str) -> InvalidRecordStateError:
    return InvalidRecordStateError(
        f"member {member_id!r} acknowledges offsets [{first}, {end}), which {why}: whatever "
        "it did with these messages, others may be given them"
    )
