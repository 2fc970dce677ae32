"""Idempotency keys over HTTP: a call that is made twice has the effect of one.

One message takes its key from the header ``Idempotency-Key`` or from its field ``idempotency_key``.
A batch takes one key for each message from their fields, or one for all of it from the header:
then the first message's is ``<key>.0``, the next one's ``<key>.1``, and so on; a stream likewise,
however long it is.  In a batch either all messages have a key or none: only so do they keep their
order.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import HeaderField
from waystation.model.errors import InvalidRequestError, WaystationError
from waystation.records.once import KEY_BYTES_MAX, check_key

__all__ = ["ONCE_HEADER", "REPLAYED", "Keyed", "StreamKeys", "no_once_key", "once_key", "once_keys"]

_NAME: Final = "Idempotency-Key"
_LINE: Final = _NAME.lower().encode()
ONCE_HEADER: Final = HeaderField(
    _NAME,
    "Store what this call sends once, however often it is made with this key.",
    pattern=rf"^[!-~]{{1,{KEY_BYTES_MAX}}}$",
)
_STREAM_MOST: Final = 10**12
REPLAYED: Final = ((b"idempotency-replayed", b"true"),)


class Keyed(Protocol):
    """A message that may have a key of its own."""

    @property
    def idempotency_key(self) -> str | None:
        """As its sender wrote it."""
        ...


def once_key(lines: Mapping[bytes, bytes], message: Keyed) -> str | None:
    """The key of one message; ``None`` if it has none."""
    line, own = lines.get(_LINE), message.idempotency_key
    if line is None:
        return None if own is None else _checked(own, "idempotency_key")
    if own is not None:
        raise _wrong("the key stands in the header and in the message", "idempotency_key")
    return _checked(line.decode("latin-1"), _NAME)


def no_once_key(lines: Mapping[bytes, bytes], detail: str) -> None:
    """Refuse a key where it would have no effect: who gives one relies on it."""
    if _LINE in lines:
        raise _wrong(detail, _NAME, "leave the header away")


def once_keys(lines: Mapping[bytes, bytes], messages: Sequence[Keyed]) -> list[str] | None:
    """The keys of the messages of a batch; ``None`` if they have none."""
    line = lines.get(_LINE)
    own = [number for number, one in enumerate(messages) if one.idempotency_key is not None]
    if line is not None:
        if own:
            where = f"messages[{own[0]}].idempotency_key"
            raise _wrong("the batch has a key in the header, so its messages have none", where)
        name = line.decode("latin-1")
        _checked(f"{name}.{len(messages) - 1}", _NAME)
        return [f"{name}.{number}" for number in range(len(messages))]
    if not own:
        return None
    if len(own) < len(messages):
        raise _wrong(
            f"{len(own)} of {len(messages)} messages have an idempotency key",
            "messages",
            "give all of them one or none, or send them in two calls",
        )
    return [
        _checked(one.idempotency_key or "", f"messages[{number}].idempotency_key")
        for number, one in enumerate(messages)
    ]


class StreamKeys:
    """The keys of messages that come one after the other, for as long as it takes."""

    def __init__(self, lines: Mapping[bytes, bytes]) -> None:
        line = lines.get(_LINE)
        self._name = None if line is None else line.decode("latin-1")
        if self._name is not None:
            _checked(f"{self._name}.{_STREAM_MOST}", _NAME)
        self._numbered = 0

    @property
    def named(self) -> bool:
        """Whether every message gets one."""
        return self._name is not None

    def next(self, message: Keyed) -> str | None:
        """The key of the next message; ``None`` if it has none."""
        own = message.idempotency_key
        if self._name is None:
            return own
        number, self._numbered = self._numbered, self._numbered + 1
        if own is not None:
            raise InvalidRequestError(
                "the stream has an idempotency key in its header, so its messages have none"
            )
        return f"{self._name}.{number}"


def _checked(key: str, field: str) -> str:
    try:
        check_key(key.encode(errors="surrogatepass"))
    except WaystationError as error:
        raise _wrong(str(error), field, f"1 to {KEY_BYTES_MAX} visible characters") from None
    return key


def _wrong(detail: str, field: str, remedy: str = "give the key in one place") -> ProblemError:
    return refusal(400, "invalid-field", detail, field=field, remedy=remedy)
