"""Finds the messages of an API by its key."""

from waystation.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from waystation.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from waystation.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from waystation.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from waystation.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from waystation.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from waystation.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from waystation.messages.cancel_redrive import CancelRedriveRequest, CancelRedriveResponse
from waystation.messages.cancel_scheduled import CancelScheduledRequest, CancelScheduledResponse
from waystation.messages.cluster_status import ClusterStatusRequest, ClusterStatusResponse
from waystation.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from waystation.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from waystation.messages.count_matching import CountMatchingRequest, CountMatchingResponse
from waystation.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from waystation.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from waystation.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from waystation.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from waystation.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from waystation.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from waystation.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from waystation.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from waystation.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from waystation.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from waystation.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from waystation.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from waystation.messages.describe_redrive import DescribeRedriveRequest, DescribeRedriveResponse
from waystation.messages.describe_scheduled import (
    DescribeScheduledRequest,
    DescribeScheduledResponse,
)
from waystation.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from waystation.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from waystation.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from waystation.messages.describe_views import DescribeViewsRequest, DescribeViewsResponse
from waystation.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from waystation.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from waystation.messages.end_txn import EndTxnRequest, EndTxnResponse
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from waystation.messages.find_messages import FindMessagesRequest, FindMessagesResponse
from waystation.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from waystation.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from waystation.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from waystation.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from waystation.messages.join_group import JoinGroupRequest, JoinGroupResponse
from waystation.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from waystation.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from waystation.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from waystation.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from waystation.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from waystation.messages.list_scheduled import ListScheduledRequest, ListScheduledResponse
from waystation.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from waystation.messages.metadata import MetadataRequest, MetadataResponse
from waystation.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from waystation.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from waystation.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from waystation.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from waystation.messages.once_keys import OnceKeysRequest, OnceKeysResponse
from waystation.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from waystation.messages.produce import ProduceRequest, ProduceResponse
from waystation.messages.produce_once import ProduceOnceRequest, ProduceOnceResponse
from waystation.messages.queue_status import QueueStatusRequest, QueueStatusResponse
from waystation.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from waystation.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from waystation.messages.redrive_dead_letters import (
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
)
from waystation.messages.retime_scheduled import RetimeScheduledRequest, RetimeScheduledResponse
from waystation.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from waystation.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from waystation.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from waystation.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from waystation.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from waystation.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from waystation.messages.txn_outcome import TxnOutcomeRequest, TxnOutcomeResponse
from waystation.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from waystation.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

__all__ = ["MESSAGES", "request_type", "response_type"]

MESSAGES: dict[ApiKey, tuple[type[Message], type[Message]]] = {
    ApiKey.PRODUCE: (ProduceRequest, ProduceResponse),
    ApiKey.FETCH: (FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: (ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: (MetadataRequest, MetadataResponse),
    ApiKey.OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.FIND_COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.JOIN_GROUP: (JoinGroupRequest, JoinGroupResponse),
    ApiKey.HEARTBEAT: (HeartbeatRequest, HeartbeatResponse),
    ApiKey.LEAVE_GROUP: (LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.SYNC_GROUP: (SyncGroupRequest, SyncGroupResponse),
    ApiKey.DESCRIBE_GROUPS: (DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.LIST_GROUPS: (ListGroupsRequest, ListGroupsResponse),
    ApiKey.API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: (CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: (DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: (DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.ADD_OFFSETS_TO_TXN: (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    ApiKey.END_TXN: (EndTxnRequest, EndTxnResponse),
    ApiKey.WRITE_TXN_MARKERS: (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    ApiKey.TXN_OFFSET_COMMIT: (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    ApiKey.DESCRIBE_CONFIGS: (DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: (AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: (DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.CREATE_PARTITIONS: (CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.DELETE_GROUPS: (DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.ELECT_LEADERS: (ElectLeadersRequest, ElectLeadersResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    ),
    ApiKey.OFFSET_DELETE: (OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.DESCRIBE_CLUSTER: (DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_PRODUCERS: (DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: (DescribeTransactionsRequest, DescribeTransactionsResponse),
    ApiKey.LIST_TRANSACTIONS: (ListTransactionsRequest, ListTransactionsResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    ApiKey.LIST_CONFIG_RESOURCES: (ListConfigResourcesRequest, ListConfigResourcesResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: (ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    ApiKey.SHARE_GROUP_DESCRIBE: (ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    ApiKey.SHARE_FETCH: (ShareFetchRequest, ShareFetchResponse),
    ApiKey.SHARE_ACKNOWLEDGE: (ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    ),
    ApiKey.READ_SHARE_GROUP_STATE: (ReadShareGroupStateRequest, ReadShareGroupStateResponse),
    ApiKey.WRITE_SHARE_GROUP_STATE: (WriteShareGroupStateRequest, WriteShareGroupStateResponse),
    ApiKey.DELETE_SHARE_GROUP_STATE: (DeleteShareGroupStateRequest, DeleteShareGroupStateResponse),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    ),
    ApiKey.PREPARE_TXN: (PrepareTxnRequest, PrepareTxnResponse),
    ApiKey.TXN_OUTCOME: (TxnOutcomeRequest, TxnOutcomeResponse),
    ApiKey.CLUSTER_STATUS: (ClusterStatusRequest, ClusterStatusResponse),
    ApiKey.DRAIN_BROKER: (DrainBrokerRequest, DrainBrokerResponse),
    ApiKey.LIST_SCHEDULED: (ListScheduledRequest, ListScheduledResponse),
    ApiKey.DESCRIBE_SCHEDULED: (DescribeScheduledRequest, DescribeScheduledResponse),
    ApiKey.CANCEL_SCHEDULED: (CancelScheduledRequest, CancelScheduledResponse),
    ApiKey.RETIME_SCHEDULED: (RetimeScheduledRequest, RetimeScheduledResponse),
    ApiKey.DESCRIBE_VIEWS: (DescribeViewsRequest, DescribeViewsResponse),
    ApiKey.COUNT_MATCHING: (CountMatchingRequest, CountMatchingResponse),
    ApiKey.REDRIVE_DEAD_LETTERS: (RedriveDeadLettersRequest, RedriveDeadLettersResponse),
    ApiKey.DESCRIBE_REDRIVE: (DescribeRedriveRequest, DescribeRedriveResponse),
    ApiKey.CANCEL_REDRIVE: (CancelRedriveRequest, CancelRedriveResponse),
    ApiKey.QUEUE_STATUS: (QueueStatusRequest, QueueStatusResponse),
    ApiKey.FIND_MESSAGES: (FindMessagesRequest, FindMessagesResponse),
    ApiKey.PRODUCE_ONCE: (ProduceOnceRequest, ProduceOnceResponse),
    ApiKey.ONCE_KEYS: (OnceKeysRequest, OnceKeysResponse),
}


def request_type(api_key: ApiKey) -> type[Message]:
    """The request of an API that is spoken."""
    return MESSAGES[api_key][0]


def response_type(api_key: ApiKey) -> type[Message]:
    """The response of an API that is spoken."""
    return MESSAGES[api_key][1]
