"""Writes the offsets of many groups, or loads them, in a process of its own; prints figures.

python -m tests.broker.load_groups write DIR 10000 100
python -m tests.broker.load_groups load DIR 10000 100
"""

import asyncio
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from waystation.broker.broker import Broker
from waystation.cluster.topics import TopicSpec
from waystation.groups.commands import Commit, OffsetToCommit
from waystation.groups.machine import Groups
from waystation.node.node import Node
from waystation.node.settings import load

TOPICS = 10


def main(mode: str, path: str, groups: int, offsets: int, partitions: int) -> None:
    options = {
        "listen": "127.0.0.1:0",
        "http": "none",
        "log.dirs": path,
        "offsets.topic.num.partitions": str(partitions),
    }
    node = Node(load([("test", options)]))
    work = {"write": write, "load": measure}[mode]
    json.dump(asyncio.run(live(node, work, groups, offsets)), sys.stdout)


async def live(node: Node, work: Any, groups: int, offsets: int) -> dict[str, float]:
    try:
        before_mb = resident_mb()
        found: dict[str, float] = await work(node, groups, offsets)
        return {**found, "before_mb": before_mb}
    finally:
        await node.stop()


async def write(node: Node, groups: int, offsets: int) -> dict[str, float]:
    """Commit: a hundred partitions of ten topics for each group."""
    await node.start()
    broker = node.broker
    specs = [TopicSpec(f"topic-{number}", offsets // TOPICS, 1) for number in range(TOPICS)]
    await broker.topics.create(specs)
    await broker.groups.find("any")
    await loaded(broker)
    for first in range(0, groups, 200):
        await asyncio.gather(
            *(commit(broker, number, offsets) for number in range(first, min(first + 200, groups)))
        )
    return {}


async def commit(broker: Broker, number: int, offsets: int) -> None:
    group = f"group-{number:06}"
    host = broker.groups.host_of(group)
    positions = tuple(
        OffsetToCommit(f"topic-{n % TOPICS}", n // TOPICS, number * n, 0, "")
        for n in range(offsets)
    )
    command = Commit(group, -1, "", None, -1, positions)
    await host.ask(lambda now, to: host.machine.commit(now, command, to))


async def measure(node: Node, groups: int, offsets: int) -> dict[str, float]:
    """Start, and wait until every partition is loaded; how late the loop was meanwhile."""
    gc.collect()
    before_mb, began_s, worst_s = resident_mb(), time.perf_counter(), 0.0
    cpu_began_s = time.process_time()
    await node.start()
    while node.broker.groups.loading:
        asked_s = time.perf_counter()
        await asyncio.sleep(0)
        worst_s = max(worst_s, time.perf_counter() - asked_s)
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    grown_mb = resident_mb() - before_mb
    held = sum(count(machine) for machine in node.broker.groups.machines())
    assert held == groups * offsets, f"{held} offsets were loaded, not {groups * offsets}"
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_s,
        "grown_mb": grown_mb,
        "stall_ms": worst_s * 1_000,
    }


def count(machine: Groups) -> int:
    return sum(1 for _ in machine.committed_offsets())


async def loaded(broker: Broker) -> None:
    while broker.groups.loading or not broker.groups.machines():
        await asyncio.sleep(0.01)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
