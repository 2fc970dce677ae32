"""Which event loop a process runs on: uvloop where it is installed, else the standard one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop of the fastest kind there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end on a fresh loop, and end everything it left behind."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
