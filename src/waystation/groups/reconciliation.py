"""One member's way from what it reads to what it shall read.

A member that must give something up stays in its epoch until it says, by the partitions that
it owns, that it has done so: it has *unrevoked partitions*.  Then it enters the target's epoch
with every partition that is free; while others still hold some, it has *unreleased partitions*.
Without either it is *stable*.  Three promises:

1. a partition is assigned to a member only if no other member is assigned it or revoking it;
2. what a member may keep stays assigned to it throughout;
3. an epoch never goes back, and a member leaves its epoch only when it owns nothing beyond
   what it will be assigned in the next.
"""

from collections.abc import Callable, Set
from enum import IntEnum

from waystation.groups.partition_sets import PartitionOf, flat, grouped
from waystation.groups.records import MemberCurrentStored, Partitions
from waystation.model.errors import FencedMemberEpochError

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2

Owned = Set[PartitionOf] | None
"""The partitions that a member says it owns; ``None`` if it does not say."""


class MemberState(IntEnum):
    """How far a member is; numbered as in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


def just_joined(group_id: str, member_id: str) -> MemberCurrentStored:
    """A member that reads nothing yet."""
    return MemberCurrentStored(
        group_id, member_id, JOINING_EPOCH, JOINING_EPOCH, MemberState.STABLE, (), ()
    )


def is_reconciled(current: MemberCurrentStored, target_epoch: int) -> bool:
    """Whether the member reads what it shall."""
    return current.state == MemberState.STABLE and current.epoch == target_epoch


def check_epoch(current: MemberCurrentStored, epoch: int, owned: Owned) -> None:
    """Refuse a member whose epoch is not ours, unless it only missed our last answer.

    Then it comes with the epoch before, and owns nothing that we do not hold for it.  Epoch 0
    is the member's own way to begin anew, whatever it missed.
    """
    if epoch in (current.epoch, JOINING_EPOCH):
        return
    held = flat(current.assigned) | flat(current.revoking)
    if epoch == current.previous_epoch and owned is not None and owned <= held:
        return
    raise FencedMemberEpochError(
        f"member {current.member_id!r} is in epoch {current.epoch}, not in {epoch}: "
        "give up all partitions and join again with epoch 0"
    )


def reconcile(
    current: MemberCurrentStored,
    target: Partitions,
    target_epoch: int,
    owned: Owned,
    is_free: Callable[[PartitionOf], bool],
) -> MemberCurrentStored:
    """The member's next step towards ``target``; ``current`` itself if it cannot take one.

    ``is_free`` tells whether nobody but the member holds a partition.
    """
    if is_reconciled(current, target_epoch):
        return current
    if current.revoking and not _has_revoked(flat(current.revoking), owned):
        return current
    assigned, wanted = flat(current.assigned), flat(target)
    kept, surplus = assigned & wanted, assigned - wanted
    if surplus and not _has_revoked(surplus, owned):
        return current._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=grouped(kept),
            revoking=grouped(surplus),
        )
    reading = kept | {partition for partition in wanted - kept if is_free(partition)}
    return _entering(current, target_epoch)._replace(
        state=MemberState.STABLE if reading == wanted else MemberState.UNRELEASED_PARTITIONS,
        assigned=grouped(reading),
        revoking=(),
    )


def away_for_a_while(current: MemberCurrentStored) -> MemberCurrentStored:
    """A static member that will be back: it keeps what it may keep, the rest is free at once.

    It owns nothing from now on, and no epoch but 0 brings it back.
    """
    return current._replace(
        epoch=LEAVING_FOR_A_WHILE_EPOCH,
        previous_epoch=LEAVING_FOR_A_WHILE_EPOCH,
        state=MemberState.STABLE,
        revoking=(),
    )


def taken_over(current: MemberCurrentStored, member_id: str) -> MemberCurrentStored:
    """What was assigned to a static member, under the id with which it came back."""
    return current._replace(
        member_id=member_id,
        epoch=JOINING_EPOCH,
        previous_epoch=JOINING_EPOCH,
        state=MemberState.STABLE,
        revoking=(),
    )


def _entering(current: MemberCurrentStored, epoch: int) -> MemberCurrentStored:
    """In its new epoch; the one before stays acceptable until the next, for replies get lost."""
    if current.epoch == epoch:
        return current
    return current._replace(epoch=epoch, previous_epoch=current.epoch)


def _has_revoked(partitions: Set[PartitionOf], owned: Owned) -> bool:
    return owned is not None and partitions.isdisjoint(owned)
