"""Values while a filter runs: numbers, times, and what cannot be read as one of them.

``None`` is NULL.  Nothing here raises, whatever a message holds:

1. a number is a whole one within 64 bits, exact, or a double; what grows past the first becomes
   the second, and past the second NULL;
2. a quotient by zero is NULL;
3. a value of another kind than the one that is asked for is NULL.
"""

import re
from datetime import UTC, datetime, timedelta
from math import isfinite

__all__ = [
    "added",
    "as_boolean",
    "as_number",
    "as_text",
    "as_timestamp",
    "comparable",
    "divided",
    "multiplied",
    "normal",
    "number_in",
    "orderable",
    "strictly_boolean",
    "strictly_number",
    "subtracted",
    "timestamp_in",
]

Number = int | float

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_DIGITS = 400
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?(Z|z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "false": False}


def number_in(source: str | Number) -> Number | None:
    """The number that a text or another number is, as filters have numbers."""
    if isinstance(source, str):
        if len(source) > _MOST_DIGITS or _NUMBER.fullmatch(source) is None:
            return None
        source = int(source) if _WHOLE.fullmatch(source) else float(source)
    if isinstance(source, int):
        if _LEAST <= source <= _MOST:
            return source
        try:
            return float(source)
        except OverflowError:
            return None
    return source if isfinite(source) else None


def timestamp_in(text: str) -> int | None:
    """Milliseconds since 1970 at a time in ISO 8601; one without a zone is in UTC."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, time, fraction, zone = found.groups()
    zone = "+00:00" if zone is None or zone in "Zz" else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00'}{zone}")
        whole = (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        return None
    return whole + int((fraction or "0").ljust(3, "0")[:3])


# --- kinds ----------------------------------------------------------------------------------


def as_text(value: object) -> str | None:
    """A text, and nothing else."""
    return value if type(value) is str else None


def as_number(value: object) -> Number | None:
    """A number, or a text that says one."""
    if type(value) is int or type(value) is float or type(value) is str:
        return number_in(value)
    return None


def as_boolean(value: object) -> bool | None:
    """A boolean, or a text that says one."""
    if type(value) is str:
        return _BOOLEANS.get(value.lower())
    return value if type(value) is bool else None


def as_timestamp(value: object) -> Number | None:
    """A text that says a time, or milliseconds since 1970."""
    return timestamp_in(value) if type(value) is str else strictly_number(value)


def strictly_number(value: object) -> Number | None:
    """A number, and nothing else."""
    if type(value) is int or type(value) is float:
        return number_in(value)
    return None


def strictly_boolean(value: object) -> bool | None:
    """A boolean, and nothing else."""
    return value if type(value) is bool else None


def normal(value: object) -> object:
    """A field of a document as it is; of whole numbers, what filters have."""
    return number_in(value) if type(value) is int else value


def comparable(left: object, right: object) -> bool:
    """Whether two fields of documents are equal or not, rather than beyond comparison."""
    return orderable(left, right) or (type(left) is bool and type(right) is bool)


def orderable(left: object, right: object) -> bool:
    """Whether one of two fields of documents comes before the other."""
    if type(left) is str:
        return type(right) is str
    return type(left) in _NUMBERS and type(right) in _NUMBERS


_NUMBERS = (int, float)


# --- arithmetic -----------------------------------------------------------------------------


def added(left: Number | None, right: Number | None) -> Number | None:
    """The sum."""
    return None if left is None or right is None else number_in(left + right)


def subtracted(left: Number | None, right: Number | None) -> Number | None:
    """The difference."""
    return None if left is None or right is None else number_in(left - right)


def multiplied(left: Number | None, right: Number | None) -> Number | None:
    """The product."""
    return None if left is None or right is None else number_in(left * right)


def divided(left: Number | None, right: Number | None) -> Number | None:
    """The quotient, which is a double also of whole numbers: documents do not tell 3 from 3.0."""
    if left is None or right is None or not right:
        return None
    return number_in(left / right)
