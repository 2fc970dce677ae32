"""Finds the messages of an API by its key."""

from waystation.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from waystation.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from waystation.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from waystation.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from waystation.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from waystation.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from waystation.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from waystation.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from waystation.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from waystation.messages.produce import ProduceRequest, ProduceResponse
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

__all__ = ["MESSAGES", "request_type", "response_type"]

MESSAGES: dict[ApiKey, tuple[type[Message], type[Message]]] = {
    ApiKey.PRODUCE: (ProduceRequest, ProduceResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    ),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    ),
}


def request_type(api_key: ApiKey) -> type[Message]:
    """The request of an API that is spoken."""
    return MESSAGES[api_key][0]


def response_type(api_key: ApiKey) -> type[Message]:
    """The response of an API that is spoken."""
    return MESSAGES[api_key][1]
