"""Producers that wait until the coordinator of their transaction knows where they write.

Before the first batch of a transaction enters a partition, the coordinator must have that
partition in the transaction: what it does not know of, nobody would ever end.

1. Requests of one producer go on in the order they came in, those that need not ask behind those
   that do; other producers wait for nobody.
2. A request goes on in the midst of the coordinator's answer, not later: between the two the
   transaction could end, and the batch begin one that never does.  An answer that came out of
   turn is therefore asked for again.
3. All ask at once, so that those who wait together share one commit.

What is asked, and what it means to go on, is told by whoever enters.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from waystation.model.errors import WaystationError
from waystation.model.ids import ProducerId, TopicPartition

Verdict = Mapping[TopicPartition, WaystationError | None]
"""For each partition that was asked about, why it may not be written to."""
Hear = Callable[[Verdict], None]
Missing = Callable[[], list[TopicPartition]]
"""The partitions in which the producer's transaction is not open at this moment."""
Ask = Callable[[list[TopicPartition], Hear], None]

_NOTHING_ASKED: Verdict = {}


class _Entry:
    """One request in line."""

    __slots__ = ("ask", "asking", "go", "missing", "verdict")

    def __init__(self, missing: Missing, ask: Ask, go: Hear) -> None:
        self.missing = missing
        self.ask = ask
        self.go = go
        self.asking = False
        self.verdict: Verdict | None = None


class _Line:
    """The requests of one producer, in the order they came in."""

    __slots__ = ("advancing", "entries")

    def __init__(self) -> None:
        self.entries: deque[_Entry] = deque()
        self.advancing = False


class Admission:
    """The lines of all producers that wait; a producer that does not has none.

    ``kept_bytes`` is what they keep meanwhile, counted by whoever lets them enter.
    """

    __slots__ = ("_lines", "kept_bytes")

    def __init__(self) -> None:
        self._lines: dict[ProducerId, _Line] = {}
        self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._lines)

    def waits(self, producer: ProducerId) -> bool:
        """Whether requests of that producer are in line."""
        return producer in self._lines

    def enter(self, producer: ProducerId, missing: Missing, ask: Ask, go: Hear) -> bool:
        """Call ``go`` once it is the request's turn and its coordinator has answered.

        True if that has happened by now.  ``go`` must not raise.
        """
        line = self._lines.get(producer)
        if line is None:
            line = self._lines[producer] = _Line()
        entry = _Entry(missing, ask, go)
        line.entries.append(entry)
        if line.entries[0] is not entry and (wanted := missing()):
            self._ask(producer, line, entry, wanted)
        self._advance(producer, line)
        return entry.verdict is not None

    def _ask(
        self, producer: ProducerId, line: _Line, entry: _Entry, wanted: list[TopicPartition]
    ) -> None:
        entry.asking = True
        try:
            entry.ask(wanted, partial(self._answered, producer, line, entry))
        except Exception:  # a bug: it must not keep its producer's next requests waiting for ever
            line.entries.remove(entry)
            raise

    def _answered(self, producer: ProducerId, line: _Line, entry: _Entry, verdict: Verdict) -> None:
        entry.asking = False
        if line.entries[0] is entry:
            entry.verdict = verdict
            self._advance(producer, line)

    def _advance(self, producer: ProducerId, line: _Line) -> None:
        """Let those go on whose turn it is; an answer given at once is seen by the same loop."""
        if line.advancing:
            return
        line.advancing = True
        try:
            while line.entries and self._ready(producer, line, line.entries[0]):
                first = line.entries.popleft()
                assert first.verdict is not None, "went on unheard"
                first.go(first.verdict)
        finally:
            line.advancing = False
        # Gone already where asking for one request made a coordinator that failed answer them all.
        if not line.entries and self._lines.get(producer) is line:
            del self._lines[producer]

    def _ready(self, producer: ProducerId, line: _Line, first: _Entry) -> bool:
        if first.verdict is None and not first.asking:
            if wanted := first.missing():
                self._ask(producer, line, first, wanted)
            else:
                first.verdict = _NOTHING_ASKED
        return first.verdict is not None
