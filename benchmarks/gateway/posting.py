"""POSTs at a steady rate until its input ends: ``python -m benchmarks.gateway.posting``.

A process of its own, sockets and epoll without a loop of tasks: cores are few, and what it takes of
them is missing where something is measured beside it.  POST *i* is due at ``begin + i / rate``, and
its latency counts from then; with no connection free it waits here, and that counts too.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from array import array
from collections import deque

from tests.support.http_load import Latencies, post

_CONNECTIONS = 64
_OK, _END = b"HTTP/1.1 2", b"}"


class Posting:
    """One request, over and over."""

    def __init__(self, address: str, request: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._request = request
        self._poll = select.epoll()
        self._by_fd: dict[int, socket.socket] = {}
        for _ in range(_CONNECTIONS):
            one = socket.create_connection((host, int(port)))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._by_fd[one.fileno()] = one
            self._poll.register(one, select.EPOLLIN)
        self._free = list(self._by_fd)
        self._due: deque[float] = deque()
        self._waiting: dict[int, float] = {}
        self._begun: dict[int, bytes] = {}
        self.seconds = array("d")

    def run(self, rate: int) -> float:
        """Until the input ends; how many were answered a second."""
        told = sys.stdin.fileno()
        self._poll.register(told, select.EPOLLIN)
        begin, planned, has_begun = time.monotonic(), 0, False
        while True:
            for fd, _ in self._poll.poll(max(begin + planned / rate - time.monotonic(), 0)):
                if fd == told:
                    return len(self.seconds) / (time.monotonic() - begin)
                self._answered(fd)
            due = int((time.monotonic() - begin) * rate) + 1
            self._due.extend(begin + number / rate for number in range(planned, due))
            planned = max(due, planned)
            while self._due and self._free:
                self._ask(self._free.pop(), self._due.popleft())
            if not has_begun and len(self.seconds) >= rate:
                print("posting", flush=True)
                has_begun = True

    def _ask(self, fd: int, due: float) -> None:
        self._waiting[fd] = due
        self._by_fd[fd].sendall(self._request)

    def _answered(self, fd: int) -> None:
        answer = self._begun.pop(fd, b"") + self._by_fd[fd].recv(65_536)
        if not answer.startswith(_OK):
            raise RuntimeError(f"the node refuses: {answer[:500]!r}")
        if not answer.endswith(_END):
            self._begun[fd] = answer
            return
        self.seconds.append(time.monotonic() - self._waiting.pop(fd))
        self._free.append(fd)


def main() -> None:
    """Post, tell."""
    address, path, body, rate = sys.argv[1:]
    posting = Posting(address, post(path, body.encode()))
    answered = posting.run(int(rate))
    told = Latencies.of(posting.seconds)
    found = {"rate": answered, "p50_ms": told.p50, "p99_ms": told.p99, "max_ms": told.most}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
