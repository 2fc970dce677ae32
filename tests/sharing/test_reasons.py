"""Why messages were rejected, in bounds."""

from waystation.model.offsets import Offset
from waystation.sharing.reasons import Reasons


def test_the_last_word_on_a_message_is_kept_until_it_is_a_dead_letter() -> None:
    reasons = Reasons()
    reasons.add(3, 6, "too late")
    reasons.add(4, 5, "too large")

    assert [reasons.of(Offset(at)) for at in range(2, 7)] == [
        "",
        "too late",
        "too large",
        "too late",
        "",
    ]

    reasons.forget([Offset(3), Offset(4)])

    assert [reasons.of(Offset(at)) for at in range(3, 6)] == ["", "", "too late"]


def test_what_consumers_say_takes_little_memory_whatever_they_say() -> None:
    reasons = Reasons()
    reasons.add(0, 1 << 62, "x" * 10_000)
    reasons.add(1 << 40, (1 << 40) + 1, "the last")

    kept = [at for at in range(3_000) if reasons.of(Offset(at))]
    assert len(kept) < 2_000
    assert {len(reasons.of(Offset(at))) for at in kept} == {300}
    assert reasons.of(Offset(1 << 40)) == "the last"
