"""What a broker's directories hold, written down on one machine and read on another."""

from pathlib import Path
from typing import Any

import click
import msgspec

from waystation.cluster.keepsakes import Keepsake
from waystation.cluster.rebuilding import FoundReplica, Survey
from waystation.model.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    ProducerId,
    TopicId,
    TopicPartition,
    uuid_of,
    uuid_text,
)
from waystation.model.offsets import Offset

__all__ = ["document", "read_surveys"]


class _Replica(msgspec.Struct):
    topic: str
    partition: int
    topic_id: str
    last_epoch: int
    log_start: int
    log_end: int
    compacted: bool
    last_producer: int


class _Survey(msgspec.Struct):
    version: int
    node: int
    cluster_id: str | None
    broker_epoch: int
    replicas: list[_Replica]
    keepsake: Keepsake | None = None


def document(survey: Survey) -> Any:
    """A survey as it is written down: one document, one line."""
    replicas = [
        _Replica(
            one.partition.topic,
            one.partition.partition,
            uuid_text(one.topic_id),
            one.last_epoch,
            one.log_start,
            one.log_end,
            one.compacted,
            one.last_producer,
        )
        for one in survey.replicas
    ]
    return _Survey(
        1, survey.node, survey.cluster_id, survey.broker_epoch, replicas, survey.keepsake
    )


def read_surveys(path: Path) -> list[Survey]:
    """The surveys of a file."""
    try:
        lines = path.read_bytes().splitlines()
        read = [msgspec.json.decode(line, type=_Survey) for line in lines if line.strip()]
        return [_survey(one) for one in read]
    except OSError as error:
        raise click.UsageError(f"--survey {path}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as problem:
        raise click.UsageError(
            f"--survey {path}: {problem}; such files are made by `waystation cluster recover "
            "--survey-only`"
        ) from problem


def _survey(one: _Survey) -> Survey:
    if one.version != 1:
        raise ValueError(f"version {one.version}; only 1 is known")
    replicas = (
        FoundReplica(
            TopicPartition(each.topic, each.partition),
            TopicId(uuid_of(each.topic_id)),
            LeaderEpoch(each.last_epoch),
            Offset(each.log_start),
            Offset(each.log_end),
            each.compacted,
            ProducerId(each.last_producer),
        )
        for each in one.replicas
    )
    life = BrokerEpoch(one.broker_epoch)
    return Survey(NodeId(one.node), one.cluster_id, life, tuple(replicas), one.keepsake)
