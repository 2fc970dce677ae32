"""What the APIs about redrives share: an order's state on the wire."""

from waystation.messages.redrive_dead_letters import RedriveState
from waystation.sharing.redrive import Redrive


def told_redrive(redrive: Redrive | None) -> RedriveState:
    """What is said of an order; of none, nothing."""
    if redrive is None:
        return RedriveState()
    return RedriveState(
        redrive_id=redrive.order.id,
        state=redrive.state,
        first_offset=redrive.order.first,
        end_offset=redrive.order.end,
        cursor=redrive.cursor,
        moved=redrive.moved,
        refused=redrive.refused,
        strays=redrive.strays,
        problem=redrive.problem,
        begun_ms=redrive.begun_at,
        ended_ms=redrive.ended_at,
    )
