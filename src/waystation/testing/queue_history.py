"""What a queue's clients did and what they saw, one JSON object per line.

A history of one queue, which is one topic and one share group, is written by senders, consumers,
whoever kills them, and whoever watches who leads; ``queue_checker.py`` judges it.  As in
``history.py`` a line is on its way to the file before anybody can know of what it says, every value
names its sender and a number that this sender uses once, and times are of one clock.

What makes it evidence about a queue:

1. of a delivery it is known when it was asked for at the earliest and when it had arrived: the
   broker gave the message to the consumer somewhere between;
2. an acknowledgement is written down before it is sent, and again when it is answered; one that
   was never answered may count or not;
3. that a consumer dies is written down before it does, and so is that a broker stands still;
4. whatever comes to a consumer is written down when it comes, also what it gives back unread: a
   delivery that counts is missing only if its consumer died.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from waystation.testing.history import Line, Value, read_lines

__all__ = [
    "ACCEPT",
    "REJECT",
    "RELEASE",
    "RENEW",
    "Answer",
    "Delivery",
    "Died",
    "Given",
    "How",
    "Led",
    "Marked",
    "Named",
    "Placed",
    "QueueDiary",
    "QueueEvent",
    "Remark",
    "Sending",
    "Sent",
    "Settled",
    "Settling",
    "Slept",
    "Woken",
    "read_queue_histories",
]

How = Literal["accept", "release", "reject", "renew"]
ACCEPT: How = "accept"
RELEASE: How = "release"
REJECT: How = "reject"
RENEW: How = "renew"

Answer = Literal["yes", "not held", "failed"]
"""Whether it counts; ``failed`` is any other error, after which nobody knows."""


class Named(NamedTuple):
    """A value that is sent: its number, and its key."""

    number: int
    key: str | None


class Placed(NamedTuple):
    """Where the cluster says that a value stands."""

    number: int
    partition: int
    offset: int


class Given(NamedTuple):
    """A message as a consumer got it: for which time, the broker says."""

    partition: int
    offset: int
    attempt: int
    sender: str
    number: int


class Marked(NamedTuple):
    """One delivery, as its consumer refers to it."""

    partition: int
    offset: int
    attempt: int


# --- events -----------------------------------------------------------------------------------


class Sending(Line, frozen=True):
    """Values are about to be sent."""

    rows: tuple[Named, ...]


class Sent(Line, frozen=True):
    """The cluster has acknowledged values."""

    rows: tuple[Placed, ...]


class Delivery(Line, frozen=True):
    """A consumer got messages; nobody gave it these before ``asked_ns``."""

    asked_ns: int
    rows: tuple[Given, ...]


class Settling(Line, frozen=True):
    """A consumer is about to say what becomes of messages that it got."""

    how: How
    rows: tuple[Marked, ...]


class Settled(Line, frozen=True):
    """The broker has answered; without this line it may count or not."""

    how: How
    answer: Answer
    rows: tuple[Marked, ...]


class Died(Line, frozen=True):
    """Somebody is about to be killed, or to leave: ``process``, or all ``process/...``."""

    consumers: int = 1
    """How many of them there were."""


class Slept(Line, frozen=True):
    """A broker, ``process``, is about to stand still until it is ``Woken``."""


class Woken(Line, frozen=True):
    """A broker is about to go on; until it has heard of the others it may think that it leads."""


class Led(Line, frozen=True):
    """A watcher is told that a partition has this leader epoch."""

    partition: int
    leader: int
    epoch: int


class Remark(Line, frozen=True):
    """Something happened that whoever reads the history may want to know."""

    text: str


QueueEvent = Sending | Sent | Delivery | Settling | Settled | Died | Slept | Woken | Led | Remark


# --- writing and reading ----------------------------------------------------------------------


class QueueDiary:
    """Writes one process's part of a history, and gives its values numbers.

    A process that is started again needs another name, or its numbers would begin anew.
    """

    def __init__(
        self,
        process: str,
        write: Callable[[QueueEvent], object],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.process = process
        self._write, self._now_ns = write, now_ns
        self._numbers = count()

    def sending(self, keys: Iterable[str | None]) -> list[Value]:
        """Values with these keys are about to be sent; which."""
        rows = tuple(Named(next(self._numbers), key) for key in keys)
        self._write(Sending(self._now_ns(), self.process, rows))
        return [Value(self.process, row.number) for row in rows]

    def sent(self, rows: Iterable[Placed]) -> None:
        """These are there, the cluster says."""
        if known := tuple(rows):
            self._write(Sent(self._now_ns(), self.process, known))

    def delivered(self, asked_ns: int, rows: Iterable[Given]) -> None:
        """These came, and were asked for at ``asked_ns`` at the earliest."""
        if known := tuple(rows):
            self._write(Delivery(self._now_ns(), self.process, asked_ns, known))

    def settling(self, how: How, rows: Iterable[Marked]) -> None:
        """The broker is about to be told this of these."""
        if known := tuple(rows):
            self._write(Settling(self._now_ns(), self.process, how, known))

    def settled(self, how: How, answer: Answer, rows: Iterable[Marked]) -> None:
        """The broker has said whether it counts."""
        if known := tuple(rows):
            self._write(Settled(self._now_ns(), self.process, how, answer, known))

    def died(self, process: str | None = None, consumers: int = 1) -> None:
        """That one, or oneself, is about to be no more."""
        who = self.process if process is None else process
        self._write(Died(self._now_ns(), who, consumers))

    def slept(self, broker: str) -> None:
        """That broker is about to stand still."""
        self._write(Slept(self._now_ns(), broker))

    def woken(self, broker: str) -> None:
        """That broker is about to go on."""
        self._write(Woken(self._now_ns(), broker))

    def led(self, partition: int, leader: int, epoch: int) -> None:
        """Whoever watches was told so."""
        self._write(Led(self._now_ns(), self.process, partition, leader, epoch))

    def remark(self, text: str) -> None:
        """For people."""
        self._write(Remark(self._now_ns(), self.process, text))


def read_queue_histories(paths: Iterable[Path]) -> Iterator[QueueEvent]:
    """The events of all files, each in its order; a last line cut short by a death is left out."""
    return read_lines(paths, msgspec.json.Decoder(QueueEvent))
