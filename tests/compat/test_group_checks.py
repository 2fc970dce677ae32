"""The checks of groups behind ``make compat`` notice what a group must not do."""

import pytest

from tests.compat.groups import PARTITIONS, Read, check_resumed, check_shared
from tests.compat.letters import WrongAnswerError


def reads(start: int, end: int) -> list[Read]:
    """What two members read who do everything right."""
    return [Read("ab"[n % 2], n % PARTITIONS, n // PARTITIONS, str(n)) for n in range(start, end)]


def test_members_that_share_and_go_on_pass() -> None:
    check_shared(reads(0, 40))
    check_resumed(reads(40, 60))


def test_what_is_lost_repeated_or_shared_by_two_is_noticed() -> None:
    lost, repeated, shared = reads(0, 39), [*reads(0, 40), reads(0, 1)[0]], reads(0, 40)
    shared[7] = shared[7]._replace(member="a")
    alone = [one._replace(member="a") for one in reads(0, 40)]

    for wrong in (lost, repeated, shared, alone):
        with pytest.raises(WrongAnswerError):
            check_shared(wrong)


def test_a_group_that_begins_again_or_skips_is_noticed() -> None:
    for wrong in (reads(0, 20), reads(36, 60), reads(44, 60), reads(41, 61)):
        with pytest.raises(WrongAnswerError):
            check_resumed(wrong)
