"""What a restart need not read the log for: the state of a schedule as of one offset.

One file, replaced as a whole.  It names the runs that hold what was pending then; everything
about it that is small is in it.  A file that is damaged, or of another version, says nothing:
the index is built anew from the log, which has everything.
"""

import json
from typing import Final, NamedTuple

from crc32c import crc32c

from waystation.model.ids import LeaderEpoch, ProducerId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.scheduling.cron import Cron
from waystation.scheduling.errors import DamagedIndexError
from waystation.scheduling.index import Named
from waystation.scheduling.lanes import lanes_of, saved_lanes
from waystation.scheduling.mover import LaneState
from waystation.scheduling.wheel import Due

__all__ = ["CHECKPOINT", "Checkpoint", "Recurring", "Retiming", "decode", "encode"]

CHECKPOINT: Final = "checkpoint"
_VERSION: Final = 1


class Recurring(NamedTuple):
    """A message that comes again and again, and when it comes next."""

    cron: Cron
    due: Millis
    decision: Offset
    """Of the last decision about it, without which it would begin anew; -1 if there was none."""
    before: Offset = NO_OFFSET
    """Of the one before that, which counts again if the last is withdrawn."""


class Retiming(NamedTuple):
    """A message that waits for another time than its headers say."""

    due: Millis
    decision: Offset


Held = list[tuple[Due, Cron | None]]
"""Records of a transaction that is open: when each is due."""


class Checkpoint(NamedTuple):
    """A schedule that has applied everything before ``applied``."""

    applied: Offset
    leader_epoch: LeaderEpoch
    """Under which the last applied batch was written; what the log must have had there."""
    pending: int
    """How many messages wait; -1 if they must be counted anew."""
    runs: list[Named]
    held: dict[ProducerId, Held]
    recurring: dict[Offset, Recurring]
    retimed: dict[Offset, Retiming]
    lanes: dict[TopicPartition, LaneState]
    marks: dict[TopicPartition, tuple[Offset, ...]]
    """The decisions that each lane's state follows from."""


def encode(state: Checkpoint) -> bytes:
    """The file's content."""
    content = {
        "applied": state.applied,
        "leader_epoch": state.leader_epoch,
        "pending": state.pending,
        "runs": state.runs,
        "held": [[pid, [[*due, _spec(cron)] for due, cron in h]] for pid, h in state.held.items()],
        "recurring": [
            [offset, one.due, one.decision, one.before, _spec(one.cron)]
            for offset, one in state.recurring.items()
        ],
        "retimed": [[offset, *one] for offset, one in state.retimed.items()],
        "lanes": saved_lanes(state.lanes),
        "marks": [[*target, at] for target, at in state.marks.items()],
    }
    body = json.dumps(content, separators=(",", ":"))
    return f"{_VERSION} {crc32c(body.encode())}\n{body}".encode()


def decode(data: bytes) -> Checkpoint:
    """What ``encode`` was given."""
    head, _, body = data.partition(b"\n")
    try:
        version, checksum = map(int, head.split())
    except ValueError:
        raise DamagedIndexError("a schedule's checkpoint has no first line") from None
    if version != _VERSION or checksum != crc32c(body):
        raise DamagedIndexError(f"a schedule's checkpoint of version {version} cannot be used")
    content = json.loads(body)
    return Checkpoint(
        Offset(content["applied"]),
        LeaderEpoch(content["leader_epoch"]),
        content["pending"],
        [
            Named(number, entries, (start[0], start[1]))
            for number, entries, start in content["runs"]
        ],
        {pid: [((due, at), _cron(spec)) for due, at, spec in h] for pid, h in content["held"]},
        {
            Offset(offset): Recurring(Cron(*spec), Millis(due), Offset(decision), Offset(before))
            for offset, due, decision, before, spec in content["recurring"]
        },
        {Offset(o): Retiming(Millis(due), Offset(at)) for o, due, at in content["retimed"]},
        lanes_of(content["lanes"]),
        {TopicPartition(t, p): tuple(ats) for t, p, ats in content["marks"]},
    )


def _spec(cron: Cron | None) -> list[str] | None:
    return None if cron is None else [cron.text, cron.zone]


def _cron(spec: list[str] | None) -> Cron | None:
    return None if spec is None else Cron(*spec)
