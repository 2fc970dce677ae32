"""Typed values: what fits keeps all it says, what does not keeps its bytes and a reason."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from waystation.pipelines.failures import JobError
from waystation.pipelines.schemas import as_json_schema, infer_json, read_schema
from waystation.pipelines.values import (
    QUARANTINE_REASON,
    QUARANTINE_VALUE,
    Decoded,
    ValueSchema,
    decode,
    decode_batches,
    spark_type,
    with_typed_value,
)


def field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def json_schema(*fields: dict[str, Any]) -> ValueSchema:
    return as_json_schema(StructType.fromJson(struct(*fields)))


def decoded(schema: ValueSchema, *values: bytes | None) -> Decoded:
    return decode(schema, pa.array(values, pa.binary()))


def fits(schema: ValueSchema, value: bytes) -> Any:
    """What the value is read as; it must fit."""
    found = decoded(schema, value)
    assert found.reasons.to_pylist() == [None]
    assert found.misfits.to_pylist() == [None]
    return found.values.to_pylist()[0]


def misfit(schema: ValueSchema, value: bytes) -> str:
    """Why the value does not fit; its bytes must be kept."""
    found = decoded(schema, value)
    assert found.values.to_pylist() == [None]
    assert found.misfits.to_pylist() == [value]
    reason: str = found.reasons.to_pylist()[0]
    assert reason
    return reason


ORDER = json_schema(field("id", "long", nullable=False), field("amount", "decimal(6,2)"))


# --- all formats ------------------------------------------------------------------------------


def test_a_record_without_a_value_fits_any_schema() -> None:
    found = decoded(ORDER, None, b'{"id": 1}')

    assert found.values.to_pylist() == [None, {"id": 1, "amount": None}]
    assert found.reasons.to_pylist() == [None, None]


def test_a_misfit_changes_nothing_for_its_neighbours() -> None:
    found = decoded(ORDER, b'{"id": 1}', b"rubbish", b'{"id": 3}')

    assert [row and row["id"] for row in found.values.to_pylist()] == [1, None, 3]
    assert [bool(reason) for reason in found.reasons.to_pylist()] == [False, True, False]
    assert found.misfits.to_pylist() == [None, b"rubbish", None]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30)), max_size=20))
@settings(max_examples=50)
def test_every_value_is_either_read_or_kept_with_a_reason(values: list[bytes | None]) -> None:
    for schema in (ORDER, ValueSchema("text"), AVRO, ValueSchema("confluent-avro", AVSC), PROTO):
        found = decode(schema, pa.array(values, pa.binary()))

        for value, typed, reason, kept in zip(
            values, *(column.to_pylist() for column in found), strict=True
        ):
            assert kept == (value if reason else None)
            assert (typed is None) == (value is None or bool(reason))


def test_a_batch_keeps_its_other_columns_and_gets_two_more() -> None:
    batch = pa.record_batch(
        {"key": [b"k", b"l"], "value": pa.array([b'{"id": 1}', b"?"]), "offset": [7, 8]}
    )

    (found,) = decode_batches(ORDER, iter([batch]))

    assert found.schema.names == ["key", "value", "offset", QUARANTINE_REASON, QUARANTINE_VALUE]
    assert found["key"].to_pylist() == [b"k", b"l"]
    assert found["offset"].to_pylist() == [7, 8]
    assert found["value"].to_pylist() == [{"id": 1, "amount": None}, None]
    assert found[QUARANTINE_VALUE].to_pylist() == [None, b"?"]


def test_the_columns_are_told_before_there_is_a_batch() -> None:
    topic = StructType.fromJson(struct(field("value", "binary"), field("offset", "long")))

    found = with_typed_value(topic, ORDER)

    assert found.simpleString() == (
        "struct<value:struct<id:bigint,amount:decimal(6,2)>,offset:bigint,"
        "quarantine_reason:string,quarantine_value:binary>"
    )


# --- text -------------------------------------------------------------------------------------


def test_text_is_read_as_utf_8() -> None:
    found = decoded(ValueSchema("text"), "grün".encode(), b"", None)

    assert found.values.to_pylist() == ["grün", "", None]


def test_bytes_that_are_no_text_are_set_aside() -> None:
    found = decoded(ValueSchema("text"), b"fine", b"\xff\xfe", b"too")

    assert found.values.to_pylist() == ["fine", None, "too"]
    assert "0xff" in found.reasons.to_pylist()[1]


# --- json -------------------------------------------------------------------------------------


def test_json_values_of_every_type_are_read() -> None:
    schema = json_schema(
        field("b", "boolean"),
        field("i", "integer"),
        field("d", "double"),
        field("a name", "string"),
        field("when", "timestamp"),
        field("local", "timestamp_ntz"),
        field("day", "date"),
        field("raw", "binary"),
        field("exact", "decimal(5,2)"),
        field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
        field(
            "counts",
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        ),
        field("inner", struct(field("x", "float"))),
    )
    value = {
        "b": True,
        "i": -5,
        "d": 3,
        "a name": "grün",
        "when": "2026-01-31T10:00:00+01:00",
        "local": "2026-01-31T10:00:00",
        "day": "2026-01-31",
        "raw": "AAE=",
        "exact": 12.25,
        "tags": ["x", None],
        "counts": {"a": 1},
        "inner": {"x": 0.5},
    }

    assert fits(schema, json.dumps(value).encode()) == {
        **value,
        "when": datetime(2026, 1, 31, 9, tzinfo=UTC),
        "local": datetime(2026, 1, 31, 10),
        "day": date(2026, 1, 31),
        "raw": b"\x00\x01",
        "exact": Decimal("12.25"),
        "counts": [("a", 1)],
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id": "1"}', "Expected `int`, got `str` - at `$.id`"),
        (b'{"id": 1.5}', "Expected `int`, got `float`"),
        (b'{"id": 9223372036854775808}', "<= 9223372036854775807"),
        (b'{"id": 1, "colour": "red"}', "unknown field `colour`"),
        (b'{"amount": 1}', "missing required field `id`"),
        (b'{"id": 1, "amount": 123456.5}', "precision"),
        (b'{"id": 1, "amount": 0.125}', "data loss"),
        (b'{"id": 1', "truncated"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b"", "truncated"),
        (b'{"id": 1} {"id": 2}', "trailing"),
    ],
)
def test_json_that_does_not_fit_says_where_and_why(value: bytes, reason: str) -> None:
    assert reason in misfit(ORDER, value)


def test_a_type_that_json_cannot_have_is_refused_with_its_place() -> None:
    with pytest.raises(JobError, match=r"value\.inner\.span.*interval"):
        decoded(json_schema(field("inner", struct(field("span", "interval day to second")))), b"{}")


# --- inference --------------------------------------------------------------------------------


def inferred(*values: bytes | None) -> str | None:
    found = infer_json(values)
    return None if found is None else found.simpleString()


def test_a_schema_holds_the_fields_of_all_objects_in_the_order_seen() -> None:
    found = inferred(
        b'{"id": 1, "name": "a", "tags": [], "extra": {}}',
        None,
        b"rubbish",
        b"[1]",
        b'{"id": 2.5, "tags": ["x"], "inner": {"ok": true}, "none": null, "name": null}',
    )

    assert found == (
        "struct<id:double,name:string,tags:array<string>,extra:map<string,string>,"
        "inner:struct<ok:boolean>,none:string>"
    )


def test_where_records_disagree_the_first_has_it() -> None:
    assert inferred(b'{"id": 1}', b'{"id": "x"}') == "struct<id:bigint>"


def test_whole_numbers_beyond_64_bits_are_not_rounded() -> None:
    assert inferred(b'{"id": 123456789012345678901}') == "struct<id:decimal(38,0)>"


def test_nothing_is_inferred_from_no_object() -> None:
    assert inferred(b"rubbish", b"7", b"{}", None) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abcdef ", min_size=1, max_size=3), json_values, min_size=1))
@settings(max_examples=100, deadline=None)
def test_a_record_fits_the_schema_inferred_from_it_unless_its_lists_are_mixed(
    value: dict[str, Any],
) -> None:
    text = json.dumps(value).encode()
    schema = infer_json([text])
    assert schema is not None

    found = decode(as_json_schema(schema), pa.array([text], pa.binary()))

    if found.reasons.to_pylist() != [None]:
        assert _has_mixed_list(value)


def _has_mixed_list(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_mixed_list(one) for one in value.values())
    if isinstance(value, list):
        kinds = {type(one) for one in value if one is not None}
        nested = any(isinstance(one, list | dict) for one in value)
        return len(kinds) > 1 or nested or any(_has_mixed_list(one) for one in value)
    return False


# --- avro -------------------------------------------------------------------------------------

AVSC = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "id2", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "noon", "type": {"type": "int", "logicalType": "time-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            },
            {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "L"]}},
            {"name": "other", "type": ["null", "Size"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
        ],
    }
).encode()
AVRO = ValueSchema("avro", AVSC)
AVRO_VALUE: dict[str, Any] = {
    "id": 7,
    "note": "hello",
    "at": datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    "id2": "00000000-0000-0000-0000-000000000001",
    "noon": 43_200_000,
    "price": Decimal("12.50"),
    "size": "L",
    "other": None,
    "tags": ["a", "b"],
    "counts": {"x": 1},
}


def written_in_avro(value: dict[str, Any]) -> bytes:
    schema = json.loads(AVSC)
    for one in schema["fields"]:  # these two are archived as they are stored
        if one["name"] in ("id2", "noon"):
            one["type"].pop("logicalType")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_avro_is_read_with_its_logical_types() -> None:
    assert fits(AVRO, written_in_avro(AVRO_VALUE)) == {**AVRO_VALUE, "counts": [("x", 1)]}
    assert spark_type(AVRO).simpleString() == (
        "struct<id:bigint,note:string,at:timestamp,id2:string,noon:int,price:decimal(6,2),"
        "size:string,other:string,tags:array<string>,counts:map<string,int>>"
    )


def test_avro_with_bytes_left_over_does_not_fit() -> None:
    assert "1 bytes are left over" in misfit(AVRO, written_in_avro(AVRO_VALUE) + b"\0")


def test_avro_that_ends_early_does_not_fit() -> None:
    assert misfit(AVRO, written_in_avro(AVRO_VALUE)[:-3]).startswith("Avro: ")


def test_confluents_header_is_taken_off_when_it_is_said_to_be_there() -> None:
    framed = b"\0\0\0\0\x2a" + written_in_avro(AVRO_VALUE)

    assert fits(ValueSchema("confluent-avro", AVSC), framed)["id"] == 7
    assert misfit(AVRO, framed)


def test_avro_without_confluents_header_does_not_fit_where_it_is_expected() -> None:
    assert "no Confluent header" in misfit(
        ValueSchema("confluent-avro", AVSC), written_in_avro(AVRO_VALUE)
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ('"long"', "must be a record"),
        ('{"type": "record", "name": "R", "fields": []}', "without fields"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["int", "string"]}]}',
            r"value\.x: a column has one type, and this union has 2",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}',
            r"value\.r: R contains itself",
        ),
        ('{"type": "record"', "no Avro schema"),
        ('{"type": "reccord", "name": "R"}', "no Avro schema"),
    ],
)
def test_an_avro_schema_that_no_table_can_hold_is_refused(
    tmp_path: Path, schema: str, said: str
) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(schema)

    with pytest.raises(JobError, match=said):
        read_schema("avro", path)


# --- protobuf ---------------------------------------------------------------------------------

PROTO_TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Line { string item = 1; uint32 count = 2; }
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  uint64 big = 4;
  Size size = 5;
  repeated Line lines = 6;
  map<string, int32> counts = 7;
  oneof paid { string card = 8; double cash = 9; }
}
"""


@pytest.fixture(scope="module")
def proto(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("schemas") / "order.proto"
    path.write_text(PROTO_TEXT)
    return path


def _simple_proto() -> ValueSchema:
    """A message that needs no compiler."""
    one = descriptor_pb2.FileDescriptorProto(name="p.proto", syntax="proto3")
    message = one.message_type.add(name="P")
    message.field.add(name="id", number=1, type="TYPE_INT64", label="LABEL_OPTIONAL")
    message.field.add(name="name", number=2, type="TYPE_STRING", label="LABEL_OPTIONAL")
    whole = descriptor_pb2.FileDescriptorSet(file=[one])
    return ValueSchema("protobuf", whole.SerializeToString(), "P")


PROTO = _simple_proto()


def message_of(schema: ValueSchema, name: str) -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.definition)
    pool = descriptor_pool.DescriptorPool()
    for one in files.file:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_is_read_by_the_schema_in_a_file(proto: Path) -> None:
    schema = read_schema("protobuf", proto, "shop.Order")
    assert schema is not None
    order = message_of(schema, "shop.Order")(
        id=7, big=2**64 - 1, size=1, lines=[{"item": "x", "count": 2}], counts={"a": 1}, cash=0.5
    )
    order.at.FromDatetime(datetime(2026, 1, 31, 9, 30, tzinfo=UTC))

    assert fits(schema, order.SerializeToString()) == {
        "id": 7,
        "note": None,
        "at": datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
        "big": Decimal(2**64 - 1),
        "size": "LARGE",
        "lines": [{"item": "x", "count": 2}],
        "counts": [("a", 1)],
        "card": None,
        "cash": 0.5,
    }


def test_an_empty_protobuf_is_a_message_of_defaults(proto: Path) -> None:
    schema = read_schema("protobuf", proto, "shop.Line")
    assert schema is not None

    assert fits(schema, b"") == {"item": "", "count": 0}


def test_protobuf_with_fields_that_nobody_knows_does_not_fit(proto: Path) -> None:
    order, line = (read_schema("protobuf", proto, f"shop.{name}") for name in ("Order", "Line"))
    assert order is not None
    assert line is not None
    value = message_of(order, "shop.Order")(id=7, card="c").SerializeToString()

    assert "fields that shop.Line does not have" in misfit(line, value)


def test_bytes_that_are_no_protobuf_do_not_fit() -> None:
    assert misfit(PROTO, b"\x0a\xff").startswith("Protobuf: ")


def test_the_message_must_be_named_where_there_are_several(proto: Path) -> None:
    with pytest.raises(JobError, match=r"--message; it has shop\.Line, shop\.Order"):
        read_schema("protobuf", proto)


def test_a_message_that_is_not_there_is_named(proto: Path) -> None:
    with pytest.raises(JobError, match=r"no message shop\.Oder"):
        read_schema("protobuf", proto, "shop.Oder")


def test_a_proto_file_that_does_not_compile_is_told_the_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.proto"
    path.write_text('syntax = "proto3";\nmessage Order { in64 id = 1; }\n')

    with pytest.raises(JobError, match=r"bad\.proto.*does not compile.*in64"):
        read_schema("protobuf", path)


def test_a_message_that_contains_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree.proto"
    path.write_text('syntax = "proto3";\nmessage Tree { repeated Tree children = 1; }\n')

    with pytest.raises(JobError, match="Tree contains itself"):
        read_schema("protobuf", path)


def test_a_descriptor_set_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "p.desc"
    path.write_bytes(PROTO.definition)

    assert read_schema("protobuf", path) == PROTO


# --- schema files -----------------------------------------------------------------------------


def test_a_spark_schema_is_read_as_json(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(struct(field("id", "long", nullable=False))))

    schema = read_schema("json", path)

    assert schema is not None
    assert fits(schema, b'{"id": 3}') == {"id": 3}
    assert "missing" in misfit(schema, b"{}")


@pytest.mark.parametrize(
    ("value_format", "said"),
    [
        ("xml", "'xml' is not known; it is one of binary, text, json"),
        ("avro", r"--value-format avro needs --schema FILE\.avsc"),
        ("protobuf", r"needs --schema FILE\.proto"),
    ],
)
def test_a_format_that_is_not_enough_says_what_is_missing(value_format: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        read_schema(value_format, None)


def test_a_schema_where_there_is_none_to_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="--schema: values of --value-format text have none"):
        read_schema("text", tmp_path / "x")


def test_a_schema_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"absent\.avsc: No such file"):
        read_schema("avro", tmp_path / "absent.avsc")


def test_a_file_that_is_no_spark_schema_is_told_what_one_looks_like(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text('{"type": "object"}')

    with pytest.raises(JobError, match=r"order\.json is no schema of Spark's.*id BIGINT NOT NULL"):
        read_schema("json", path)
