"""What can be wrong with a schedule, or with somebody's wish to change one."""

from waystation.model.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    WaystationError,
)

__all__ = ["DamagedIndexError", "InvalidScheduleError", "NotPendingError", "TooManyError"]


class InvalidScheduleError(InvalidRecordError):
    """A record of a companion topic does not say, in a way that can be kept, when it is due."""

    def __init__(self, problem: str, index: int | None = None) -> None:
        self.problem, self.index = problem, index
        """``index`` counts the records of the batch from 0; a batch is refused as a whole."""
        super().__init__(problem if index is None else f"record {index} of the batch: {problem}")


class NotPendingError(InvalidRequestError):
    """Somebody wants to change what was delivered or cancelled, or never there."""

    code = ErrorCode.RESOURCE_NOT_FOUND

    def __init__(self, message_id: str, why: str) -> None:
        self.message_id, self.why = message_id, why
        super().__init__(f"{message_id} is not pending: {why}")


class TooManyError(InvalidRecordError):
    """A table that is held in memory is full."""

    def __init__(self, what: str, limit: int, remedy: str) -> None:
        self.what, self.limit = what, limit
        super().__init__(f"the partition has {limit} {what} already, which is the limit: {remedy}")


class DamagedIndexError(WaystationError):
    """A file of the index is not what was written; the log has everything, so build it anew."""
