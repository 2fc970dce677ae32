"""Publishes at a steady rate: ``python -m benchmarks.push.publishing``, a process of its own.

Message *i* of a stream is due at ``start + i / rate``; streams take turns, so that they are spread
over the time between two messages of one.  What is due is handed over at once, and a message counts
from when it was due, so that a publisher that is held up hides nothing.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from benchmarks.push.dialects import Publisher, dialects
from benchmarks.push.marks import message

_AHEAD_NS = 200_000_000
_MOST_AT_ONCE = 200


@dataclass(frozen=True)
class Wanted:
    """``count`` messages to each stream, ``per_second`` of each; ``skipped`` are a warm-up."""

    dialect: str
    port: int
    streams: int
    per_second: float
    count: int
    skipped: int = 0


@dataclass(frozen=True)
class Published:
    """How late the publisher itself was."""

    late_p99_ms: float
    cpu_s: float


def publish(wanted: Wanted, publisher: Publisher) -> Published:
    """All of them, each when it is due."""
    step_ns = 1e9 / wanted.per_second / wanted.streams
    begin_ns, began_s = time.monotonic_ns() + _AHEAD_NS, time.process_time()
    late_ns, sent, total = [], 0, wanted.count * wanted.streams
    while sent < total:
        now_ns = time.monotonic_ns()
        end = min(int((now_ns - begin_ns) / step_ns) + 1, total, sent + _MOST_AT_ONCE)
        if end <= sent:
            time.sleep((begin_ns + sent * step_ns - now_ns) / 1e9)
            continue
        due = []
        for turn in range(sent, end):
            number, stream = divmod(turn, wanted.streams)
            due_ns = int(begin_ns + turn * step_ns)
            due.append((stream, message(due_ns, number)))
            if number >= wanted.skipped:
                late_ns.append(now_ns - due_ns)
        publisher.publish(due)
        sent = end
    publisher.settle()
    late_ns.sort()
    return Published(late_ns[len(late_ns) * 99 // 100] / 1e6, time.process_time() - began_s)


def main() -> None:
    """Publish, tell."""
    wanted = Wanted(**json.loads(sys.argv[1]))
    told = publish(wanted, dialects()[wanted.dialect].publisher(wanted.port))
    print(json.dumps(asdict(told)), flush=True)


if __name__ == "__main__":
    main()
