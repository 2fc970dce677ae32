"""Claims are honoured in order and within the limit; buffers come back warm."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from waystation.server.memory import Claim, RequestMemory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


def nothing() -> None:
    pass


def test_claims_within_the_limit_are_admitted_at_once() -> None:
    memory = RequestMemory(1_000)

    assert memory.claim(600, nothing).admitted
    assert memory.claim(400, nothing).admitted
    assert not memory.claim(1, nothing).admitted


def test_a_claim_beyond_the_limit_is_admitted_alone() -> None:
    memory = RequestMemory(1_000)
    alone = memory.claim(5_000, nothing)
    woken: list[str] = []
    later = memory.claim(1, lambda: woken.append("later"))

    assert alone.admitted
    assert not later.admitted
    memory.release(alone)
    assert woken == ["later"]


def test_a_small_claim_does_not_overtake_a_large_one_that_waits() -> None:
    memory = RequestMemory(1_000)
    first = memory.claim(900, nothing)
    large = memory.claim(800, nothing)
    small = memory.claim(50, nothing)

    assert (large.admitted, small.admitted) == (False, False)
    memory.release(first)
    assert (large.admitted, small.admitted) == (True, True)


def test_who_gives_up_waiting_lets_the_next_one_in() -> None:
    memory = RequestMemory(1_000)
    first = memory.claim(500, nothing)
    large = memory.claim(800, nothing)
    small = memory.claim(300, nothing)
    memory.release(large)

    assert small.admitted
    memory.release(first)
    memory.release(small)
    assert memory.claimed_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 3_000), st.integers(0, 10)), max_size=100))
def test_admitted_claims_stay_within_the_limit_and_all_get_their_turn(
    steps: list[tuple[int, int]],
) -> None:
    memory = RequestMemory(1_000)
    asked: list[Claim] = []
    admitted: list[int] = []

    def waker(number: int) -> Callable[[], None]:
        return lambda: admitted.append(number)

    for number, (nbytes, which) in enumerate(steps):
        claim = memory.claim(nbytes, waker(number))
        if claim.admitted:
            admitted.append(number)
        asked.append(claim)
        held = [one for one in asked if one.admitted]
        assert memory.claimed_bytes == sum(one.nbytes for one in held)
        assert memory.claimed_bytes <= 1_000 or len(held) == 1
        if which < len(held):
            memory.release(held[which])
            asked.remove(held[which])
    while asked:
        memory.release(next(one for one in asked if one.admitted))
        asked.remove(next(one for one in asked if one.admitted))

    assert admitted == list(range(len(steps)))
    assert memory.claimed_bytes == 0


def test_a_buffer_that_came_back_is_used_again() -> None:
    memory = RequestMemory(1 << 30)
    buffer = memory.borrow(200_000)
    memory.give_back(buffer)

    assert memory.borrow(200_001) is buffer
    assert 200_001 <= len(buffer) <= 250_000


@given(st.integers(1, 100 << 20))
def test_a_buffer_is_at_most_a_quarter_longer_than_asked_for(nbytes: int) -> None:
    buffer = RequestMemory(1 << 30).borrow(nbytes)

    assert nbytes <= len(buffer) <= max(nbytes * 1.25, 1 << 17)


def test_a_buffer_that_nobody_wrote_to_takes_no_memory() -> None:
    before = resident_bytes()
    buffer = RequestMemory(1 << 30).borrow(100 << 20)

    assert resident_bytes() - before < 10 << 20
    assert len(buffer) >= 100 << 20


def test_buffers_nobody_wants_are_let_go() -> None:
    memory = RequestMemory(1 << 30)
    buffer = memory.borrow(200_000)
    memory.give_back(buffer)
    memory.sweep()
    assert memory.borrow(200_000) is buffer
    memory.give_back(buffer)
    memory.sweep()
    memory.sweep()

    assert memory.borrow(200_000) is not buffer


def test_only_so_much_is_kept_warm() -> None:
    memory = RequestMemory(1 << 30)
    buffers = [memory.borrow(16 << 20) for _ in range(4)]
    for buffer in buffers:
        memory.give_back(buffer)
    again = [memory.borrow(16 << 20) for _ in range(4)]

    assert sum(any(one is two for two in buffers) for one in again) == 2
