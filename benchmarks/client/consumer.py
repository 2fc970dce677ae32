"""How many messages of 100 B one process reads: alone and in a group, by ``poll`` and one by one.

    python -m benchmarks.client.consumer [--bootstrap HOST:PORT] [--count N]

Without --bootstrap it starts a broker of ours for the run.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.client.producer import produced

from waystation import Consumer
from waystation.runtime.loops import run
from waystation.testing.process import BrokerProcess

_TOPIC = "messages"
_POLLED = 100
_KINDS = ("alone", "at-least-once", "at-most-once")


async def consumed(bootstrap: str, kind: str, one_by_one: bool, count: int) -> float:
    """Messages a second from the first that came."""
    group = None if kind == "alone" else f"{kind}-{one_by_one}-{time.time_ns()}"
    delivery = "at-least-once" if group is None else kind
    async with Consumer(group, _TOPIC, bootstrap=bootstrap, delivery=delivery) as consumer:
        read = len(await consumer.poll(timeout_ms=10_000, max_messages=1))
        began = time.perf_counter()
        if one_by_one:
            async for _ in consumer:
                read += 1
                if read == count:
                    break
        while read < count:
            read += len(await consumer.poll(max_messages=_POLLED))
        return count / (time.perf_counter() - began)


async def measure(bootstrap: str, count: int) -> None:
    """Print one line per case."""
    await produced(bootstrap, _TOPIC, count, 0, "none")
    for kind in _KINDS:
        for one_by_one in (False, True):
            rate = await consumed(bootstrap, kind, one_by_one, count)
            how = "async for" if one_by_one else f"poll {_POLLED}"
            print(f"{kind:15} {how:10} {rate:12,.0f} messages/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap")
    parser.add_argument("--count", type=int, default=200_000)
    given = parser.parse_args()
    if given.bootstrap:
        run(measure(given.bootstrap, given.count))
        return
    with tempfile.TemporaryDirectory() as root:
        options = {"group.initial.rebalance.delay.ms": "0"}
        with BrokerProcess(Path(root) / "data", options=options).start() as broker:
            run(measure(broker.bootstrap, given.count))


if __name__ == "__main__":
    main()
