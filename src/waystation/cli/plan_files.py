"""Plans of moves as Kafka's reassignment tool reads and writes them.

``{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}``
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from waystation.model.ids import NodeId, TopicPartition

__all__ = ["document", "read_plan"]


def read_plan(path: Path) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """The moves of a file."""
    import msgspec

    class Move(msgspec.Struct):
        topic: str
        partition: int
        replicas: list[int]

    class Plan(msgspec.Struct):
        partitions: list[Move]
        version: int = 1

    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise click.UsageError(f"--plan {path}: {error.strerror}") from error
    except msgspec.DecodeError as problem:
        raise click.UsageError(
            f"--plan {path}: {problem}; it must be "
            '{"version": 1, "partitions": [{"topic": "T", "partition": 0, "replicas": [1, 2]}]}'
        ) from problem
    if plan.version != 1:
        raise click.UsageError(f"--plan {path}: version {plan.version}; only 1 is known")
    moves: dict[TopicPartition, tuple[NodeId, ...]] = {}
    for one in plan.partitions:
        where = TopicPartition(one.topic, one.partition)
        if where in moves:
            raise click.UsageError(f"--plan {path}: {where} stands there twice")
        moves[where] = tuple(map(NodeId, one.replicas))
    return moves


def document(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The same, to be written."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in moves.items()
    ]
    return {"version": 1, "partitions": partitions}
