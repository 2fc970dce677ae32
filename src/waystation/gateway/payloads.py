"""Messages as JSON: how callers write them, and how they are shown.

Bytes that are text are written as text; others as base64, in the field of the same name with
``_base64``.  A ``value`` that is not a string is kept as the JSON it was written in, so that
``{"value": {"total": 3}}`` sends ``{"total": 3}``, and ``{"value": "hello"}`` sends ``hello``.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from waystation.client.accumulator import NewRecord
from waystation.client.message import Message
from waystation.client.timing import Timing, timing_headers
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import Params
from waystation.model.errors import InvalidRequestError
from waystation.records.record import Headers

__all__ = [
    "Moment",
    "NewHeader",
    "NewMessage",
    "StoredHeader",
    "StoredMessage",
    "Values",
    "either",
    "shown",
    "value_as",
]

Values = Literal["text", "json", "base64"]
Moment = Annotated[int, Meta(ge=0, le=2**63 - 1)] | str

_NO_VALUE: Final = msgspec.Raw(b"")
_text: Final = msgspec.json.Decoder(str).decode
_any: Final = msgspec.json.Decoder().decode


class NewHeader(Params, frozen=True):
    """A header of a message."""

    name: str
    value: str | None = None
    value_base64: bytes | None = None


class NewMessage(Params, frozen=True):
    """A message to send."""

    value: Annotated[
        msgspec.Raw,
        Meta(
            description="Text is sent as UTF-8, other JSON as it is written; null is a tombstone.",
            examples=["hello"],
        ),
    ] = msgspec.field(default_factory=lambda: _NO_VALUE)
    value_base64: Annotated[bytes, Meta(description="Instead of value: any bytes.")] | None = None
    key: (
        Annotated[str, Meta(description="Messages of one key stay in order, in one partition.")]
        | None
    ) = None
    key_base64: Annotated[bytes, Meta(description="Instead of key: any bytes.")] | None = None
    headers: dict[str, str | None] | list[NewHeader] = msgspec.field(default_factory=dict)
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    timestamp_ms: (
        Annotated[
            int, Meta(ge=0, le=2**62, description="Milliseconds since 1970; now, if not given.")
        ]
        | None
    ) = None
    deliver_at: (
        Annotated[
            Moment, Meta(description="Deliver it then: ISO 8601 with an offset, or ms since 1970.")
        ]
        | None
    ) = None
    deliver_after: (
        Annotated[Moment, Meta(description="Deliver it so much later: '10m', or milliseconds.")]
        | None
    ) = None
    deliver_cron: Annotated[str, Meta(description="Deliver it again and again.")] | None = None
    deliver_zone: Annotated[str, Meta(description="The time zone of deliver_cron.")] | None = None
    idempotency_key: (
        Annotated[
            str,
            Meta(
                pattern="^[!-~]{1,255}$",
                description="Store it once, however often it is sent with this key.",
            ),
        ]
        | None
    ) = None

    def record(self, at: str = "") -> NewRecord:
        """The message as it is sent; ``at`` is where it stands in the body.  HOT: as below."""
        try:
            return (
                self.value_bytes(at),
                self.key_bytes(at),
                self.header_pairs(at),
                self.partition,
                self.timestamp_ms,
            )
        except (UnicodeError, msgspec.DecodeError) as error:
            raise _not_text(error, at) from None

    def value_bytes(self, at: str = "") -> bytes | None:
        """The value as it is sent; ``at`` is where this message stands in the body.

        HOT: once per message (benchmarks/gateway/posts.py); plain text is not read as JSON.
        """
        raw = bytes(self.value)
        if self.value_base64 is not None:
            if raw:
                raise _both("value", at)
            return self.value_base64
        if raw[:1] == b'"':
            if b"\\" not in raw and raw.isascii():
                return raw[1:-1]
            return _text(raw).encode()
        if not raw:
            raise refusal(
                400,
                "invalid-field",
                "the message has no value",
                field=f"{at}value",
                remedy="give value or value_base64; a value of null is a tombstone",
            )
        if raw == b"null":
            return None
        if not raw.isascii():
            raw.decode()
        return raw

    def key_bytes(self, at: str = "") -> bytes | None:
        """The key as it is sent."""
        if self.key_base64 is not None:
            if self.key is not None:
                raise _both("key", at)
            return self.key_base64
        return None if self.key is None else self.key.encode()

    def header_pairs(self, at: str = "") -> Headers:
        """The headers as they are sent."""
        if not self.headers:
            return ()
        if isinstance(self.headers, dict):
            return tuple((name, _bytes(value)) for name, value in self.headers.items())
        pairs = []
        for number, one in enumerate(self.headers):
            if one.value is not None and one.value_base64 is not None:
                raise _both("value", f"{at}headers[{number}].")
            value = one.value_base64 if one.value is None else one.value.encode()
            pairs.append((one.name, value))
        return tuple(pairs)

    def timing(self, at: str = "") -> Timing | None:
        """When to deliver it, if not now; a mistake in it is told before anything is sent."""
        if (
            self.deliver_at is None
            and self.deliver_after is None
            and self.deliver_cron is None
            and self.deliver_zone is None
        ):
            return None
        said: Timing = {
            "deliver_at": self.deliver_at,
            "deliver_after": self.deliver_after,
            "deliver_cron": self.deliver_cron,
            "deliver_zone": self.deliver_zone,
        }
        named = [name for name, value in said.items() if value is not None]
        try:
            timing_headers(**said)
        except InvalidRequestError as error:
            raise refusal(
                400,
                "invalid-field",
                str(error),
                field=at + named[0],
                remedy="one time: '2030-01-31T09:00:00Z', '10m' or '0 9 * * 1'",
            ) from None
        return said


class StoredHeader(msgspec.Struct, frozen=True):
    """A header as it was sent; ``value_base64`` if it is not text."""

    name: str
    value: str | UnsetType | None = UNSET
    value_base64: bytes | UnsetType = UNSET


class StoredMessage(msgspec.Struct, frozen=True):
    """A message and where it stands."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | UnsetType | None = UNSET
    key_base64: bytes | UnsetType = UNSET
    value: Any = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers: list[StoredHeader] = []


def shown(messages: Iterable[Message], values: Values) -> list[StoredMessage]:
    """Messages as callers see them; what is not text, or not JSON if that is wanted, as base64."""
    return [_shown(one, values) for one in messages]


def _shown(message: Message, values: Values) -> StoredMessage:
    key, key_base64 = either(message.key)
    value, value_base64 = value_as(message.value, values)
    return StoredMessage(
        message.partition,
        message.offset,
        message.timestamp,
        key,
        key_base64,
        value,
        value_base64,
        [StoredHeader(name, *either(one)) for name, one in message.headers],
    )


def either(given: bytes | None) -> tuple[str | UnsetType | None, bytes | UnsetType]:
    if given is None:
        return None, UNSET
    try:
        return given.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, given


def value_as(given: bytes | None, values: Values) -> tuple[Any, bytes | UnsetType]:
    if given is None:
        return None, UNSET
    if values == "text":
        return either(given)
    if values == "json":
        try:
            document = _any(given)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return UNSET, given
        # As it was sent, unless it is spread over lines, which NDJSON could not show.
        return (document if b"\n" in given else msgspec.Raw(given)), UNSET
    return UNSET, given


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _not_text(error: Exception, at: str) -> ProblemError:
    return refusal(
        400,
        "invalid-field",
        f"what is not text cannot be sent as text: {error}",
        field=f"{at}value",
        remedy="UTF-8 without lone surrogates, or value_base64",
    )


def _both(name: str, at: str) -> ProblemError:
    return refusal(
        400,
        "invalid-field",
        f"{name} and {name}_base64 exclude each other",
        field=at + name,
        remedy="give one of them",
    )
