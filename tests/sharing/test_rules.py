"""The small rules: pauses between deliveries, the breaker, retention after acknowledgement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import InvalidSettingsError
from waystation.model.offsets import Millis, Offset
from waystation.model.settings import parse_settings
from waystation.sharing.breaker import CLOSED, OPEN, PROBING, Breaker, BreakerRule
from waystation.sharing.reset import duration_ms, reset_of
from waystation.sharing.retention import droppable, settled_before
from waystation.sharing.retry import RetryPolicy
from waystation.sharing.settings import QueueSettings

RULE = BreakerRule(part=0.5, least=4, window_ms=1_000, pause_ms=100)


def test_pauses_grow_up_to_their_bound() -> None:
    policy = RetryPolicy(10, 100, 1_000, 3.0)

    assert [policy.pause_ms(count) for count in range(6)] == [0, 100, 300, 900, 1_000, 1_000]
    assert RetryPolicy(10, 0).pause_ms(5) == 0
    assert policy.pause_ms(30_000) == 1_000


@given(st.integers(1, 40_000), st.integers(1, 40_000))
def test_a_message_is_given_up_at_its_limit_and_not_before(limit: int, count: int) -> None:
    assert RetryPolicy(limit).may_go_on(count) == (count < min(limit, 32_767))


def test_the_breaker_opens_on_a_flood_and_not_on_a_few() -> None:
    breaker = Breaker()

    assert [breaker.may_give_up(Millis(at), 1, RULE) for at in range(4)] == [True] * 3 + [False]
    assert breaker.state(Millis(3)) == OPEN
    assert breaker.state(Millis(103)) == PROBING


def test_the_breaker_looks_at_the_part_that_fails() -> None:
    breaker = Breaker()
    breaker.accepted(Millis(0), 100, RULE)

    assert all(breaker.may_give_up(Millis(1), 10, RULE) for _ in range(9))
    assert not breaker.may_give_up(Millis(2), 10, RULE)


def test_the_breaker_forgets_what_is_older_than_its_window() -> None:
    breaker = Breaker()
    for at in range(0, 20_000, 500):
        assert breaker.may_give_up(Millis(at), 1, RULE)
    assert breaker.state(Millis(20_000)) == CLOSED


def test_a_breaker_that_is_off_never_opens() -> None:
    breaker = Breaker()

    assert all(breaker.may_give_up(Millis(0), 100, BreakerRule()) for _ in range(50))


@pytest.mark.parametrize(
    ("groups", "positions", "expected"),
    [
        ((), {}, None),
        ((), {"a": Offset(5)}, None),
        (("a",), {}, None),
        (("a", "b"), {"a": Offset(5)}, None),
        (("a", "b"), {"a": Offset(5), "b": None}, None),
        (("a", "b"), {"a": Offset(5), "b": Offset(-1)}, None),
        (("a", "b"), {"a": Offset(5), "b": Offset(3), "other": Offset(1)}, 3),
        (("a",), {"a": Offset(0)}, 0),
    ],
)
def test_nothing_is_deleted_on_a_guess(
    groups: tuple[str, ...], positions: dict[str, Offset | None], expected: int | None
) -> None:
    assert settled_before(groups, positions) == expected
    kept = droppable(groups, positions, Offset(2))
    assert kept == (max(2, expected or 0), ())


def test_a_cap_in_bytes_overrides_and_names_who_is_robbed() -> None:
    positions: dict[str, Offset | None] = {"a": Offset(50), "b": Offset(10), "c": None}

    assert droppable(("a", "b", "c"), positions, Offset(0), Offset(30)) == (30, ("b", "c"))
    assert droppable(("a", "b"), positions, Offset(0), Offset(5)) == (10, ())
    assert droppable((), {}, Offset(0), Offset(30)) == (30, ())


def test_a_groups_options_are_checked() -> None:
    texts = {"share.order": "key", "max.deliveries": "7", "share.retry.backoff.ms": "250"}
    parsed = parse_settings(QueueSettings, texts)

    assert (parsed.share_order, parsed.retry().max_deliveries) == ("key", 7)
    assert parsed.is_ordered
    for bad in (
        {"share.order": "sideways"},
        {"max.deliveries": "0"},
        {"share.auto.offset.reset": "sometimes"},
        {"share.auto.offset.reset": "by_duration:1h"},
        {"share.priority.window": "0"},
    ):
        with pytest.raises(InvalidSettingsError):
            parse_settings(QueueSettings, bad)


@pytest.mark.parametrize(
    ("policy", "meant"),
    [
        ("earliest", (True, None)),
        ("latest", (False, None)),
        ("by_duration:PT1H30M", (False, 5_400_000)),
        ("by_duration:P7D", (False, 604_800_000)),
        ("by_duration:P1DT0.5S", (False, 86_400_500)),
    ],
)
def test_where_a_queue_begins(policy: str, meant: tuple[bool, int | None]) -> None:
    assert reset_of(policy) == meant
    assert parse_settings(QueueSettings, {"share.auto.offset.reset": policy})


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PTH", "PT1", "P-1D", "PT1H1", "P1H", "x"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration_ms(text)
