"""A place among the tokens of an expression, and the names of fields that begin there.

The cursor moves forward only, and past the end never.  What else may stand where is the grammar's
business (``parsing.py``).
"""

from typing import Final

from waystation.filters.checking import Complaint
from waystation.filters.lexing import Sort, Token
from waystation.filters.syntax import Field, Kind, Root

__all__ = ["DEEPEST", "Cursor", "field_at"]

DEEPEST: Final = 32
"""How many levels of parentheses, signs and operators may be inside each other, and how many
steps a path may have."""

_ROOTS = {root.value: root for root in Root}
_KINDS = {
    Root.KEY: Kind.TEXT,
    Root.VALUE: Kind.TEXT,
    Root.HEADERS: Kind.TEXT,
    Root.TIMESTAMP: Kind.TIMESTAMP,
    Root.PARTITION: Kind.NUMBER,
    Root.OFFSET: Kind.NUMBER,
}
_FIELDS = (
    "key, value, value.<name>, headers.<name>, timestamp, partition and offset are what a "
    "message has"
)
_DIGITS = 9


class Cursor:
    """Looks at one token, and goes past it."""

    __slots__ = ("at", "tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0

    @property
    def token(self) -> Token:
        """What is next."""
        return self.tokens[self.at]

    def is_end(self) -> bool:
        return self.token.sort is Sort.END

    def is_word(self, keyword: str) -> bool:
        return self.token.keyword == keyword

    def is_sign(self, sign: str) -> bool:
        return self.token.sort is Sort.SIGN and self.token.text == sign

    def take(self, word: str) -> bool:
        """Go past a keyword or sign if it is next."""
        found = self.is_word(word) or self.is_sign(word)
        self.at += found
        return found

    def expect(self, sign: str, expected: str) -> None:
        """Go past a sign, which must be next."""
        if not self.take(sign):
            raise Complaint(self.token, self.unexpected(expected))

    def text(self, expected: str) -> Token:
        """Go past a text, which must be next."""
        token = self.token
        if token.sort is not Sort.TEXT:
            raise Complaint(token, self.unexpected(expected))
        self.at += 1
        return token

    def unexpected(self, expected: str) -> str:
        """What is wrong with the next token."""
        return f"expected {expected}, found {self.token.shown}"


def field_at(cursor: Cursor) -> Field:
    """The field whose name is next, with its path."""
    token = cursor.token
    root = _ROOTS.get(token.text.lower())
    if root is None:
        raise _unknown(cursor)
    cursor.at += 1
    path: list[str | int] = []
    while cursor.is_sign(".") or cursor.is_sign("["):
        path.append(_step(cursor, root, path))
    if root is Root.HEADERS and not path:
        raise Complaint(token, "which header? write headers.<name>")
    kind = Kind.ANY if root is Root.VALUE and path else _KINDS[root]
    return Field(root, tuple(path), kind, token.at, cursor.tokens[cursor.at - 1].end)


def _step(cursor: Cursor, root: Root, path: list[str | int]) -> str | int:
    """One more name or index of a path."""
    token = cursor.token
    if root not in (Root.VALUE, Root.HEADERS):
        raise Complaint(token, f"{root.value} has no fields")
    if len(path) == DEEPEST:
        raise Complaint(token, f"a path may have {DEEPEST} steps")
    if root is Root.HEADERS and path:
        raise Complaint(token, 'a header has no fields; if its name has a dot, write headers."a.b"')
    cursor.at += 1
    step = cursor.token
    if token.text == ".":
        if step.sort not in (Sort.NAME, Sort.QUOTED_NAME):
            raise Complaint(step, cursor.unexpected("a name behind the dot"))
        cursor.at += 1
        return step.text
    is_index = step.sort is Sort.NUMBER and step.text.isdigit() and len(step.text) <= _DIGITS
    if step.sort is not Sort.TEXT and not (root is Root.VALUE and is_index):
        raise Complaint(
            step, "in brackets stands a name in single quotes, or the number of a member"
        )
    cursor.at += 1
    cursor.expect("]", "]")
    return step.text if step.sort is Sort.TEXT else int(step.text)


def _unknown(cursor: Cursor) -> Complaint:
    token = cursor.token
    name = token.text
    before = cursor.tokens[cursor.at - 1] if cursor.at else token
    if before.text == "-" and before.end == token.at:
        remedy = f'; if - is part of a name, quote it, as in headers."x-{name}"'
    else:
        remedy = f"; do you mean value.{name} or headers.{name}?"
    return Complaint(token, f"unknown field {name}: {_FIELDS}{remedy}")
