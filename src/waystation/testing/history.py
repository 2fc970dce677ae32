"""What clients did and what they saw, one JSON object per line.

A history is written by those who use a cluster, never by the cluster: ``checker.py`` holds it
against what a cluster may do.  Three promises make it evidence:

1. a line is on its way to the file before anybody can know of what it says, so that killing a
   client takes nothing away but its last step;
2. every value sent names its sender and carries a number that this sender uses once, in rising
   order, so that a value tells where it comes from;
3. times are of one clock: the machine's monotonic one, or a simulation's.

Readers in a history see only what is committed (``isolation="read_committed"``).
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import msgspec

from waystation.model.errors import InvalidRequestError
from waystation.model.ids import TopicPartition

__all__ = [
    "Ack",
    "Begin",
    "Consume",
    "Decide",
    "Diary",
    "End",
    "Event",
    "Finish",
    "HistoryDamagedError",
    "HistoryFile",
    "Line",
    "Note",
    "Poll",
    "Seek",
    "Seen",
    "Send",
    "Span",
    "Value",
    "Written",
    "read_histories",
    "read_lines",
]

E = TypeVar("E")


class Value(NamedTuple):
    """What a message says: who sent it, and which of the sender's it is."""

    process: str
    number: int

    def __str__(self) -> str:
        return f"{self.process}:{self.number}"

    @classmethod
    def of(cls, payload: bytes | None) -> Self:
        """Read a message's first word; what is none of ours gets a number of -1."""
        word, _, _ = (payload or b"").decode("utf-8", "replace").partition(" ")
        process, _, number = word.rpartition(":")
        return cls(process, int(number)) if number.isdecimal() else cls(word[:100], -1)


class Written(NamedTuple):
    """Where the cluster says a value stands."""

    topic: str
    partition: int
    offset: int
    number: int


class Seen(NamedTuple):
    """A value that a reader was given, and at which offset."""

    offset: int
    process: str
    number: int


class Span(NamedTuple):
    """Messages that were processed: offsets ``[start, end)`` of a partition."""

    topic: str
    partition: int
    start: int
    end: int


# --- events -----------------------------------------------------------------------------------


class Line(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """What all lines of a history have: when, and who."""

    at_ns: int
    process: str


class Begin(Line, frozen=True):
    """A transaction begins; it has a number of its own within its process."""

    transaction: int


class Send(Line, frozen=True):
    """Values are about to be sent, in a transaction or (``None``) outside of any."""

    transaction: int | None
    numbers: tuple[int, ...]


class Ack(Line, frozen=True):
    """The cluster has acknowledged values."""

    rows: tuple[Written, ...]


class Consume(Line, frozen=True):
    """A transaction is about to take along how far its group has got."""

    transaction: int
    group: str
    spans: tuple[Span, ...]


class Decide(Line, frozen=True):
    """The process is about to ask for the transaction's end."""

    transaction: int
    commit: bool


class End(Line, frozen=True):
    """The process knows how the transaction ended; without this line only the log knows."""

    transaction: int
    committed: bool


class Seek(Line, frozen=True):
    """A reader goes on from ``offset``, whatever it read before."""

    topic: str
    partition: int
    offset: int


class Poll(Line, frozen=True):
    """A reader was given messages, and would get what stands at ``position`` next."""

    topic: str
    partition: int
    position: int
    rows: tuple[Seen, ...]


class Finish(Line, frozen=True):
    """A reader has read to ``end``, which was the partition's end when asked at ``at_ns``."""

    topic: str
    partition: int
    end: int


class Note(Line, frozen=True):
    """Something happened that whoever reads the history may want to know."""

    text: str


Event = Begin | Send | Ack | Consume | Decide | End | Seek | Poll | Finish | Note


# --- writing ----------------------------------------------------------------------------------


class Diary:
    """Writes one process's part of a history, and gives its values and transactions numbers.

    A process that is started again needs another name, or its numbers would begin anew.
    """

    def __init__(
        self,
        process: str,
        write: Callable[[Event], object],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.process = process
        self._write, self._now_ns = write, now_ns
        self._numbers, self._transactions = count(), count()

    def begin(self) -> int:
        """A transaction begins; its number."""
        number = next(self._transactions)
        self._write(Begin(self._now_ns(), self.process, number))
        return number

    def sending(self, transaction: int | None, many: int) -> list[Value]:
        """So many values are about to be sent; which."""
        values = [Value(self.process, next(self._numbers)) for _ in range(many)]
        numbers = tuple(value.number for value in values)
        self._write(Send(self._now_ns(), self.process, transaction, numbers))
        return values

    def acknowledged(self, rows: Iterable[Written]) -> None:
        """These are there, the cluster says."""
        if known := tuple(rows):
            self._write(Ack(self._now_ns(), self.process, known))

    def consuming(self, transaction: int, group: str, spans: Iterable[Span]) -> None:
        """The transaction is about to move the group past ``spans``."""
        self._write(Consume(self._now_ns(), self.process, transaction, group, tuple(spans)))

    def deciding(self, transaction: int, *, commit: bool) -> None:
        """The transaction's end is about to be asked for."""
        self._write(Decide(self._now_ns(), self.process, transaction, commit))

    def ended(self, transaction: int, *, committed: bool) -> None:
        """The cluster has said how the transaction ended."""
        self._write(End(self._now_ns(), self.process, transaction, committed))

    def seeking(self, where: TopicPartition, offset: int) -> None:
        """Reading of a partition begins there."""
        self._write(Seek(self._now_ns(), self.process, *where, offset))

    def polled(self, where: TopicPartition, position: int, rows: Iterable[Seen]) -> None:
        """A poll gave these; ``position`` comes next."""
        self._write(Poll(self._now_ns(), self.process, *where, position, tuple(rows)))

    def finished(self, where: TopicPartition, end: int, asked_ns: int) -> None:
        """Everything before ``end`` is read, which was the end at ``asked_ns``."""
        self._write(Finish(asked_ns, self.process, *where, end))

    def note(self, text: str) -> None:
        """For people."""
        self._write(Note(self._now_ns(), self.process, text))


class HistoryFile:
    """Appends events to a file, each with a write of its own: kill -9 loses none of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.json.Encoder()

    def write(self, event: msgspec.Struct) -> None:
        """Add one line."""
        line = self._encoder.encode(event) + b"\n"
        if os.write(self._file, line) < len(line):
            # Whatever came behind half a line could not be told from it.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# --- reading ----------------------------------------------------------------------------------


class HistoryDamagedError(InvalidRequestError):
    """A file that is no history, or not any more."""

    def __init__(self, path: Path, line: int, why: str) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path}, line {line}, is no event of a history: {why}")


def read_histories(paths: Iterable[Path]) -> Iterator[Event]:
    """The events of all files, each in its order."""
    return read_lines(paths, msgspec.json.Decoder(Event))


def read_lines(paths: Iterable[Path], decoder: "msgspec.json.Decoder[E]") -> Iterator[E]:
    """What all files say, each in its order; a last line cut short by a death is left out."""
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise HistoryDamagedError(path, number, str(error)) from error
