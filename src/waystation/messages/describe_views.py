"""DescribeViews: which views there are, of which topics, and what they show.

An API of our own (10 020), versioned as Kafka's are; what it promises is in
``docs/protocol/views.md``.  Any broker answers it.  Views are made and deleted as topics are.
"""

from uuid import UUID

from waystation.wire.message import Message, Struct
from waystation.wire.schema import array, field, int16, int32, string, uuid
from waystation.wire.versions import ApiKey


class DescribeViewsRequest(Message, api=ApiKey.DESCRIBE_VIEWS):
    """Views by name; ``None`` for all of them."""

    names: list[str] | None = field(array(string), nullable="0+")


class DescribedView(Struct):
    """One view; of one that is not there only its name and an error."""

    error_code: int = field(int16)
    error_message: str | None = field(string, nullable="0+")
    name: str = field(string)
    view_id: UUID = field(uuid)
    topic: str = field(string)
    expression: str = field(string)
    partitions: int = field(int32)


class DescribeViewsResponse(Message, api=ApiKey.DESCRIBE_VIEWS):
    """The views, by name."""

    throttle_time_ms: int = field(int32)
    views: list[DescribedView] = field(array(DescribedView))
