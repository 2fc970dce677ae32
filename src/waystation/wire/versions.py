"""Which APIs and versions this node can read and write.

``SPOKEN`` is the one table: messages take their versions from it and headers their shape.
A flexible version has compact lengths and tagged fields.  What a broker advertises is
decided in ``apis/``; it can be wider (Produce from 0, so that old clients keep
compressing) but never narrower than what is spoken here.
"""

from enum import IntEnum
from typing import NamedTuple

__all__ = ["SPOKEN", "ApiKey", "Spoken", "Versions"]


class ApiKey(IntEnum):
    """Kafka's number of an API; the first field of every request.

    From 10 000 on the numbers are ours: Kafka's count up from 0 and are far from there.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    PREPARE_TXN = 10_000
    TXN_OUTCOME = 10_001
    CLUSTER_STATUS = 10_002
    DRAIN_BROKER = 10_003
    LIST_SCHEDULED = 10_010
    DESCRIBE_SCHEDULED = 10_011
    CANCEL_SCHEDULED = 10_012
    RETIME_SCHEDULED = 10_013
    DESCRIBE_VIEWS = 10_020
    COUNT_MATCHING = 10_021
    REDRIVE_DEAD_LETTERS = 10_030
    DESCRIBE_REDRIVE = 10_031
    CANCEL_REDRIVE = 10_032
    QUEUE_STATUS = 10_040
    FIND_MESSAGES = 10_050
    PRODUCE_ONCE = 10_060
    ONCE_KEYS = 10_061


class Versions(NamedTuple):
    """An inclusive range of versions, as Kafka writes it: ``"4+"``, ``"0-12"`` or ``"7"``."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Read Kafka's spelling; an open end reaches as far as a version number can."""
        if text.endswith("+"):
            return cls(int(text[:-1]), 0x7FFF)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def include(self, version: int) -> bool:
        """Whether ``version`` lies in the range."""
        return self.low <= version <= self.high


class Spoken(NamedTuple):
    """The versions of one API that can be encoded and decoded, and where they turn flexible."""

    versions: Versions
    flexible: Versions


def _spoken(versions: str, flexible: str) -> Spoken:
    return Spoken(Versions.parse(versions), Versions.parse(flexible))


SPOKEN: dict[ApiKey, Spoken] = {
    ApiKey.PRODUCE: _spoken("3-13", "9+"),
    ApiKey.FETCH: _spoken("4-18", "12+"),
    ApiKey.LIST_OFFSETS: _spoken("1-11", "6+"),
    ApiKey.METADATA: _spoken("0-13", "9+"),
    ApiKey.OFFSET_COMMIT: _spoken("2-10", "8+"),
    ApiKey.OFFSET_FETCH: _spoken("1-10", "6+"),
    ApiKey.FIND_COORDINATOR: _spoken("0-6", "3+"),
    ApiKey.JOIN_GROUP: _spoken("0-9", "6+"),
    ApiKey.HEARTBEAT: _spoken("0-4", "4+"),
    ApiKey.LEAVE_GROUP: _spoken("0-5", "4+"),
    ApiKey.SYNC_GROUP: _spoken("0-5", "4+"),
    ApiKey.DESCRIBE_GROUPS: _spoken("0-6", "5+"),
    ApiKey.LIST_GROUPS: _spoken("0-5", "3+"),
    ApiKey.API_VERSIONS: _spoken("0-4", "3+"),
    ApiKey.CREATE_TOPICS: _spoken("2-7", "5+"),
    ApiKey.DELETE_TOPICS: _spoken("1-6", "4+"),
    ApiKey.DELETE_RECORDS: _spoken("0-2", "2+"),
    ApiKey.INIT_PRODUCER_ID: _spoken("0-5", "2+"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _spoken("2-4", "4+"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _spoken("0-5", "3+"),
    ApiKey.ADD_OFFSETS_TO_TXN: _spoken("0-4", "3+"),
    ApiKey.END_TXN: _spoken("0-5", "3+"),
    ApiKey.WRITE_TXN_MARKERS: _spoken("0-2", "1+"),
    ApiKey.TXN_OFFSET_COMMIT: _spoken("0-5", "3+"),
    ApiKey.DESCRIBE_CONFIGS: _spoken("1-4", "4+"),
    ApiKey.ALTER_CONFIGS: _spoken("0-2", "2+"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _spoken("1-2", "2+"),
    ApiKey.DESCRIBE_LOG_DIRS: _spoken("1-4", "2+"),
    ApiKey.CREATE_PARTITIONS: _spoken("0-3", "2+"),
    ApiKey.DELETE_GROUPS: _spoken("0-2", "2+"),
    ApiKey.ELECT_LEADERS: _spoken("0-2", "2+"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _spoken("0-1", "1+"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _spoken("0-1", "0+"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _spoken("0", "0+"),
    ApiKey.OFFSET_DELETE: _spoken("0", "1+"),
    ApiKey.DESCRIBE_CLUSTER: _spoken("0-2", "0+"),
    ApiKey.DESCRIBE_PRODUCERS: _spoken("0", "0+"),
    ApiKey.DESCRIBE_TRANSACTIONS: _spoken("0", "0+"),
    ApiKey.LIST_TRANSACTIONS: _spoken("0-1", "0+"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _spoken("0-1", "0+"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _spoken("0-1", "0+"),
    ApiKey.LIST_CONFIG_RESOURCES: _spoken("0-1", "0+"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _spoken("0", "0+"),
    ApiKey.SHARE_GROUP_HEARTBEAT: _spoken("1", "0+"),
    ApiKey.SHARE_GROUP_DESCRIBE: _spoken("1", "0+"),
    ApiKey.SHARE_FETCH: _spoken("1-2", "0+"),
    ApiKey.SHARE_ACKNOWLEDGE: _spoken("1-2", "0+"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _spoken("0", "0+"),
    ApiKey.READ_SHARE_GROUP_STATE: _spoken("0", "0+"),
    ApiKey.WRITE_SHARE_GROUP_STATE: _spoken("0-1", "0+"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _spoken("0", "0+"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _spoken("0-1", "0+"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _spoken("0-1", "0+"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _spoken("0", "0+"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _spoken("0", "0+"),
    ApiKey.PREPARE_TXN: _spoken("0", "0+"),
    ApiKey.TXN_OUTCOME: _spoken("0", "0+"),
    ApiKey.CLUSTER_STATUS: _spoken("0", "0+"),
    ApiKey.DRAIN_BROKER: _spoken("0", "0+"),
    ApiKey.LIST_SCHEDULED: _spoken("0", "0+"),
    ApiKey.DESCRIBE_SCHEDULED: _spoken("0", "0+"),
    ApiKey.CANCEL_SCHEDULED: _spoken("0", "0+"),
    ApiKey.RETIME_SCHEDULED: _spoken("0", "0+"),
    ApiKey.DESCRIBE_VIEWS: _spoken("0", "0+"),
    ApiKey.COUNT_MATCHING: _spoken("0", "0+"),
    ApiKey.REDRIVE_DEAD_LETTERS: _spoken("0", "0+"),
    ApiKey.DESCRIBE_REDRIVE: _spoken("0", "0+"),
    ApiKey.CANCEL_REDRIVE: _spoken("0", "0+"),
    ApiKey.QUEUE_STATUS: _spoken("0", "0+"),
    ApiKey.FIND_MESSAGES: _spoken("0", "0+"),
    ApiKey.PRODUCE_ONCE: _spoken("0", "0+"),
    ApiKey.ONCE_KEYS: _spoken("0", "0+"),
}
