"""What can happen to a cluster, by chance and by a seed: everything that chaos tests let happen.

A fault strikes, lasts for a while, and is healed; several may last at a time, and nothing keeps the
cluster alive meanwhile.  ``heal`` ends them all.  What happened is noted for whoever reads the
histories, and counted.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.support.cluster import ProcessCluster
from tests.support.links import BOTH, CLIENTS, STORE

_WAIT_S: Final = (0.2, 2.0)
_LASTING_MAX: Final = 3
_HEALED: Final = 0.5
"""The chance that something is healed rather than that more strikes."""
_BAD_WORDS: Final = ("task.crashed", "request.failed", "Traceback")

Heal = Callable[[], None]


def by_chance() -> random.Random:
    """Luck that can be had again: by ``WAYSTATION_SEED``."""
    seed = int(os.environ.get("WAYSTATION_SEED") or random.randrange(1 << 32))
    print(f"seed {seed}")  # noqa: T201, pytest shows it when the test fails
    return random.Random(seed)


def complaints_of(cluster: ProcessCluster) -> list[str]:
    """What brokers said that they should not have to say."""
    return [
        f"broker {number}: {line[:2_000]}"
        for number in cluster.ids
        for line in cluster.log_of(number).splitlines()
        if any(word in line for word in _BAD_WORDS)
    ]


class Havoc:
    """Strikes a cluster."""

    def __init__(
        self,
        cluster: ProcessCluster,
        chance: random.Random,
        note: Callable[[str], None],
        *,
        weights: Mapping[str, int] | None = None,
        others: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        """``others`` are blows to whoever uses the cluster; ``weights`` leaves out what is 0."""
        self.strikes = Counter[str]()
        self._cluster, self._chance, self._note = cluster, chance, note
        self._others = dict(others or {})
        self._lasting: dict[str, tuple[float, Heal]] = {}
        self._blows: dict[str, Callable[[], tuple[str, Heal] | None]] = {
            "kill": self._kill,
            "kill all": self._kill_all,
            "restart": self._restart,
            "pause": self._pause,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "isolate": self._isolate,
            "cut off from store": self._cut_off_from_store,
            "cut clients off": self._cut_clients_off,
            "slow": self._slow,
            "reset": self._reset,
            "kill store": self._kill_store,
            "pause store": self._pause_store,
            "fill disk": self._fill_disk,
        }
        usual = dict.fromkeys(self._blows, 2) | {"kill": 6, "kill all": 1, "pause": 4}
        usual |= {"fill disk": 2 if cluster.disk == "faulty" else 0}
        self._weights = usual | dict.fromkeys(self._others, 2) | dict(weights or {})

    def during(self, duration_s: float) -> None:
        """Let one thing after the other happen, at moments that nobody expects."""
        deadline = time.monotonic() + duration_s
        while time.monotonic() < deadline:
            time.sleep(self._chance.uniform(*_WAIT_S))
            self.check()
            full = len(self._lasting) >= _LASTING_MAX
            if full or (self._lasting and self._chance.random() < _HEALED):
                self._heal_one(self._chance.choice(list(self._lasting)))
            else:
                self.strike()

    def strike(self) -> None:
        """One blow, of those that can be now."""
        names = [name for name, weight in self._weights.items() if weight]
        weights = [self._weights[name] for name in names]
        name = self._chance.choices(names, weights)[0]
        if name in self._others:
            self.strikes[name] += 1
            self._others[name]()
            return
        struck = self._blows[name]()
        if struck is None:
            return
        what, heal = struck
        self.strikes[name] += 1
        if what in self._lasting:
            return
        self._note(f"{what} begins")
        self._lasting[what] = (time.monotonic(), heal)

    def heal(self) -> None:
        """Let everything be well again."""
        for name in list(self._lasting):
            self._heal_one(name)
        self.check()

    def check(self) -> None:
        """Brokers end when they are ended, not by themselves, and nothing crashes in them."""
        for number in self._cluster.running:
            alive = self._cluster.brokers[number].is_alive
            assert alive, f"broker {number} is gone: {self._cluster.log_of(number)[-4_000:]}"

    def complaints(self) -> list[str]:
        """What brokers said that they should not have to say."""
        return complaints_of(self._cluster)

    # --- healing --------------------------------------------------------------------------------

    def _heal_one(self, what: str) -> None:
        if what not in self._lasting:
            return
        since, heal = self._lasting.pop(what)
        heal()
        self._note(f"{what} is over, after {time.monotonic() - since:.1f} s")

    def _start(self, *numbers: int) -> None:
        """Start brokers; who starts needs the store."""
        for what in list(self._lasting):
            if STORE in what:
                self._heal_one(what)
        self._cluster.start(*(one for one in numbers if one not in self._cluster.running))

    # --- blows ----------------------------------------------------------------------------------

    def _kill(self) -> tuple[str, Heal] | None:
        if not (number := self._somebody()):
            return None
        self._cluster.kill(number)
        return f"death of {number}", lambda: self._start(number)

    def _kill_all(self) -> tuple[str, Heal] | None:
        numbers = sorted(self._cluster.running)
        if not numbers:
            return None
        self._cluster.kill(*numbers)
        return f"death of all, {numbers}", lambda: self._start(*numbers)

    def _restart(self) -> tuple[str, Heal] | None:
        if self._is_store_troubled() or not (number := self._somebody()):
            return None
        self._note(f"{number} restarts")
        self._cluster.restart(number)
        return f"restart of {number}", lambda: None

    def _pause(self) -> tuple[str, Heal] | None:
        if not (number := self._somebody()):
            return None
        self._cluster.pause(number)

        def heal() -> None:
            if number in self._cluster.paused:
                self._cluster.resume(number)

        return f"pause of {number}", heal

    def _cut(self) -> tuple[str, Heal] | None:
        one, other = self._chance.sample(self._cluster.ids, 2)
        self._cluster.links.cut(one, other)
        self._cluster.links.cut(other, one)
        return f"cut between {one} and {other}", lambda: self._mend((one, other), (other, one))

    def _cut_one_way(self) -> tuple[str, Heal] | None:
        one, other = self._chance.sample(self._cluster.ids, 2)
        way = self._chance.choice(BOTH)
        self._cluster.links.cut(one, other, [way])
        return f"cut of {way} from {one} to {other}", lambda: self._mend((one, other))

    def _isolate(self) -> tuple[str, Heal] | None:
        """Only clients reach it: a leader who does not know that it leads no more."""
        number = self._chance.choice(self._cluster.ids)
        others = [one for one in self._cluster.ids if one != number]
        ends = [(number, one) for one in others] + [(one, number) for one in others]
        with_store = self._chance.random() < 0.5
        self._cluster.links.isolate(number, others, *([STORE] if with_store else []))
        also: list[tuple[int | str, int | str]] = [(number, STORE)] if with_store else []
        named = f"isolation of {number}" + (f", from the {STORE} too" if with_store else "")
        return named, lambda: self._mend(*ends, *also)

    def _cut_off_from_store(self) -> tuple[str, Heal] | None:
        number = self._chance.choice(self._cluster.ids)
        self._cluster.links.cut(number, STORE)
        return f"{number} cut off from the {STORE}", lambda: self._mend((number, STORE))

    def _cut_clients_off(self) -> tuple[str, Heal] | None:
        number = self._chance.choice(self._cluster.ids)
        self._cluster.links.cut(CLIENTS, number)
        return f"clients cut off from {number}", lambda: self._mend((CLIENTS, number))

    def _slow(self) -> tuple[str, Heal] | None:
        one, other = self._chance.sample(self._cluster.ids, 2)
        delay_s = self._chance.choice([0.02, 0.3])
        self._cluster.links.slow(one, other, delay_s=delay_s)
        return f"slowness from {one} to {other}", lambda: self._mend((one, other))

    def _reset(self) -> tuple[str, Heal] | None:
        source = self._chance.choice([CLIENTS, *self._cluster.ids])
        number = self._chance.choice(self._cluster.ids)
        self._cluster.links.reset(source, number)
        return f"reset from {source} to {number}", lambda: None

    def _kill_store(self) -> tuple[str, Heal] | None:
        if self._is_store_troubled():
            return None
        member = self._cluster.store[0]
        member.kill()

        def heal() -> None:
            member.start()
            self._cluster.store.wait()

        return f"death of the {STORE}", heal

    def _pause_store(self) -> tuple[str, Heal] | None:
        if self._is_store_troubled():
            return None
        member = self._cluster.store[0]
        member.pause()
        return f"pause of the {STORE}", member.resume

    def _fill_disk(self) -> tuple[str, Heal] | None:
        number = self._chance.choice(self._cluster.ids)
        self._cluster.fill_disk(number, self._chance.choice([0, 10_000]))
        return f"full disk of {number}", lambda: self._cluster.free_disk(number)

    def _somebody(self) -> int:
        """Somebody who runs, and is not paused."""
        running = sorted(self._cluster.running - self._cluster.paused)
        return self._chance.choice(running) if running else 0

    def _is_store_troubled(self) -> bool:
        return any(STORE in what for what in self._lasting)

    def _mend(self, *ends: tuple[int | str, int | str]) -> None:
        for source, target in ends:
            self._cluster.links.mend(source, target)
