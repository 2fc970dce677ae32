"""An expression cut into tokens, each with its place.

Every character belongs to a token or to the space between two; what is neither is an error that
shows where.  Nothing is looked up here but words: what a name means is for ``parsing.py``.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from waystation.model.errors import InvalidFilterError

__all__ = ["EXPRESSION_CHARACTERS", "KEYWORDS", "Sort", "Token", "tokens_of"]

EXPRESSION_CHARACTERS: Final = 4_096
"""Enough for some hundred values to compare with, and little enough to be compiled at once."""

KEYWORDS: Final = frozenset(
    """
    AND AS BETWEEN CAST ESCAPE FALSE IN IS LIKE NOT NULL OR TIMESTAMP TRUE
    """.split()  # noqa: SIM905 - words read better than a list of them
)


class Sort(Enum):
    """What a token is."""

    TEXT = "text"
    NUMBER = "number"
    NAME = "name"
    QUOTED_NAME = "quoted name"
    SIGN = "sign"
    END = "the end"


class Token(NamedTuple):
    """A token, and the part of the expression that it is: ``[at, end)``."""

    sort: Sort
    text: str
    """As written; of a text or a quoted name, what stands between its quotes."""
    at: int
    end: int

    @property
    def keyword(self) -> str | None:
        """The keyword that it is; names keep their case, keywords have none."""
        upper = self.text.upper()
        return upper if self.sort is Sort.NAME and upper in KEYWORDS else None

    @property
    def shown(self) -> str:
        """What an error calls it."""
        if self.sort is Sort.END:
            return "the end of the expression"
        return f"'{self.text}'" if self.sort is Sort.TEXT else self.text


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted_name>"(?:[^"]|"")*")
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[^\W\d]\w*)
    | (?P<sign><=|>=|<>|!=|[=<>+\-*/(),.\[\]])
    """,
    re.VERBOSE | re.ASCII,
)
_SORTS = {sort.name.lower(): sort for sort in Sort}
_UNCLOSED = {"'": "text", '"': "quoted name"}
_OTHER_SIGNS = {
    "==": "equality is written =",
    "&&": "write AND",
    "||": "write OR; texts cannot be joined",
    "!": "write NOT",
    "%": "there is no remainder",
    ";": "an expression is one condition and has no end sign",
}


def tokens_of(expression: str) -> list[Token]:
    """All tokens; the last is the end."""
    if len(expression) > EXPRESSION_CHARACTERS:
        raise InvalidFilterError(
            expression,
            EXPRESSION_CHARACTERS,
            len(expression),
            f"the expression has {len(expression)} characters, {EXPRESSION_CHARACTERS} are allowed",
        )
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        raise InvalidFilterError(
            expression, error.start, error.end, "half a character; write the whole of it"
        ) from None
    tokens: list[Token] = []
    at = 0
    while at < len(expression):
        token = _next(expression, at)
        at = token.end if token is not None else _behind_space(expression, at)
        if token is not None:
            tokens.append(token)
    return [*tokens, Token(Sort.END, "", len(expression), len(expression))]


def _next(expression: str, at: int) -> Token | None:
    """The token at ``at``; ``None`` if there is space."""
    found = _TOKEN.match(expression, at)
    if found is None:
        raise _no_token(expression, at)
    name, text, end = found.lastgroup or "", found[0], found.end()
    if name == "space":
        return None
    if name in ("text", "quoted_name"):
        text = text[1:-1].replace(text[0] * 2, text[0])
    if name == "number" and end < len(expression) and (expression[end].isalnum()):
        raise InvalidFilterError(
            expression, at, end + 1, f"{expression[at : end + 1]} is neither a number nor a name"
        )
    if expression[at : at + 2] == "==":
        raise _no_token(expression, at)
    return Token(_SORTS[name], text, at, end)


def _behind_space(expression: str, at: int) -> int:
    found = _TOKEN.match(expression, at)
    assert found is not None, f"no space at {at}"
    return found.end()


def _no_token(expression: str, at: int) -> InvalidFilterError:
    first = expression[at]
    if first in _UNCLOSED:
        problem = f"the {_UNCLOSED[first]} that begins here has no end; close it with {first}"
        return InvalidFilterError(expression, at, at + 1, problem)
    for sign, remedy in _OTHER_SIGNS.items():
        if expression.startswith(sign, at):
            return InvalidFilterError(
                expression, at, at + len(sign), f"{sign} means nothing here; {remedy}"
            )
    return InvalidFilterError(
        expression,
        at,
        at + 1,
        f"{first!r} means nothing here; a name with other characters than letters, digits and _ "
        'is put in double quotes, as in headers."content-type"',
    )
