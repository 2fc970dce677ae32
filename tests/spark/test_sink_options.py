"""Options and columns of the sink: what is understood, and what is refused in which words."""

import contextlib
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from waystation.model.settings import Option, options_of
from waystation.spark.errors import BadOptionError
from waystation.spark.sink_columns import check_columns
from waystation.spark.sink_options import SinkSettings, WriteOptions, parse_write_options

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"


def write(stream: bool = False, **more: str) -> WriteOptions:
    options = {"bootstrap.servers": "localhost:9092", "topic": "orders"}
    return parse_write_options({**options, **_dotted(more)}, stream=stream)


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
HEADER = StructType([StructField("key", TEXT), StructField("value", BYTES)])
VALUE = ("value", TEXT)


def columns(*named: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in named])


def test_streams_are_exact_and_single_writes_are_not_unless_they_are_named() -> None:
    assert write(stream=True).exactly_once
    assert not write().exactly_once
    assert write(sinkId="orders").exactly_once
    assert write(deliveryGuarantee="exactly-once").exactly_once
    assert not write(stream=True, deliveryGuarantee="at-least-once").exactly_once


def test_capitals_do_not_matter_and_sparks_own_spellings_are_understood() -> None:
    options = parse_write_options(
        {
            "KAFKA.bootstrap.servers": "a:1,b:2",
            "TOPIC": "orders",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "4096",
            "kafka.transaction.timeout.ms": "5000",
            "kafka.acks": "-1",
            "kafka.security.protocol": "PLAINTEXT",
            "checkpointLocation": "/somewhere",
            "queryName": "q",
        },
        stream=True,
    )

    assert options.bootstrap == "a:1,b:2"
    assert options.producer["compression"] == "zstd"
    assert options.producer["batch_bytes"] == 4_096
    assert options.transaction_timeout_ms == options.producer["transaction_timeout_ms"] == 5_000
    assert "batch_bytes" not in options.connection
    assert options.connection["metadata_timeout_ms"] == 30_000


def test_options_travel() -> None:
    options = write(sinkId="orders", batchId="7")

    assert pickle.loads(pickle.dumps(options)) == options
    assert options.batch_id == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topik": "a"}, "unknown option topik; did you mean topic?"),
        ({"path": "a"}, "unknown option path: a topic is no path: name it with topic"),
        ({"kafka__transactional__id": "a"}, "the sink names its transactions itself"),
        ({"kafka__acks": "1"}, "kafka.acks is '1', must be all: rows could be lost"),
        ({"kafka__enable__idempotence": "false"}, "kafka.enable.idempotence is 'false'"),
        ({"kafka__linger__ms": "soon"}, "linger.ms is 'soon'"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "speaks PLAINTEXT only"),
        ({"deliveryGuarantee": "at-most-once"}, "deliveryGuarantee is 'at-most-once', must be"),
        ({"sinkId": "a b"}, "sinkId is 'a b', may have letters"),
        ({"sinkId": "a" * 201}, "and 200 of them"),
        ({"batchId": "1"}, "batchId needs sinkId"),
        ({"batchId": "-2", "sinkId": "a"}, "batchId is -2, must be at least"),
        (
            {"sinkId": "a", "deliveryGuarantee": "at-least-once"},
            "sinkId is for exactly-once, and deliveryGuarantee is at-least-once",
        ),
        ({"transactionTimeout": "long"}, "transactionTimeout is 'long', no duration"),
        ({"transactionTimeout": "0"}, "transactionTimeout is 0"),
        ({"compression": "rar"}, "compression is 'rar', must be one of"),
        ({"kafka__compression__type": "lz4", "compression": "zstd"}, "compression is given twice"),
        ({"bootstrap__servers": "a:b"}, "bootstrap.servers: "),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOptionError) as refused:
        write(False, **given)

    assert said in str(refused.value)


def test_batches_of_a_stream_are_numbered_by_spark() -> None:
    with pytest.raises(BadOptionError, match="batchId is for batch writes"):
        write(stream=True, sinkId="a", batchId="1")


def test_brokers_must_be_named() -> None:
    with pytest.raises(BadOptionError, match=r"bootstrap\.servers is missing"):
        parse_write_options({"topic": "orders"}, stream=True)


def test_every_column_of_a_record_may_be_there() -> None:
    check_columns(columns(("value", BYTES)), "orders")
    check_columns(columns(VALUE, ("key", TEXT), ("topic", TEXT)), "")
    check_columns(
        columns(
            ("topic", TEXT),
            ("partition", INT),
            ("timestamp", TimestampType()),
            ("key", BYTES),
            VALUE,
            ("headers", ArrayType(HEADER, containsNull=False)),
        ),
        "",
    )


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ([("key", TEXT)], "the frame has no column value, only key: make one, such as to_json"),
        (
            [("value", INT)],
            "column value is int, must be binary or string: write cast(value as string)",
        ),
        ([("value", HEADER)], "column value is struct<key:string,value:binary>, must be binary"),
        ([VALUE, ("key", LONG)], "column key is bigint, must be binary or string"),
        ([VALUE, ("partition", LONG)], "must be int: write cast(partition as int) AS partition"),
        ([VALUE, ("timestamp", LONG)], "column timestamp is bigint, must be timestamp"),
        ([VALUE, ("topic", INT)], "column topic is int, must be string"),
        (
            [VALUE, ("headers", MapType(TEXT, BYTES))],
            "column headers is map<string,binary>, must be array<struct<key:string,value:binary>>",
        ),
        ([VALUE, ("offset", LONG)], "unknown column offset in the frame: a record is made of"),
        ([("valu", TEXT)], "unknown column valu; did you mean value? in the frame"),
        ([VALUE, VALUE], "column value stands twice"),
    ],
)
def test_a_frame_that_is_not_made_of_records_is_refused(
    named: list[tuple[str, DataType]], said: str
) -> None:
    with pytest.raises(BadOptionError) as refused:
        check_columns(columns(*named), "orders")

    assert said in str(refused.value)


def test_rows_must_go_somewhere() -> None:
    with pytest.raises(BadOptionError, match="set option topic, or give the frame a column topic"):
        check_columns(columns(VALUE), "")


@given(
    st.dictionaries(
        st.sampled_from([one.name for one in options_of(SinkSettings)]),
        st.one_of(st.text(max_size=12), st.integers().map(str)),
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_is_said_is_understood_or_refused(said: dict[str, str], stream: bool) -> None:
    with contextlib.suppress(BadOptionError):
        parse_write_options({"bootstrap.servers": "a", "topic": "t", **said}, stream=stream)


@pytest.mark.parametrize("known", options_of(SinkSettings), ids=lambda known: known.name)
def test_the_reference_says_what_the_declaration_says(known: Option) -> None:
    is_said = known.default not in ("", -1)

    said = f"`{known.format(known.default)}`" if is_said else "–"
    assert f"| `{known.name}` | {said} | {known.doc} |\n" in REFERENCE.read_text()
