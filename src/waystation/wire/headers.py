"""What stands in front of every request and every response.

A request header is read before anything is known of its sender, so it is read by hand:
api, version, correlation id, client id, and in flexible versions tagged fields.  Two
places where Kafka bends its own rules:

- the client id is a legacy string even in a flexible header;
- the response to ApiVersions has the oldest header in all versions, because whoever
  asks cannot yet know which ones we speak.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from waystation.model.errors import MalformedFrameError, UnsupportedVersionError
from waystation.wire.primitives import decode_string, decode_uvarint, skip_tagged_fields
from waystation.wire.versions import SPOKEN, ApiKey

__all__ = [
    "RequestHeader",
    "UnknownRequestError",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
]

_REQUEST = struct.Struct(">hhih")
_RESPONSE = struct.Struct(">i")
_FLEXIBLE_RESPONSE = struct.Struct(">ix")
_NULL = -1
_MOST_TAGGED_FIELDS = 1000

_KNOWN = {int(key): (key, *spoken.versions, spoken.flexible.low) for key, spoken in SPOKEN.items()}
_UNKNOWN = (-1, 1, 0, 0)
_new_tuple = tuple.__new__


class RequestHeader(NamedTuple):
    """Who asks for what; the request's body begins at ``body_at``."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


class UnknownRequestError(UnsupportedVersionError):
    """An API or version that is not spoken, with the header it came in.

    The header is whole but for ``body_at``, which is the end of the frame: an answer, such
    as the one ApiVersions owes to versions from the future, still finds its way back.
    """

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        super().__init__(f"API {header.api_key} v{header.api_version} is not spoken here")


def decode_request_header(view: memoryview) -> RequestHeader:
    """Read the header at the start of a frame.

    HOT: once per request, so the API is found by one lookup and never made an enum anew.
    """
    if len(view) < _REQUEST.size:
        raise MalformedFrameError(f"{len(view)} bytes cannot hold a request header")
    number, version, correlation_id, length = _REQUEST.unpack_from(view)
    at = _REQUEST.size
    client_id = None
    if length != _NULL:
        client_id = decode_string(view, at, length)
        at += length
    key, lowest, highest, flexible_from = _KNOWN.get(number, _UNKNOWN)
    if not lowest <= version <= highest:
        raise UnknownRequestError(
            RequestHeader(number, version, correlation_id, client_id, len(view))
        )
    if version >= flexible_from:
        at = _end_of_tagged_fields(view, at)
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id, at))


def encode_request_header(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header that a client puts in front of a request."""
    length, behind = _behind(api_key, version, client_id)
    return _REQUEST.pack(api_key, version, correlation_id, length) + behind


@lru_cache(maxsize=1024)
def _behind(api_key: ApiKey, version: int, client_id: str | None) -> tuple[int, bytes]:
    """The length of the client's name, and what stands behind it: the same for every request."""
    name = b"" if client_id is None else client_id.encode()
    tail = b"\0" if SPOKEN[api_key].flexible.include(version) else b""
    return _NULL if client_id is None else len(name), name + tail


def encode_response_header(api_key: ApiKey, version: int, correlation_id: int) -> bytes:
    """The header that answers a request of ``version``."""
    flexible = _response_is_flexible(api_key, version)
    return (_FLEXIBLE_RESPONSE if flexible else _RESPONSE).pack(correlation_id)


def decode_response_header(view: memoryview, api_key: ApiKey, version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins."""
    if len(view) < _RESPONSE.size:
        raise MalformedFrameError(f"{len(view)} bytes cannot hold a response header")
    (correlation_id,) = _RESPONSE.unpack_from(view)
    at = _RESPONSE.size
    if _response_is_flexible(api_key, version):
        at = _end_of_tagged_fields(view, at)
    return correlation_id, at


@lru_cache(maxsize=1024)
def _response_is_flexible(api_key: ApiKey, version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and version >= SPOKEN[api_key].flexible.low


def _end_of_tagged_fields(view: memoryview, at: int) -> int:
    if at < len(view) and not view[at]:
        return at + 1
    count, at = decode_uvarint(view, at)
    if count > _MOST_TAGGED_FIELDS:
        raise MalformedFrameError(f"{count} tagged fields in a header")
    return skip_tagged_fields(view, at, count)
