"""Which kinds go together, found when a filter is made and not when it meets a message.

1. A condition that can never be anything but unknown is an error: kinds that cannot be compared,
   a comparison with NULL.
2. A field of a document has no kind of its own; it is read as the kind that it is used as, and
   where it is of another it counts as NULL.
3. Every error marks the operand that is to blame, and names the remedy.
"""

from dataclasses import replace
from typing import Protocol

from waystation.filters.syntax import Arithmetic, Cast, Field, Kind, Literal, Value

__all__ = ["Complaint", "arithmetic", "cast", "comparable", "shown", "tested", "text", "used_as"]

_ORDERS = ("<", "<=", ">", ">=")


class Place(Protocol):
    """Where something stands in the expression."""

    @property
    def at(self) -> int: ...
    @property
    def end(self) -> int: ...


class Complaint(ValueError):  # noqa: N818 - the parser makes the error of it, with the expression
    """A problem and its place."""

    def __init__(self, where: Place, problem: str) -> None:
        self.at, self.end, self.problem = where.at, where.end, problem
        super().__init__(problem)


def comparable(sign: str, left: Value, right: Value) -> tuple[Value, Value]:
    """Both sides of a comparison, each read as the other's kind if it has none itself."""
    kinds = (left.kind, right.kind)
    if Kind.ANY in kinds:
        kind = kinds[0] if kinds[0] is not Kind.ANY else kinds[1]
        left, right = used_as(left, kind), used_as(right, kind)
    elif kinds[0] is not kinds[1] and set(kinds) != {Kind.TIMESTAMP, Kind.NUMBER}:
        raise Complaint(
            right,
            f"a {kinds[0].value} cannot be compared with a {kinds[1].value}{_bridge(left, right)}",
        )
    if sign in _ORDERS and Kind.BOOLEAN in kinds:
        raise Complaint(
            right, f"booleans have no order, so {sign} means nothing; compare them with = or <>"
        )
    return left, right


def used_as(value: Value, kind: Kind) -> Value:
    """``value`` read as ``kind``, if it is a field whose kind is open."""
    if isinstance(value, Field) and value.kind is Kind.ANY:
        return replace(value, kind=kind)
    return value


def text(value: Value) -> Value:
    """The operand of LIKE."""
    value = used_as(value, Kind.TEXT)
    if value.kind is not Kind.TEXT:
        raise Complaint(value, f"LIKE compares texts, and this is a {value.kind.value}")
    return value


def tested(value: Value) -> Value:
    """A value that stands where a condition must."""
    value = used_as(value, Kind.BOOLEAN)
    if value.kind is not Kind.BOOLEAN:
        raise Complaint(
            value,
            f"this is a {value.kind.value} and no condition; compare it, as in x = 1",
        )
    return value


def arithmetic(sign: str, left: Value, right: Value) -> Arithmetic:
    """Numbers give numbers; a timestamp can be moved by milliseconds, and two have a distance."""
    left, right = used_as(left, Kind.NUMBER), used_as(right, Kind.NUMBER)
    for side in (left, right):
        if side.kind not in (Kind.NUMBER, Kind.TIMESTAMP):
            raise Complaint(
                side, f"{sign} takes numbers, and this is a {side.kind.value}{_as_number(side)}"
            )
    return Arithmetic(sign, left, right, _result(sign, left, right), left.at, right.end)


def cast(value: Value, kind: Kind, where: Place) -> Cast:
    """A text, or a field of a document, read as another kind."""
    if value.kind not in (Kind.TEXT, Kind.ANY):
        raise Complaint(
            value, f"CAST reads texts and fields of documents, and this is a {value.kind.value}"
        )
    return Cast(value, kind, where.at, where.end)


def _result(sign: str, left: Value, right: Value) -> Kind:
    match (left.kind, sign, right.kind):
        case (Kind.NUMBER, _, Kind.NUMBER):
            return Kind.NUMBER
        case (Kind.TIMESTAMP, "+" | "-", Kind.NUMBER) | (Kind.NUMBER, "+", Kind.TIMESTAMP):
            return Kind.TIMESTAMP
        case (Kind.TIMESTAMP, "-", Kind.TIMESTAMP):
            return Kind.NUMBER
        case _:
            raise Complaint(
                right,
                f"a {left.kind.value} {sign} a {right.kind.value} means nothing; milliseconds can "
                "be added to a timestamp, and timestamps subtracted",
            )


def _bridge(left: Value, right: Value) -> str:
    """What to write instead, where that can be told."""
    kinds = {left.kind, right.kind}
    words = left if left.kind is Kind.TEXT else right
    if kinds == {Kind.TEXT, Kind.TIMESTAMP} and isinstance(words, Literal):
        return "; write TIMESTAMP in front of the text, as in TIMESTAMP '2026-01-31T09:30:00Z'"
    if Kind.TEXT in kinds and isinstance(words, Field):
        other = right if words is left else left
        return f"; write CAST({shown(words)} AS {other.kind.name})"
    if Kind.TEXT in kinds and isinstance(words, Literal):
        return "; a number or boolean stands without quotes"
    return ""


def _as_number(value: Value) -> str:
    return f"; write CAST({shown(value)} AS NUMBER)" if isinstance(value, Field) else ""


def shown(field: Field) -> str:
    """A field as it is written."""
    name = field.root.value
    for step in field.path:
        if isinstance(step, int):
            name += f"[{step}]"
        elif step.isidentifier() and step.isascii():
            name += f".{step}"
        else:
            name += '."' + step.replace('"', '""') + '"'
    return name
