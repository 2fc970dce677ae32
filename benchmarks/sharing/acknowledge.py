"""What a message costs a queue's machine: acquired, acknowledged, and written as a change.

Run: python benchmarks/sharing/acknowledge.py

Shapes: how many messages a consumer takes at once, whether it acknowledges them together or one
by one, in order or shuffled; and queues that choose, by key and by priority.
"""

from collections.abc import Callable
from random import Random
from time import process_time

from waystation.model.offsets import Millis, Offset
from waystation.sharing.ordered_partition import OrderedPartition, Shown
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.states import ACCEPT, Acknowledgement

NOW = Millis(1_700_000_000_000)
SHARE = ShareSettings()
CONSUMERS = 20


def plain(messages: int, at_once: int, per_ack: int, *, shuffled: bool) -> None:
    """Twenty consumers, each with one request out."""
    settings, random = QueueSettings(), Random(1)
    queue = SharePartition(Offset(0), lambda: settings, lambda: SHARE)
    end, held = Offset(messages), list[tuple[str, int, int]]()
    while queue.start < end:
        while len(held) < CONSUMERS and (first := queue.next_offset(NOW)) is not None:
            member = f"member-{len(held)}"
            for got in queue.acquire(NOW, member, at_once, first, end):
                held.append((member, got.first, got.end))
            if queue.end == end:
                break
        at = random.randrange(len(held)) if shuffled else 0
        member, begin, until = held.pop(at)
        for first_of in range(begin, until, per_ack):
            acked = Offset(min(first_of + per_ack, until))
            queue.acknowledge(NOW, member, [Acknowledgement(Offset(first_of), acked, ACCEPT)])
        if queue.take_change() is not None:
            queue.change_written()


def ordered(messages: int, at_once: int, keys: int, *, by_key: bool, priorities: bool) -> None:
    """The same with keys, and messages shown in batches of 500."""
    settings = QueueSettings(share_order="key" if by_key else "none", share_priority=priorities)
    random = Random(1)
    queue = OrderedPartition(Offset(0), lambda: settings, lambda: SHARE)
    shown = [
        Shown(Offset(offset), b"%d" % random.randrange(keys), random.randrange(10))
        for offset in range(messages)
    ]
    held: list[tuple[str, list[Acknowledgement]]] = []
    while queue.start < messages:
        while (first := queue.admits_from()) is not None and first < messages:
            end = Offset(min(first + 500, messages))
            queue.admit(end, shown[first:end])
        while len(held) < CONSUMERS:
            member = f"member-{len(held)}"
            got = queue.choose(NOW, member, at_once)
            if not got:
                break
            held.append((member, [Acknowledgement(one.first, one.end, ACCEPT) for one in got]))
        queue.acknowledge(NOW, *held.pop(random.randrange(len(held))))
        if queue.take_change() is not None:
            queue.change_written()


def report(name: str, messages: int, work: Callable[[], None]) -> None:
    """Print the messages per second of a processor's time."""
    began = process_time()
    work()
    spent = process_time() - began
    print(f"{name:<58} {messages / spent:>14,.0f} messages per CPU second")


def main() -> None:
    """Every shape once."""
    for at_once, per_ack in ((500, 500), (100, 100), (100, 1), (10, 10), (1, 1)):
        for shuffled in (False, True):
            messages = 200_000 if at_once > 10 else 40_000
            name = f"{at_once} at once, {per_ack} per ack, {'shuffled' if shuffled else 'in order'}"
            report(
                name,
                messages,
                lambda m=messages, a=at_once, p=per_ack, s=shuffled: plain(m, a, p, shuffled=s),
            )
    for by_key, priorities, name in (
        (True, False, "by key"),
        (False, True, "by priority"),
        (True, True, "by key and priority"),
    ):
        for keys in (100, 100_000):
            report(
                f"{name}, {keys:,} keys, 50 at once",
                40_000,
                lambda k=keys, b=by_key, p=priorities: ordered(
                    40_000, 50, k, by_key=b, priorities=p
                ),
            )


if __name__ == "__main__":
    main()
