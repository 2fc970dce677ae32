"""The ways to all targets of a mover as text, for whoever keeps them elsewhere than in a log.

What ``lanes_of`` gives back is what ``saved_lanes`` was given; JSON in between.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from waystation.model.ids import ProducerEpoch, TopicPartition
from waystation.model.offsets import Millis
from waystation.scheduling.mover import LaneState
from waystation.scheduling.records import Decided

__all__ = ["Lanes", "lanes_of", "saved_lanes"]

Lanes = dict[TopicPartition, LaneState]


def saved_lanes(lanes: Mapping[TopicPartition, LaneState]) -> list[Any]:
    """Lists, texts and numbers."""
    return [[*target, _saved(lane)] for target, lane in lanes.items()]


def lanes_of(saved: Iterable[list[Any]]) -> Lanes:
    """What ``saved_lanes`` was given."""
    return dict(_lane_of(*one) for one in saved)


def _saved(lane: LaneState) -> list[Any]:
    last = lane.last
    move = None if last is None else [*last[1:5], last.items]
    return [lane.producer_id, lane.producer_epoch, lane.next_sequence, move, lane.is_doubted]


def _lane_of(topic: str, partition: int, saved: list[Any]) -> tuple[TopicPartition, LaneState]:
    target = TopicPartition(topic, partition)
    producer_id, epoch, sequence, move, is_doubted = saved
    last = None
    if move is not None:
        items = tuple((due, offset) for due, offset in move[4])
        last = Decided(target, move[0], ProducerEpoch(move[1]), move[2], Millis(move[3]), items)
    return target, LaneState(producer_id, ProducerEpoch(epoch), sequence, last, is_doubted)
