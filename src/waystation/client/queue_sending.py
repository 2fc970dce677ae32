"""What ``Queue.send`` says with a message beyond its content."""

from waystation.model.errors import InvalidRequestError
from waystation.sharing.ordered_partition import HIGHEST, LOWEST, PRIORITY_HEADER

__all__ = ["priority_header"]


def priority_header(priority: int) -> tuple[str, bytes]:
    """The header that queues with ``share.priority`` obey."""
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_number or not LOWEST <= priority <= HIGHEST:
        raise InvalidRequestError(
            f"priority is {priority!r}, must be a whole number: {LOWEST}, the lowest, to {HIGHEST}"
        )
    return PRIORITY_HEADER, b"%d" % priority
