r"""Regular expressions over topic names, in RE2's syntax, whose matching always ends soon.

Python's own engine tries one way after another and can be kept busy for years by a pattern
such as ``(a+)+b``.  Here all ways are followed at once, so that a name costs time linear in
its length, whatever the pattern; and as RE2 does, what cannot be matched that way is refused:
backreferences and looking ahead or behind.  Four promises:

1. a pattern matches whole names or not at all;
2. what cannot be read raises ``InvalidRegexError``, which says where and why;
3. patterns, their programs and the work of one selection are bounded; whatever exceeds the
   bounds is refused, never half done;
4. states once met are remembered, so that matching usually costs a look-up a character.

Only the characters that topic names are made of exist here: ``\s`` and ``é`` match nothing.
How a pattern is read is in ``pattern_syntax.py``.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from waystation.groups.pattern_syntax import (
    WORD,
    Chars,
    Edge,
    Either,
    Node,
    Repeat,
    Series,
    parse,
)
from waystation.model.errors import InvalidRegexError

_PATTERN_CHARACTERS_MAX = 1_000
_PROGRAM_MAX = 1_000
_EMISSIONS_MAX = 10_000
_WORK_MAX = 400_000
"""Program steps of one selection: about a tenth of a second, met by hostile patterns only."""
_KEPT_MAX = 20_000
"""Program positions held in remembered states."""

_START, _INSIDE_WORD, _INSIDE, _END = "start", "word", "inside", "end"


class _Split:
    """Go on at two places at once."""

    __slots__ = ("to",)

    def __init__(self, *to: int) -> None:
        self.to = to


class _Match:
    """The pattern is through."""

    __slots__ = ()


_Step = Chars | Edge | _Split | _Match


class _State:
    """Where a match may stand in the program, and what came just before."""

    __slots__ = ("at", "before", "ends", "moves")

    def __init__(self, at: tuple[int, ...], before: str) -> None:
        self.at = at
        self.before = before
        self.moves: dict[str, _State | None] = {}
        self.ends: bool | None = None


class Pattern:
    """A compiled regular expression; it remembers what it met, so it is kept and used again."""

    __slots__ = ("_heeds_words", "_kept", "_program", "_states", "_work", "regex")

    def __init__(self, regex: str) -> None:
        if len(regex) > _PATTERN_CHARACTERS_MAX:
            raise InvalidRegexError(
                f"a regular expression of {len(regex)} characters: "
                f"at most {_PATTERN_CHARACTERS_MAX} may be"
            )
        self.regex = regex
        self._program = _Compiler(regex).compile(parse(regex))
        self._heeds_words = Edge.WORD in self._program or Edge.NO_WORD in self._program
        self._states: dict[tuple[tuple[int, ...], str], _State] = {}
        self._kept = self._work = 0

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that match, sorted."""
        self._work = 0
        return tuple(sorted(name for name in names if self._matches(name)))

    def _matches(self, name: str) -> bool:
        """HOT: once per topic and pattern whenever topics change."""
        state = self._state((0,), _START)
        for character in name:
            if character not in state.moves:
                state.moves[character] = self._move(state, character)
            moved = state.moves[character]
            if moved is None:
                return False
            state = moved
        if state.ends is None:
            reached = self._reach(state, _END)
            state.ends = any(isinstance(self._program[at], _Match) for at in reached)
        return state.ends

    def _move(self, state: _State, character: str) -> _State | None:
        """Where ``character`` leads, found out for the first time."""
        after = self._kind(character)
        onwards = set()
        for at in self._reach(state, after):
            step = self._program[at]
            if isinstance(step, Chars) and character in step.any_of:
                onwards.add(at + 1)
        return self._state(tuple(sorted(onwards)), after) if onwards else None

    def _reach(self, state: _State, after: str) -> Iterable[int]:
        """All places of the program that ``state`` reaches without a further character."""
        seen = dict.fromkeys(state.at)
        todo = list(seen)
        while todo:
            at = todo.pop()
            for onward in self._onwards(at, state.before, after):
                if onward not in seen:
                    seen[onward] = None
                    todo.append(onward)
        self._work += len(seen)
        if self._work > _WORK_MAX:
            raise InvalidRegexError(
                f"the regular expression {self.regex!r} takes too long over the topics that "
                "there are: write it with fewer repetitions"
            )
        return seen

    def _onwards(self, at: int, before: str, after: str) -> Sequence[int]:
        step = self._program[at]
        if isinstance(step, _Split):
            return step.to
        if isinstance(step, Edge) and _holds(step, before, after):
            return (at + 1,)
        return ()

    def _state(self, at: tuple[int, ...], before: str) -> _State:
        state = self._states.get((at, before))
        if state is None:
            self._kept += len(at) + 1
            if self._kept > _KEPT_MAX:
                self._states.clear()
                self._kept = len(at) + 1
            state = self._states[at, before] = _State(at, before)
        return state

    def _kind(self, character: str) -> str:
        return _INSIDE_WORD if self._heeds_words and character in WORD else _INSIDE


@lru_cache(maxsize=128)
def pattern_of(regex: str) -> Pattern:
    """The compiled ``regex``; the same one for all groups, with all that it remembers."""
    return Pattern(regex)


def _holds(edge: Edge, before: str, after: str) -> bool:
    match edge:
        case Edge.START:
            return before == _START
        case Edge.END:
            return after == _END
        case Edge.WORD:
            return (before == _INSIDE_WORD) != (after == _INSIDE_WORD)
        case Edge.NO_WORD:
            return (before == _INSIDE_WORD) == (after == _INSIDE_WORD)


class _Compiler:
    """Turns what was read into a program of single steps."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._program: list[_Step] = []
        self._emissions = 0

    def compile(self, node: Node) -> tuple[_Step, ...]:
        self._emit(node)
        self._program.append(_Match())
        return tuple(self._program)

    def _emit(self, node: Node) -> None:
        self._emissions += 1
        if len(self._program) > _PROGRAM_MAX or self._emissions > _EMISSIONS_MAX:
            raise InvalidRegexError(
                f"the regular expression {self._regex!r} repeats too much: "
                f"written out it has more than {_PROGRAM_MAX} steps"
            )
        match node:
            case Chars() | Edge():
                self._program.append(node)
            case Series(nodes):
                for part in nodes:
                    self._emit(part)
            case Either(nodes):
                self._emit_either(nodes)
            case Repeat():
                self._emit_repeat(node)

    def _emit_either(self, nodes: tuple[Node, ...]) -> None:
        fork, ends = self._place(), []
        starts = []
        for node in nodes:
            starts.append(len(self._program))
            self._emit(node)
            ends.append(self._place())
        self._program[fork] = _Split(*starts)
        for end in ends:
            self._program[end] = _Split(len(self._program))

    def _emit_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._emit(node.of)
        if node.most is None:
            fork = self._place()
            self._emit(node.of)
            self._program.append(_Split(fork))
            self._program[fork] = _Split(fork + 1, len(self._program))
        else:
            forks = []
            for _ in range(node.most - node.least):
                forks.append(self._place())
                self._emit(node.of)
            for fork in forks:
                self._program[fork] = _Split(fork + 1, len(self._program))

    def _place(self) -> int:
        """Room for a step whose goals are not known yet."""
        self._program.append(_Split())
        return len(self._program) - 1
