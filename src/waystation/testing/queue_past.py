"""The history of a queue by message and by consumer, as ``queue_checker.py`` looks at it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from waystation.testing.history import Value
from waystation.testing.queue_history import (
    ACCEPT,
    REJECT,
    RENEW,
    Answer,
    Delivery,
    Died,
    Given,
    How,
    Led,
    Marked,
    QueueEvent,
    Remark,
    Sending,
    Sent,
    Settled,
    Settling,
    Slept,
    Woken,
)

__all__ = ["NS_PER_MS", "Fault", "Got", "Leaders", "Message", "Past", "Place", "QueueFinding"]

NS_PER_MS = 1_000_000
_NEVER_NS = 1 << 62


class Fault(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DONE_TWICE = "done twice"
    DELIVERED_WHEN_DONE = "delivered when done"
    DELIVERED_WHILE_HELD = "delivered while held"
    WRONG_COUNT = "wrong count"
    HELD_NO_MORE = "held no more"
    REFUSED = "refused"
    OUT_OF_ORDER = "out of order"
    PHANTOM = "phantom"


class QueueFinding(NamedTuple):
    """One thing that may not be."""

    fault: Fault
    what: str

    def __str__(self) -> str:
        return f"{self.fault}: {self.what}"


class Place(NamedTuple):
    """Where a message stands."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


@dataclass(slots=True)
class Got:
    """One delivery: the broker gave it somewhere in ``[asked_ns, got_ns]``."""

    consumer: str
    count: int
    asked_ns: int
    got_ns: int
    locked_ns: int
    """The earliest moment its lock may have begun; later once it was renewed."""
    settling_ns: dict[How, int] = field(default_factory=dict)
    done_ns: int | None = None
    released_ns: int | None = None
    """When its consumer was told that giving it back counts."""
    refused_ns: int | None = None
    is_void: bool = False
    """Whether all that its consumer said about it certainly counts for nothing."""

    def __str__(self) -> str:
        return f"number {self.count} to {self.consumer}"


@dataclass(slots=True)
class Message:
    """All that happened to a message."""

    place: Place
    value: Value
    deliveries: list[Got] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.value} at {self.place}"

    @property
    def is_done(self) -> bool:
        """Whether a consumer was told that it is."""
        return any(one.done_ns is not None for one in self.deliveries)

    @property
    def is_in_doubt(self) -> bool:
        """Whether somebody said that it is done, or that it never will be."""
        return self.settling_ns is not None

    def is_given_up(self, max_deliveries: int) -> bool:
        """Whether it was delivered as often as it may be."""
        return any(one.count >= max_deliveries for one in self.deliveries)

    @property
    def settling_ns(self) -> int | None:
        """When a consumer who may have held it first said so."""
        heard = (one.settling_ns for one in self.deliveries if not one.is_void)
        said = [ns for each in heard for how, ns in each.items() if how in (ACCEPT, REJECT)]
        return min(said, default=None)

    @property
    def done_ns(self) -> int | None:
        """When a consumer was first told that this counts."""
        return min((d.done_ns for d in self.deliveries if d.done_ns is not None), default=None)


class Past:
    """The history by message and by consumer."""

    def __init__(self, events: Iterable[QueueEvent], hearsay_ms: int) -> None:
        self.messages: dict[Place, Message] = {}
        self.sent: dict[Value, Place] = {}
        self.sending_ns: dict[Value, int] = {}
        self.keys: dict[Value, str | None] = {}
        self.deaths: dict[str, Died] = {}
        self._slept: list[Slept] = []
        self._woken: dict[str, list[int]] = defaultdict(list)
        self.findings: list[QueueFinding] = []
        self._told: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._held: dict[tuple[str, Marked], Got] = {}
        for event in events:
            self._take(event)
        slack_ns = hearsay_ms * NS_PER_MS
        self.sleeps = [self._sleep(one, slack_ns) for one in self._slept]
        self.leaders = Leaders(self._told, slack_ns, self.sleeps)
        self.findings += self._phantoms()
        self._note_void()

    def death_ns(self, consumer: str) -> int | None:
        """When it, or the program that it was a part of, was no more."""
        names = (consumer, consumer.partition("/")[0])
        known = (self.deaths[name].at_ns for name in names if name in self.deaths)
        return min(known, default=None)

    def may_be_stale(self, one: Got) -> bool:
        """Whether somebody may have given it who was replaced in its sleep, and did not know."""
        return any(s.woken_ns <= one.got_ns and one.asked_ns <= s.over_ns for s in self.sleeps)

    def _sleep(self, slept: Slept, slack_ns: int) -> "Sleep":
        later = [ns for ns in self._woken[slept.process] if ns >= slept.at_ns]
        woken_ns = min(later, default=_NEVER_NS)
        return Sleep(slept.at_ns, woken_ns, woken_ns + slack_ns)

    def _take(self, event: QueueEvent) -> None:
        match event:
            case Sending(at_ns, process, rows):
                for number, key in rows:
                    self.sending_ns[Value(process, number)] = at_ns
                    self.keys[Value(process, number)] = key
            case Sent(process=process, rows=placed):
                for number, *place in placed:
                    value = Value(process, number)
                    self.sent[value] = Place(*place)
                    self._message(Place(*place), value)
            case Delivery(at_ns, process, asked_ns, given):
                for one in given:
                    self._deliver(process, asked_ns, at_ns, one)
            case Settling(at_ns, process, how, marked):
                for held in self._deliveries(process, marked, how):
                    held.settling_ns.setdefault(how, at_ns)
            case Settled(at_ns, process, how, answer, marked):
                for held in self._deliveries(process, marked, how):
                    _answer(held, how, answer, at_ns)
            case Died(process=process):
                self.deaths.setdefault(process, event)
            case Slept():
                self._slept.append(event)
            case Woken(at_ns, process):
                self._woken[process].append(at_ns)
            case Led(at_ns, _, partition, _, epoch):
                self._told[partition].append((at_ns, epoch))
            case Remark():
                pass

    def _deliver(self, consumer: str, asked_ns: int, got_ns: int, given: Given) -> None:
        value = Value(given.sender, given.number)
        message = self._message(Place(given.partition, given.offset), value)
        got = Got(consumer, given.attempt, asked_ns, got_ns, locked_ns=asked_ns)
        message.deliveries.append(got)
        self._held[consumer, Marked(given.partition, given.offset, given.attempt)] = got

    def _deliveries(self, consumer: str, marked: Iterable[Marked], how: How) -> Iterator[Got]:
        for one in marked:
            held = self._held.get((consumer, one))
            if held is None:
                what = f"{consumer} would {how} {one}, which it never got"
                self.findings.append(QueueFinding(Fault.PHANTOM, what))
            else:
                yield held

    def _message(self, place: Place, value: Value) -> Message:
        message = self.messages.get(place)
        if message is None:
            message = self.messages[place] = Message(place, value)
        elif message.value != value:
            what = f"{place} is {message.value}, and {value}"
            self.findings.append(QueueFinding(Fault.PHANTOM, what))
        return message

    def _note_void(self) -> None:
        """Who was refused said nothing, unless a leader had heard it and the next one refused."""
        for message in self.messages.values():
            for one in message.deliveries:
                if one.refused_ns is not None and one.done_ns is None:
                    said_ns = min(one.settling_ns.values(), default=one.asked_ns)
                    partition = message.place.partition
                    changed = self.leaders.may_have_changed(partition, said_ns, one.refused_ns)
                    one.is_void = not changed

    def _phantoms(self) -> Iterator[QueueFinding]:
        places: dict[Value, Place] = {}
        for message in self.messages.values():
            if message.value not in self.keys:
                yield QueueFinding(Fault.PHANTOM, f"{message} was never sent")
            other = places.setdefault(message.value, message.place)
            if other != message.place:
                yield QueueFinding(Fault.PHANTOM, f"{message} stands at {other} too")


def _answer(held: Got, how: How, answer: Answer, at_ns: int) -> None:
    match how, answer:
        case (("accept" | "reject"), "yes"):
            held.done_ns = at_ns
        case "release", "yes":
            held.released_ns = at_ns
        case "renew", "yes":
            held.locked_ns = max(held.locked_ns, held.settling_ns.get(RENEW, 0))
            # The next renewal is another one.
            held.settling_ns.pop(RENEW, None)
        case _, "not held":
            held.refused_ns = at_ns if held.refused_ns is None else held.refused_ns


class Sleep(NamedTuple):
    """A broker stood still, and is what it was before until it has heard what happened."""

    at_ns: int
    woken_ns: int
    over_ns: int


class Leaders:
    """When a partition may have changed its leader, by when a watcher was told of which epoch.

    While a broker sleeps, and until it knows that it did, there may be two.
    """

    def __init__(
        self, told: dict[int, list[tuple[int, int]]], slack_ns: int, sleeps: Iterable[Sleep]
    ) -> None:
        self._sleeps = [(one.at_ns, one.over_ns) for one in sleeps]
        self._changes: dict[int, list[tuple[int, int]]] = {}
        for partition, rows in told.items():
            first_ns: dict[int, int] = {}
            for at_ns, epoch in sorted(rows):
                first_ns.setdefault(epoch, at_ns)
            # The first epoch that anybody saw was no change.
            known = [first_ns[epoch] for epoch in sorted(first_ns)][1:]
            self._changes[partition] = [(ns - slack_ns, ns) for ns in known]

    def may_have_changed(self, partition: int, from_ns: int, to_ns: int) -> bool:
        """Whether another may lead at ``to_ns`` than at ``from_ns``."""
        windows = [*self._changes.get(partition, ()), *self._sleeps]
        return any(first <= to_ns and from_ns <= last for first, last in windows)
