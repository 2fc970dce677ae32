"""Facts of groups are written as Kafka writes them, byte for byte, and read back as they were.

The bytes were made with Kafka 4.3's own classes.
"""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.broker.group_records import GroupRecordReader, UnreadableRecordError, encode
from waystation.groups.records import (
    ClassicGroupForgotten,
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolMember,
    ConsumerGroupForgotten,
    ConsumerGroupStored,
    ConsumerMemberForgotten,
    ConsumerMemberStored,
    MemberCurrentForgotten,
    MemberCurrentStored,
    MemberTargetForgotten,
    MemberTargetStored,
    OffsetCommitted,
    OffsetForgotten,
    Record,
    RegexForgotten,
    RegexResolved,
    TargetForgotten,
    TargetStored,
)
from waystation.model.ids import NO_TOPIC_ID, TopicId

AT = 1_700_000_000_123
ONE = TopicId(UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))
TWO = TopicId(UUID(int=(1 << 64) + 2))

OFFSET_KEY = "0001000367c3a400066f726465727300000007"
MEMBER = ConsumerMemberStored(
    "g", "m", "i", None, "c", "/h", ("a", "b"), None, 60_000, "uniform", None
)
CLASSIC_MEMBER = MEMBER._replace(
    topic_regex="a.*",
    assignor=None,
    # Ends with the bytes that say, elsewhere, that there is no classic protocol.
    classic=ClassicProtocolMember(45_000, (("range", b"\1\0\1\0"),)),
)
GROUP = ClassicGroupStored(
    "g",
    "consumer",
    9,
    "range",
    "m-1",
    AT,
    (
        ClassicMemberStored("m-1", "i-1", "c", "/h", 60_000, 45_000, b"\1\2", b"\3"),
        ClassicMemberStored("m-2", None, "c", "/h", 60_000, 45_000, b"", b""),
    ),
)

KAFKAS: list[tuple[Record, str, str | None]] = [
    (
        OffsetCommitted("gä", "orders", 7, 1_234_567_890_123, 5, "", AT),
        OFFSET_KEY,
        "00030000011f71fb04cb0000000500000000018bcfe5687b",
    ),
    (
        OffsetCommitted("gä", "orders", 7, 42, -1, "", AT, topic_id=ONE),
        OFFSET_KEY,
        "0004000000000000002affffffff010000018bcfe5687b0100100102030405060708090a0b0c0d0e0f10",
    ),
    (
        OffsetCommitted("gä", "orders", 7, 42, 3, "café", AT, topic_id=ONE),
        OFFSET_KEY,
        "0004000000000000002a0000000306636166c3a90000018bcfe5687b"
        "0100100102030405060708090a0b0c0d0e0f10",
    ),
    (
        OffsetCommitted("gä", "orders", 7, 42, -1, "n", AT, AT + 60_000),
        OFFSET_KEY,
        "0001000000000000002a00016e0000018bcfe5687b0000018bcfe652db",
    ),
    (OffsetForgotten("gä", "orders", 7), OFFSET_KEY, None),
    (
        GROUP,
        "0002000167",
        "00030008636f6e73756d657200000009000572616e676500036d2d310000018bcfe5687b00000002"
        "00036d2d310003692d3100016300022f680000ea600000afc80000000201020000000103"
        "00036d2d32ffff00016300022f680000ea600000afc80000000000000000",
    ),
    (
        ClassicGroupStored("g", "", 0, None, None, -1, ()),
        "0002000167",
        "0003000000000000ffffffffffffffffffffffff00000000",
    ),
    (ClassicGroupForgotten("g"), "0002000167", None),
    (ConsumerGroupStored("g", 7, -2), "0003000167", "000000000007010008fffffffffffffffe"),
    (ConsumerGroupStored("g", 7, 0), "0003000167", "00000000000700"),
    (ConsumerGroupForgotten("g"), "0003000167", None),
    (
        MEMBER,
        "000500016700016d",
        "00000269000263032f680302610262000000ea6008756e69666f726d01000100",
    ),
    (
        CLASSIC_MEMBER,
        "000500016700016d",
        "00000269000263032f68030261026204612e2a0000ea60"
        "00010013010000afc8020672616e676505010001000000",
    ),
    (ConsumerMemberForgotten("g", "m"), "000500016700016d", None),
    (TargetStored("g", 7, AT), "0006000167", "0000000000070100080000018bcfe5687b"),
    (TargetForgotten("g"), "0006000167", None),
    (
        MemberTargetStored("g", "m", ((TWO, (0, 1)), (ONE, (5,)))),
        "000700016700016d",
        "000003000000000000000100000000000000020300000000000000010001020304050607080"
        "90a0b0c0d0e0f1002000000050000",
    ),
    (MemberTargetForgotten("g", "m"), "000700016700016d", None),
    (
        MemberCurrentStored("g", "m", 7, 6, 2, ((TWO, (0, 1)),), ((ONE, (5,)),)),
        "000800016700016d",
        "00000000000700000006020200000000000000010000000000000002030000000000000001"
        "00020102030405060708090a0b0c0d0e0f1002000000050000",
    ),
    (MemberCurrentForgotten("g", "m"), "000800016700016d", None),
    (
        RegexResolved("g", "a.*", ("a1", "a2"), 12, AT),
        "00100001670003612e2a",
        "000003036131036132000000000000000c0000018bcfe5687b00",
    ),
    (RegexForgotten("g", "a.*"), "00100001670003612e2a", None),
]

NAMES = [f"{number}-{type(record).__name__}" for number, (record, _, _) in enumerate(KAFKAS)]


def read(key: bytes, value: bytes | None) -> Record | None:
    """What one row says; read twice, for the second time names are known."""
    reader = GroupRecordReader()
    record = reader.read(key, value)
    row = (0, 0, key, value, ())
    assert reader.read_rows([row, row]) == ([] if record is None else [record, record])
    return record


def read_hex(key: str, value: str | None) -> Record | None:
    return read(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS, ids=NAMES)
def test_the_bytes_are_kafkas(record: Record, key: str, value: str | None) -> None:
    written_key, written_value = encode(record)

    assert written_key.hex() == key
    assert (None if written_value is None else written_value.hex()) == value
    assert read_hex(key, value) == record


@pytest.mark.parametrize(
    ("value", "leader_epoch"),
    [
        ("0000000000000000002a00016e0000018bcfe5687b", -1),
        ("0002000000000000002a00016e0000018bcfe5687b", -1),
        ("0003000000000000002a0000000900016e0000018bcfe5687b", 9),
        ("0004000000000000002a00000009026e0000018bcfe5687b00", 9),
    ],
    ids=["v0", "v2", "v3", "v4"],
)
def test_offsets_of_every_version_are_read(value: str, leader_epoch: int) -> None:
    assert read_hex(OFFSET_KEY, value) == OffsetCommitted(
        "gä", "orders", 7, 42, leader_epoch, "n", AT
    )


def test_a_key_of_the_oldest_version_names_an_offset_too() -> None:
    assert read_hex("0000" + OFFSET_KEY[4:], None) == OffsetForgotten("gä", "orders", 7)


def test_what_newer_versions_add_is_passed_over() -> None:
    with_epochs = (
        "000000000007000000060002000000000000000100000000000000020300000000000000010100"
        "090300000006000000070100"
    )
    current = MemberCurrentStored("g", "m", 7, 6, 0, ((TWO, (0, 1)),), ())
    group_of_version_4 = "000409636f6e73756d657200000001000000000000000000050100"

    assert read_hex("000800016700016d", with_epochs) == current
    assert read_hex("0002000167", group_of_version_4) == ClassicGroupStored(
        "g", "consumer", 1, None, None, 5, ()
    )


@pytest.mark.parametrize(
    "key", ["0004000167", "0009000167", "00150001670001", "01000000", "00", ""]
)
def test_keys_that_are_not_known_are_none_of_ours(key: str) -> None:
    """The fourth was Kafka's until 4.1; others are those of share and streams groups."""
    assert read_hex(key, "0000") is None
    assert read_hex(key, None) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET_KEY, "0005000000000000002a"),
        (OFFSET_KEY, "0003000000000000002a"),
        (OFFSET_KEY, ""),
        (OFFSET_KEY[:-10], None),
        ("0001", None),
        ("000100ff67", None),
        ("0002000167", "0009"),
        ("0002000167000168", None),
        ("0003000167", "000000000007"),
        ("000500016700016d", "0000ffff"),
    ],
)
def test_bytes_that_are_not_what_their_key_promises_are_refused(
    key: str, value: str | None
) -> None:
    with pytest.raises(UnreadableRecordError):
        read_hex(key, value)


def test_long_texts_are_written_where_they_fit() -> None:
    long = "x" * 40_000
    offset = OffsetCommitted("g", "t", 0, 1, 2, long, AT)
    group = GROUP._replace(leader=long)

    assert read(*encode(offset)) == offset
    assert read(*encode(group)) == group


def test_one_unreadable_record_costs_no_other() -> None:
    good, bad = encode(GROUP), (bytes.fromhex(OFFSET_KEY), b"\0\3")
    rows = [(0, 0, *row, ()) for row in (good, bad, (None, b""), good)]

    assert GroupRecordReader().read_rows(rows) == [GROUP, GROUP]


def test_offsets_of_a_group_share_their_names() -> None:
    reader = GroupRecordReader()
    rows = [encode(OffsetCommitted("group", "topic", n, n, 0, "", AT)) for n in range(3)]
    first, _, third = reader.read_rows([(0, 0, *row, ()) for row in rows])

    assert isinstance(first, OffsetCommitted)
    assert isinstance(third, OffsetCommitted)
    assert first.group_id is third.group_id
    assert first.topic is third.topic


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
OPTIONAL = st.none() | TEXT
IDS = st.builds(TopicId, st.uuids())
PARTITIONS = st.lists(st.tuples(IDS, st.lists(INT32, max_size=4).map(tuple)), max_size=3).map(tuple)
RECORDS = st.one_of(
    st.builds(
        OffsetCommitted,
        TEXT,
        TEXT,
        INT32,
        INT64,
        INT32,
        TEXT,
        INT64,
        st.just(-1),
        IDS | st.just(NO_TOPIC_ID),
    ),
    st.builds(OffsetForgotten, TEXT, TEXT, INT32),
    st.builds(
        ClassicGroupStored,
        TEXT,
        TEXT,
        INT32,
        OPTIONAL,
        OPTIONAL,
        INT64,
        st.lists(
            st.builds(
                ClassicMemberStored,
                TEXT,
                OPTIONAL,
                TEXT,
                TEXT,
                INT32,
                INT32,
                st.binary(max_size=20),
                st.binary(max_size=20),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.builds(ConsumerGroupStored, TEXT, INT32, INT64),
    st.builds(
        ConsumerMemberStored,
        TEXT,
        TEXT,
        OPTIONAL,
        OPTIONAL,
        TEXT,
        TEXT,
        st.lists(TEXT, max_size=3).map(tuple),
        OPTIONAL,
        INT32,
        OPTIONAL,
        st.none()
        | st.builds(
            ClassicProtocolMember,
            st.integers(1, 2**31 - 1),
            st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=3).map(tuple),
        ),
    ),
    st.builds(TargetStored, TEXT, INT32, INT64),
    st.builds(MemberTargetStored, TEXT, TEXT, PARTITIONS),
    st.builds(
        MemberCurrentStored,
        TEXT,
        TEXT,
        INT32,
        INT32,
        st.integers(-128, 127),
        PARTITIONS,
        PARTITIONS,
    ),
    st.builds(RegexResolved, TEXT, TEXT, st.lists(TEXT, max_size=3).map(tuple), INT64, INT64),
)


@given(RECORDS)
def test_whatever_is_written_is_read_back(record: Record) -> None:
    assert read(*encode(record)) == record


@given(st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_no_bytes_break_the_reader(key: bytes, value: bytes | None) -> None:
    kind = bytes([0, key[0] % 17]) if key else b""
    with contextlib.suppress(UnreadableRecordError):
        read(kind + key, value)
