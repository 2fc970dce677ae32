"""Every API this broker serves, in the order of its keys: coverage at one glance.

``spoken`` are the versions that are answered.  ``advertised`` may reach lower: older librdkafka
silently stops compressing unless Produce is advertised from 0, although nobody sends 0 to 2.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from waystation.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    api_versions,
    cancel_redrive,
    cancel_scheduled,
    cluster_status,
    consumer_group_describe,
    consumer_group_heartbeat,
    count_matching,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_redrive,
    describe_scheduled,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_views,
    drain_broker,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    find_messages,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_scheduled,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    once_keys,
    prepare_txn,
    produce,
    produce_once,
    queue_status,
    read_share_group_state,
    read_share_group_state_summary,
    redrive_dead_letters,
    retime_scheduled,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    txn_outcome,
    write_share_group_state,
    write_txn_markers,
)
from waystation.broker.broker import Broker
from waystation.messages.catalog import request_type
from waystation.wire.message import Message
from waystation.wire.versions import SPOKEN, ApiKey, Versions

# A handler's call carries the message of its own API, which one type cannot say for all.
Answer = Callable[[Broker, Any], Message | Awaitable[Message] | None]
Decode = Callable[[memoryview, int], Any]
"""How a request's body is read; as its message says, unless it can be done better."""


class Api(NamedTuple):
    """How one API is served."""

    answer: Answer
    spoken: Versions
    advertised: Versions
    decode: Decode


def _api(
    key: ApiKey,
    answer: Answer,
    advertised_from: int | None = None,
    decode: Decode | None = None,
) -> tuple[ApiKey, Api]:
    spoken = SPOKEN[key].versions
    low = spoken.low if advertised_from is None else advertised_from
    decode = decode or request_type(key).decode
    return key, Api(answer, spoken, Versions(low, spoken.high), decode)


APIS: dict[ApiKey, Api] = dict(
    [
        _api(ApiKey.PRODUCE, produce.answer, advertised_from=0),
        _api(ApiKey.FETCH, fetch.answer, decode=fetch.decode),
        _api(ApiKey.LIST_OFFSETS, list_offsets.answer),
        _api(ApiKey.METADATA, metadata.answer),
        _api(ApiKey.OFFSET_COMMIT, offset_commit.answer),
        _api(ApiKey.OFFSET_FETCH, offset_fetch.answer),
        _api(ApiKey.FIND_COORDINATOR, find_coordinator.answer),
        _api(ApiKey.JOIN_GROUP, join_group.answer),
        _api(ApiKey.HEARTBEAT, heartbeat.answer),
        _api(ApiKey.LEAVE_GROUP, leave_group.answer),
        _api(ApiKey.SYNC_GROUP, sync_group.answer),
        _api(ApiKey.DESCRIBE_GROUPS, describe_groups.answer),
        _api(ApiKey.LIST_GROUPS, list_groups.answer),
        _api(ApiKey.API_VERSIONS, api_versions.answer),
        _api(ApiKey.CREATE_TOPICS, create_topics.answer),
        _api(ApiKey.DELETE_TOPICS, delete_topics.answer),
        _api(ApiKey.DELETE_RECORDS, delete_records.answer),
        _api(ApiKey.INIT_PRODUCER_ID, init_producer_id.answer),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.answer),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn.answer),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn.answer),
        _api(ApiKey.END_TXN, end_txn.answer),
        _api(ApiKey.WRITE_TXN_MARKERS, write_txn_markers.answer),
        _api(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit.answer),
        _api(ApiKey.DESCRIBE_CONFIGS, describe_configs.answer),
        _api(ApiKey.ALTER_CONFIGS, alter_configs.answer),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.answer),
        _api(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.answer),
        _api(ApiKey.CREATE_PARTITIONS, create_partitions.answer),
        _api(ApiKey.DELETE_GROUPS, delete_groups.answer),
        _api(ApiKey.ELECT_LEADERS, elect_leaders.answer),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.answer),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments.answer),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.answer),
        _api(ApiKey.OFFSET_DELETE, offset_delete.answer),
        _api(ApiKey.DESCRIBE_CLUSTER, describe_cluster.answer),
        _api(ApiKey.DESCRIBE_PRODUCERS, describe_producers.answer),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions.answer),
        _api(ApiKey.LIST_TRANSACTIONS, list_transactions.answer),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.answer),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe.answer),
        _api(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.answer),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.answer),
        _api(ApiKey.SHARE_GROUP_HEARTBEAT, share_group_heartbeat.answer),
        _api(ApiKey.SHARE_GROUP_DESCRIBE, share_group_describe.answer),
        _api(ApiKey.SHARE_FETCH, share_fetch.answer),
        _api(ApiKey.SHARE_ACKNOWLEDGE, share_acknowledge.answer),
        _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, initialize_share_group_state.answer),
        _api(ApiKey.READ_SHARE_GROUP_STATE, read_share_group_state.answer),
        _api(ApiKey.WRITE_SHARE_GROUP_STATE, write_share_group_state.answer),
        _api(ApiKey.DELETE_SHARE_GROUP_STATE, delete_share_group_state.answer),
        _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, read_share_group_state_summary.answer),
        _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, describe_share_group_offsets.answer),
        _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_share_group_offsets.answer),
        _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_share_group_offsets.answer),
        _api(ApiKey.PREPARE_TXN, prepare_txn.answer),
        _api(ApiKey.TXN_OUTCOME, txn_outcome.answer),
        _api(ApiKey.CLUSTER_STATUS, cluster_status.answer),
        _api(ApiKey.DRAIN_BROKER, drain_broker.answer),
        _api(ApiKey.DESCRIBE_VIEWS, describe_views.answer),
        _api(ApiKey.COUNT_MATCHING, count_matching.answer),
        _api(ApiKey.LIST_SCHEDULED, list_scheduled.answer),
        _api(ApiKey.DESCRIBE_SCHEDULED, describe_scheduled.answer),
        _api(ApiKey.CANCEL_SCHEDULED, cancel_scheduled.answer),
        _api(ApiKey.RETIME_SCHEDULED, retime_scheduled.answer),
        _api(ApiKey.REDRIVE_DEAD_LETTERS, redrive_dead_letters.answer),
        _api(ApiKey.DESCRIBE_REDRIVE, describe_redrive.answer),
        _api(ApiKey.CANCEL_REDRIVE, cancel_redrive.answer),
        _api(ApiKey.QUEUE_STATUS, queue_status.answer),
        _api(ApiKey.FIND_MESSAGES, find_messages.answer),
        _api(ApiKey.PRODUCE_ONCE, produce_once.answer),
        _api(ApiKey.ONCE_KEYS, once_keys.answer),
    ]
)
