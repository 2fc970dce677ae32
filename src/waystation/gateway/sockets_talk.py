"""The client's side of a conversation: what it says, understood, and answered in any order.

Whatever a client says, no more than some answers are under way at once, and none is made for who
does not read: then it is not listened to either.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from waystation.gateway.bodies import Disconnected
from waystation.gateway.checking import NOT_JSON, decoded
from waystation.gateway.problems import ProblemError, problem_of, refusal
from waystation.gateway.sockets import Socket, error_frame
from waystation.gateway.sockets_frames import Credit, ref_in
from waystation.model.errors import WaystationError
from waystation.runtime.tasks import Tasks
from waystation.telemetry.logs import get_logger

__all__ = ["Credits", "Talk", "until_first"]

_events = get_logger("gateway")
_ANSWERS: Final = 256
_LONGEST_CREDIT: Final = 100  # bytes, with a short ref
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
    """Hears a client; ``answer`` says what is to be done about each thing it says but credit."""

    def __init__(
        self,
        socket: Socket,
        said: Any,
        grant: Callable[[int], None],
        answer: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._socket, self._grant, self._answer = socket, grant, answer
        self._decode = msgspec.json.Decoder(said).decode
        self._answering = Tasks()
        self._slots = asyncio.Semaphore(_ANSWERS)

    async def hear(self) -> None:
        """Listen until the client is gone."""
        self._socket.wire.on_said = self._take_credit
        try:
            while True:
                await self._take(await self._socket.receive())
        except Disconnected:
            return
        finally:
            self._socket.wire.on_said = None
            await self._answering.aclose()

    def _take_credit(self, said: bytes) -> bool:
        """Take plain credit at once, whoever else is waited for; all else is heard in its turn."""
        if len(said) > _LONGEST_CREDIT:
            return False
        try:
            frame = self._decode(said)
            if not isinstance(frame, Credit):
                return False
            self._grant(frame.messages)
        except (*NOT_JSON, ProblemError):
            return False
        return True

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
            if isinstance(frame, Credit):
                self._grant(frame.messages)
                return
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
