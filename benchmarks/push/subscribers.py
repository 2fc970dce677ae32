"""All subscribers of one load, in one lean process: ``python -m benchmarks.push.subscribers``.

Sockets and epoll, no protocol library and no loop of tasks: at 10,000 deliveries a second what
receives must not be what is measured.  A delivery's latency counts from when the message was due to
when its bytes were read here.

Given a JSON object as argument it says "subscribed" when all are, receives until a line on its
input tells how many messages each stream had, and prints what it found as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from dataclasses import asdict, dataclass

from benchmarks.push.dialects import Dialect, dialects
from benchmarks.push.marks import marks_in, rest_of

_PATIENCE_S = 10.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class Wanted:
    """What to subscribe to; the first ``skipped`` messages of a stream are a warm-up."""

    dialect: str
    port: int
    subscribers: int
    streams: int
    skipped: int
    shared: bool
    """Whether all take from one queue, so that each has some of the numbers only."""


@dataclass(frozen=True)
class Found:
    """What came, and how late."""

    deliveries: int
    missing: int
    again: int
    lost: int
    """Connections that the other side closed."""
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    cpu_s: float


class Subscriber:
    """One connection and what it received."""

    __slots__ = ("again", "connection", "count", "gaps", "last", "rest")

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.rest = connection, b""
        self.count = self.gaps = self.again = 0
        self.last = -1


class Subscribers:
    """All of them."""

    def __init__(self, wanted: Wanted, dialect: Dialect) -> None:
        self._wanted, self._dialect = wanted, dialect
        self._by_fd: dict[int, Subscriber] = {}
        self._late_ns = array("q")
        self._numbers: set[int] = set()
        self._doubled = self._lost = 0
        for number in range(wanted.subscribers):
            connection, received = dialect.subscribe(wanted.port, number % wanted.streams)
            connection.setblocking(False)
            one = self._by_fd[connection.fileno()] = Subscriber(connection)
            self._take(one, received)
        self._all = list(self._by_fd.values())

    def receive(self) -> Found:
        """Until all has come, or for a while after the publisher's end."""
        poll = select.epoll()
        for fd in self._by_fd:
            poll.register(fd, select.EPOLLIN)
        told = sys.stdin.fileno()
        poll.register(told, select.EPOLLIN)
        published, deadline = 0, float("inf")
        began_s = time.process_time()
        while not (published and self._is_complete(published)) and time.monotonic() < deadline:
            for fd, _ in poll.poll(_LOOK_S):
                if fd != told:
                    self._read(fd, poll)
                    continue
                published, deadline = int(sys.stdin.readline()), time.monotonic() + _PATIENCE_S
                poll.unregister(told)
        return self._found(published, time.process_time() - began_s)

    def _read(self, fd: int, poll: select.epoll) -> None:
        """HOT: once per delivery."""
        one = self._by_fd[fd]
        try:
            received = one.connection.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            poll.unregister(fd)
            self._lost += 1
            return
        self._take(one, received)

    def _take(self, one: Subscriber, received: bytes) -> None:
        now_ns = time.monotonic_ns()
        before, found = one.count, marks_in(one.rest + received)
        for due, number in found:
            self._note(one, int(number), now_ns - int(due))
        one.rest = rest_of(one.rest + received)
        if answer := self._dialect.answer(received, one.count - before, before):
            one.connection.sendall(answer)

    def _note(self, one: Subscriber, number: int, late_ns: int) -> None:
        one.count += 1
        if number >= self._wanted.skipped:
            self._late_ns.append(late_ns)
        if self._wanted.shared:
            self._doubled += number in self._numbers
            self._numbers.add(number)
            return
        if one.last >= 0 and number != one.last + 1:
            one.again += number <= one.last
            one.gaps += max(number - one.last - 1, 0)
        one.last = max(one.last, number)

    def _is_complete(self, published: int) -> bool:
        if self._wanted.shared:
            return len(self._numbers) >= published
        return all(one.last == published - 1 for one in self._all)

    def _found(self, published: int, cpu_s: float) -> Found:
        if self._wanted.shared:
            missing, again = published - len(self._numbers), self._doubled
        else:
            missing = sum(one.gaps + published - 1 - one.last for one in self._all)
            again = sum(one.again for one in self._all)
        late = sorted(self._late_ns)
        return Found(
            len(late),
            missing,
            again,
            self._lost,
            *(_part(late, part) / 1e6 for part in (0.5, 0.99, 0.999, 1.0)),
            cpu_s,
        )


def _part(late: list[int], part: float) -> float:
    """The ``part``th of them, so that this part is at most so late."""
    return float(late[min(int(len(late) * part), len(late) - 1)]) if late else float("nan")


def main() -> None:
    """Subscribe, receive, tell."""
    wanted = Wanted(**json.loads(sys.argv[1]))
    subscribers = Subscribers(wanted, dialects()[wanted.dialect])
    print("subscribed", flush=True)
    print(json.dumps(asdict(subscribers.receive())), flush=True)


if __name__ == "__main__":
    main()
