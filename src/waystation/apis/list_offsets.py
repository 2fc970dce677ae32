"""ListOffsets: the start, the end, the newest, or the first at or after a time.

Who reads only committed records is shown nothing at or past the last stable offset.  A leader that
was just elected does not answer for the end before it knows all that its predecessor committed:
readers would see the end move back.
"""

from waystation.apis.call import Call
from waystation.apis.repeated import repeated
from waystation.broker.broker import Broker
from waystation.broker.fetching import READ_COMMITTED
from waystation.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from waystation.model.error_codes import ErrorCode
from waystation.model.errors import (
    InvalidRequestError,
    OffsetNotAvailableError,
    UnsupportedVersionError,
    WaystationError,
)
from waystation.model.ids import NO_LEADER_EPOCH
from waystation.model.offsets import NO_OFFSET, NO_TIMESTAMP, Millis, Offset
from waystation.partition.partition import Partition

_SPECIAL_FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_UNSETTLED_FROM_VERSION = 5


class LeaderNotAvailableError(WaystationError):
    """What older clients are told while a new leader is not ready."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


def answer(broker: Broker, call: Call[ListOffsetsRequest]) -> ListOffsetsResponse:
    """An offset for each partition asked about."""
    topics = [
        ListOffsetsTopicResponse(name=topic.name, partitions=_partitions(broker, call, topic))
        for topic in call.message.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _partitions(
    broker: Broker, call: Call[ListOffsetsRequest], topic: ListOffsetsTopic
) -> list[ListOffsetsPartitionResponse]:
    twice = repeated(one.partition_index for one in topic.partitions)
    once = {one.partition_index: one for one in topic.partitions}
    return [
        _partition(broker, call, topic.name, one, twice=one.partition_index in twice)
        for one in once.values()
    ]


def _partition(
    broker: Broker,
    call: Call[ListOffsetsRequest],
    topic: str,
    asked: ListOffsetsPartition,
    *,
    twice: bool,
) -> ListOffsetsPartitionResponse:
    told = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    version = call.version
    try:
        if twice:
            raise InvalidRequestError(f"partition {asked.partition_index} is named twice")
        if asked.timestamp < 0 and version < _SPECIAL_FROM_VERSION.get(asked.timestamp, _NEVER):
            raise UnsupportedVersionError(
                f"{asked.timestamp} is neither a time nor a special offset in version {version}"
            )
        partition = broker.replicas.get_source(topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        stable_only = call.message.isolation_level == READ_COMMITTED
        end = partition.last_stable if stable_only else partition.high_watermark
        told.offset, told.timestamp = _find(partition, asked.timestamp, end)
        if not partition.settled and (asked.timestamp == LATEST or told.offset == NO_OFFSET):
            raise _unsettled(partition, version)
    except WaystationError as error:
        told.error_code = error.code
        return told
    if told.offset != NO_OFFSET:
        known = partition.log.epochs.epoch_at(Offset(told.offset))
        told.leader_epoch = known if known != NO_LEADER_EPOCH else partition.leadership.epoch
    return told


def _unsettled(partition: Partition, version: int) -> WaystationError:
    what = f"{partition.name} has a new leader, which is not sure of the end yet"
    if version < _UNSETTLED_FROM_VERSION:
        return LeaderNotAvailableError(what)
    return OffsetNotAvailableError(what)


def _find(partition: Partition, timestamp: int, end: Offset) -> tuple[Offset, Millis]:
    """What lies at or past ``end`` is not shown."""
    log = partition.log
    match timestamp:
        case _ if timestamp >= 0:
            found = log.find_by_time(Millis(timestamp))
        case _ if timestamp == LATEST:
            return end, NO_TIMESTAMP
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return log.log_start, NO_TIMESTAMP
        case _ if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp()
        case _:
            # Nothing is ever moved to remote storage.
            return NO_OFFSET, NO_TIMESTAMP
    if found is None or found[0] >= end:
        return NO_OFFSET, NO_TIMESTAMP
    return found
