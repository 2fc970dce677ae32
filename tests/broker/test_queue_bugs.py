"""Bugs planted into a queue's host: lives by seed notice each of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_queue_lives import Life
from waystation.broker.queue_giving import Giving
from waystation.broker.queue_host import QueueHost
from waystation.sharing.leader import QueueLeader, Steps
from waystation.sharing.share_partition import SharePartition

SEEDS = 40


def deaf_to_the_log(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told of what is produced, nor that another term has begun."""
    patch.setattr(QueueHost, "_log_moved", lambda self: None)


def nobody_is_woken(patch: pytest.MonkeyPatch) -> None:
    """What is given back is not told of."""
    patch.setattr(QueueHost, "_wake", lambda self: None)


def locks_last(patch: pytest.MonkeyPatch) -> None:
    """No timer takes messages back."""
    patch.setattr(QueueHost, "_arm", lambda self, queue: None)


def answered_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are confirmed at once."""
    acknowledge: Callable[..., Steps] = QueueLeader.acknowledge

    def hasty(self: Any, now: Any, member: str, said: Any, to: Any) -> Steps:
        steps = acknowledge(self, now, member, said, lambda _: None)
        to(steps.replies[0].answer if steps.replies else None)
        return Steps((), steps.write)

    patch.setattr(QueueLeader, "acknowledge", hasty)


def given_beyond_its_term(patch: pytest.MonkeyPatch) -> None:
    """A queue is kept when its leader's term is over, and what waits for it never hears."""
    patch.setattr(QueueHost, "check", lambda self: None)
    patch.setattr(QueueHost, "_log_moved", QueueHost._tell)


def lost_writes_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    """Who is not answered by the coordinator never asks again."""
    patch.setattr(QueueHost, "_write_again", lambda self: None)


def the_log_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """What retention took is not passed over."""
    patch.setattr(SharePartition, "log_begins_at", lambda self, log_start: None)


def released_is_not_found_again(patch: pytest.MonkeyPatch) -> None:
    """Only what was never delivered is given."""
    give = Giving.give

    def fresh_only(self: Giving, queue: SharePartition, now: Any, member: str, wish: Any) -> Any:
        first = queue.next_offset(now)
        if first is not None and first < queue.end:
            return give(self, queue, now, member, wish._replace(records=0))
        return give(self, queue, now, member, wish)

    patch.setattr(Giving, "give", fresh_only)


BUGS = (
    deaf_to_the_log,
    nobody_is_woken,
    locks_last,
    answered_before_it_is_stored,
    given_beyond_its_term,
    lost_writes_are_not_repeated,
    the_log_is_not_looked_at,
    released_is_not_found_again,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
async def test_every_bug_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    bug(monkeypatch)

    for seed in range(SEEDS):
        try:
            live(tmp_path / str(seed), seed)
        except Exception:  # an assertion of ours, or one of the queue's own
            return
    pytest.fail(f"{SEEDS} lives went well")


def live(path: Path, seed: int) -> None:
    life = Life(path, seed)
    for _ in range(150):
        life.step()
    life.end()
