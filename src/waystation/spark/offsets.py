"""Offsets of many partitions as Spark keeps them: ``{"orders": {"0": 23, "1": 7}}``.

This is how Spark's own Kafka source writes them too.  Spark takes two offsets for the same if
their text is, so topics stand in order of their names and partitions in order of their numbers.
"""

import json
from collections.abc import Mapping
from typing import Any

from waystation.model.ids import TopicPartition
from waystation.spark.errors import BadOptionError

__all__ = ["Offsets", "offsets_of", "parse_offsets", "parse_partitions", "to_json"]

Offsets = Mapping[TopicPartition, int]
"""Everything before these offsets has been read, or is to be."""


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """What Spark is told."""
    told: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return told


def offsets_of(told: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """What Spark was told once, and gives back."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in told.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(option: str, text: str, lowest: int) -> dict[TopicPartition, int]:
    """A user's numbers per partition, none of them below ``lowest``."""
    example = '{"orders": {"0": 23, "1": 7}}'
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _object(option, text, example).items():
        if not isinstance(partitions, dict):
            raise BadOptionError(f"{option}: {topic} is {partitions!r}, must be as in {example}")
        for partition, number in partitions.items():
            if type(number) is not int or not lowest <= number < 1 << 63:
                raise BadOptionError(
                    f"{option}: partition {topic}-{partition} is {number!r}, must be a whole "
                    f"number of at least {lowest}"
                )
            found[TopicPartition(topic, _number(option, topic, partition))] = number
    if not found:
        raise BadOptionError(f"{option} names no partition: give them as in {example}")
    return found


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """A user's list of partitions per topic, in order."""
    example = '{"orders": [0, 1]}'
    found = []
    for topic, partitions in _object(option, text, example).items():
        if not isinstance(partitions, list):
            raise BadOptionError(f"{option}: {topic} is {partitions!r}, must be as in {example}")
        found += [TopicPartition(topic, _number(option, topic, one)) for one in partitions]
    if not found:
        raise BadOptionError(f"{option} names no partition: give them as in {example}")
    return tuple(sorted(set(found)))


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadOptionError(f"{option} is {text!r}, no JSON ({error}): try {example}") from None
    if not isinstance(found, dict):
        raise BadOptionError(f"{option} is {text!r}, must be as in {example}")
    return found


def _number(option: str, topic: str, partition: object) -> int:
    if type(partition) is int and partition >= 0:
        return partition
    if isinstance(partition, str) and partition.isascii() and partition.isdigit():
        return int(partition)
    raise BadOptionError(f"{option}: {topic} has no partition {partition!r}: they are numbers")
