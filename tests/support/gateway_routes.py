"""Routes of a gateway without a queue: one that answers, and one that waits to be told."""

import asyncio
from collections.abc import Callable

from waystation.gateway.routes import Call, Params, Route

EVENTS: list[str] = []
"""What happened at ``/wait``; whoever appends "go on" has it answered."""


class Echoed(Params, frozen=True):
    text: str


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def echo(call: Call[None, Echoed]) -> Echoed:
    return call.body


async def wait(_: Call[None, None]) -> None:
    EVENTS.append("began")
    try:
        await until(lambda: "go on" in EVENTS)
    finally:
        EVENTS.append("ended")


ECHO_AND_WAIT = [
    Route(
        method="POST",
        path="/echo",
        summary="Say it again",
        tag="t",
        handler=echo,
        body=Echoed,
        answer=Echoed,
    ),
    Route(method="GET", path="/wait", summary="Wait", tag="t", handler=wait),
    Route(method="POST", path="/wait", summary="Work", tag="t", handler=wait),
]
