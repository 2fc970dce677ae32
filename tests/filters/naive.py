"""Expressions and what they mean, made together: a text, and a slow function that is plainly right.

Nothing here knows the package.  ``None`` is NULL, and unknown.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

Meaning = Callable[["Message"], Any]


@dataclass(frozen=True)
class Message:
    """What a filter can look at."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_700_000_000_000
    partition: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Said:
    """A part of an expression and its meaning."""

    sql: str
    meaning: Meaning


# --- messages -------------------------------------------------------------------------------

WORDS = ["", "a", "b", "ab", "abc", "a%c", "DE", "ä", "7", "7.5", "-3", "true", 'q"uote', "a/b\\"]
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 8)
    | st.sampled_from([1 << 62, -(1 << 63), 1 << 64, 10**30, 0.5, 7.5, -3.0, 1e300])
    | st.sampled_from([*WORDS, "2026-01-31", "2026-01-31T09:30:00Z"])
)
_documents = st.fixed_dictionaries(
    {},
    optional={
        "a": _scalars | st.fixed_dictionaries({}, optional={"b": _scalars, "c d": _scalars}),
        "n": _scalars,
        "list": st.lists(_scalars | st.fixed_dictionaries({"b": _scalars}), max_size=2) | _scalars,
        "flag": _scalars,
    },
)
_ODD = [b"", b"{", b"\xff", b"null", b'{"a": 1,}', b'{"n": 01}', b'{"n": 1, "n": 2}', b"[1, 2]"]
_ODD += [b'"text"', b'{"n": NaN}', b'{"a": "\\u0044E"}', b'{"\\u0061": "D\\u0045"}', b" {} ", b"7"]
_values = st.one_of(
    st.none(),
    st.sampled_from(_ODD),
    st.builds(
        lambda document, is_ascii: json.dumps(document, ensure_ascii=is_ascii).encode(),
        _documents,
        st.booleans(),
    ),
)
_binary = st.none() | st.sampled_from([*(word.encode() for word in WORDS), b"\xff\xfe", b"\xc3"])
messages = st.builds(
    Message,
    key=_binary,
    value=_values,
    headers=st.lists(st.tuples(st.sampled_from(["h", "kind", "x-y"]), _binary), max_size=4).map(
        tuple
    ),
    timestamp=st.sampled_from([-1, 0, 1_769_851_800_000, 1_769_851_800_001]),
    partition=st.integers(0, 3),
    offset=st.integers(0, 12),
)

# --- reading messages -----------------------------------------------------------------------


def text_of(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def header_of(message: Message, name: str) -> bytes | None:
    found = [content for known, content in message.headers if known == name]
    return found[-1] if found else None


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def document_of(message: Message) -> Any:
    text = text_of(message.value)
    try:
        return None if text is None else json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None


def inside(message: Message, path: tuple[str | int, ...]) -> Any:
    found = document_of(message)
    for step in path:
        if isinstance(step, str) and isinstance(found, dict):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list) and step < len(found):
            found = found[step]
        else:
            return None
    return number(found) if is_number(found) else found


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any) -> Any:
    """Exact within 64 bits, else a double, else NULL."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        value = float(value) if abs(value) < 10**308 else None
    return value if value is None or abs(value) < float("inf") else None


# --- values ---------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


texts = st.one_of(
    st.sampled_from(WORDS).map(lambda word: Said(quoted(word), lambda _: word)),
    st.just(Said("key", lambda one: text_of(one.key))),
    st.just(Said("VALUE", lambda one: text_of(one.value))),
    st.just(Said("headers.h", lambda one: text_of(header_of(one, "h")))),
    st.just(Said('Headers."x-y"', lambda one: text_of(header_of(one, "x-y")))),
    st.just(Said("headers['kind']", lambda one: text_of(header_of(one, "kind")))),
)

PATHS: list[tuple[str, tuple[str | int, ...]]] = [
    ("value.a", ("a",)),
    ("value.a.b", ("a", "b")),
    ('value.a."c d"', ("a", "c d")),
    ("value['n']", ("n",)),
    ("value.list[0]", ("list", 0)),
    ("value.list[1].b", ("list", 1, "b")),
    ("value[1]", (1,)),
    ("value.flag", ("flag",)),
    ("value.none.at.all", ("none", "at", "all")),
]


def field(sql: str, path: tuple[str | int, ...]) -> Said:
    return Said(sql, lambda one: inside(one, path))


fields = st.sampled_from(PATHS).map(lambda named: field(*named))


def as_kind(said: Said, is_of_kind: Callable[[object], bool]) -> Said:
    """A field of a document that is used as a kind: NULL where it is of another."""

    def meaning(message: Message) -> Any:
        value = said.meaning(message)
        return value if is_of_kind(value) else None

    return Said(said.sql, meaning)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_boolean(value: object) -> bool:
    return isinstance(value, bool)


open_texts = fields.map(lambda one: as_kind(one, is_text))
open_numbers = fields.map(lambda one: as_kind(one, is_number))
open_booleans = fields.map(lambda one: as_kind(one, is_boolean))

_literals = st.sampled_from(
    [
        ("0", 0),
        ("7", 7),
        ("7.5", 7.5),
        ("-3", -3),
        ("+2.", 2.0),
        (".5", 0.5),
        ("1e300", 1e300),
        ("9223372036854775807", (1 << 63) - 1),
        ("9223372036854775808", float(1 << 63)),
    ]
).map(lambda pair: Said(pair[0], lambda _: pair[1]))


def calculated(left: Said, sign: str, right: Said) -> Said:
    def meaning(message: Message) -> Any:
        first, second = left.meaning(message), right.meaning(message)
        if first is None or second is None or (sign == "/" and second == 0):
            return None
        match sign:
            case "+":
                return number(first + second)
            case "-":
                return number(first - second)
            case "*":
                return number(first * second)
        return number(first / second)

    return Said(f"({left.sql} {sign} {right.sql})", meaning)


def cast_number(said: Said) -> Said:
    def meaning(message: Message) -> Any:
        value = said.meaning(message)
        if is_text(value):
            try:
                value = int(value) if value.lstrip("-").isascii() else None
            except ValueError:
                value = float(value) if value == "7.5" else None
        return number(value) if is_number(value) else None

    return Said(f"CAST({said.sql} AS NUMBER)", meaning)


_plain_numbers = st.one_of(
    _literals,
    st.just(Said("offset", lambda one: one.offset)),
    st.just(Said("partition", lambda one: one.partition)),
    open_numbers,
    (texts | fields).map(cast_number),
)
numbers = st.recursive(
    _plain_numbers,
    lambda inner: st.builds(calculated, inner, st.sampled_from("+-*/"), inner),
    max_leaves=4,
)


def _moment(message: Message) -> int | None:
    return None if message.timestamp == -1 else message.timestamp


def _read_moment(said: Said) -> Said:
    def meaning(message: Message) -> Any:
        value = said.meaning(message)
        if is_text(value):
            return {"2026-01-31": 1_769_817_600_000, "2026-01-31T09:30:00Z": 1_769_851_800_000}.get(
                value
            )
        return value if is_number(value) else None

    return Said(said.sql, meaning)


moments = st.one_of(
    st.just(Said("timestamp", _moment)),
    st.just(Said("TIMESTAMP '2026-01-31 10:30:00.001+01:00'", lambda _: 1_769_851_800_001)),
    fields.map(lambda one: Said(f"CAST({one.sql} AS TIMESTAMP)", _read_moment(one).meaning)),
)

# --- conditions -----------------------------------------------------------------------------

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def exact(value: Any) -> Any:
    """Numbers are compared as what they are, also a double with a whole number."""
    return Fraction(value) if is_number(value) else value


def compared(left: Said, sign: str, right: Said) -> Said:
    def meaning(message: Message) -> bool | None:
        first, second = left.meaning(message), right.meaning(message)
        if first is None or second is None:
            return None
        return SIGNS[sign](exact(first), exact(second))

    return Said(f"{left.sql} {sign} {right.sql}", meaning)


def compared_open(left: Said, sign: str, right: Said) -> Said:
    def meaning(message: Message) -> bool | None:
        first, second = left.meaning(message), right.meaning(message)
        kinds = {is_text: True, is_number: True, is_boolean: sign in ("=", "<>", "!=")}
        for is_of_kind, has_sign in kinds.items():
            if is_of_kind(first) and is_of_kind(second) and has_sign:
                return SIGNS[sign](exact(first), exact(second))
        return None

    return Said(f"{left.sql} {sign} {right.sql}", meaning)


def is_like(text: str, pattern: str) -> bool:
    """By definition; slow on purpose."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and is_like(text[1:], pattern[1:])


def liked(said: Said, pattern: str, negated: bool) -> Said:
    def meaning(message: Message) -> bool | None:
        text = said.meaning(message)
        return None if text is None else is_like(text, pattern) is not negated

    word = "NOT LIKE" if negated else "like"
    return Said(f"{said.sql} {word} {quoted(pattern)}", meaning)


def among(said: Said, members: list[Said], negated: bool) -> Said:
    def meaning(message: Message) -> bool | None:
        value = said.meaning(message)
        if value is None:
            return None
        return any(exact(value) == exact(one.meaning(message)) for one in members) is not negated

    word = "NOT IN" if negated else "IN"
    return Said(f"{said.sql} {word} ({', '.join(one.sql for one in members)})", meaning)


def between(said: Said, low: Said, high: Said, negated: bool) -> Said:
    def meaning(message: Message) -> bool | None:
        value = said.meaning(message)
        bounds = (low.meaning(message), high.meaning(message))
        above = None if None in (value, bounds[0]) else exact(value) >= exact(bounds[0])
        below = None if None in (value, bounds[1]) else exact(value) <= exact(bounds[1])
        found = all_of([above, below])
        return None if found is None else found is not negated

    word = "NOT BETWEEN" if negated else "BETWEEN"
    return Said(f"{said.sql} {word} {low.sql} AND {high.sql}", meaning)


def absent(said: Said, negated: bool) -> Said:
    """Bytes that are no text are there all the same."""
    raw: dict[str, Meaning] = {
        "key": lambda one: one.key,
        "VALUE": lambda one: one.value,
        "headers.h": lambda one: header_of(one, "h"),
        'Headers."x-y"': lambda one: header_of(one, "x-y"),
        "headers['kind']": lambda one: header_of(one, "kind"),
    }
    meaning = raw.get(said.sql, said.meaning)
    word = "IS NOT NULL" if negated else "IS NULL"
    return Said(f"{said.sql} {word}", lambda one: (meaning(one) is None) is not negated)


def all_of(truths: list[bool | None]) -> bool | None:
    if False in truths:
        return False
    return None if None in truths else True


def opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def joined(word: str, operands: list[Said]) -> Said:
    def meaning(message: Message) -> bool | None:
        truths = [one.meaning(message) for one in operands]
        if word == "AND":
            return all_of(truths)
        return opposite(all_of([opposite(one) for one in truths]))

    return Said("(" + f" {word} ".join(one.sql for one in operands) + ")", meaning)


_signs = st.sampled_from(sorted(SIGNS))
_orders = st.sampled_from(["=", "<>"])
_booleans = st.booleans().map(lambda one: Said(str(one), lambda _: one))
_members = st.sampled_from(WORDS).map(lambda word: Said(quoted(word), lambda _: word))
_patterns = st.text("ab%_cD", max_size=5)
simple = st.one_of(
    st.builds(compared, texts | open_texts, _signs, texts),
    st.builds(compared, texts, _signs, texts | open_texts),
    st.builds(compared, numbers, _signs, numbers),
    st.builds(compared, moments, _signs, moments),
    st.builds(compared, open_booleans, _orders, _booleans),
    st.builds(compared_open, fields, _signs, fields),
    st.builds(liked, texts | open_texts, _patterns, st.booleans()),
    st.builds(among, texts | open_texts, st.lists(_members, min_size=1, max_size=3), st.booleans()),
    st.builds(among, numbers, st.lists(_literals, min_size=1, max_size=3), st.booleans()),
    st.builds(between, numbers, _literals, numbers, st.booleans()),
    st.builds(between, texts, texts, texts, st.booleans()),
    st.builds(absent, texts | fields, st.booleans()),
    open_booleans,
)
conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(lambda one: Said(f"NOT {one.sql}", lambda m: opposite(one.meaning(m)))),
        st.builds(joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)
