"""Messages that kio has no schema of, written out by hand: the bytes are the contract.

Those of our own APIs are printed in ``docs/protocol/two-phase-commit.md``, for people who
write clients of their own; the test holds the page to them.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from tests.messages.arbitrary import instance
from tests.messages.generated import WITHOUT_TWIN

from waystation.messages.catalog import MESSAGES
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

PAGE = Path(__file__).parents[2] / "docs/protocol/two-phase-commit.md"

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


def test_the_page_of_our_own_apis_shows_the_same_bytes() -> None:
    printed = set(frames_in(PAGE.read_text()))
    ours = {
        written.replace(" ", "")
        for message, _, written in WRITTEN
        if message.api in (ApiKey.PREPARE_TXN, ApiKey.TXN_OUTCOME)
    }

    assert ours == printed


def frames_in(page: str) -> Iterator[str]:
    """Each line of the page's blocks of bytes, without what is said behind it."""
    for block in re.findall(r"```hex\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            yield line.partition("#")[0].replace(" ", "")
