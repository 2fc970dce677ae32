"""A machine's log: decisions of every kind are read back as they were made, compacted or not."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.test_coordinators import commit, running
from tests.support.soak import count
from waystation.broker.broker import Broker
from waystation.broker.coordinators import OFFSETS_TOPIC
from waystation.broker.group_records import GroupRecordReader, encode
from waystation.broker.machine_log import encoded, records_in, settled
from waystation.groups.commands import Commit, OffsetToCommit, TransactionalCommit
from waystation.groups.records import OffsetCommitted, OffsetForgotten, Record
from waystation.model.errors import (
    InvalidProducerEpochError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId, ProducerEpoch, ProducerId
from waystation.model.machines import InTransaction
from waystation.model.offsets import Millis, Offset
from waystation.partition.leadership import Leadership
from waystation.partition.partition import Partition
from waystation.records.control import MARKER_BYTES, Marker, marker_batch

NOW = Millis(1_700_000_000_000)
GROUP = "payments-service"
LIMIT_BYTES = 1 << 20
EAGER = {
    "log_cleaner_backoff_ms": "20",
    "log_flush_offset_checkpoint_interval_ms": "1",
    "recovery_bytes_max": "0",
    "offsets_topic_num_partitions": "1",
}

producers = st.tuples(
    st.integers(0, 1 << 40).map(ProducerId), st.integers(0, 32_767).map(ProducerEpoch)
)
facts = st.one_of(
    st.builds(OffsetForgotten, st.text(), st.text(), st.integers(0, 9)),
    st.builds(
        lambda names, partition, offset: OffsetCommitted(*names, partition, offset, -1, "", 1),
        st.tuples(st.text(), st.text()),
        st.integers(0, 9),
        st.integers(0, 1 << 40),
    ),
)
some_facts = st.lists(facts, min_size=1, max_size=5)
decisions = st.one_of(
    some_facts,
    st.builds(lambda who, some: [InTransaction(*who, one) for one in some], producers, some_facts),
    st.builds(lambda who, ended: [Marker(*who, 3, ended)], producers, st.booleans()),
)


def stored(decision: Sequence[Any]) -> bytes:
    """The bytes that one decision leaves in the log."""
    first = decision[0]
    if isinstance(first, Marker):
        return bytes(marker_batch(first, NOW))
    return bytes(encoded(decision, encode, NOW, LIMIT_BYTES))


def read_back(chunk: bytes) -> list[Record]:
    slices = records_in(chunk, GroupRecordReader().read_rows, "the log")
    return [record for some in slices for record in some]


@given(st.lists(decisions))
def test_decisions_of_every_kind_are_read_back(log: list[list[Any]]) -> None:
    chunk = b"".join(map(stored, log))

    assert read_back(chunk) == [record for decision in log for record in decision]


def test_a_decision_is_of_one_producer() -> None:
    fact = OffsetForgotten("g", "t", 0)
    two = [InTransaction(ProducerId(n), ProducerEpoch(0), fact) for n in (1, 2)]

    with pytest.raises(AssertionError):
        encoded(two, encode, NOW, LIMIT_BYTES)


def test_a_decision_that_is_too_large_is_refused() -> None:
    with pytest.raises(MessageTooLargeError):
        encoded([OffsetForgotten("g" * 99, "t", 0)], encode, NOW, 100)


def test_a_marker_that_cannot_be_read_is_passed_over() -> None:
    mine, other = (Marker(ProducerId(n), ProducerEpoch(0), 0, True) for n in (1, 2))
    chunk = bytearray(stored([mine]) + stored([other]))
    chunk[MARKER_BYTES - 3] ^= 1

    assert read_back(bytes(chunk)) == [other]


# --- in a broker ----------------------------------------------------------------------------------


async def ready(broker: Broker) -> None:
    await broker.groups.find(GROUP)
    async with asyncio.timeout(10):
        while broker.groups.loading or not broker.groups.machines():
            await asyncio.sleep(0.005)


class Clients:
    """Some who commit plainly, and producers whose transactions have offsets."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._host = broker.groups.host_of(GROUP)
        self._chance = Random(seed)
        self._epochs = dict.fromkeys(map(ProducerId, range(4)), 0)

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            await self._step(self._chance.choice(list(self._epochs)))

    async def end_all(self) -> None:
        for producer_id in self._epochs:
            await self._end(producer_id)

    async def _step(self, producer_id: ProducerId) -> None:
        partition, offset = self._chance.randrange(5), self._chance.randrange(1_000)
        offsets = (OffsetToCommit("orders", partition, offset, -1, ""),)
        event, command = "commit", Commit(GROUP, -1, "", None, -1, offsets)
        match self._chance.choice("ppttte"):
            case "t":
                epoch = ProducerEpoch(self._epochs[producer_id])
                event = "commit_in_transaction"
                command = TransactionalCommit(  # type: ignore[assignment]
                    GROUP, -1, "", None, offsets, producer_id, epoch
                )
            case "e":
                await self._end(producer_id)
                return
        machine = self._host.machine
        await self._host.ask(lambda now, to: getattr(machine, event)(now, command, to))

    async def _end(self, producer_id: ProducerId) -> None:
        self._epochs[producer_id] += 1
        epoch, committed = ProducerEpoch(self._epochs[producer_id]), self._chance.random() < 0.6
        marker = Marker(producer_id, epoch, 0, committed)
        machine = self._host.machine
        await self._host.ask(lambda now, to: machine.end_transaction(now, marker, to))


def known(broker: Broker) -> tuple[Any, Any]:
    (machine,) = broker.groups.machines()
    return sorted(machine.committed_offsets()), machine._pending


@pytest.mark.parametrize("seed", range(count(3, 60)))
async def test_a_compacted_log_brings_back_what_was_known(tmp_path: Path, seed: int) -> None:
    async with running(tmp_path, **EAGER) as broker:
        await ready(broker)
        clients, log = Clients(broker, seed), broker.replicas.get(OFFSETS_TOPIC, 0).log
        for _ in range(2):
            await clients.live(30)
            await clients.end_all()
            log.roll()
        before = log.size_bytes
        async with asyncio.timeout(20):
            while log.clean_end < log.active.base_offset:
                await asyncio.sleep(0.005)
        await clients.live(20)
        remembered = known(broker)

        assert log.size_bytes < before
        assert remembered[1], "no transaction is open"

    async with running(tmp_path, **EAGER) as broker:
        await ready(broker)

        assert known(broker) == remembered


async def test_a_producer_that_was_fenced_costs_nobody_the_coordinator(tmp_path: Path) -> None:
    async with running(tmp_path, **EAGER) as broker:
        await ready(broker)
        host = broker.groups.host_of(GROUP)
        producer, offsets = ProducerId(7), (OffsetToCommit("orders", 0, 1, -1, ""),)
        marker = Marker(producer, ProducerEpoch(4), 0, False)
        await host.ask(lambda now, to: host.machine.end_transaction(now, marker, to))
        late = TransactionalCommit(GROUP, -1, "", None, offsets, producer, ProducerEpoch(3))
        older = marker._replace(producer_epoch=ProducerEpoch(3))

        with pytest.raises(InvalidProducerEpochError):
            await host.ask(lambda now, to: host.machine.commit_in_transaction(now, late, to))
        with pytest.raises(InvalidProducerEpochError):
            await host.ask(lambda now, to: host.machine.end_transaction(now, older, to))
        assert broker.groups.host_of(GROUP) is host


# --- a new leader ---------------------------------------------------------------------------------

OTHER, LIFE = NodeId(99), BrokerEpoch(1)


async def elected(broker: Broker) -> tuple[Partition, LeaderEpoch]:
    """A partition with a record, led by this broker anew: another one may lack its end."""
    await ready(broker)
    await commit(broker, 7, group=GROUP)
    partition = broker.replicas.get(OFFSETS_TOPIC, broker.groups.number_of(GROUP))
    epoch = LeaderEpoch(partition.leadership.epoch + 1)
    both = (broker.node, OTHER)
    partition.follow_store(Leadership(None, epoch, both, replicas=both))
    partition._following.begin(Offset(0))  # it has not heard yet that its end is committed
    partition.follow_store(Leadership(broker.node, epoch, both, replicas=both))
    return partition, epoch


async def test_what_a_new_leader_found_counts_once_its_replicas_have_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        partition, epoch = await elected(broker)
        end = partition.log_end
        waiting = asyncio.create_task(settled(partition, epoch))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        latest = partition.epochs.latest
        partition.followed_by(OTHER, LIFE, end, latest, end, broker.clock.now())

        assert await asyncio.wait_for(waiting, 5) == end


async def test_a_leader_that_is_replaced_meanwhile_loads_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        partition, epoch = await elected(broker)
        waiting = asyncio.create_task(settled(partition, epoch))
        await asyncio.sleep(0)
        partition.follow_store(Leadership(OTHER, LeaderEpoch(epoch + 1), (OTHER,)))

        with pytest.raises(NotLeaderError):
            await asyncio.wait_for(waiting, 5)


async def test_nothing_is_loaded_without_enough_replicas(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await ready(broker)
        (post,) = [one for one in broker.groups._posts.values() if one.number == 0]
        partition = broker.replicas.get(OFFSETS_TOPIC, 0)
        partition.reconfigure(replace(partition.settings, min_insync_replicas=2))

        with pytest.raises(NotEnoughReplicasError):
            await broker.groups._fill(post)
