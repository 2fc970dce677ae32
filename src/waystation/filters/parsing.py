"""From an expression to its parts: SQL-92's search conditions, as message selectors have them.

::

    condition  = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation   = NOT negation | predicate
    predicate  = sum [ comparison | LIKE | IN | BETWEEN | IS [NOT] NULL ]
    sum        = product { (+ | -) product }
    product    = factor { (* | /) factor }
    factor     = (+ | -) factor | literal | field | CAST "(" sum AS kind ")" | "(" condition ")"

Whatever is typed, the answer is a condition whose kinds fit, or one ``InvalidFilterError`` that
marks the place; depth is bounded here, so that nothing behind it need be.
"""

from collections.abc import Callable
from dataclasses import replace

from waystation.filters import checking
from waystation.filters.checking import Complaint
from waystation.filters.cursor import DEEPEST, Cursor, field_at
from waystation.filters.lexing import Sort, Token, tokens_of
from waystation.filters.patterns import JOKERS, EscapeError, Pattern, pattern_of
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
    Test,
    Value,
)
from waystation.filters.values import number_in, timestamp_in
from waystation.model.errors import InvalidFilterError

__all__ = ["DEEPEST", "parse"]

_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CASTS = {kind.name: kind for kind in (Kind.NUMBER, Kind.BOOLEAN, Kind.TIMESTAMP)}

Part = Value | Condition
_VALUES = (Field, Literal, Arithmetic, Cast)


def parse(expression: str) -> Condition:
    """The condition that ``expression`` is."""
    tokens = tokens_of(expression)
    try:
        return _Parser(tokens).whole()
    except Complaint as complaint:
        raise InvalidFilterError(
            expression, complaint.at, complaint.end, complaint.problem
        ) from None


class _Parser(Cursor):
    """One pass over the tokens, a method per rule of the grammar."""

    __slots__ = ("_depth", "_jokers")

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._depth = self._jokers = 0

    def whole(self) -> Condition:
        if self.is_end():
            raise Complaint(
                self.token, "the expression is empty; write a condition, as in key = 'a'"
            )
        condition = self._condition_of(self._or())
        if not self.is_end():
            raise Complaint(self.token, self.unexpected("AND, OR or the end of the expression"))
        return condition

    # --- conditions -------------------------------------------------------------------------

    def _or(self) -> Part:
        first = self._and()
        if not self.is_word("OR"):
            return first
        operands = [self._condition_of(first)]
        while self.take("OR"):
            operands.append(self._condition_of(self._and()))
        return Or(tuple(operands))

    def _and(self) -> Part:
        first = self._not()
        if not self.is_word("AND"):
            return first
        operands = [self._condition_of(first)]
        while self.take("AND"):
            operands.append(self._condition_of(self._not()))
        return And(tuple(operands))

    def _not(self) -> Part:
        negated, found = False, False
        while self.take("NOT"):
            negated, found = not negated, True
        part = self._predicate()
        if not found:
            return part
        condition = self._condition_of(part)
        return Not(condition) if negated else condition

    def _predicate(self) -> Part:
        start = self.token
        left = self._sum()
        token = self.token
        if token.sort is Sort.SIGN and token.text in _COMPARISONS:
            value = self._value_of(left, start)
            self.at += 1
            return self._compare(_COMPARISONS[token.text], value, token)
        negated = self.take("NOT")
        word = self.token.keyword
        if word in ("LIKE", "IN", "BETWEEN", "IS") and not (negated and word == "IS"):
            value = self._value_of(left, start)
            self.at += 1
            condition = self._worded(word, value)
            return Not(condition) if negated else condition
        if negated:
            raise Complaint(self.token, self.unexpected("LIKE, IN or BETWEEN behind NOT"))
        return left

    def _worded(self, word: str, value: Value) -> Condition:
        match word:
            case "LIKE":
                return self._like(value)
            case "IN":
                return self._in(value)
            case "BETWEEN":
                return self._between(value)
            case _:
                return self._is_null(value)

    def _compare(self, sign: str, left: Value, at: Token) -> Condition:
        self._refuse_null(f"{sign} NULL is never true", "IS NULL" if sign == "=" else "IS NOT NULL")
        start = self.token
        right = self._value_of(self._sum(), start)
        if self.token.sort is Sort.SIGN and self.token.text in _COMPARISONS:
            raise Complaint(
                self.token, f"a comparison has two sides; join two with AND, not {at.text} twice"
            )
        return Compare(sign, *checking.comparable(sign, left, right))

    def _like(self, value: Value) -> Condition:
        value = checking.text(value)
        token = self.text("a pattern in single quotes")
        escape = None
        if self.take("ESCAPE"):
            letter = self.text("one character in single quotes")
            if len(letter.text) != 1 or letter.text in "%_":
                raise Complaint(letter, "ESCAPE takes one character, which is neither % nor _")
            escape = letter.text
        return Like(value, self._pattern(token, escape))

    def _pattern(self, token: Token, escape: str | None) -> Pattern:
        try:
            pattern = pattern_of(token.text, escape)
        except EscapeError:
            raise Complaint(
                token, f"behind the escape character {escape} comes %, _ or {escape} itself"
            ) from None
        self._jokers += pattern.jokers
        if self._jokers > JOKERS:
            raise Complaint(
                token,
                f"what stands between two % and has a _ may have {JOKERS} characters in all of the "
                "expression; leave a _ out, or the % on one side",
            )
        return pattern

    def _in(self, value: Value) -> Condition:
        self.expect("(", "a list in parentheses behind IN")
        values: list[Literal] = []
        while not values or self.take(","):
            self._refuse_null("NULL in a list is equal to nothing", "OR ... IS NULL")
            literal = self._literal("a text, number, boolean or timestamp")
            value, _ = checking.comparable("=", value, literal)
            values.append(literal)
        self.expect(")", "a comma or the end of the list")
        return In(value, tuple(one.value for one in values))

    def _between(self, value: Value) -> Condition:
        self._refuse_null("BETWEEN with NULL is never true", "a lower limit")
        start = self.token
        low = self._value_of(self._sum(), start)
        if not self.take("AND"):
            raise Complaint(self.token, self.unexpected("AND and an upper limit behind BETWEEN"))
        self._refuse_null("BETWEEN with NULL is never true", "an upper limit")
        start = self.token
        high = self._value_of(self._sum(), start)
        return And(
            (
                Compare(">=", *checking.comparable(">=", value, low)),
                Compare("<=", *checking.comparable("<=", value, high)),
            )
        )

    def _is_null(self, value: Value) -> Condition:
        negated = self.take("NOT")
        if not self.take("NULL"):
            raise Complaint(self.token, self.unexpected("NULL or NOT NULL behind IS"))
        return Not(IsNull(value)) if negated else IsNull(value)

    # --- values -----------------------------------------------------------------------------

    def _sum(self) -> Part:
        return self._chain("+-", self._product)

    def _product(self) -> Part:
        return self._chain("*/", self._factor)

    def _chain(self, signs: str, operand: Callable[[], Part]) -> Part:
        start = self.token
        part = operand()
        depth = self._depth
        while self.token.sort is Sort.SIGN and self.token.text in signs:
            sign = self.token
            left = self._value_of(part, start)
            self.at += 1
            self._deeper(sign)
            at = self.token
            part = checking.arithmetic(sign.text, left, self._value_of(operand(), at))
        self._depth = depth
        return part

    def _factor(self) -> Part:
        token = self.token
        if token.sort is Sort.SIGN and token.text in "+-":
            return self._signed(token)
        if token.sort is Sort.SIGN and token.text == "(":
            self._deeper(token)
            self.at += 1
            part = self._or()
            self.expect(")", "an operator or )")
            self._depth -= 1
            return part
        if token.keyword == "CAST":
            return self._cast(token)
        if token.sort is Sort.NAME and not self._begins_literal():
            return field_at(self)
        return self._literal("a field, a value or (")

    def _signed(self, token: Token) -> Part:
        self._deeper(token)
        self.at += 1
        start = self.token
        value = self._value_of(self._factor(), start)
        self._depth -= 1
        if isinstance(value, Literal) and value.kind is Kind.NUMBER and token.text == "-":
            assert isinstance(value.value, int | float), f"number {value.value!r}"
            return replace(value, value=_negative(value.value), at=token.at)
        zero = Literal(0, Kind.NUMBER, token.at, token.end)
        return checking.arithmetic(token.text, zero, value)

    def _cast(self, token: Token) -> Cast:
        self._deeper(token)
        self.at += 1
        self.expect("(", "( behind CAST")
        start = self.token
        value = self._value_of(self._sum(), start)
        if not self.take("AS"):
            raise Complaint(self.token, self.unexpected("AS and a kind"))
        kind = _CASTS.get(self.token.text.upper())
        if kind is None or self.token.sort is not Sort.NAME:
            raise Complaint(self.token, self.unexpected("NUMBER, BOOLEAN or TIMESTAMP"))
        self.at += 1
        end = self.token
        self.expect(")", "the end of CAST, )")
        self._depth -= 1
        return checking.cast(value, kind, Token(Sort.NAME, "", token.at, end.end))

    def _begins_literal(self) -> bool:
        """Whether a word is TRUE, FALSE or NULL, or TIMESTAMP with a text behind it."""
        word = self.token.keyword
        if word == "TIMESTAMP":
            return self.tokens[self.at + 1].sort is Sort.TEXT
        return word is not None

    def _literal(self, expected: str) -> Literal:
        token = self.token
        self.at += 1
        match token.keyword:
            case "TRUE" | "FALSE" as word:
                return Literal(word == "TRUE", Kind.BOOLEAN, token.at, token.end)
            case "TIMESTAMP" if self.token.sort is Sort.TEXT:
                return self._timestamp(token)
        if token.sort is Sort.TEXT:
            return Literal(token.text, Kind.TEXT, token.at, token.end)
        if token.sort is Sort.NUMBER:
            return self._number(token)
        if token.sort is Sort.SIGN and token.text in "+-" and self.token.sort is Sort.NUMBER:
            number = self._literal(expected)
            assert isinstance(number.value, int | float), f"number {number.value!r}"
            value = _negative(number.value) if token.text == "-" else number.value
            return replace(number, value=value, at=token.at)
        self.at -= 1
        if token.sort is Sort.QUOTED_NAME:
            raise Complaint(token, f"a text stands in single quotes: '{token.text}'")
        if token.sort is Sort.NAME and token.keyword is None:
            raise Complaint(token, f"{token.text} is a name, and here stands {expected}")
        raise Complaint(token, self.unexpected(expected))

    def _number(self, token: Token) -> Literal:
        number = number_in(token.text)
        if number is None:
            raise Complaint(token, "this number is too large; the largest is about 1.8e308")
        return Literal(number, Kind.NUMBER, token.at, token.end)

    def _timestamp(self, token: Token) -> Literal:
        text = self.text("a time")
        moment = timestamp_in(text.text)
        if moment is None:
            raise Complaint(
                text,
                "this is no time; write it as 2026-01-31, 2026-01-31T09:30:00Z or "
                "2026-01-31 09:30:00.250+01:00",
            )
        return Literal(moment, Kind.TIMESTAMP, token.at, text.end)

    # --- limits and kinds -------------------------------------------------------------------

    def _refuse_null(self, problem: str, remedy: str) -> None:
        if self.is_word("NULL"):
            raise Complaint(self.token, f"{problem}; write {remedy}")

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Complaint(
                token, f"this is nested deeper than {DEEPEST} levels; write it with fewer"
            )

    def _value_of(self, part: Part, start: Token) -> Value:
        """A part that must be a value."""
        if isinstance(part, _VALUES):
            return part
        end = self.tokens[max(self.at - 1, 0)].end
        raise Complaint(
            Token(Sort.NAME, "", start.at, max(end, start.end)),
            "this is a condition and no value; conditions are joined with AND, OR and NOT",
        )

    def _condition_of(self, part: Part) -> Condition:
        """A part that must be a condition; a boolean is one."""
        if isinstance(part, _VALUES):
            return Test(checking.tested(part))
        return part


def _negative(number: int | float) -> int | float:
    negative = number_in(-number)
    assert negative is not None, f"{number} has no negative"
    return negative
