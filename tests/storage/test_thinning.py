"""A pass over a companion's log: what is needed stays as it was, without a gap, whatever fails."""

import contextlib
import random

import pytest

from tests.storage.building import (
    NAME,
    NOW,
    TOPIC_ID,
    append,
    checkpoint,
    end,
    flush,
    open_directory,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder, records_of
from waystation.records.compression import Codec
from waystation.records.header import batches, check
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.records import Cancelled, Decided, Settled, decision_batch, read_decision
from waystation.storage.log import Log
from waystation.storage.thinning import Thinning, thinnable_end
from waystation.testing.disk import PowerLossError, SimulatedDisk

SETTINGS = TopicSettings(segment_bytes=1_500, index_interval_bytes=200, file_delete_delay_ms=0)
TARGET = TopicPartition("orders", 0)
Found = dict[int, object]


class Trial:
    """A log by seed, and which of its records are needed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.directory = open_directory(self.disk)
        self.log = self.directory.create_log(NAME, TOPIC_ID, SETTINGS)
        self._sequences = dict.fromkeys(range(3), 0)
        for _ in range(60):
            self._append()
        self.log.roll()
        flush(self.log)
        checkpoint(self.directory)

    def _append(self) -> None:
        chance, log = self.chance, self.log
        kind = chance.randrange(8)
        if kind == 0:
            some = Settled(TARGET, ProducerId(9), ProducerEpoch(0), 0)
            append(log, bytearray(decision_batch(some, NOW)), epoch=self._epoch())
        elif kind == 1:
            gone = Cancelled(Millis(1), Offset(0))
            append(log, bytearray(decision_batch(gone, NOW)), epoch=self._epoch())
        elif kind == 2:
            items = tuple((1, offset) for offset in range(5))
            moved = Decided(TARGET, ProducerId(9), ProducerEpoch(0), 0, NOW, items)
            append(log, bytearray(decision_batch(moved, NOW)), epoch=self._epoch())
        else:
            self._append_messages(transactional=kind == 3)

    def _append_messages(self, *, transactional: bool) -> None:
        chance = self.chance
        count, producer = chance.randint(1, 5), chance.randrange(3)
        builder = BatchBuilder(
            chance.choice((Codec.NONE, Codec.LZ4)), is_transactional=transactional
        )
        if transactional or chance.random() < 0.5:
            builder.producer_id = ProducerId(producer + 10 * transactional)
            builder.producer_epoch = ProducerEpoch(0)
            builder.base_sequence = self._sequences.setdefault(builder.producer_id, 0)
            self._sequences[builder.producer_id] += count
        for number in range(count):
            builder.append(b"k", b"%d" % number * 20, timestamp=NOW)
        append(self.log, bytearray(builder.build()), epoch=self._epoch())
        if transactional:
            end(self.log, builder.producer_id, commit=True)

    def _epoch(self) -> int:
        return max(self.log.epochs.latest, 0)

    def keeping(self) -> Keeping:
        """Some of what there is, at random."""
        upto = thinnable_end(self.log, self.log.log_end)
        keeping = Keeping(Offset(0), upto, everyone_has=Offset(upto // 2))
        share = self.chance.choice((0.0, 0.1, 0.5))
        keeping.keep((1, offset) for offset in range(upto) if self.chance.random() < share)
        return keeping

    def thin(self, keeping: Keeping) -> Thinning:
        thinning = Thinning(self.log, keeping, keeping.end, now=NOW)
        for work in thinning.steps():
            work()
        return thinning

    def restart(self) -> None:
        self.disk.crash()
        self.directory.unlock()
        self.directory = open_directory(self.disk)
        (self.log,) = self.directory.open_logs(lambda _: SETTINGS)


def found_in(log: Log) -> tuple[Found, Found]:
    """Messages and decisions by offset; proves on the way that no offset is missing."""
    messages: Found = {}
    decisions: Found = {}
    offset = log.log_start
    while offset < log.log_end:
        part = log.read(offset, 1 << 20, log.log_end)
        assert part.region is not None, f"nothing at {offset}"
        content = part.region.read()
        for at, header in batches(content):
            check(content, at)
            assert header.base_offset == offset, f"a gap before {header.base_offset}"
            offset = header.next_offset
            decision = read_decision(content, at)
            if decision is not None:
                decisions[header.base_offset] = decision
            elif not header.is_control:
                messages.update((one.offset, one[1:]) for one in records_of(content, at))
    return messages, decisions


def needed(found: tuple[Found, Found], keeping: Keeping) -> tuple[Found, Found]:
    return (
        {o: one for o, one in found[0].items() if keeping.keeps(Offset(o), is_decision=False)},
        {o: one for o, one in found[1].items() if keeping.keeps(Offset(o), is_decision=True)},
    )


@pytest.mark.parametrize("seed", range(30))
def test_what_is_needed_stays_and_nothing_else_at_every_offset(seed: int) -> None:
    trial = Trial(seed)
    before, keeping = found_in(trial.log), trial.keeping()
    producers = [(one.producer_id, one.last_sequence) for one in trial.log.producers.active()]

    assert trial.thin(keeping).finished

    assert found_in(trial.log) == needed(before, keeping)
    trial.restart()
    assert found_in(trial.log) == needed(before, keeping)
    known = [(one.producer_id, one.last_sequence) for one in trial.log.producers.active()]
    assert sorted(known) == sorted(producers)


@pytest.mark.parametrize("seed", range(40))
def test_power_that_is_lost_in_a_pass_takes_nothing_that_is_needed(seed: int) -> None:
    trial = Trial(seed)
    before, keeping = found_in(trial.log), trial.keeping()
    wanted = needed(before, keeping)

    trial.disk.lose_power(random.Random(seed).randrange(60))
    with contextlib.suppress(PowerLossError):
        trial.thin(keeping)
    trial.restart()

    messages, decisions = found_in(trial.log)
    assert wanted[0].items() <= messages.items() <= before[0].items()
    assert wanted[1].items() <= decisions.items() <= before[1].items()
    assert trial.thin(keeping).finished
    assert found_in(trial.log) == wanted


def test_the_active_segment_and_what_is_not_applied_are_left_alone() -> None:
    trial = Trial(1)
    log = trial.log
    second = log.segments[1].next_offset

    assert thinnable_end(log, log.log_end) == log.active.base_offset
    assert thinnable_end(log, Offset(second + 1)) == second
