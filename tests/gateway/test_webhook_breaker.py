"""When a target counts as down, and which messages are given up."""

import pytest

from waystation.gateway.webhook_breaker import OPENS_AFTER, Breaker, Verdict, verdict_of


def down(breaker: Breaker, times: int, now: int = 0) -> int:
    for _ in range(times):
        now += breaker.waits_ms(now)
        breaker.heard(now, Verdict.DOWN)
    return now


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.ACCEPTED),
        (204, Verdict.ACCEPTED),
        (302, Verdict.DOWN),
        (400, Verdict.REFUSED),
        (401, Verdict.DOWN),
        (404, Verdict.DOWN),
        (409, Verdict.REFUSED),
        (410, Verdict.NEVER),
        (422, Verdict.REFUSED),
        (429, Verdict.DOWN),
        (500, Verdict.DOWN),
        (503, Verdict.DOWN),
        (None, Verdict.DOWN),
    ],
)
def test_a_status_is_about_the_message_or_about_the_target(
    status: int | None, verdict: Verdict
) -> None:
    assert verdict_of(status) is verdict


def test_a_target_that_is_down_is_probed_one_request_at_a_time_and_ever_more_rarely() -> None:
    breaker = Breaker()
    now = down(breaker, OPENS_AFTER - 1)

    assert breaker.may_send(now, 8, 3) == 5

    breaker.heard(now, Verdict.DOWN)

    assert breaker.is_open
    waits = []
    for _ in range(9):
        waits.append(breaker.waits_ms(now))
        assert breaker.may_send(now, 8, 0) == 0
        now += waits[-1]
        assert (breaker.may_send(now, 8, 0), breaker.may_send(now, 8, 1)) == (1, 0)
        breaker.heard(now, Verdict.DOWN)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize("answer", [Verdict.ACCEPTED, Verdict.REFUSED, Verdict.NEVER])
def test_any_answer_that_is_not_about_the_target_closes_it(answer: Verdict) -> None:
    breaker = Breaker()
    now = down(breaker, OPENS_AFTER + 3)
    breaker.heard(now, answer)

    assert not breaker.is_open
    assert breaker.may_send(now, 8, 0) == 8


def test_nothing_is_given_up_while_the_target_takes_nothing() -> None:
    breaker = Breaker()
    breaker.heard(0, Verdict.DOWN)

    assert not breaker.may_give_up(Verdict.DOWN, 1_000, 5), "it was never seen to be up"

    breaker.heard(0, Verdict.ACCEPTED)
    breaker.heard(0, Verdict.DOWN)

    assert breaker.may_give_up(Verdict.DOWN, 5, 5)
    assert not breaker.may_give_up(Verdict.DOWN, 4, 5)

    down(breaker, OPENS_AFTER)

    assert not breaker.may_give_up(Verdict.DOWN, 1_000, 5)
    assert breaker.may_give_up(Verdict.DOWN, 5, 5, counts=True)
    assert breaker.may_give_up(Verdict.REFUSED, 5, 5)
    assert breaker.may_give_up(Verdict.NEVER, 1, 5)


def test_a_target_that_asks_for_patience_gets_it() -> None:
    breaker = Breaker()
    breaker.heard(1_000, Verdict.DOWN, patience_ms=5_000)

    assert not breaker.is_open
    assert (breaker.waits_ms(1_000), breaker.may_send(1_000, 8, 0)) == (5_000, 0)
    assert breaker.may_send(6_000, 8, 0) == 8
