"""What etcd's JSON gateway says, as far as it is listened to.

Whatever has its zero value is left out on the wire; 64-bit numbers come as strings, keys and
values in base64.  The names are etcd's.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Header(msgspec.Struct, frozen=True):
    """Which cluster answered, and its revision when it did."""

    cluster_id: int = 0
    revision: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What every answer has."""

    header: Header = Header()


class KeyValue(msgspec.Struct, frozen=True):
    """An item; of a deleted one only the key and the revision that deleted it."""

    key: bytes
    mod_revision: int
    value: bytes = b""


class RangeAnswer(Answer, frozen=True):
    """Items by key."""

    kvs: tuple[KeyValue, ...] = ()


class TxnPart(msgspec.Struct, frozen=True):
    """The answer to one operation of a transaction; only reads say something of interest."""

    response_range: RangeAnswer | None = None


class TxnAnswer(Answer, frozen=True):
    """Whether the compares held, and what the operations of that case gave."""

    succeeded: bool = False
    responses: tuple[TxnPart, ...] = ()

    def read(self, part: int) -> tuple[KeyValue, ...]:
        """What operation number ``part`` read, which was a read."""
        answer = self.responses[part].response_range
        return answer.kvs if answer is not None else ()


class LeaseAnswer(Answer, frozen=True):
    """A lease granted or kept alive; one that has ended has no time left."""

    ID: int = 0
    TTL: int = 0


class KeepAliveAnswer(Answer, frozen=True):
    """A stream of one answer, read as a whole."""

    result: LeaseAnswer | None = None
    error: Any = None


class TokenAnswer(Answer, frozen=True):
    """What proves who we are from now on."""

    token: str = ""


class Event(msgspec.Struct, frozen=True):
    """One key's change."""

    kv: KeyValue
    type: str = "PUT"


class WatchAnswer(Answer, frozen=True):
    """Whole revisions of changes, or the news that a watch began or ended."""

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: tuple[Event, ...] = ()


class WatchLine(msgspec.Struct, frozen=True):
    """One line of a watch's stream."""

    result: WatchAnswer | None = None
    error: Any = None


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Reads ``kind``, with its numbers in strings."""
    return msgspec.json.Decoder(kind, strict=False)


def problem_of(body: bytes) -> tuple[int, str]:
    """The gRPC code and text of a refusal, in whichever of three forms etcd 3.4 to 3.6 says it."""
    try:
        said = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return -1, body[:200].decode(errors="replace").strip()
    if isinstance(said, dict) and isinstance(said.get("error"), dict):
        said = said["error"]
    if not isinstance(said, dict):
        return -1, str(said)[:200]
    code = said.get("grpc_code", said.get("code", -1))
    return code if isinstance(code, int) else -1, str(said.get("message") or said.get("error"))
