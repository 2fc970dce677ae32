"""Meters: a counter per topic up to a limit, and one for all beyond it."""

from waystation.partition.meters import REST, TopicMeters
from waystation.telemetry.metrics import Registry


def labels(registry: Registry) -> list[str]:
    (family,) = [
        one for one in registry.snapshot() if one.name == "waystation_topic_fetched_bytes_total"
    ]
    return [dict(sample.labels)["topic"] for sample in family.samples]


def test_topics_beyond_the_limit_share_a_meter() -> None:
    registry = Registry()
    meters = TopicMeters(registry, limit=2)
    first, second, third, fourth = (meters.of(name) for name in "abcd")

    assert len({first, second, third}) == 3
    assert third is fourth
    assert meters.of("a") is first
    assert (meters.label("a"), meters.label("c")) == ("a", REST)
    assert labels(registry) == [REST, "a", "b"]


def test_a_deleted_topic_gives_its_place_to_the_next() -> None:
    registry = Registry()
    meters = TopicMeters(registry, limit=1)
    meters.of("a")
    meters.forget("a")
    meters.forget("never was")

    assert meters.of("b") is not meters.of("c")
    assert labels(registry) == [REST, "b"]
