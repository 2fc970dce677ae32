"""Counters count, histograms know their quantiles, and the registry knows them all."""

import math

import pytest

from waystation.telemetry.metrics import Registry


def test_the_same_name_and_labels_give_the_same_metric() -> None:
    registry = Registry()

    one = registry.counter("reads_total", "Reads.", topic="a", side="left")
    same = registry.counter("reads_total", "Reads.", side="left", topic="a")
    other = registry.counter("reads_total", "Reads.", topic="b", side="left")

    assert one is same
    assert one is not other


def test_one_name_cannot_be_two_kinds() -> None:
    registry = Registry()
    registry.gauge("level", "A level.")

    with pytest.raises(AssertionError, match="level is a gauge"):
        registry.histogram("level", "A level.")


def test_a_snapshot_does_not_change_afterwards() -> None:
    registry = Registry()
    counter = registry.counter("reads_total", "Reads.")
    counter.add(3)
    (family,) = registry.snapshot()
    counter.add()

    assert [sample.value for sample in family.samples] == [3]
    assert counter.value == 4


def test_a_gauge_goes_up_and_down() -> None:
    gauge = Registry().gauge("level", "A level.")
    gauge.set(5)
    gauge.add(-2)

    assert gauge.value == 3


def test_computed_values_are_read_when_asked() -> None:
    registry = Registry()
    sizes = {"a": 1.0}
    registry.computed(
        "size_bytes", "Sizes.", "gauge", lambda: [({"topic": t}, n) for t, n in sizes.items()]
    )
    sizes["b"] = 2.0

    (family,) = registry.snapshot()

    assert [(dict(s.labels)["topic"], s.value) for s in family.samples] == [("a", 1.0), ("b", 2.0)]


def test_a_forgotten_metric_is_not_exposed() -> None:
    registry = Registry()
    registry.gauge("lag", "Lag.", partition="0")
    registry.gauge("lag", "Lag.", partition="1")
    registry.forget("lag", partition="0")

    (family,) = registry.snapshot()

    assert [sample.labels for sample in family.samples] == [(("partition", "1"),)]


def test_buckets_are_cumulative_and_end_with_everything() -> None:
    registry = Registry()
    histogram = registry.histogram("took_seconds", "Time.", low=1, high=16)
    for value in (0.5, 1.5, 3, 100):
        histogram.observe(value)

    (family,) = registry.snapshot()
    (sample,) = family.samples

    assert sample.buckets == ((1, 1), (2, 2), (4, 3), (8, 3), (16, 3), (math.inf, 4))
    assert sample.value == 105
