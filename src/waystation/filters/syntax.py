"""The parts of an expression: values and conditions, each with its place and its kind.

What is built of these is checked already (``checking.py``): whoever turns it into code finds that
kinds fit, and that a field of a document is read as what it is compared with.
"""

from dataclasses import dataclass
from enum import Enum

from waystation.filters.patterns import Pattern

__all__ = [
    "And",
    "Arithmetic",
    "Cast",
    "Compare",
    "Condition",
    "Field",
    "In",
    "IsNull",
    "Kind",
    "Like",
    "Literal",
    "Not",
    "Or",
    "Root",
    "Test",
    "Value",
]


class Kind(Enum):
    """What a value is; its name in errors."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    ANY = "field of a document"
    """Known only message by message."""


class Root(Enum):
    """What a field's name begins with."""

    KEY = "key"
    VALUE = "value"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    PARTITION = "partition"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a message; ``path`` leads to a header or into a document."""

    root: Root
    path: tuple[str | int, ...]
    kind: Kind
    at: int
    end: int

    @property
    def is_in_document(self) -> bool:
        return self.root is Root.VALUE and bool(self.path)


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the expression; a timestamp as milliseconds since 1970."""

    value: str | int | float | bool
    kind: Kind
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left`` and ``right`` by one of + - * /."""

    sign: str
    left: "Value"
    right: "Value"
    kind: Kind
    at: int
    end: int


@dataclass(frozen=True, slots=True)
class Cast:
    """``operand``, a text or of any kind, read as another kind."""

    operand: "Value"
    kind: Kind
    at: int
    end: int


Value = Field | Literal | Arithmetic | Cast


@dataclass(frozen=True, slots=True)
class Compare:
    """``left`` and ``right`` by one of = <> < <= > >=."""

    sign: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text has a pattern."""

    operand: Value
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value is one of several."""

    operand: Value
    values: tuple[str | int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is not there."""

    operand: Value


@dataclass(frozen=True, slots=True)
class Test:
    """A value of kind boolean as a condition."""

    operand: Value


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of what is unknown, unknown."""

    operand: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    """True if all are, false if one is."""

    operands: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if one is, false if all are."""

    operands: tuple["Condition", ...]


Condition = Compare | Like | In | IsNull | Test | Not | And | Or
