"""What a deadline costs that is set and cancelled, beside the loop's own timers.

Run: python benchmarks/runtime/timers.py
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import uvloop

from waystation.runtime.clock import SystemClock
from waystation.runtime.timers import Timers

WAITING, ROUNDS = 5_000, 200_000


class Cancellable(Protocol):
    def cancel(self) -> None: ...


async def cost_ns(call_later: Callable[[float, Callable[[], None]], Cancellable]) -> float:
    """Nanoseconds to set one deadline and cancel another while thousands wait."""

    def nothing() -> None:
        pass

    waiting = [call_later(5 + i % 500 / 100, nothing) for i in range(WAITING)]
    start = time.perf_counter()
    for i in range(ROUNDS):
        waiting[i % WAITING].cancel()
        waiting[i % WAITING] = call_later(5 + i % 500 / 100, nothing)
    took = time.perf_counter() - start
    for handle in waiting:
        handle.cancel()
    return took / ROUNDS * 1e9


async def main() -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    return await cost_ns(Timers(SystemClock()).call_later), await cost_ns(loop.call_later)


if __name__ == "__main__":
    for name, factory in (("stdlib", asyncio.new_event_loop), ("uvloop", uvloop.new_event_loop)):
        with asyncio.Runner(loop_factory=factory) as runner:
            ours, theirs = runner.run(main())
        print(f"{name}: set and cancel {ours:5.0f} ns, the loop's own timer {theirs:5.0f} ns")
