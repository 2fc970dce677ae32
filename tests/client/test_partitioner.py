"""Keys go where every Kafka client sends them; records without one are spread."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from waystation.client.partitioner import (
    PARTITIONERS,
    RoundRobin,
    Sticky,
    murmur2,
    partition_of_key,
    partitioner_for,
)

# Computed by Apache Kafka's own Utils.murmur2 (unsigned).
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KNOWN.items())
def test_murmur2_agrees_with_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_murmur2_agrees_with_another_python_client(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_keeps_its_partition(key: bytes, partitions: int) -> None:
    first = partition_of_key(key, partitions)

    assert 0 <= first < partitions
    assert partition_of_key(key, partitions) == first


def test_sticky_stays_until_its_batch_is_filled() -> None:
    sticky = Sticky(Random(7))
    first = [sticky.choose(range(50)) for _ in range(20)]

    assert len(set(first)) == 1

    sticky.batch_filled()
    later = {sticky.choose(range(50)) for _ in range(20)}

    assert len(later) == 1
    assert later != set(first)


def test_sticky_leaves_a_partition_that_lost_its_leader() -> None:
    sticky = Sticky(Random(7))
    lost = sticky.choose((0, 1, 2))
    left = tuple(one for one in (0, 1, 2) if one != lost)

    assert sticky.choose(left) in left


def test_round_robin_gives_every_partition_its_turn() -> None:
    in_turn = RoundRobin(Random(7))
    chosen = [in_turn.choose((0, 1, 2)) for _ in range(9)]

    assert sorted(chosen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert chosen[:3] == chosen[3:6] == chosen[6:]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_partitioner_reaches_every_partition(name: str) -> None:
    spread = partitioner_for(name, Random(7))
    reached = set()
    for _ in range(200):
        reached.add(spread.choose(range(8)))
        spread.batch_filled()

    assert reached == set(range(8))
