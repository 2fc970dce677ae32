"""The rate of a redrive goes where the work is, and is never more than it is."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from waystation.model.offsets import Offset
from waystation.sharing.rate_share import RateShare
from waystation.sharing.redrive import Redrive, RedriveOrder, redrive_of, saved_redrive

ORDER = RedriveOrder("r", Offset(0), Offset(9), rate=2.5, total_rate=10.0, together=(0, 1, 2, 3))


def test_all_have_the_same_while_all_are_busy() -> None:
    share = RateShare(ORDER)

    assert share.rate == 2.5
    assert share.others(2) == [0, 1, 3]


def test_who_is_done_leaves_its_part_once_it_has_said_so_twice() -> None:
    share = RateShare(ORDER)
    share.heard([1, 3])

    assert share.rate == 2.5

    share.heard([1])

    assert share.rate == 10 / 3
    assert share.others(2) == [0, 3]

    share.heard([3, 0])
    share.heard([3, 0])

    assert share.rate == 10.0
    assert share.others(2) == []


def test_an_order_of_an_older_client_has_the_rate_that_it_says() -> None:
    assert RateShare(ORDER._replace(together=(), total_rate=0.0)).rate == 2.5
    assert RateShare(ORDER._replace(together=(), total_rate=0.0)).others(0) == []


def test_without_a_limit_nobody_is_asked() -> None:
    share = RateShare(ORDER._replace(rate=0.0, total_rate=0.0, together=()))

    assert share.rate == 0.0
    assert share.others(0) == []


def test_a_message_counts_until_the_next_look() -> None:
    assert RateShare(ORDER).look_every_s == 1.0
    assert RateShare(ORDER._replace(total_rate=0.5)).look_every_s == 8.0


def test_an_order_is_the_same_after_it_was_stored() -> None:
    redrive = Redrive(ORDER, begun_at=0, cursor=Offset(3))  # type: ignore[arg-type]

    assert redrive_of(saved_redrive(redrive)) == redrive


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 3)))))
def test_together_they_are_never_too_fast(looks: Sequence[tuple[int, set[int]]]) -> None:
    """Whatever each hears and when: only what is done is left out, and it stays so."""
    shares = [RateShare(ORDER) for _ in range(4)]
    done: set[int] = set()
    for who, ended in looks:
        done |= ended
        shares[who].heard(one for one in ended if one != who)

        busy = [share.rate for number, share in enumerate(shares) if number not in done]
        assert sum(busy) <= ORDER.total_rate + 1e-9
