"""One member's way to its target: what the module promises, over any course of events."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.groups.partition_sets import PartitionOf, flat, grouped
from waystation.groups.reconciliation import (
    LEAVING_FOR_A_WHILE_EPOCH,
    MemberState,
    away_for_a_while,
    check_epoch,
    is_reconciled,
    just_joined,
    reconcile,
    taken_over,
)
from waystation.groups.records import MemberCurrentStored
from waystation.model.errors import FencedMemberEpochError
from waystation.model.ids import TopicId

TOPIC = TopicId(UUID(int=5))

sets = st.frozensets(st.integers(0, 5).map(lambda index: (TOPIC, index)))


def standing(
    epoch: int, assigned: str, revoking: str = "", state: MemberState | None = None
) -> MemberCurrentStored:
    """A member with the partitions whose numbers are given."""
    if state is None:
        state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
    return MemberCurrentStored(
        "g", "m", epoch, epoch - 1, state, grouped(of(assigned)), grouped(of(revoking))
    )


def of(numbers: str) -> set[PartitionOf]:
    return {(TOPIC, int(number)) for number in numbers}


def step(
    current: MemberCurrentStored,
    target: str,
    epoch: int,
    owned: str | None = None,
    held_by_others: str = "",
) -> MemberCurrentStored:
    taken = of(held_by_others)
    said = None if owned is None else of(owned)
    return reconcile(current, grouped(of(target)), epoch, said, lambda one: one not in taken)


def test_a_new_member_gets_what_is_free_and_waits_for_the_rest() -> None:
    current = step(just_joined("g", "m"), "012", 4, owned="", held_by_others="2")

    assert (current.epoch, current.state) == (4, MemberState.UNRELEASED_PARTITIONS)
    assert flat(current.assigned) == of("01")

    current = step(current, "012", 4)

    assert (current.epoch, current.state) == (4, MemberState.STABLE)
    assert flat(current.assigned) == of("012")


def test_what_must_be_given_up_keeps_the_member_in_its_epoch() -> None:
    current = step(standing(4, "012"), "2345", 5)

    assert (current.epoch, current.state) == (4, MemberState.UNREVOKED_PARTITIONS)
    assert (flat(current.assigned), flat(current.revoking)) == (of("2"), of("01"))


@pytest.mark.parametrize("owned", [None, "012", "02", "1"])
def test_it_stays_there_until_all_is_given_up(owned: str | None) -> None:
    current = standing(4, "2", revoking="01")

    assert step(current, "2345", 5, owned=owned) == current


def test_then_it_enters_the_newest_epoch() -> None:
    current = step(standing(4, "2", revoking="01"), "234", 7, owned="2")

    assert (current.epoch, current.previous_epoch) == (7, 4)
    assert flat(current.assigned) == of("234")


def test_who_already_gave_up_is_not_asked_to() -> None:
    current = step(standing(4, "012"), "23", 5, owned="2")

    assert (current.epoch, current.state) == (5, MemberState.STABLE)
    assert flat(current.assigned) == of("23")


def test_what_it_gave_up_may_come_back_to_it() -> None:
    current = step(standing(4, "2", revoking="01"), "012", 6, owned="2")

    assert flat(current.assigned) == of("012")


def test_a_target_that_is_reached_needs_no_step() -> None:
    current = standing(4, "012")

    assert step(current, "345", 4, owned="012") is current


def test_the_epoch_before_stays_acceptable_while_the_member_waits() -> None:
    """Two answers in a row may get lost, the second of which changed no epoch."""
    waiting = step(standing(4, "0"), "012", 5, owned="0", held_by_others="2")
    done = step(waiting, "012", 5)

    check_epoch(done, 4, of("0"))


@pytest.mark.parametrize(("epoch", "owned"), [(3, "0"), (4, "03"), (4, None), (6, "0"), (-2, "")])
def test_other_epochs_are_fenced(epoch: int, owned: str | None) -> None:
    current = MemberCurrentStored(
        "g", "m", 5, 4, MemberState.STABLE, grouped(of("01")), grouped(of("2"))
    )

    with pytest.raises(FencedMemberEpochError, match="join again with epoch 0"):
        check_epoch(current, epoch, None if owned is None else of(owned))


def test_who_left_for_a_while_keeps_its_partitions_but_no_epoch() -> None:
    away = away_for_a_while(standing(4, "01", revoking="2"))

    assert (away.epoch, flat(away.assigned), away.revoking) == (
        LEAVING_FOR_A_WHILE_EPOCH,
        of("01"),
        (),
    )
    with pytest.raises(FencedMemberEpochError):
        check_epoch(away, 4, of("01"))
    back = step(taken_over(away, "m2"), "01", 4, owned="")
    assert (back.member_id, back.epoch, flat(back.assigned)) == ("m2", 4, of("01"))


@given(st.lists(st.tuples(sets, sets, st.none() | sets, st.booleans()), max_size=12))
def test_the_promises_hold_whatever_happens(
    events: list[
        tuple[frozenset[PartitionOf], frozenset[PartitionOf], frozenset[PartitionOf] | None, bool]
    ],
) -> None:
    current, epoch = just_joined("g", "m"), 1
    for target, others, owned, is_new_epoch in events:
        epoch += is_new_epoch
        mine = flat(current.assigned) | flat(current.revoking)
        taken = others - mine
        before = current
        current = reconcile(
            current, grouped(target), epoch, owned, lambda one, taken=taken: one not in taken
        )

        assigned, revoking = flat(current.assigned), flat(current.revoking)
        assert not (assigned - mine) & taken, "assigned what another holds"
        if current != before and current.epoch == epoch:
            assert assigned <= target
        assert assigned >= flat(before.assigned) & (target if current != before else assigned)
        assert current.epoch >= before.epoch
        assert not assigned & revoking
        if current.epoch > before.epoch:
            given_up = mine - assigned
            assert owned is None or not owned & given_up
            assert owned is not None or not given_up
        assert bool(revoking) == (current.state == MemberState.UNREVOKED_PARTITIONS)
        if is_reconciled(current, epoch) and current != before:
            assert assigned == target
