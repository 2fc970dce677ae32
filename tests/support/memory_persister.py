"""A share coordinator in memory, which may be slow, deaf or wrong about what it did."""

from collections.abc import Callable

from waystation.model.errors import CoordinatorNotAvailableError, WaystationError
from waystation.model.machines import Outcome, Waiter
from waystation.model.offsets import Millis
from waystation.sharing.persister import Delete, Initialize, Read, Summarize, Write
from waystation.sharing.settings import ShareSettings
from waystation.sharing.state_machine import ShareStates
from waystation.sharing.state_records import StateRecord

_NOW = Millis(0)
Decide = Callable[[], Outcome[StateRecord]]


class MemoryPersister:
    """Follows commands at once; answers are given at once too, unless they are held back."""

    def __init__(self) -> None:
        self.states = ShareStates(ShareSettings)
        self.writes: list[Write] = []
        self.held: list[Callable[[], None]] | None = None
        """Answers that nobody has got yet, while they are held back."""
        self.failing: list[WaystationError] = []
        """What the next commands are answered with instead of being followed."""

    def initialize(self, command: Initialize, to: Waiter) -> None:
        self._follow(lambda told: self.states.initialize(_NOW, command, told), to)

    def read(self, command: Read, to: Waiter) -> None:
        self._follow(lambda told: self.states.read(_NOW, command, told), to)

    def write(self, command: Write, to: Waiter) -> None:
        self.writes.append(command)
        self._follow(lambda told: self.states.write(_NOW, command, told), to)

    def delete(self, command: Delete, to: Waiter) -> None:
        self._follow(lambda told: self.states.delete(_NOW, command, told), to)

    def summarize(self, command: Summarize, to: Waiter) -> None:
        self._follow(lambda told: self.states.summarize(_NOW, command, told), to)

    def hold(self) -> None:
        """Give no answers until ``answer``."""
        self.held = self.held or []

    def answer(self) -> None:
        """Give the answers that were held back, and others at once again."""
        held, self.held = self.held or [], None
        for give in held:
            give()

    def be_away(self, times: int = 1) -> None:
        """Be reached by nobody for so many commands."""
        self.failing += [CoordinatorNotAvailableError("away")] * times

    def _follow(self, decide: Callable[[Waiter], Outcome[StateRecord]], to: Waiter) -> None:
        if self.failing:
            error = self.failing.pop(0)
            self._give(lambda: to(error))
            return
        outcome = decide(to)
        for record in outcome.records:
            self.states.apply(record)
        for told, answer in outcome.replies:
            self._give(lambda told=told, answer=answer: told(answer))  # type: ignore[misc]

    def _give(self, run: Callable[[], None]) -> None:
        if self.held is None:
            run()
        else:
            self.held.append(run)
