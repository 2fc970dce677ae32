"""Hypothesis strategies made from our declarations: any message, in any version."""

from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Any, get_args

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from tests.messages.twin import twin_fields

from waystation.messages.catalog import MESSAGES
from waystation.wire.message import Message, Struct
from waystation.wire.schema import Array, Bytes, Field, Fixed, Kind, Nested, Records, String, Uuid
from waystation.wire.versions import ApiKey

INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}

# kio holds moments as datetimes, which end with the year 9999, and -1 as None where it may be.
MOMENTS = st.integers(0, 253_402_300_799_000)
# And long durations as timedeltas, counted in floats, which are exact for some centuries.
DURATIONS = st.integers(-1, 9_000_000_000_000)
# Tags of our own lie beyond those that Kafka will come to use.
FIRST_OWN_TAG = 10_000
ERRORS = st.sampled_from([code.value for code in ErrorCode])
NAMES = st.text(max_size=12) | st.sampled_from(["orders", "é", "x" * 126, "x" * 127, "ü" * 9000])


# Our own APIs, and a version that Kafka 4 has left behind: test_without_twin.py has their bytes.
WITHOUT_TWIN = [
    (ApiKey.WRITE_TXN_MARKERS, 0),
    (ApiKey.PREPARE_TXN, 0),
    (ApiKey.TXN_OUTCOME, 0),
    (ApiKey.CLUSTER_STATUS, 0),
    (ApiKey.DRAIN_BROKER, 0),
    (ApiKey.LIST_SCHEDULED, 0),
    (ApiKey.DESCRIBE_SCHEDULED, 0),
    (ApiKey.CANCEL_SCHEDULED, 0),
    (ApiKey.RETIME_SCHEDULED, 0),
    (ApiKey.QUEUE_STATUS, 0),
    (ApiKey.FIND_MESSAGES, 0),
    (ApiKey.PRODUCE_ONCE, 0),
    (ApiKey.ONCE_KEYS, 0),
    (ApiKey.DESCRIBE_VIEWS, 0),
    (ApiKey.COUNT_MATCHING, 0),
    (ApiKey.REDRIVE_DEAD_LETTERS, 0),
    (ApiKey.DESCRIBE_REDRIVE, 0),
    (ApiKey.CANCEL_REDRIVE, 0),
]


def messages_and_versions() -> Iterator[tuple[type[Message], int]]:
    """Every message that is declared, in every version that is spoken and that kio knows."""
    for key, pair in MESSAGES.items():
        for declared in pair:
            for version in range(declared.spoken.versions.low, declared.spoken.versions.high + 1):
                if (key, version) not in WITHOUT_TWIN:
                    yield declared, version


@cache
def instances(declared: type[Struct], version: int, theirs: type[Any]) -> st.SearchStrategy[Any]:
    """Instances that set what ``version`` has; the rest keeps its default."""
    described = twin_fields(theirs)
    given = {
        name: _field(field, version, *described[name])
        for name, field in declared.__fields__.items()
        if field.versions.include(version) and not is_ours(field)
    }
    return st.builds(declared, **given)


def is_ours(field: Field) -> bool:
    """Whether Kafka knows nothing of it; such a field is sent only if it is set."""
    return field.tag is not None and field.tag >= FIRST_OWN_TAG


def _field(
    field: Field, version: int, found: Any, nested: type[Any] | None
) -> st.SearchStrategy[Any]:
    values = _values(field.kind, version, found, nested)
    if field.tag is not None:
        # A struct of defaults is not sent, and thus comes back as None.
        silent = field.kind.default() if isinstance(field.kind, Nested) else None
        return st.just(field.default()) | values.filter(lambda value: value != silent)
    return st.none() | values if field.nullable.include(version) else values


def _values(
    kind: Kind[Any], version: int, found: Any, nested: type[Any] | None
) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed():
            return _fixed(kind, found)
        case Uuid():
            return st.uuids() | st.just(kind.default())
        case String():
            return NAMES
        case Bytes():
            return st.binary(max_size=300)
        case Records():
            return st.binary(max_size=300).map(memoryview)
        case Array(element):
            return st.lists(_values(element, version, found, nested), max_size=3)
        case Nested(declared):
            assert nested is not None
            return instances(declared, version, nested)
    raise AssertionError(f"no strategy for {kind}")


def _fixed(kind: Fixed[Any], found: Any) -> st.SearchStrategy[Any]:
    kafka_type = found.metadata["kafka_type"]
    if kind.letter == "?":
        return st.booleans()
    if kafka_type == "error_code":
        return ERRORS
    if kafka_type == "datetime_i64":
        return MOMENTS | st.just(-1) if NoneType in get_args(found.type) else MOMENTS
    if kafka_type == "timedelta_i64":
        return DURATIONS
    bits = INTEGERS[kind.letter]
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
