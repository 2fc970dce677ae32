"""Patterns of LIKE: % for any characters, _ for one, in time that grows with the text only.

A pattern is a row of parts with a % between any two.  The first part stands at the beginning, the
last at the end, and each of the others is looked for behind the one before it: the first place
that fits is as good as any other, so nothing is ever tried again.  A part without _ is found as
any text is; one with _ is compared at every place, which costs its length for every character, and
therefore only so much of that may be in one expression (``JOKERS``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["JOKERS", "EscapeError", "Pattern", "pattern_of"]

JOKERS: Final = 64
"""How long all parts together may be that have a _ and must be looked for."""

_ANY = None
Part = tuple[str | None, ...]
"""Characters of a part; ``None`` is a _."""


class EscapeError(ValueError):
    """An escape character that escapes nothing."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What stands between the %s of a pattern: one part if there is none."""

    parts: tuple[Part, ...]

    @property
    def jokers(self) -> int:
        """How long the parts are that must be compared everywhere."""
        return sum(len(part) for part in self.parts[1:-1] if _ANY in part)

    @property
    def fragments(self) -> list[str]:
        """Texts that every text with this pattern has."""
        return [run for part in self.parts for run in _runs(part)]

    def code(self, name: str) -> str | None:
        """A Python expression of the usual patterns; ``None`` for the others."""
        if any(_ANY in part for part in self.parts):
            return None
        texts = ["".join(character or "" for character in part) for part in self.parts]
        match texts:
            case [text]:
                return f"{name} == {text!r}"
            case [start, ""]:
                return f"{name}.startswith({start!r})"
            case ["", end]:
                return f"{name}.endswith({end!r})"
            case ["", middle, ""]:
                return f"{middle!r} in {name}"
            case _:
                return None

    def matcher(self) -> Callable[[str], bool]:
        """A function that says whether a text has the pattern."""
        if len(self.parts) == 1:
            whole = _compiled(self.parts[0]).fullmatch
            return lambda text: whole(text) is not None
        first, *middle, last = self.parts
        starts, ends = _compiled(first).match, _compiled(last).match
        first_size, last_size = len(first), len(last)
        searches = [_search(part) for part in middle if part]

        def has(text: str) -> bool:
            at, stop = first_size, len(text) - last_size
            if stop < at or starts(text) is None or ends(text, stop) is None:
                return False
            for search in searches:
                at = search(text, at, stop)
                if at < 0:
                    return False
            return True

        return has


def pattern_of(text: str, escape: str | None) -> Pattern:
    """The pattern that ``text`` says; ``escape`` takes the meaning from what follows it."""
    parts: list[list[str | None]] = [[]]
    characters = iter(text)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None or literal not in ("%", "_", escape):
                raise EscapeError
            parts[-1].append(literal)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(_ANY if character == "_" else character)
    # A second % beside the first says nothing new.
    inner = [part for part in parts[1:-1] if part]
    kept = [parts[0], *inner, parts[-1]] if len(parts) > 1 else parts
    return Pattern(tuple(tuple(part) for part in kept))


def _search(part: Part) -> Callable[[str, int, int], int]:
    """A function that finds the part in ``[at, stop)``: the position behind it, or -1."""
    size = len(part)
    if _ANY not in part:
        literal = "".join(character or "" for character in part)

        def found(text: str, at: int, stop: int) -> int:
            at = text.find(literal, at, stop)
            return at + size if at >= 0 else -1

        return found
    search = _compiled(part).search

    def compared(text: str, at: int, stop: int) -> int:
        match = search(text, at, stop)
        return match.end() if match is not None else -1

    return compared


def _compiled(part: Part) -> re.Pattern[str]:
    """As long as the part and without repetition, so there is nothing to go back to."""
    source = "".join("." if character is None else re.escape(character) for character in part)
    return re.compile(source, re.DOTALL)


def _runs(part: Part) -> list[str]:
    """The stretches of a part without _."""
    runs = [""]
    for character in part:
        if character is None:
            runs.append("")
        else:
            runs[-1] += character
    return [run for run in runs if run]
