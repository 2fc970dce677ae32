"""Scans take turns, find their pace, remember where nothing matches, and stop when told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apis.asking import Asking
from tests.apis.kit import ThreadedNode
from tests.apis.viewing import keyed
from waystation.broker.scanning import Scan, Scanner
from waystation.broker.views import ViewMeter, ViewPartition
from waystation.filters.narrowing import Narrowed, Stretch
from waystation.filters.selecting import Filter
from waystation.model.errors import CorruptBatchError, OffsetOutOfRangeError
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.runtime.clock import ManualClock
from waystation.telemetry.metrics import Registry

BATCHES = 12


class Collecting(Scan):
    """Counts matches, and what it was told."""

    def __init__(self, part: ViewPartition, at: int = 0) -> None:
        super().__init__(part, Offset(at), stable_only=False)
        self.matches = self.slices = self.rests = 0

    @property
    def goes_on(self) -> bool:
        return self.is_behind

    def took(self, narrowed: Narrowed, behind: Offset) -> None:
        self.matches += narrowed.matches
        self.slices += 1
        self.at = behind

    def rested(self) -> None:
        self.rests += 1


class Ticking(ManualClock):
    """Every slice takes a millisecond, however busy the machine is."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


class Turns:
    """A loop's turns, taken one by one."""

    def __init__(self) -> None:
        self._next: list[Callable[[], None]] = []
        self.scanner = Scanner(self._next.append, Ticking())

    def take(self, count: int = 1_000) -> int:
        """Up to so many turns; how many there were to take."""
        for number in range(count):
            if not self._next:
                return number
            self._next.pop(0)()
        return count


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A partition of which every fourth batch holds a match."""
    folder: Path = tmp_path_factory.mktemp("scanned")
    with ThreadedNode(folder / "data") as node:
        with Asking(*node.address) as client:
            client.create("base")
            for number in range(BATCHES):
                keys = ["no"] * 10
                if number % 4 == 3:
                    keys[5] = "yes"
                client.produce("base", keyed(*keys, filler=2_000))
        yield node.node.broker.replicas.get("base", 0)


def view_of(base: Partition, window_bytes: int = 16 << 10) -> ViewPartition:
    part = ViewPartition(base, Filter("key = 'yes'"), ViewMeter(Registry()))
    part.window_bytes = window_bytes
    return part


def test_scans_take_turns(base: Partition) -> None:
    turns = Turns()
    one, two = Collecting(view_of(base)), Collecting(view_of(base))
    turns.scanner.start(one)
    turns.scanner.start(two)
    turns.take(6)

    assert (one.slices, two.slices) == (3, 3)

    turns.take()

    assert (one.matches, two.matches) == (3, 3)
    assert (one.rests, two.rests) == (1, 1)
    assert not one.running


def test_starting_one_that_runs_is_harmless(base: Partition) -> None:
    turns, scan = Turns(), Collecting(view_of(base))
    turns.scanner.start(scan)
    turns.scanner.start(scan)
    turns.take()

    assert (scan.matches, scan.rests) == (3, 1)


def test_what_holds_no_match_is_not_looked_at_again(base: Partition) -> None:
    turns, part = Turns(), view_of(base)
    turns.scanner.start(Collecting(part))
    turns.take()
    before = part.meter.scanned_bytes.value
    part.window_bytes = 1 << 20
    again = Collecting(part)
    turns.scanner.start(again)
    turns.take()

    assert part.gaps.stretches == [
        Stretch(Offset(start), Offset(end)) for start, end in [(0, 30), (40, 70), (80, 110)]
    ]
    assert again.matches == 3
    assert again.slices == 3
    assert part.meter.scanned_bytes.value - before < before // 3


def test_who_goes_away_is_not_looked_for_any_more(base: Partition) -> None:
    turns, scan = Turns(), Collecting(view_of(base))
    turns.scanner.start(scan)
    turns.take(1)
    scan.given_up = True
    turns.take()

    assert (scan.slices, scan.rests) == (1, 0)


def test_what_cannot_be_read_is_told(base: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, part = Turns(), view_of(base)
    beyond, damaged = Collecting(part, -5), Collecting(part)
    turns.scanner.start(beyond)
    turns.take()

    def broken(*_: object) -> None:
        raise CorruptBatchError("bits have flipped")

    monkeypatch.setattr(type(part.narrowing), "take", broken)
    turns.scanner.start(damaged)
    turns.take()

    assert isinstance(beyond.error, OffsetOutOfRangeError)
    assert isinstance(damaged.error, CorruptBatchError)
    assert (beyond.rests, damaged.rests) == (1, 1)


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), OSError(5, "the disk's")])
def test_whatever_fails_the_reader_is_told(
    base: Partition, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    turns, part = Turns(), view_of(base)
    scan = Collecting(part)

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(part.narrowing), "take", failing)
    turns.scanner.start(scan)
    turns.take()

    assert scan.error is not None
    assert str(error) in str(scan.error)
    assert (scan.rests, scan.running) == (1, False)


def test_another_epoch_forgets_what_was_known(base: Partition) -> None:
    turns, part = Turns(), view_of(base)
    turns.scanner.start(Collecting(part))
    turns.take()
    assert len(part.gaps) == 3

    leadership = base.leadership
    base.leadership = leadership._replace(epoch=LeaderEpoch(leadership.epoch + 1))
    try:
        assert len(part.gaps) == 0
    finally:
        base.leadership = leadership


@pytest.mark.parametrize(
    ("took_s", "nbytes", "window_bytes", "is_slow"),
    [
        (0.0001, 128 << 10, 256 << 10, False),
        (0.0001, 10, 128 << 10, False),
        (0.0010, 128 << 10, 128 << 10, False),
        (0.0040, 128 << 10, 64 << 10, False),
        (0.0001, 300 << 10, 128 << 10, False),
        (0.0040, 300 << 10, 128 << 10, True),
    ],
)
def test_a_slice_is_sized_by_how_long_the_last_one_took(
    base: Partition, took_s: float, nbytes: int, window_bytes: int, is_slow: bool
) -> None:
    part = view_of(base, 128 << 10)
    part.adjust(took_s, nbytes)

    assert (part.window_bytes, part.is_slow) == (window_bytes, is_slow)


def test_a_slice_is_never_too_small_nor_too_large(base: Partition) -> None:
    part = view_of(base)
    for _ in range(20):
        part.adjust(1.0, 1)

    assert (part.window_bytes, part.is_slow) == (16 << 10, True)

    for _ in range(20):
        part.adjust(0.0, part.window_bytes)

    assert (part.window_bytes, part.is_slow) == (1 << 20, False)
