"""What may stand above a body: refuses heads that somebody else could read in another way.

The parser refuses what is not HTTP/1.1, both ``Content-Length`` and ``Transfer-Encoding`` among
it.  What it lets through is looked at here, before anybody acts on it:

1. how a body is framed, and which host is meant, is said once and in one way;
2. a handshake for a WebSocket is whole: the library behind it has nothing left to refuse, which
   it would not do as a problem.
"""

import binascii
from collections.abc import Iterable
from typing import Final

from waystation.gateway.problems import ProblemError, refusal

__all__ = ["Header", "absolute", "check_framing", "check_handshake", "malformed"]

Header = tuple[bytes, bytes]

_FRAMING: Final = ("Transfer-Encoding", "Content-Length")
_SINGLE: Final = frozenset(
    {b"host", b"origin", b"content-type", b"content-encoding", b"idempotency-key", b"last-event-id"}
)
"""What we act on, and could take from one line while somebody else takes it from another."""
_READ_AGAIN: Final = (b"connection", b"upgrade", b"sec-websocket-protocol")
_VERSIONS: Final = ("1.1", "1.0")
_KEY_BYTES: Final = 16
_MOST_LINES: Final = 128
_LONGEST_LINE_BYTES: Final = 8_000
"""What the library that reads the handshake again takes, with some room."""


def check_framing(version: str, headers: Iterable[Header]) -> None:
    """Refuse what is ambiguous, or not HTTP/1.1 nor 1.0; HOT: once per request."""
    if version not in _VERSIONS:
        raise refusal(
            505, "unsupported-version", f"HTTP/{version} is not spoken here", remedy="use HTTP/1.1"
        )
    seen = set()
    for name, value in headers:
        if name in _SINGLE:
            if name in seen:
                field = name.decode().title()
                raise _malformed(field, "it is there twice", f"say {field} once")
            seen.add(name)
        elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
            raise refusal(
                501,
                "unsupported-transfer-encoding",
                f"a body sent as {value.decode('latin-1')!r} in HTTP/{version} cannot be read",
                field="Transfer-Encoding",
                remedy="Transfer-Encoding: chunked in HTTP/1.1, or Content-Length; "
                "what is packed says so in Content-Encoding",
            )


def absolute(url: bytes, headers: list[Header]) -> bytes:
    """What follows the host in an address such as a proxy is sent; the host goes to the header."""
    scheme, separator, rest = url.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise _malformed("address", "it is no path", "begin it with /")
    ends_at = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    headers[:] = [one for one in headers if one[0] != b"host"]
    headers.append((b"host", rest[:ends_at]))
    path = rest[ends_at:]
    return path if path.startswith(b"/") else b"/" + path


def check_handshake(method: str, version: str, url: bytes, headers: list[Header]) -> None:
    """Refuse to become a WebSocket unless everything is there that RFC 6455 asks for."""
    if method != "GET":
        raise refusal(
            405,
            "method-not-allowed",
            f"a WebSocket is asked for by GET, not by {method}",
            field="Upgrade",
            remedy="use GET",
        )
    if version != "1.1":
        raise refusal(
            505,
            "unsupported-version",
            f"a WebSocket is asked for in HTTP/1.1, not in HTTP/{version}",
            field="Upgrade",
            remedy="use a WebSocket client that speaks HTTP/1.1",
        )
    _check_size(url, headers)
    if _all(headers, b"sec-websocket-version") != [b"13"]:
        raise refusal(
            426,
            "websocket-version",
            "only version 13 of WebSockets is spoken here",
            field="Sec-WebSocket-Version",
            remedy="Sec-WebSocket-Version: 13, once",
        )
    if not _is_key(_all(headers, b"sec-websocket-key")):
        raise _malformed(
            "Sec-WebSocket-Key", "16 bytes in base64 are asked for, once", "use a WebSocket client"
        )
    if _all(headers, b"transfer-encoding") or _all(headers, b"content-length") not in ([], [b"0"]):
        raise _malformed(
            "Content-Length",
            "a request for a WebSocket has no body",
            "send messages once it is open",
        )
    # The library would refuse what it cannot read, though no protocol is spoken, and this is known.
    headers[:] = [one for one in headers if one[0] not in _READ_AGAIN]
    headers += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]


def malformed(why: str) -> ProblemError:
    """For what the parser could not read, and why, in its words."""
    told = f": {why}" if why else ""
    return refusal(
        400,
        "malformed-http",
        f"that is not HTTP/1.1{told}",
        field=next((name for name in _FRAMING if name in why), None),
        remedy="send what RFC 9112 says, or use an HTTP client; TLS is not spoken here",
    )


def _check_size(url: bytes, headers: list[Header]) -> None:
    longest = max((len(name) + len(value) for name, value in headers), default=0)
    if len(headers) > _MOST_LINES or max(longest, len(url)) > _LONGEST_LINE_BYTES:
        raise refusal(
            431,
            "header-too-large",
            f"a request for a WebSocket has at most {_MOST_LINES} header lines "
            f"of {_LONGEST_LINE_BYTES} bytes",
            remedy="say less there, and more once it is open",
        )


def _all(headers: Iterable[Header], name: bytes) -> list[bytes]:
    return [value for one, value in headers if one == name]


def _is_key(given: list[bytes]) -> bool:
    try:
        return [len(binascii.a2b_base64(key, strict_mode=True)) for key in given] == [_KEY_BYTES]
    except binascii.Error:
        return False


def _malformed(field: str, why: str, remedy: str) -> ProblemError:
    return refusal(400, "malformed-header", f"{field} is wrong: {why}", field=field, remedy=remedy)
