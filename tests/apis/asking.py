"""The questions that tests of many APIs ask, each in any version."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from tests.apis.kit import Wire, newest
from waystation.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from waystation.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from waystation.messages.delete_topics import DeleteTopicsRequest
from waystation.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from waystation.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from waystation.messages.init_producer_id import InitProducerIdRequest
from waystation.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from waystation.messages.metadata import MetadataRequest, MetadataRequestTopic
from waystation.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from waystation.model.ids import NO_TOPIC_ID
from waystation.records.batch import Record, records_of
from waystation.records.header import batches
from waystation.wire.versions import ApiKey

TOPIC, BROKER = 2, 4
PRODUCE_BY_ID_FROM, FETCH_BY_ID_FROM = 13, 13


class Asking(Wire):
    """A connection that knows how to ask."""

    def create(self, topic: str, partitions: int = 1, **configs: str) -> CreatableTopicResult:
        """Make a topic; ``retention_ms="1"`` is the config ``retention.ms``."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        (outcome,) = self.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert outcome.error_code == 0, outcome
        return outcome  # type: ignore[no-any-return]

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        (outcome,) = self.ask(
            DeleteTopicsRequest(topic_names=[topic], timeout_ms=9_000), 5
        ).responses
        assert outcome.error_code == 0, outcome

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic that exists."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        return self.ask(request, 12).topics[0].topic_id  # type: ignore[no-any-return]

    def produce(
        self,
        topic: str,
        records: bytes | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        topic_id: UUID | None = None,
    ) -> PartitionProduceResponse:
        """The outcome of sending ``records`` as they are."""
        if version >= PRODUCE_BY_ID_FROM and topic_id is None:
            topic_id = self.topic_id(topic)
        request = produce_request(topic, records, partition, acks, topic_id=topic_id)
        reply = self.ask(request, version)
        found = reply.responses[0].partition_responses[0]
        assert isinstance(found, PartitionProduceResponse)
        return found

    def fetch(self, topic: str, offset: int, *, version: int = 11, **asked: Any) -> PartitionData:
        """What one fetch gives of one partition, without waiting."""
        if version >= FETCH_BY_ID_FROM and "topic_id" not in asked:
            asked["topic_id"] = self.topic_id(topic)
        reply = self.ask(fetch_request(topic, offset, **asked), version)
        found = reply.responses[0].partitions[0]
        assert isinstance(found, PartitionData)
        return found

    def read(self, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
        """The records that one fetch gives."""
        return records_in(self.fetch(topic, offset, partition=partition))

    def offsets(self, topic: str, at: int, *, version: int = 11, **asked: int) -> Any:
        """What ListOffsets says of partition 0 for a time or special offset."""
        question = ListOffsetsPartition(partition_index=asked.pop("partition", 0), timestamp=at)
        for name, value in asked.items():
            setattr(question, name, value)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[question])])
        return self.ask(request, version).topics[0].partitions[0]

    def start_and_end(self, topic: str) -> tuple[int, int]:
        """The first offset and the one after the last."""
        return self.offsets(topic, -2).offset, self.offsets(topic, -1).offset

    def await_end(self, topic: str, end: int) -> None:
        """Wait until records that were acknowledged before their sync are committed."""
        request = fetch_request(topic, end - 1, max_wait_ms=9_000, min_bytes=1)
        found = self.ask(request, 11).responses[0].partitions[0]
        assert found.high_watermark == end, found

    def delete_records(self, topic: str, before: int, *, version: int = 2) -> Any:
        """The outcome of moving the start of partition 0 to ``before``."""
        asked = DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=9_000
        )
        return self.ask(request, version).topics[0].partitions[0]

    def alter(
        self,
        kind: int,
        name: str,
        changes: Mapping[str, str | None] | Iterable[AlterableConfig],
        *,
        version: int = 1,
        validate_only: bool = False,
    ) -> AlterConfigsResourceResponse:
        """Set options, or with ``None`` as a value delete them; the outcome."""
        if isinstance(changes, Mapping):
            changes = [
                AlterableConfig(
                    name=option, config_operation=0 if value is not None else 1, value=value
                )
                for option, value in changes.items()
            ]
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=list(changes)
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        (outcome,) = self.ask(request, version).responses
        assert isinstance(outcome, AlterConfigsResourceResponse)
        return outcome

    def configure(self, kind: int, name: str, **options: str) -> None:
        """Set options that must be accepted."""
        changes = {option.replace("_", "."): value for option, value in options.items()}
        outcome = self.alter(kind, name, changes)
        assert outcome.error_code == 0, outcome

    def new_producer(self) -> int:
        """A fresh producer id."""
        version = newest(ApiKey.INIT_PRODUCER_ID)
        reply = self.ask(InitProducerIdRequest(transactional_id=None), version)
        assert reply.error_code == 0, reply
        return int(reply.producer_id)


def produce_request(
    topic: str,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    *,
    topic_id: UUID | None = None,
    timeout_ms: int = 9_000,
) -> ProduceRequest:
    """One batch, or what poses as one, for one partition."""
    view = None if records is None else memoryview(records)
    data = PartitionProduceData(index=partition, records=view)
    topics = [TopicProduceData(name=topic, topic_id=topic_id or NO_TOPIC_ID, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def fetch_request(
    topic: str = "",
    offset: int = 0,
    *,
    partition: int = 0,
    topic_id: UUID = NO_TOPIC_ID,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
) -> FetchRequest:
    """A fetch of one partition, outside of any session."""
    asked = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])],
    )


def session_request(
    session_id: int,
    epoch: int,
    topics: Iterable[FetchTopic] = (),
    forgotten: Iterable[ForgottenTopic] = (),
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
) -> FetchRequest:
    """A fetch within a session."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=list(topics),
        forgotten_topics_data=list(forgotten),
    )


def records_in(found: PartitionData) -> list[Record]:
    """The records of a fetched partition."""
    data = b"" if found.records is None else bytes(found.records)  # type: ignore[arg-type]
    return [one for at, _ in batches(data) for one in records_of(data, at)]
