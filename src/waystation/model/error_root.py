"""The root of the tree of errors, apart from its branches so that each may have a file."""

from waystation.model.error_codes import ErrorCode

__all__ = ["WaystationError"]


class WaystationError(Exception):
    """The root of the tree; ``code`` is what a Kafka client is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR
