"""DeleteRecords: the start of a log moves forward, for good."""

import pytest

from tests.apis.asking import Asking
from tests.apis.conftest import MakeNode
from tests.apis.kit import batch_of, versions
from waystation.model.errors import ErrorCode
from waystation.wire.versions import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_RECORDS))
def test_records_before_an_offset_go_in_every_version(
    client: Asking, topic: str, version: int
) -> None:
    client.create(topic)
    for value in (b"a", b"b", b"c"):
        client.produce(topic, batch_of(value))
    told = client.delete_records(topic, 2, version=version)

    assert (told.error_code, told.low_watermark) == (0, 2)
    assert client.start_and_end(topic) == (2, 3)
    assert client.produce(topic, batch_of(b"d")).log_start_offset == 2


def test_minus_one_deletes_all_that_can_be_read(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b"))

    assert client.delete_records(topic, -1).low_watermark == 2
    assert client.start_and_end(topic) == (2, 2)
    assert client.produce(topic, batch_of(b"c")).base_offset == 2


@pytest.mark.parametrize("offset", [3, 1 << 60, -2])
def test_an_offset_nobody_wrote_is_out_of_range(client: Asking, topic: str, offset: int) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b"))
    told = client.delete_records(topic, offset)

    assert (told.error_code, told.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert client.start_and_end(topic) == (0, 2)


def test_what_is_gone_already_stays_gone(client: Asking, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(b"a", b"b"))
    client.delete_records(topic, 2)
    told = client.delete_records(topic, 1)

    assert (told.error_code, told.low_watermark) == (0, 2)


def test_a_partition_that_is_not_there_is_unknown(client: Asking) -> None:
    assert client.delete_records("absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_new_start_survives_a_restart(make_node: MakeNode, topic: str) -> None:
    first = make_node()
    with Asking(*first.address) as client:
        client.create(topic)
        client.produce(topic, batch_of(b"a", b"b"))
        client.delete_records(topic, 1)
    first.stop()

    with Asking(*make_node().address) as client:
        assert client.start_and_end(topic) == (1, 2)
