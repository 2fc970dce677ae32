"""How long batches wait for the journal's next round: as the least patient of them says."""

import heapq
import itertools
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.model.errors import StorageError
from waystation.model.ids import TopicId
from waystation.model.offsets import Offset
from waystation.storage import journal as journal_module
from waystation.storage.disk import RealDisk
from waystation.storage.journal import Journal

TOPIC = TopicId(UUID(int=7))
SYNC_S = 0.0002
# What a batch may wait beyond its linger: for the round under way when it came.
SLACK_S = SYNC_S + 1e-9
LONGEST_UNTOLD_S = 0.003


class Life:
    """A journal on a clock of its own; a round takes ``SYNC_S``."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 100.0
        self.rounds: list[float] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.journal = Journal(
            RealDisk(),
            folder,
            submit=self._submit,
            background=lambda _work: None,
            post=lambda work: work(),
            defer=self.later,
            fail=pytest.fail,
        )

    def monotonic(self) -> float:
        return self.now_s

    def perf_counter(self) -> float:
        return self.now_s

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_s + seconds, next(self._order), work))

    def _submit(self, work: Callable[[], None]) -> None:
        self.rounds.append(self.now_s)
        self.later(SYNC_S, work)

    def run_until(self, moment_s: float) -> None:
        while self._due and self._due[0][0] <= moment_s:
            self.now_s, _, work = heapq.heappop(self._due)
            work()
        self.now_s = moment_s


class Writer:
    """A partition that remembers when each of its batches was safe."""

    flushed_end = Offset(0)

    def __init__(self, life: Life, linger_s: float | None) -> None:
        self.log_end = Offset(0)
        self.linger_s = linger_s
        self.added: list[float] = []
        self.safe: list[float] = []
        self._life = life

    def add(self, batch: bytes = b"x" * 100) -> None:
        self.log_end = Offset(self.log_end + 1)
        self.added.append(self._life.now_s)
        self._life.journal.add(self, TOPIC, 0, memoryview(batch), self.linger_s)

    def journaled(self, outcome: Offset | StorageError) -> None:
        assert not isinstance(outcome, StorageError)
        self.safe += [self._life.now_s] * (outcome - len(self.safe))

    def not_journaled(self) -> None:
        pytest.fail("there is room")

    def flush(self) -> None:
        self.flushed_end = self.log_end


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    made = Life(tmp_path)
    monkeypatch.setattr(journal_module, "time", made)
    return made


def steadily(life: Life, writer: Writer, count: int, every_s: float) -> None:
    for _ in range(count):
        life.run_until(life.now_s + every_s)
        writer.add()
    life.run_until(life.now_s + 1)


def test_rounds_are_no_closer_than_the_topic_says(life: Life) -> None:
    writer = Writer(life, 0.01)
    steadily(life, writer, 1_000, 0.0001)

    assert len(life.rounds) in range(10, 13)
    apart = [after - before for before, after in itertools.pairwise(life.rounds)]
    assert min(apart) >= 0.01
    assert len(writer.safe) == 1_000


def test_without_patience_a_round_follows_the_other(life: Life) -> None:
    writer = Writer(life, 0.0)
    steadily(life, writer, 1_000, 0.0001)

    assert len(life.rounds) > 300
    waits = [safe - added for added, safe in zip(writer.added, writer.safe, strict=True)]
    assert max(waits) <= 2 * SYNC_S + 1e-9


def test_what_comes_alone_does_not_wait(life: Life) -> None:
    writer = Writer(life, 1.0)
    life.run_until(200)
    writer.add()
    life.run_until(200 + SYNC_S)

    assert len(writer.safe) == 1


def test_a_round_begins_early_once_much_waits(life: Life) -> None:
    writer = Writer(life, 1.0)
    writer.add()
    life.run_until(life.now_s + 0.1)
    for _ in range(33):
        writer.add(b"x" * (32 << 10))
    life.run_until(life.now_s + 2 * SYNC_S)

    assert len(writer.safe) == 34


def test_who_is_in_a_hurry_takes_the_patient_along(life: Life) -> None:
    patient, hasty = Writer(life, 1.0), Writer(life, 0.0)
    patient.add()
    life.run_until(life.now_s + 0.1)
    patient.add()
    life.run_until(life.now_s + 0.1)
    assert len(patient.safe) == 1
    hasty.add()
    life.run_until(life.now_s + SYNC_S)

    assert (len(patient.safe), len(hasty.safe)) == (2, 1)


def test_who_comes_when_a_wait_is_nearly_over_does_not_prolong_it(life: Life) -> None:
    patient, adaptive = Writer(life, 0.01), Writer(life, None)
    patient.add()
    life.run_until(life.now_s + SYNC_S)
    patient.add()
    life.run_until(life.now_s + 0.0099)
    adaptive.add()
    life.run_until(life.now_s + 0.0001 + SYNC_S + 1e-9)

    assert len(patient.safe) == 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lives")


@settings(max_examples=60, deadline=None)
@given(
    lingers=st.lists(st.sampled_from([None, 0.0, 0.002, 0.01]), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 0.02)), min_size=1, max_size=40),
)
def test_nobody_waits_longer_than_its_topic_says(
    folders: Path, lingers: list[float | None], steps: list[tuple[int, float]]
) -> None:
    folder = folders / str(len(list(folders.iterdir())))
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        life = Life(folder)
        patch.setattr(journal_module, "time", life)
        writers = [Writer(life, linger_s) for linger_s in lingers]
        for number, pause_s in steps:
            life.run_until(life.now_s + pause_s)
            writers[number % len(writers)].add()
        life.run_until(life.now_s + 1)

    for writer in writers:
        assert len(writer.safe) == len(writer.added)
        longest = LONGEST_UNTOLD_S if writer.linger_s is None else writer.linger_s
        for added, safe in zip(writer.added, writer.safe, strict=True):
            assert safe - added <= longest + SYNC_S + SLACK_S
