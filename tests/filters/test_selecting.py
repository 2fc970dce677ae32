"""Which messages an expression means."""

from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.filters.naive import SIGNS, Message, Said, conditions, messages
from tests.filters.twins import is_compiled
from tests.support.soak import count
from waystation.filters import picking as preferred
from waystation.filters.selecting import Filter
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Millis, Offset
from waystation.records import codec
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import stamp, stamp_append_time

ORDER = b'{"customer": {"country": "DE", "age": 41}, "paid": true, "items": [{"sku": "a1"}]}'


def test_picking_is_compiled_where_the_codec_is() -> None:
    assert is_compiled(preferred) is codec.COMPILED


def holds(expression: str, message: Message) -> bool:
    return Filter(expression).matches(
        message.key,
        message.value,
        message.headers,
        message.timestamp,
        message.partition,
        message.offset,
    )


@settings(max_examples=count(150, 20_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions, st.lists(messages, min_size=1, max_size=5))
def test_a_filter_means_what_a_plain_evaluator_says(said: Said, batch: list[Message]) -> None:
    expected = [number for number, one in enumerate(batch) if said.meaning(one) is True]

    found = [number for number, one in enumerate(batch) if holds(said.sql, one)]

    assert found == expected, said.sql


@settings(max_examples=count(50, 5_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions, messages, st.sampled_from(("", " AND key = 'a'", " AND key IN ('a', 'b')")))
def test_every_match_has_one_of_the_keys_that_are_foretold(
    said: Said, message: Message, more: str
) -> None:
    message = replace(message, key=b"a") if more else message
    one = Filter(f"({said.sql}){more}")

    if one.keys is not None and holds(one.expression, message):
        assert message.key in one.keys
    assert one.keys is not None or not more
    if one.keys_suffice and one.keys is not None:
        assert holds(one.expression, message) == (message.key in one.keys)


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        ("key = 'a'", {b"a"}),
        ("'ä' = key", {"ä".encode()}),
        ("key IN ('a', 'b') AND value.n > 1", {b"a", b"b"}),
        ("key IN ('a', 'b') AND key = 'b'", {b"b"}),
        ("key = 'a' AND key = 'b'", set()),
        ("key = 'a' OR key = 'b' AND offset > 3", {b"a", b"b"}),
        ("key = 'a' OR offset > 3", None),
        ("NOT key = 'a'", None),
        ("key <> 'a'", None),
        ("key LIKE 'a'", None),
        ("headers.key = 'a'", None),
        ("value.key = 'a'", None),
    ],
)
def test_a_filter_knows_the_keys_that_it_looks_for(expression: str, keys: set[bytes]) -> None:
    assert Filter(expression).keys == keys


@settings(max_examples=count(50, 5_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions, st.lists(messages, min_size=1, max_size=6), st.sampled_from(list(Codec)))
def test_a_batch_is_filtered_as_its_messages_are(
    said: Said, batch: list[Message], compression: Codec
) -> None:
    builder = BatchBuilder(compression)
    for one in batch:
        builder.append(one.key, one.value, one.headers, timestamp=one.timestamp)
    data = bytearray(builder.build())
    stamp(data, 0, Offset(4), LeaderEpoch(0))
    placed = [
        Message(one.key, one.value, one.headers, one.timestamp, 2, 4 + number)
        for number, one in enumerate(batch)
    ]
    expected = [number for number, one in enumerate(placed) if said.meaning(one) is True]

    assert list(Filter(said.sql).matching(data, 2)) == expected, said.sql


TRUE_OF_AN_ORDER = [
    "value.customer.country = 'DE'",
    "value.customer.country LIKE 'D%' AND value.paid",
    "value.paid = TRUE",
    "NOT value.paid = FALSE",
    "value.customer.age BETWEEN 40 AND 41.0",
    "value.customer.age / 2 = 20.5",
    "value.customer.age * -1 + 42 = 1",
    "value.items[0].sku IN ('a1', 'b2')",
    "value.items IS NOT NULL",
    "value.customer IS NOT NULL",
    "value.customer.city IS NULL",
    "value.items[1] IS NULL",
    "value LIKE '%\"sku\"%'",
    "key = 'k''1'",
    "key > 'a' AND key <= 'k''1'",
    "headers.kind = 'new' OR 1 = 2",
    "headers.binary IS NOT NULL",
    "CAST(headers.attempt AS NUMBER) >= 3",
    "CAST(headers.attempt AS NUMBER) + 1 = 4.0",
    "CAST(headers.urgent AS BOOLEAN)",
    "timestamp >= TIMESTAMP '2023-11-14T22:13:20Z'",
    "timestamp = 1700000000000",
    "timestamp - TIMESTAMP '2023-11-14 22:13:19Z' = 1000",
    "timestamp + 1000 > TIMESTAMP '2023-11-14'",
    "partition = 3 AND offset = 7",
    "offset NOT IN (1, 2)",
    "1 = 1",
    "TRUE",
    "'a' LIKE '_'",
    "5 IS NOT NULL",
]
NOT_TRUE_OF_AN_ORDER = [
    "value.customer.country = 'FR'",
    "value.customer.country > 5",  # text and number: unknown
    "NOT value.customer.country > 5",
    "value.customer = 'DE'",
    "value.customer.city = 'Berlin' OR value.customer.city <> 'Berlin'",
    "value.customer.age / 0 = 1 OR NOT value.customer.age / 0 = 1",
    "headers.binary = 'x' OR headers.binary <> 'x'",
    "headers.none LIKE '%' OR headers.none NOT LIKE '%'",
    "headers.kind = 'old'",  # the last of a name counts
    "CAST(headers.kind AS NUMBER) = 1 OR NOT CAST(headers.kind AS NUMBER) = 1",
    "value.customer.age BETWEEN 42 AND 40",
    "value.missing NOT BETWEEN 1 AND 2",
    "value.missing NOT IN (1, 2)",
    "CAST(value.customer.age AS BOOLEAN)",
    "value.items[0] = value.items[0]",  # objects have no order and no equality
    "FALSE",
]


@pytest.mark.usefixtures("picking")
@pytest.mark.parametrize("expression", TRUE_OF_AN_ORDER)
def test_true_is_chosen(expression: str) -> None:
    assert holds(expression, an_order())


@pytest.mark.usefixtures("picking")
@pytest.mark.parametrize("expression", NOT_TRUE_OF_AN_ORDER)
def test_false_and_unknown_are_not_chosen(expression: str) -> None:
    assert not holds(expression, an_order())


def an_order() -> Message:
    headers = (
        ("kind", b"old"),
        ("attempt", b"3"),
        ("binary", b"\xff\x00"),
        ("urgent", b"True"),
        ("kind", b"new"),
    )
    return Message(b"k'1", ORDER, headers, partition=3, offset=7)


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        (b'{"n": 9007199254740993}', "value.n = 9007199254740993"),
        (b'{"n": 9007199254740993}', "value.n <> 9007199254740992"),
        (b'{"n": 9007199254740993}', "value.n > 9007199254740992.0"),
        (b'{"n": 18446744073709551616}', "value.n = 18446744073709551616"),
        (b'{"n": 9223372036854775807}', "value.n + 1 = 9223372036854775808"),
        (b'{"n": 0.1}', "value.n + 0.2 > 0.3"),
        (b'{"n": 3.0}', "value.n = 3"),
        (b'{"n": 1e3}', "value.n = 1000"),
        (b'{"n": ' + b"9" * 5_000 + b', "a": 1}', "value.a = 1"),
        (b'{"n": 1e400, "a": 1}', "value.a = 1"),
        (b'{"n": 1e400, "a": 1}', "value.n IS NULL"),
        (b'{"n": ' + b"9" * 400 + b"}", "value.n * 1 IS NULL"),
        (b'{"n": true}', "value.n AND value.n IS NOT NULL"),
        (b'{"n": 1, "n": 2}', "value.n = 2"),
        (b'{"n": "\\u0044E"}', "value.n = 'DE'"),
        (b'{"n": "\xc3\xa4"}', "value.n = '\xe4'"),
        (b'{"n": "a\\/b"}', "value.n = 'a/b'"),
        (b'{"n": "2026-01-31T09:30:00+02:00"}', "value.n < TIMESTAMP '2026-01-31T08:00:00Z'"),
        (b'{"n": 5}', "value.n < TIMESTAMP '2026-01-31'"),
        (b"", "value.n IS NULL AND value IS NOT NULL AND value = ''"),
        (b"{", "value.n IS NULL"),
        (b"\xff", "value IS NOT NULL AND value.n IS NULL"),
        (b"[" * 100_000, "value.n IS NULL"),
        (b"[7, 8]", "value[1] = 8"),
        (b'{"z": "\xff", "n": 1}', "value.n = 1"),
        (None, "value IS NULL AND value.n IS NULL"),
    ],
)
def test_numbers_texts_and_what_is_no_document(value: bytes | None, expression: str) -> None:
    assert holds(expression, Message(None, value))


@pytest.mark.parametrize("sign", sorted(SIGNS))
@pytest.mark.parametrize("left", ["offset", "value.n", "offset + 0", "2"])
def test_a_comparison_and_its_opposite(sign: str, left: str) -> None:
    for offset in (1, 2, 3):
        message = Message(b"", b'{"n": %d}' % offset, offset=offset)
        expected = SIGNS[sign](2 if left == "2" else offset, 2)

        assert holds(f"{left} {sign} 2", message) is expected
        assert holds(f"NOT {left} {sign} 2", message) is not expected
        assert holds(f"2 {sign} {left} OR NOT 2 {sign} {left}", message)


def test_true_is_no_number() -> None:
    assert not holds("value.n = 1 OR value.n <> 1", Message(None, b'{"n": true}'))


def test_the_brokers_time_counts_where_it_dated_the_batch() -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"", timestamp=5)
    builder.append(b"b", b"", timestamp=6)
    batch = bytearray(builder.build())

    assert list(Filter("timestamp = 6").matching(batch)) == [1]

    stamp_append_time(batch, 0, Millis(9))

    assert list(Filter("timestamp = 9").matching(batch)) == [0, 1]


def test_a_message_without_a_time_has_none() -> None:
    assert holds("timestamp IS NULL", Message(b"a", b"", timestamp=-1))


def test_malformed_records_are_refused() -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"b", timestamp=5)
    batch = bytearray(builder.build())
    batch[-1] = 0x7F

    with pytest.raises(CorruptBatchError):
        Filter("key = 'a'").matching(batch)


def test_a_filter_says_what_it_looks_at() -> None:
    found = Filter("key = 'a' AND value.a[0].\"b c\" > 1 AND headers.x IS NULL AND partition = 1")

    assert found.fields == ("key", "headers.x", 'value.a[0]."b c"')


def test_both_twins_choose_alike(picking: ModuleType) -> None:
    builder = BatchBuilder()
    for number in range(50):
        headers = [("n", b"%d" % number), ("odd", b"\xff" if number % 2 else None)]
        value = b'{"n": %d, "s": "s%d"}' % (number, number % 5)
        builder.append(b"k%d" % number, value, headers, timestamp=number)
    batch = builder.build()

    assert list(Filter("key LIKE 'k1_'").matching(batch)) == list(range(10, 20))
    assert list(Filter("headers.n = '7'").matching(batch)) == [7]
    assert list(Filter("headers.odd IS NULL").matching(batch)) == list(range(0, 50, 2))
    assert list(Filter("value.s = 's3' AND value.n > 40").matching(batch)) == [43, 48]
    assert list(Filter("timestamp BETWEEN 3 AND 4").matching(batch)) == [3, 4]
