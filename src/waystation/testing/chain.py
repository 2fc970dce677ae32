"""A chain of stages that read, process and write, each a program of its own, to be killed.

    with Chain(broker.bootstrap, folder, Random(seed)) as chain:
        chain.kill_somebody()
        broker.kill()
        ...
        chain.finish().demand()

Writers send keyed values to the first topic, in transactions; each stage moves what it reads on to
the next topic, in transactions that it takes part of its group's offsets into.  Both abort some.
At the end, whoever was killed and whenever:

1. the checker finds nothing in what all of them wrote down (``checker.py``);
2. the last topic holds exactly what was made of each message of the first, once, and of each key
   in the same order.
"""

import asyncio
import contextlib
import math
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain as chained
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from waystation.client.admin import Admin
from waystation.client.message import Message
from waystation.runtime.loops import run
from waystation.testing.checker import Verdict, check
from waystation.testing.history import Diary, HistoryFile, read_histories
from waystation.testing.processors import Step, origin_of, process
from waystation.testing.programs import Program
from waystation.testing.readers import read_to_end
from waystation.testing.workload import lives
from waystation.testing.writers import Pace, Target, write_transactions

__all__ = ["Chain", "Outcome", "differences"]

STAGES = 3
PARTITIONS = 3
_WRITERS = 2
_ABORTS = 0.1
_SESSION_TIMEOUT_MS = 2_000
_PATIENCE_S = 90.0
_LOOK_EVERY_S = 0.2
_COMMITTED_MIN = 20
_OURS = "waystation.testing.chain"
_SHOWN = 10


class Outcome(NamedTuple):
    """What became of a chain."""

    inputs: int
    verdict: Verdict
    differences: list[str]
    deaths: Counter[str]

    def demand(self) -> None:
        """Raise unless each input was transformed exactly once, in order."""
        wrong = [*map(str, self.verdict.findings), *self.differences]
        more = len(wrong) - _SHOWN
        listed = [*wrong[:_SHOWN], f"and {more} more"] if more > 0 else wrong
        assert not wrong, "\n".join(listed)
        assert self.verdict.complete, "somebody did not read to the end"


class Chain:
    """Writers and stages between topics ``NAME-0`` to ``NAME-3``; one that is killed comes back."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        chance: Random,
        *,
        name: str = "chain",
        instances: int = 1,
        messages_per_s: float = 200.0,
        modules: Mapping[int, str] | None = None,
    ) -> None:
        """Each stage has ``instances``, which share its work; histories go to ``folder``.

        ``modules`` names programs to run instead of this one, by the stage's number from 1 on.
        """
        self.folder, self.deaths = folder, Counter[str]()
        self.topics = [f"{name}-{number}" for number in range(STAGES + 1)]
        self._bootstrap, self._chance = bootstrap, chance
        self._fate = HistoryFile(folder / "fate.jsonl")
        self._diary = Diary("fate", self._fate.write)
        rate = str(messages_per_s / _WRITERS)
        self._writers = [
            self._program(f"w{n}", "write", self.topics[0], rate) for n in range(_WRITERS)
        ]
        self._stages = [
            [
                self._program(
                    f"s{n}{letter}",
                    "process",
                    str(n),
                    *self.topics[n - 1 : n + 1],
                    module=(modules or {}).get(n, _OURS),
                )
                for letter in "abcdefgh"[:instances]
            ]
            for n in range(1, STAGES + 1)
        ]

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        run(_create(self._bootstrap, self.topics))
        for program in self._all():
            program.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program in self._all():
            program.kill()
        self._fate.close()

    def note(self, text: str) -> None:
        """Keep in the history what else happened."""
        self._diary.note(text)

    def kill_somebody(self) -> None:
        """End a writer or a stage by kill -9; it is started again at once or with the next."""
        program = self._somebody()
        self.note(f"{program.name} dies")
        program.kill()
        self.deaths["writers" if program in self._writers else "stages"] += 1
        if self._chance.random() < 0.7:
            self.revive()

    def freeze_somebody(self) -> None:
        """Stop a writer or stage where it is, to go on later as if no time had passed.

        Meanwhile its group may have given its partitions to another instance, and its transaction
        may have been aborted: it must not have any effect then.
        """
        self._thaw()
        program = self._somebody()
        self.note(f"{program.name} freezes")
        program.freeze()
        self.deaths["frozen"] += 1

    def revive(self) -> None:
        """Start all again that are dead; one that ended by itself is a failure."""
        for program in self._all():
            if not program.is_alive:
                program.start()

    def finish(self) -> Outcome:
        """Let everything come to its end: the writers, then one stage after the other.

        The writers go on until they have done enough to prove something, however little the deaths
        before let them do.
        """
        self._thaw()
        self.revive()
        self._await_enough()
        for writer in self._writers:
            writer.finish()
        for first, *others in self._stages:
            for other in others:
                other.leave()
            first.finish()
        last = Diary("last", self._fate.write)
        messages = run(read_to_end(self._bootstrap, self.topics, last, _PATIENCE_S))
        inputs = [one for one in messages if one.topic == self.topics[0]]
        outputs = [one for one in messages if one.topic == self.topics[-1]]
        verdict = check(read_histories(sorted(self.folder.glob("*.jsonl"))))
        return Outcome(len(inputs), verdict, differences(inputs, outputs), self.deaths)

    # --- behind the scenes ------------------------------------------------------------------

    def _somebody(self) -> Program:
        if not any(one.is_alive for one in self._all()):
            self.revive()
        return self._chance.choice([one for one in self._all() if one.is_alive])

    def _await_enough(self) -> None:
        """Wait until many transactions of writers were committed, and some aborted."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            written = [one.read_text() for one in self.folder.glob("w*.jsonl")]
            committed, aborted = (
                sum(text.count(f'"committed":{what}') for text in written)
                for what in ("true", "false")
            )
            if committed >= _COMMITTED_MIN and aborted:
                return
            assert time.monotonic() < deadline_s, (
                f"writers committed {committed} transactions and aborted {aborted}, no more"
            )
            time.sleep(_LOOK_EVERY_S)

    def _thaw(self) -> None:
        for program in self._all():
            if program.is_alive:
                program.thaw()

    def _all(self) -> list[Program]:
        return [*self._writers, *chained.from_iterable(self._stages)]

    def _program(self, name: str, *arguments: str, module: str = _OURS) -> Program:
        return Program(self.folder, name, self._bootstrap, ("-m", module, *arguments))


def differences(inputs: Sequence[Message], outputs: Sequence[Message]) -> list[str]:
    """Where the last topic is not the first, transformed; both in the order of their offsets."""
    through = "".join(f">{number}" for number in range(1, STAGES + 1))
    wanted, found = _by_key(inputs), _by_key(outputs)
    told: list[str] = []
    for key in wanted | found:
        expected = [f"{one}{through}" for one in wanted.get(key, ())]
        got = found.get(key, [])
        if got != expected:
            told += _explained(key, expected, got)
    return told


def _by_key(messages: Iterable[Message]) -> dict[bytes | None, list[str]]:
    found: dict[bytes | None, list[str]] = defaultdict(list)
    for message in messages:
        found[message.key].append(origin_of(message))
    return found


def _explained(key: bytes | None, expected: list[str], got: list[str]) -> Iterator[str]:
    wanted, there = Counter(expected), Counter(got)
    for one in wanted - there:
        yield f"{one} of key {key!r} is missing"
    for one in there - wanted:
        yield f"{one} of key {key!r} is there {there[one]} times, {wanted[one]} were due"
    if wanted == there:
        first = next(
            n for n, pair in enumerate(zip(expected, got, strict=True)) if len({*pair}) > 1
        )
        yield f"{got[first]} of key {key!r} comes where {expected[first]} was due"


async def _create(bootstrap: str, topics: Iterable[str]) -> None:
    async with Admin(bootstrap) as admin:
        for topic in topics:
            await admin.create_topic(topic, PARTITIONS)


# --- what runs in a process of its own -----------------------------------------------------------


async def _write(name: str, life: str, file: HistoryFile, bootstrap: str, *how: str) -> None:
    topic, messages_per_s = how
    pace = Pace(Random(life), float(messages_per_s), math.inf)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, pace, "until_s", 0.0)
    target = Target(bootstrap, [topic], None)
    Diary(life, file.write).note("begins")

    async def live(diary: Diary) -> None:
        await write_transactions(target, diary, pace, name, _ABORTS)

    await lives(life, file.write, live, math.inf)


async def _process(name: str, life: str, file: HistoryFile, bootstrap: str, *how: str) -> None:
    number, source, target = how
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    Diary(life, file.write).note("begins")
    group = f"{target}-makers"
    step = Step(bootstrap, int(number), group, [source], target, name, _ABORTS, _SESSION_TIMEOUT_MS)

    async def live(diary: Diary) -> None:
        await process(step, diary, Random(diary.process), told.is_set)

    await lives(life, file.write, live, math.inf)


def main(arguments: Sequence[str]) -> None:
    """A writer's or a stage's life."""
    role, *how, bootstrap, name, life, path = arguments
    work = {"write": _write, "process": _process}[role]
    with HistoryFile(Path(path)) as file, contextlib.suppress(KeyboardInterrupt):
        run(work(name, life, file, bootstrap, *how))


if __name__ == "__main__":
    main(sys.argv[1:])
