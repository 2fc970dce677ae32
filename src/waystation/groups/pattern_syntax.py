"""RE2's syntax, read into a small tree.

Characters outside ``ALPHABET`` are legal in a pattern and match nothing, because no topic
name has them.  Groups only group; lazy repetitions match the same names as greedy ones.
"""

from enum import Enum
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

from waystation.model.errors import InvalidRegexError

ALPHABET = frozenset(ascii_letters + digits + "._-")
WORD = frozenset(ascii_letters + digits + "_")

_NOTHING: frozenset[str] = frozenset()
_PERL_CLASSES = {"d": frozenset(digits), "w": WORD, "s": _NOTHING}
_POSIX_CLASSES = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "ascii": ALPHABET,
    "blank": _NOTHING,
    "cntrl": _NOTHING,
    "digit": frozenset(digits),
    "graph": ALPHABET,
    "lower": frozenset(ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _NOTHING,
    "upper": frozenset(ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(digits + "abcdefABCDEF"),
}
_UNICODE_CLASSES = {
    "L": frozenset(ascii_letters),
    "Ll": frozenset(ascii_lowercase),
    "Lu": frozenset(ascii_uppercase),
    "N": frozenset(digits),
    "Nd": frozenset(digits),
    "P": frozenset("._-"),
    "Pc": frozenset("_"),
    "Pd": frozenset("-"),
    "Po": frozenset("."),
}
_CONTROL_ESCAPES = "aftnrv"
_REPEAT_MAX = 1_000
_DEPTH_MAX = 50


class Chars(NamedTuple):
    """One character of these."""

    any_of: frozenset[str]


class Edge(Enum):
    """A place between characters."""

    START = "the start of the name"
    END = "its end"
    WORD = "where a word begins or ends"
    NO_WORD = "anywhere else"


class Series(NamedTuple):
    """One after the other."""

    nodes: "tuple[Node, ...]"


class Either(NamedTuple):
    """Any one of them."""

    nodes: "tuple[Node, ...]"


class Repeat(NamedTuple):
    """The same several times; ``most`` of ``None`` knows no end."""

    of: "Node"
    least: int
    most: int | None


Node = Chars | Edge | Series | Either | Repeat

_EDGES = {"A": Edge.START, "z": Edge.END, "b": Edge.WORD, "B": Edge.NO_WORD}


def parse(regex: str) -> Node:
    """The tree of ``regex``; ``InvalidRegexError`` if RE2 would refuse it as well."""
    return _Parser(regex).parse()


class _Parser:
    """Recursive descent, one method a level: either, series, repeated, single."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._at = 0
        self._depth = 0
        self._folds_case = False

    def parse(self) -> Node:
        node = self._either()
        if self._at < len(self._regex):
            raise self._error("a ) without its (")
        return node

    def _either(self) -> Node:
        ways = [self._series()]
        while self._takes("|"):
            ways.append(self._series())
        return ways[0] if len(ways) == 1 else Either(tuple(ways))

    def _series(self) -> Node:
        nodes: list[Node] = []
        while self._at < len(self._regex) and self._regex[self._at] not in "|)":
            nodes.append(self._repeated())
        return Series(tuple(nodes))

    def _repeated(self) -> Node:
        if self._regex[self._at] in "*+?":
            raise self._error("a repetition of nothing")
        return self._repeat(self._single())

    def _repeat(self, node: Node) -> Node:
        """``node`` as often as what follows says."""
        bounds = self._bounds()
        if bounds is None:
            return node
        self._takes("?")
        if self._bounds() is not None:
            raise self._error("a repetition of a repetition; put the inner one in parentheses")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the last one is repeated, if it is."""
        if self._takes("*"):
            return 0, None
        if self._takes("+"):
            return 1, None
        if self._takes("?"):
            return 0, 1
        return self._counted()

    def _counted(self) -> tuple[int, int | None] | None:
        """``{n}``, ``{n,}`` or ``{n,m}``; any other brace stands for itself."""
        end = self._regex.find("}", self._at)
        if not self._sees("{") or end < 0:
            return None
        low, comma, high = self._regex[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        least = int(low)
        most = None if comma and not high else int(high or low)
        if max(least, most or 0) > _REPEAT_MAX or (most is not None and most < least):
            raise self._error(f"a repetition from {low} to {high or low}")
        self._at = end + 1
        return least, most

    def _single(self) -> Node:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return Chars(self._set())
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Edge.START
            case "$":
                return Edge.END
            case "\\":
                return self._escaped()
            case _:
                return self._literal(character)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error(f"more than {_DEPTH_MAX} groups within each other")
        folded = self._folds_case
        if self._takes("?") and not self._opens_group():
            self._depth -= 1
            return Series(())  # flags alone, which hold until the group around them ends
        node = self._either()
        if not self._takes(")"):
            raise self._error("a ( without its )")
        self._folds_case = folded
        self._depth -= 1
        return node

    def _opens_group(self) -> bool:
        """What follows ``(?``: false if it only set flags."""
        if self._takes("P<") or (self._sees("<") and not self._sees("<=") and not self._sees("<!")):
            self._takes("<")
            name, bracket, _ = self._regex[self._at :].partition(">")
            if not bracket or not name.isidentifier():
                raise self._error("a group without a proper name")
            self._at += len(name) + 1
            return True
        return self._flags()

    def _flags(self) -> bool:
        value = True
        while True:
            match self._next():
                case ":":
                    return True
                case ")":
                    return False
                case "-" if value:
                    value = False
                case "i":
                    self._folds_case = value
                case "m" | "s" | "U":
                    pass  # names have no lines, and how greedy a repetition is does not show
                case other:
                    raise self._error(
                        f"(?{other} is not supported: no looking ahead or behind, "
                        "no conditions, no comments"
                    )

    def _set(self) -> frozenset[str]:
        negated = self._takes("^")
        found = _NOTHING
        first = True
        while first or not self._sees("]"):
            first = False
            found |= self._range()
        self._at += 1
        return ALPHABET - found if negated else found

    def _range(self) -> frozenset[str]:
        """A class, one character, or all from one to another."""
        if self._takes("[:"):
            return self._posix_class()
        low = self._in_set()
        if isinstance(low, frozenset):
            return low
        ahead = self._regex[self._at : self._at + 2]
        if len(ahead) < 2 or ahead[0] != "-" or ahead[1] == "]":
            return self._folded(low)
        self._at += 1
        high = self._in_set()
        if isinstance(high, frozenset) or high < low:
            raise self._error(f"a range from {low} to nothing above it")
        return self._fold(frozenset(c for c in ALPHABET if low <= c <= high))

    def _in_set(self) -> str | frozenset[str]:
        character = self._next(missing="a [ without its ]")
        if character != "\\":
            return character
        escape = self._next()
        known = self._class_of(escape)
        return known if known is not None else self._character_of(escape)

    def _posix_class(self) -> frozenset[str]:
        name, closed, _ = self._regex[self._at :].partition(":]")
        members = _POSIX_CLASSES.get(name.removeprefix("^"))
        if not closed or members is None:
            raise self._error("an unknown class of characters")
        self._at += len(name) + 2
        return ALPHABET - members if name.startswith("^") else self._fold(members)

    def _escaped(self) -> Node:
        escape = self._next()
        if escape in _EDGES:
            return _EDGES[escape]
        if escape == "Q":
            return self._quoted()
        known = self._class_of(escape)
        return self._literal(self._character_of(escape)) if known is None else Chars(known)

    def _quoted(self) -> Node:
        r"""Everything up to ``\E`` stands for itself; a repetition counts for the last only."""
        quoted, closed, _ = self._regex[self._at :].partition("\\E")
        self._at += len(quoted) + len(closed)
        literals = [self._literal(character) for character in quoted]
        return Series((*literals[:-1], *map(self._repeat, literals[-1:])))

    def _class_of(self, escape: str) -> frozenset[str] | None:
        r"""The class that ``\d``, ``\W``, ``\pL`` and their like stand for."""
        if escape in "pP":
            members = self._unicode_class()
        elif escape.lower() in _PERL_CLASSES:
            members = _PERL_CLASSES[escape.lower()]
        else:
            return None
        return ALPHABET - members if escape.isupper() else members

    def _unicode_class(self) -> frozenset[str]:
        if self._takes("{"):
            name, closed, _ = self._regex[self._at :].partition("}")
            self._at += len(name) + len(closed)
        else:
            name, closed = self._next(), "}"
        members = _UNICODE_CLASSES.get(name.removeprefix("^"))
        if not closed or members is None:
            raise self._error("an unknown class of characters")
        return ALPHABET - members if name.startswith("^") else members

    def _character_of(self, escape: str) -> str:
        if escape == "x":
            return self._hexadecimal()
        if escape in _CONTROL_ESCAPES:
            return "\0"  # some control character: no name has any
        if escape.isalnum() or escape == "_" or not escape.isascii():
            raise self._error(f"\\{escape} is not supported; there are no backreferences")
        return escape

    def _hexadecimal(self) -> str:
        if self._takes("{"):
            code, closed, _ = self._regex[self._at :].partition("}")
            self._at += len(code) + 1
        else:
            code, closed = self._regex[self._at : self._at + 2], "}"
            self._at += 2
        try:
            character = chr(int(code, 16))
        except (ValueError, OverflowError):
            character = ""
        if not (character and closed and code.isalnum()):
            raise self._error(f"\\x{code} is no character")
        return character

    def _literal(self, character: str) -> Chars:
        return Chars(self._folded(character))

    def _folded(self, character: str) -> frozenset[str]:
        return self._fold(frozenset(character) & ALPHABET)

    def _fold(self, members: frozenset[str]) -> frozenset[str]:
        return members | {c.swapcase() for c in members} if self._folds_case else members

    def _sees(self, text: str) -> bool:
        return self._regex.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        if not self._sees(text):
            return False
        self._at += len(text)
        return True

    def _next(self, missing: str = "it ends too soon") -> str:
        if self._at >= len(self._regex):
            raise self._error(missing)
        self._at += 1
        return self._regex[self._at - 1]

    def _error(self, problem: str) -> InvalidRegexError:
        return InvalidRegexError(
            f"cannot read the regular expression {self._regex!r}: {problem}, "
            f"at character {self._at}"
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
