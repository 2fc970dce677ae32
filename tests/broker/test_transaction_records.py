"""Facts of transactions are written as Kafka writes them, byte for byte, and read back.

The bytes were made with Kafka 4.3's own classes, but for what is our own.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.broker.transaction_records import (
    UnreadableTransactionError,
    encode,
    read,
    read_rows,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis
from waystation.transactions.records import (
    EPOCH_MAX,
    Ending,
    OutcomeForgotten,
    OutcomeStored,
    Record,
    TransactionForgotten,
    TransactionStored,
    TxnState,
)

KEY = "0000000374c3a4"
PRODUCER = ProducerId(1_234_567_890_123)
EMPTY = TransactionStored(
    "tä", PRODUCER, ProducerEpoch(5), 60_000, TxnState.EMPTY, Millis(1_700_000_000_123)
)
ONGOING = EMPTY._replace(
    state=TxnState.ONGOING,
    started_at=Millis(1_700_000_000_100),
    partitions=(
        TopicPartition("__consumer_offsets", 7),
        TopicPartition("orders", 0),
        TopicPartition("orders", 3),
    ),
    client_version=2,
)
ENDING = ONGOING._replace(
    state=TxnState.PREPARE_COMMIT, epoch=EPOCH_MAX, next_producer_id=ProducerId(77)
)
ENDED = ONGOING._replace(
    producer_id=ProducerId(77),
    epoch=ProducerEpoch(0),
    state=TxnState.COMPLETE_ABORT,
    partitions=(),
    previous_producer_id=PRODUCER,
)
PREPARED = ONGOING._replace(prepared_at=Millis(1_700_000_000_200))
OUTCOME = OutcomeStored("tä", PRODUCER, ProducerEpoch(5), Ending.ABORTED_BY_LIMIT, Millis(1))
OUTCOME_KEY = "2710000374c3a40000011f71fb04cb0005"
PARTITIONS = "03135f5f636f6e73756d65725f6f666673657473020000000700076f72646572730300000000000000030"
ONGOING_VALUE = (
    "00010000011f71fb04cb00050000ea6001"
    + PARTITIONS
    + "00000018bcfe5687b0000018bcfe568640102020002"
)

KAFKAS: list[tuple[Record, str, str | None]] = [
    (EMPTY, KEY, "00010000011f71fb04cb00050000ea6000000000018bcfe5687bffffffffffffffff00"),
    (ONGOING, KEY, ONGOING_VALUE),
    (
        ENDING,
        KEY,
        "00010000011f71fb04cb7fff0000ea6002" + PARTITIONS + "00000018bcfe5687b0000018bcfe56864"
        "020108000000000000004d02020002",
    ),
    (
        ENDED,
        KEY,
        "0001000000000000004d00000000ea6005010000018bcfe5687b0000018bcfe56864"
        "0200080000011f71fb04cb02020002",
    ),
    (TransactionForgotten("tä"), KEY, None),
]


def read_hex(key: str, value: str | None) -> Record | None:
    return read(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS)
def test_the_bytes_are_kafkas(record: Record, key: str, value: str | None) -> None:
    written_key, written_value = encode(record)

    assert written_key.hex() == key
    assert (None if written_value is None else written_value.hex()) == value
    assert read_hex(key, value) == record


def test_values_without_tags_are_read() -> None:
    """As Kafka writes them where no feature level allows for more."""
    empty = "00000000011f71fb04cb00050000ea6000ffffffff0000018bcfe5687bffffffffffffffff"
    ongoing = (
        "0000000000000000004d00000000ea60010000000100066f7264657273000000020000000000000003"
        "0000018bcfe5687b0000018bcfe56864"
    )

    assert read_hex(KEY, empty) == EMPTY
    assert read_hex(KEY, ongoing) == ONGOING._replace(
        producer_id=ProducerId(77),
        epoch=ProducerEpoch(0),
        partitions=ONGOING.partitions[1:],
        client_version=0,
    )


def test_a_prepared_transaction_is_an_ongoing_one_with_a_field_that_kafka_passes_over() -> None:
    _, value = encode(PREPARED)
    assert value is not None

    behind_the_tags = len(ONGOING_VALUE) // 2 - 5
    assert value[:behind_the_tags] == bytes.fromhex(ONGOING_VALUE)[:behind_the_tags]
    assert value[behind_the_tags:].hex() == "020202000290" + "4e08" + "0000018bcfe568c8"
    assert read(*encode(PREPARED)) == PREPARED


def test_an_outcome_has_a_key_of_its_own() -> None:
    key, value = encode(OUTCOME)

    assert key.hex() == OUTCOME_KEY
    assert value is not None
    assert value.hex() == "0000" + "02" + "0000000000000001" + "00"
    assert read(key, value) == OUTCOME
    forgotten = OutcomeForgotten(*OUTCOME[:3])
    assert encode(forgotten) == (key, None)
    assert read(key, None) == forgotten


def test_what_newer_versions_add_is_passed_over() -> None:
    """Tag 3 is the epoch after a two-phase commit of Kafka's own."""
    with_next_epoch = ONGOING_VALUE[:-10] + "0202020002" + "03020009"

    assert read_hex(KEY, with_next_epoch) == ONGOING


@pytest.mark.parametrize("key", ["", "00", "0001000374c3a4", "2711000374c3a4", "ffff0000"])
def test_keys_that_are_not_known_are_none_of_ours(key: str) -> None:
    assert read_hex(key, "0000") is None
    assert read_hex(key, None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0000", None),
        ("00000004", None),
        ("0000ffff", None),
        (KEY + "00", None),
        ("00000001ff", None),
        (OUTCOME_KEY[:-2], None),
        (OUTCOME_KEY, "0000"),
        (OUTCOME_KEY, "0000" + "07" + "0000000000000001" + "00"),
        (OUTCOME_KEY, "0001" + "02" + "0000000000000001" + "00"),
        (KEY, ""),
        (KEY, "0002" + ONGOING_VALUE[4:]),
        (KEY, ONGOING_VALUE[:40]),
        (KEY, ONGOING_VALUE[:32] + "09" + ONGOING_VALUE[34:]),
    ],
)
def test_bytes_that_are_not_what_their_key_promises_are_refused(
    key: str, value: str | None
) -> None:
    with pytest.raises(UnreadableTransactionError):
        read_hex(key, value)


def test_one_unreadable_record_costs_no_other() -> None:
    good, bad = encode(ONGOING), (bytes.fromhex(KEY), b"\0\1")
    rows = [(0, 0, *row, ()) for row in (good, bad, (None, b""), encode(OUTCOME))]

    assert read_rows(rows) == [ONGOING, OUTCOME]


# --- whatever is written ------------------------------------------------------------------------

IDS = st.text(max_size=20)
PRODUCERS = st.integers(-1, (1 << 63) - 1).map(ProducerId)
EPOCHS = st.integers(-1, EPOCH_MAX).map(ProducerEpoch)
TIMES = st.integers(-1, (1 << 62)).map(Millis)
PARTITION_SETS = st.sets(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, (1 << 31) - 1)), max_size=5
).map(lambda some: tuple(sorted(some)))


@st.composite
def transactions(draw: st.DrawFn) -> TransactionStored:
    state = draw(st.sampled_from(TxnState))
    return TransactionStored(
        draw(IDS),
        draw(PRODUCERS),
        draw(EPOCHS),
        draw(st.integers(0, (1 << 31) - 1)),
        state,
        draw(TIMES),
        () if state is TxnState.EMPTY else draw(PARTITION_SETS),
        draw(TIMES),
        draw(EPOCHS),
        draw(PRODUCERS),
        draw(PRODUCERS),
        draw(st.integers(0, 2)),
        draw(TIMES),
    )


RECORDS = (
    transactions()
    | st.builds(TransactionForgotten, IDS)
    | st.builds(OutcomeStored, IDS, PRODUCERS, EPOCHS, st.sampled_from(Ending), TIMES)
    | st.builds(OutcomeForgotten, IDS, PRODUCERS, EPOCHS)
)


@given(RECORDS)
def test_whatever_is_written_is_read_back(record: Record) -> None:
    assert read(*encode(record)) == record


@given(
    st.sampled_from([b"\0\0", b"\x27\x10", b""]),
    st.binary(max_size=40),
    st.none() | st.binary(max_size=60),
)
def test_no_bytes_break_the_reader(kind: bytes, key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(UnreadableTransactionError):
        read(kind + key, value)
