"""The vocabulary in which messages are declared.

A declaration names each field once, in wire order, with its kind, the versions that have
it and what it is where it is absent::

    class OffsetForLeaderPartition(Struct):
        partition: int = field(int32)
        current_leader_epoch: int = field(int32, "2+", default=-1)
        topic_id: UUID = field(uuid, "5+")

Kinds know nothing of bytes; ``decoding.py`` and ``encoding.py`` turn them into code.
What a class of fields can do is in ``message.py``.
"""

from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, overload
from uuid import UUID

from waystation.wire.primitives import ZERO_UUID
from waystation.wire.versions import Versions

__all__ = [
    "Array",
    "Bytes",
    "Field",
    "Fixed",
    "Kind",
    "Nested",
    "Part",
    "Records",
    "Region",
    "String",
    "Uuid",
    "array",
    "boolean",
    "field",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "octets",
    "records",
    "size_bytes_of",
    "string",
    "struct_of",
    "tagged",
    "uint16",
    "uuid",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Region(Protocol):
    """Bytes that are elsewhere, such as a stretch of a file: known by their number only."""

    @property
    def nbytes(self) -> int:
        """How many bytes the region contributes to a frame."""


Part = bytes | bytearray | memoryview | Region
"""One piece of an encoded message; pieces are sent one after the other."""


def size_bytes_of(part: Part) -> int:
    """How many bytes ``part`` puts on the wire."""
    return len(part) if isinstance(part, (bytes, bytearray)) else part.nbytes


class Kind(Generic[T_co]):
    """How a value of type ``T_co`` is written; the subclasses are the whole list."""

    __slots__ = ()

    def default(self) -> Any:
        """What Kafka means by a field of this kind that is not there."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Fixed(Kind[T]):
    """A number or truth value of fixed width, by its letter in the struct module."""

    letter: str
    absent: T

    def default(self) -> T:
        """Zero, or false."""
        return self.absent


class Uuid(Kind[UUID]):
    """Sixteen bytes; all zero means none."""

    __slots__ = ()

    def default(self) -> UUID:
        """The zero id."""
        return ZERO_UUID


class String(Kind[str]):
    """UTF-8 behind its length in bytes: int16, or compact in flexible versions."""

    __slots__ = ()

    def default(self) -> str:
        """The empty string."""
        return ""


class Bytes(Kind[bytes]):
    """Octets behind their length, int32 or compact; copied out of the frame."""

    __slots__ = ()

    def default(self) -> bytes:
        """No octets."""
        return b""


class Records(Kind[Any]):
    """Record batches: written as ``Bytes`` are, but never copied on their way in or out."""

    __slots__ = ()

    def default(self) -> None:
        """Null: also what Kafka answers when it has nothing to give."""
        return


@dataclass(frozen=True, slots=True)
class Array(Kind[list[T]]):
    """As many values as the count in front says, int32 or compact."""

    element: Kind[T]

    def default(self) -> list[T]:
        """A new empty list."""
        return []


@dataclass(frozen=True, slots=True)
class Nested(Kind[T]):
    """The fields of another declaration, in place."""

    type: type[T]

    def default(self) -> T:
        """A struct of defaults."""
        return self.type()


int8: Final[Kind[int]] = Fixed("b", 0)
int16: Final[Kind[int]] = Fixed("h", 0)
int32: Final[Kind[int]] = Fixed("i", 0)
int64: Final[Kind[int]] = Fixed("q", 0)
uint16: Final[Kind[int]] = Fixed("H", 0)
float64: Final[Kind[float]] = Fixed("d", 0.0)
boolean: Final[Kind[bool]] = Fixed("?", False)
uuid: Final[Kind[UUID]] = Uuid()
string: Final[Kind[str]] = String()
octets: Final[Kind[bytes]] = Bytes()
records: Final[Kind[Any]] = Records()


def struct_of(declared: type[T]) -> Kind[T]:
    """One struct in place; nullable ones have a byte in front that says which."""
    return Nested(declared)


def array(element: Kind[T] | type[T]) -> Kind[list[T]]:
    """A list of a primitive kind or of structs of a declared class."""
    return Array(element if isinstance(element, Kind) else Nested(element))


class _Unset:
    """Tells "no default given" from a default of None."""


_UNSET: Final[Any] = _Unset()
_NEVER: Final = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Field:
    """One line of a declaration."""

    kind: Kind[Any]
    versions: Versions
    nullable: Versions
    explicit_default: Any
    tag: int | None

    def __post_init__(self) -> None:
        assert not isinstance(self.explicit_default, list), "a list would be shared: leave it out"

    @property
    def default_is_fresh(self) -> bool:
        """Whether each instance needs a default of its own, lest one's change be everyone's."""
        return self.explicit_default is _UNSET and isinstance(self.kind, Array | Nested)

    def default(self) -> Any:
        """What the field holds where nobody set it: Kafka's default, None if it may be null."""
        return self.kind.default() if self.explicit_default is _UNSET else self.explicit_default


@overload
def field(kind: Kind[T], versions: str = "0+", *, default: T = ...) -> T: ...
@overload
def field(
    kind: Kind[T], versions: str = "0+", *, nullable: str, default: T | None = None
) -> T | None: ...
def field(
    kind: Kind[Any], versions: str = "0+", *, nullable: str = "", default: Any = _UNSET
) -> Any:
    """A field that every message of ``versions`` carries, null at most in ``nullable``."""
    if nullable:
        may_be_null, absent = Versions.parse(nullable), None if default is _UNSET else default
    else:
        may_be_null, absent = _NEVER, default
    return Field(kind, Versions.parse(versions), may_be_null, absent, None)


@overload
def tagged(tag: int, kind: Kind[T], versions: str, *, default: None) -> T | None: ...
@overload
def tagged(tag: int, kind: Kind[T], versions: str, *, default: T = ...) -> T: ...
def tagged(tag: int, kind: Kind[Any], versions: str, *, default: Any = _UNSET) -> Any:
    """A field that is only sent when it differs from its default (flexible versions only).

    A struct's default is None rather than a struct of defaults: "nothing was said" is
    cheap to test and cannot be changed by accident.
    """
    spoken = Versions.parse(versions)
    may_be_null = spoken if default is None and not isinstance(kind, Nested) else _NEVER
    return Field(kind, spoken, may_be_null, default, tag)
