import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as LegacyHeader
from kio.schema.request_header.v2.header import RequestHeader as FlexibleHeader
from kio.schema.response_header.v0.header import ResponseHeader as LegacyAnswer
from kio.schema.response_header.v1.header import ResponseHeader as FlexibleAnswer
from kio.serial import entity_writer
from tests.messages.generated import messages_and_versions
from tests.messages.twin import twin_type

from waystation.messages.catalog import MESSAGES
from waystation.model.errors import MalformedFrameError, UnsupportedVersionError
from waystation.wire.headers import (
    RequestHeader,
    UnknownRequestError,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

INT32 = st.integers(-(2**31), 2**31 - 1)
REQUESTS = [(kind, v) for kind, v in messages_and_versions() if kind.__name__.endswith("Request")]


def written_by_kio(header: object) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    return buffer.getvalue()


@pytest.mark.parametrize(("kind", "version"), REQUESTS)
def test_headers_are_those_of_kafka_in_every_version(kind: type[Message], version: int) -> None:
    assert kind.api is not None
    asking = twin_type(kind, version).__header_schema__
    answering = twin_type(MESSAGES[kind.api][1], version).__header_schema__
    assert asking in (LegacyHeader, FlexibleHeader)
    assert answering in (LegacyAnswer, FlexibleAnswer)

    request = written_by_kio(
        asking(
            request_api_key=int(kind.api),
            request_api_version=version,
            correlation_id=77,
            client_id="büro",
        )
    )
    response = written_by_kio(answering(correlation_id=77))

    assert encode_request_header(kind.api, version, 77, "büro") == request
    assert encode_response_header(kind.api, version, 77) == response
    assert decode_response_header(memoryview(response), kind.api, version) == (77, len(response))


@given(st.sampled_from(REQUESTS), INT32, st.none() | st.text(max_size=20), st.binary(max_size=9))
def test_a_request_header_comes_back(
    request_version: tuple[type[Message], int],
    correlation_id: int,
    client_id: str | None,
    body: bytes,
) -> None:
    kind, version = request_version
    assert kind.api is not None
    encoded = encode_request_header(kind.api, version, correlation_id, client_id)

    header = decode_request_header(memoryview(encoded + body))

    assert header == (kind.api, version, correlation_id, client_id, len(encoded))


def test_the_answer_to_api_versions_has_the_oldest_header() -> None:
    for version in (0, 3, 4, 99):
        assert encode_response_header(ApiKey.API_VERSIONS, version, 5) == b"\0\0\0\5"
    assert encode_response_header(ApiKey.METADATA, 12, 5) == b"\0\0\0\5\0"


def test_a_client_id_is_a_legacy_string_in_a_flexible_header() -> None:
    encoded = encode_request_header(ApiKey.METADATA, 12, 5, "me")

    assert encoded == b"\0\3\0\x0c\0\0\0\5" + b"\0\2me" + b"\0"


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    asked = encode_request_header(ApiKey.METADATA, 12, 5, None)[:-1] + b"\1\7\3abc"
    answered = b"\0\0\0\5" + b"\1\7\3abc"

    assert decode_request_header(memoryview(asked + b"body")).body_at == len(asked)
    assert decode_response_header(memoryview(answered), ApiKey.METADATA, 12) == (5, len(answered))


@pytest.mark.parametrize(
    ("api_key", "version"), [(ApiKey.API_VERSIONS, 99), (ApiKey.PRODUCE, 0), (999, 0), (-1, 0)]
)
def test_who_asks_for_the_unknown_can_still_be_answered(api_key: int, version: int) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + bytes([0, version]) + b"\0\0\0\7\0\2me\xff"

    with pytest.raises(UnknownRequestError) as caught:
        decode_request_header(memoryview(frame))

    assert isinstance(caught.value, UnsupportedVersionError)
    assert caught.value.header == RequestHeader(api_key, version, 7, "me", len(frame))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0\x0c\0\0\0\5\0",
        b"\0\3\0\x0c\0\0\0\5\0\3me",
        b"\0\3\0\x0c\0\0\0\5\xff\xfe",
        b"\0\3\0\x0c\0\0\0\5\0\2\xff\xfe\0",
        b"\0\3\0\x0c\0\0\0\5\0\2me",
        b"\0\3\0\x0c\0\0\0\5\0\2me\1",
        b"\0\3\0\x0c\0\0\0\5\0\2me\xff\xff\xff\xff\xff",
        b"\0\3\0\x0c\0\0\0\5\0\2me\xff\xff\1" + bytes(100_000),
    ],
)
def test_a_broken_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\5", b"\0\0\0\5\1\7"])
def test_a_broken_response_header_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_response_header(memoryview(frame), ApiKey.METADATA, 12)
