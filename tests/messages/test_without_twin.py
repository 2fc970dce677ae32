"""Messages that kio has no schema of, written out by hand: the bytes are the contract.

Those of our own APIs are printed in ``docs/protocol/``, for people who write clients of their
own; the test holds the pages to them.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from tests.messages.arbitrary import instance
from tests.messages.dead_letter_bytes import DEAD_LETTERS
from tests.messages.finding_bytes import FINDING
from tests.messages.generated import WITHOUT_TWIN
from tests.messages.once_bytes import ONCE
from tests.messages.queue_bytes import QUEUES
from tests.messages.scheduled_bytes import SCHEDULED
from tests.messages.view_bytes import VIEWS

from waystation.messages.catalog import MESSAGES
from waystation.messages.cluster_status import (
    ClusterStatusBroker,
    ClusterStatusFeature,
    ClusterStatusPartition,
    ClusterStatusReassignment,
    ClusterStatusRequest,
    ClusterStatusResponse,
)
from waystation.messages.drain_broker import DrainBrokerRequest, DrainBrokerResponse
from waystation.messages.prepare_txn import PrepareTxnRequest, PrepareTxnResponse
from waystation.messages.txn_outcome import TxnOutcomeRequest, TxnOutcomeResponse
from waystation.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

PAGES = Path(__file__).parents[2] / "docs/protocol"
OWN_APIS = {
    "two-phase-commit.md": (ApiKey.PREPARE_TXN, ApiKey.TXN_OUTCOME),
    "cluster.md": (ApiKey.CLUSTER_STATUS, ApiKey.DRAIN_BROKER),
    "schedules.md": (
        ApiKey.LIST_SCHEDULED,
        ApiKey.DESCRIBE_SCHEDULED,
        ApiKey.CANCEL_SCHEDULED,
        ApiKey.RETIME_SCHEDULED,
    ),
    "views.md": (ApiKey.DESCRIBE_VIEWS, ApiKey.COUNT_MATCHING),
    "queues.md": (ApiKey.QUEUE_STATUS,),
    "finding.md": (ApiKey.FIND_MESSAGES,),
    "idempotency.md": (ApiKey.PRODUCE_ONCE, ApiKey.ONCE_KEYS),
    "dead-letters.md": (
        ApiKey.REDRIVE_DEAD_LETTERS,
        ApiKey.DESCRIBE_REDRIVE,
        ApiKey.CANCEL_REDRIVE,
    ),
}

WRITTEN: list[tuple[Message, int, str]] = [
    (
        PrepareTxnRequest(transactional_id="pay", producer_id=4711, producer_epoch=3),
        0,
        "04 706179  0000000000001267  0003  00",
    ),
    (PrepareTxnResponse(), 0, "00000000  0000  00  00"),
    (
        PrepareTxnResponse(error_code=48, error_message="gone"),
        0,
        "00000000  0030  05 676f6e65  00",
    ),
    (
        TxnOutcomeRequest(transactional_id="pay", producer_id=4711, producer_epoch=3),
        0,
        "04 706179  0000000000001267  0003  00",
    ),
    (
        TxnOutcomeResponse(state="committed", at_ms=1_800_000_000_000),
        0,
        "00000000  0000  00  0a 636f6d6d6974746564  000001a3185c5000  00",
    ),
    (DrainBrokerRequest(broker_id=2), 0, "00000002 01 00"),
    (
        DrainBrokerResponse(replicas=12, leaders=3),
        0,
        "00000000 0000 00 0000000c 00000003 00000000 00",
    ),
    (
        DrainBrokerResponse(error_code=102, error_message="who?"),
        0,
        "00000000 0066 05 77686f3f 00000000 00000000 00000000 00",
    ),
    (ClusterStatusRequest(limit=100), 0, "00000064 00"),
    (
        ClusterStatusResponse(
            cluster_id="c",
            answered_by=1,
            revision=9,
            controller_id=1,
            controller_epoch=4,
            topic_count=1,
            partition_count=1,
            under_replicated_count=1,
            brokers=[
                ClusterStatusBroker(
                    broker_id=1,
                    alive=True,
                    epoch=7,
                    host="h",
                    port=9092,
                    rack="r",
                    features=[ClusterStatusFeature(name="store", version=1)],
                    clean=True,
                    replicas=1,
                    leaders=1,
                    preferred_leaders=1,
                )
            ],
            partitions=[
                ClusterStatusPartition(
                    topic="t",
                    leader=1,
                    leader_epoch=5,
                    replicas=[1, 2],
                    in_sync=[1],
                    min_in_sync=1,
                    under_replicated=True,
                )
            ],
            reassignments=[
                ClusterStatusReassignment(
                    topic="t",
                    replicas=[1, 2, 3],
                    target=[1, 3],
                    adding=[3],
                    removing=[2],
                    begun=True,
                    waiting_for=[3],
                )
            ],
        ),
        0,
        "00000000 0000 00 02 63 00000001 0000000000000009 00000001 0000000000000004"
        "00000001 00000001 00000000 00000001 00000000 00000000 00000000 00000000 00000000"
        "02 00000001 01 0000000000000007 02 68 00002384 02 72 00 02 06 73746f7265 00000001 00"
        "01 00 00 00000001 00000001 00000001 00"
        "02 02 74 00000000 00000001 00000005 03 00000001 00000002 02 00000001 01 00000001 00 01 00"
        "00"
        "02 02 74 00000000 04 00000001 00000002 00000003 03 00000001 00000003 02 00000003"
        "02 00000002 01 02 00000003 01 00"
        "01 01 00",
    ),
    (
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=4711,
                    producer_epoch=3,
                    transaction_result=True,
                    topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[5])],
                    coordinator_epoch=7,
                )
            ]
        ),
        0,
        "00000001  0000000000001267  0003  01  00000001 0001 74 00000001 00000005  00000007",
    ),
    (
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=4711,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name="t",
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=5, error_code=52)
                            ],
                        )
                    ],
                )
            ]
        ),
        0,
        "00000001  0000000000001267  00000001 0001 74 00000001 00000005 0034",
    ),
    *FINDING,
    *ONCE,
    *QUEUES,
    *SCHEDULED,
    *VIEWS,
    *DEAD_LETTERS,
]


@pytest.mark.parametrize(("message", "version", "written"), WRITTEN)
def test_bytes_are_as_written_here(message: Message, version: int, written: str) -> None:
    encoded = message.encode(version)

    assert encoded.hex() == written.replace(" ", "")
    assert type(message).decode(memoryview(encoded), version) == message


def test_nothing_is_left_without_bytes() -> None:
    shown = {(message.api, version) for message, version, _ in WRITTEN}

    assert shown == set(WITHOUT_TWIN)


def test_kio_really_does_not_know_them() -> None:
    for key, version in WITHOUT_TWIN:
        with pytest.raises(ModuleNotFoundError):
            import_module(f"kio.schema.{key.name.lower()}.v{version}")


@pytest.mark.parametrize(("key", "version"), WITHOUT_TWIN)
def test_any_message_comes_back_equal(key: ApiKey, version: int) -> None:
    random = Random(key)
    for declared in MESSAGES[key]:
        for _ in range(50):
            message = instance(declared, version, random)

            assert declared.decode(memoryview(message.encode(version)), version) == message


@pytest.mark.parametrize("page", OWN_APIS)
def test_the_pages_of_our_own_apis_show_the_same_bytes(page: str) -> None:
    printed = set(frames_in((PAGES / page).read_text()))
    ours = {
        written.replace(" ", "") for message, _, written in WRITTEN if message.api in OWN_APIS[page]
    }

    assert ours == printed


def test_every_api_of_our_own_has_a_page() -> None:
    ours = {key for key in MESSAGES if key >= ApiKey.PREPARE_TXN}

    assert ours == {key for keys in OWN_APIS.values() for key in keys}


def frames_in(page: str) -> Iterator[str]:
    """Each line of the page's blocks of bytes, without what is said behind it."""
    for block in re.findall(r"```hex\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            yield line.partition("#")[0].replace(" ", "")
