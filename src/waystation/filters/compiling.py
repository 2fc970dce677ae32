"""From a condition to Python code that goes through columns of many messages at once.

Three-valued logic costs nothing at run time: of every condition only the code of "it is true" or of
"it is false" is written, whichever its surroundings ask for, and both are plain Python.  A
comparison is neither if a side is NULL; NOT asks its operand for the other one; AND is true where
all are and false where one is.

Conditions that AND joins at the top are split into stages by what they cost to look at: numbers,
then keys, headers, values as text, fields of documents.  A stage looks only at what the stages
before it left, and documents are first searched for a text that a match must have.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from waystation.filters import values
from waystation.filters.syntax import (
    And,
    Arithmetic,
    Cast,
    Compare,
    Condition,
    Field,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Not,
    Or,
    Root,
    Test,
    Value,
)

__all__ = ["Column", "Stage", "stages_of"]

Check = Callable[..., list[int]]

_RANKS = {
    Root.PARTITION: 0,
    Root.OFFSET: 0,
    Root.TIMESTAMP: 0,
    Root.KEY: 1,
    Root.HEADERS: 2,
    Root.VALUE: 3,
}
_DOCUMENT_RANK = 4
_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_OPERATIONS = {
    "+": values.added,
    "-": values.subtracted,
    "*": values.multiplied,
    "/": values.divided,
}
_CASTS = {
    Kind.NUMBER: values.as_number,
    Kind.BOOLEAN: values.as_boolean,
    Kind.TIMESTAMP: values.as_timestamp,
}
_LEAST_NEEDLE = 2


@dataclass(frozen=True, slots=True)
class Column:
    """What a stage wants to have of every message: a field, or whether it is there at all."""

    root: Root
    path: tuple[str | int, ...]
    kind: Kind
    is_presence: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a filter: its columns, and the function that is given rows and them."""

    columns: tuple[Column, ...]
    check: Check
    """Takes the rows, the partition, and the columns; answers the rows for which it is true."""
    needle: bytes | None = None
    """What the value of a message must hold to match, unless it holds an escape."""


def stages_of(condition: Condition) -> list[Stage]:
    """The filter of ``condition``, cheapest stage first."""
    by_rank: dict[int, list[Condition]] = {}
    for one in _conjuncts(condition):
        by_rank.setdefault(max(map(_rank, _fields(one)), default=0), []).append(one)
    return [_stage(by_rank[rank]) for rank in sorted(by_rank)]


def _conjuncts(condition: Condition) -> list[Condition]:
    if isinstance(condition, And):
        return [one for operand in condition.operands for one in _conjuncts(operand)]
    return [condition]


def _rank(field: Field) -> int:
    return _DOCUMENT_RANK if field.is_in_document else _RANKS[field.root]


def _stage(conditions: list[Condition]) -> Stage:
    writer = _Writer()
    truth = writer.truth(And(tuple(conditions)), True)
    names = list(writer.columns.values())
    arguments = ", ".join(["rows", "partition", *(f"column_{name}" for name in names)])
    if names:
        loop = ", ".join(["row", *names])
        zipped = ", ".join(["rows", *(f"column_{name}" for name in names)])
        body = f"[row for {loop} in zip({zipped}) if {truth}]"
    else:
        body = f"list(rows) if {truth} else []"
    source = f"def check({arguments}):\n    return {body}\n"
    namespace = writer.constants
    exec(compile(source, "<filter>", "exec"), namespace)
    return Stage(tuple(writer.columns), namespace["check"], _needle(conditions))


class _Writer:
    """Writes Python expressions; what they need besides is collected on the way."""

    __slots__ = ("_spare", "columns", "constants")

    def __init__(self) -> None:
        self.columns: dict[Column, str] = {}
        self.constants: dict[str, Any] = {}
        self._spare = 0

    # --- conditions -------------------------------------------------------------------------

    def truth(self, condition: Condition, wanted: bool) -> str:
        """Whether ``condition`` is ``wanted``; what is unknown is neither."""
        match condition:
            case Not(operand):
                return self.truth(operand, not wanted)
            case And(operands):
                return self._joined(operands, "and" if wanted else "or", wanted)
            case Or(operands):
                return self._joined(operands, "or" if wanted else "and", wanted)
            case Compare():
                return self._compared(condition, wanted)
            case Like():
                return self._like(condition, wanted)
            case In():
                return self._in(condition, wanted)
            case IsNull(operand):
                return self._null(operand, wanted)
            case Test(operand):
                return f"({self._value(operand)} is {wanted})"

    def _joined(self, operands: Iterable[Condition], word: str, wanted: bool) -> str:
        return "(" + f" {word} ".join(self.truth(one, wanted) for one in operands) + ")"

    def _compared(self, condition: Compare, wanted: bool) -> str:
        left, right = condition.left, condition.right
        sign = condition.sign if wanted else _OPPOSITE[condition.sign]
        python = _PYTHON[sign]
        if Kind.ANY in (left.kind, right.kind):
            check = values.comparable if sign in ("=", "<>") else values.orderable
            first, second = self._value(left), self._value(right)
            return f"({self._constant(check)}({first}, {second}) and {first} {python} {second})"
        if sign == "=" and (isinstance(left, Literal) or isinstance(right, Literal)):
            # What is NULL equals no literal, so there is no need to look first.
            return f"({self._value(left)} == {self._value(right)})"
        (left_guard, first), (right_guard, second) = self._guarded(left), self._guarded(right)
        guards = [guard for guard in (left_guard, right_guard) if guard]
        return "(" + " and ".join([*guards, f"{first} {python} {second}"]) + ")"

    def _like(self, condition: Like, wanted: bool) -> str:
        guard, name = self._guarded(condition.operand)
        code = condition.pattern.code(name)
        if code is None:
            code = f"{self._constant(condition.pattern.matcher())}({name})"
        code = code if wanted else f"not ({code})"
        return f"({guard} and {code})" if guard else f"({code})"

    def _in(self, condition: In, wanted: bool) -> str:
        guard, name = self._guarded(condition.operand)
        among = self._constant(frozenset(condition.values))
        code = f"{name} {'in' if wanted else 'not in'} {among}"
        return f"({guard} and {code})" if guard else f"({code})"

    def _null(self, operand: Value, wanted: bool) -> str:
        if isinstance(operand, Field) and operand.root in (Root.KEY, Root.HEADERS, Root.VALUE):
            column = Column(operand.root, operand.path, operand.kind, is_presence=True)
            return f"(not {self._column(column)})" if wanted else self._column(column)
        if isinstance(operand, Literal):
            return str(not wanted)
        return f"({self._value(operand)} {'is' if wanted else 'is not'} None)"

    # --- values -----------------------------------------------------------------------------

    def _guarded(self, value: Value) -> tuple[str, str]:
        """A condition that it is not NULL, if it can be, and then a name of it."""
        code = self._value(value)
        if isinstance(value, Literal) or code == "partition":
            return "", code
        if isinstance(value, Field):
            return f"{code} is not None", code
        self._spare += 1
        name = f"spare_{self._spare}"
        return f"({name} := {code}) is not None", name

    def _value(self, value: Value) -> str:
        match value:
            case Literal():
                return repr(value.value)
            case Field(Root.PARTITION):
                return "partition"
            case Field():
                return self._column(Column(value.root, value.path, value.kind))
            case Arithmetic(sign, left, right):
                name = self._constant(_OPERATIONS[sign])
                return f"{name}({self._value(left)}, {self._value(right)})"
            case Cast(operand, kind):
                return f"{self._constant(_CASTS[kind])}({self._value(operand)})"

    def _column(self, column: Column) -> str:
        return self.columns.setdefault(column, f"c{len(self.columns)}")

    def _constant(self, constant: object) -> str:
        for name, known in self.constants.items():
            if known is constant:
                return name
        name = f"k{len(self.constants)}"
        self.constants[name] = constant
        return name


# --- what a match must hold -----------------------------------------------------------------


def _needle(conditions: Iterable[Condition]) -> bytes | None:
    """The longest text that must be in the value of a message for all ``conditions`` to be true.

    Or an escape: without one, a text in a document is spelled as it is and has quotes around it.
    """
    found: list[str] = []
    for condition in conditions:
        match condition:
            case Compare("=", Field() as field, Literal(str(text))) | Compare(
                "=", Literal(str(text)), Field() as field
            ) if field.is_in_document:
                found.append(f'"{text}"')
            case Like(Field() as field, pattern) if field.is_in_document:
                found += pattern.fragments
    longest = max(found, key=len, default="")
    return longest.encode() if len(longest) >= _LEAST_NEEDLE else None


def _fields(part: Condition | Value) -> Iterator[Field]:
    """All fields in it."""
    match part:
        case Field():
            yield part
        case And(operands) | Or(operands):
            for one in operands:
                yield from _fields(one)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            yield from _fields(left)
            yield from _fields(right)
        case Not(operand) | Test(operand) | IsNull(operand) | Like(operand) | In(operand):
            yield from _fields(operand)
        case Cast(operand):
            yield from _fields(operand)
        case Literal():
            return
