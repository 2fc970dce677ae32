"""The client's side of a conversation: what it says, understood, and answered in any order.

Whatever a client says, no more than some answers are under way at once, and none is made for who
does not read: then it is not listened to either.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from waystation.gateway.bodies import Disconnected
from waystation.gateway.checking import decoded
from waystation.gateway.problems import ProblemError, problem_of, refusal
from waystation.gateway.sockets import Socket, error_frame
from waystation.gateway.sockets_frames import ref_in
from waystation.model.errors import WaystationError
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

__all__ = ["Credits", "Talk", "until_first"]

_events = get_logger("gateway")
_ANSWERS: Final = 256
_MOST_CREDIT: Final = 1_000_000


class Credits:
    """How many messages a client still takes."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.changed = asyncio.Event()

    def grant(self, messages: int) -> None:
        """So many more."""
        check_credit(self.left, messages)
        self.left += messages
        self.changed.set()


def check_credit(left: int, messages: int) -> None:
    """Refuse credit without bounds."""
    if left + messages > _MOST_CREDIT:
        raise refusal(
            400,
            "too-much-credit",
            f"{left} messages may be pushed already, at most {_MOST_CREDIT} at once",
            field="messages",
            remedy="grant more when messages have come",
        )


class Talk:
    """Hears a client; ``answer`` says what is to be done about each thing it says."""

    def __init__(self, socket: Socket, said: Any, answer: Callable[[Any], Awaitable[Any]]) -> None:
        self._socket, self._answer = socket, answer
        self._decode = msgspec.json.Decoder(said).decode
        self._answering = Tasks()
        self._slots = asyncio.Semaphore(_ANSWERS)

    async def hear(self) -> None:
        """Listen until the client is gone."""
        try:
            while True:
                await self._take(await self._socket.receive())
        except Disconnected:
            return
        finally:
            await self._answering.aclose()

    async def _take(self, said: bytes) -> None:
        try:
            frame = decoded(self._decode, said)
        except ProblemError as error:
            await self._socket.say(error_frame(error.problem, ref_in(said)))
            return
        if self._socket.wire.is_paused:
            await self._socket.wire.drained()
        await self._slots.acquire()
        self._answering.spawn(self._answered(frame), "socket-answer")

    async def _answered(self, frame: Any) -> None:
        try:
            told = await self._answer(frame)
        except ProblemError as error:
            told = error_frame(error.problem, frame.ref)
        except WaystationError as error:
            told = error_frame(problem_of(error), frame.ref)
        except Exception as error:  # an answer's outermost frame
            _events.error("socket.answer.failed", exc_info=error)
            told = error_frame(_broken(error).problem, frame.ref)
        finally:
            self._slots.release()
        if told is not None:
            await self._socket.say(told)


def _broken(error: Exception) -> ProblemError:
    return refusal(
        500,
        "internal-error",
        f"the gateway failed: {type(error).__name__}",
        remedy="look into the log of the node, and report what you find there",
    )


async def until_first(*works: Awaitable[None]) -> None:
    """Run all until one ends, and end the others; raises what the one has failed with."""
    tasks = [asyncio.ensure_future(one) for one in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
