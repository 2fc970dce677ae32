"""What is in hand, what is processed and what is due."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.feed import Feed
from waystation.client.progress import Progress
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Offset

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def feeds() -> dict[TopicPartition, Feed]:
    made = {where: Feed(where, 1 << 20) for where in (FIRST, SECOND)}
    made[FIRST].seek(Offset(10))
    return made


def hand_out(progress: Progress, feeds: dict[TopicPartition, Feed], count: int) -> None:
    """As a poll does: the position moves, and messages are in hand."""
    before = {FIRST: feeds[FIRST].position}
    feeds[FIRST].position = Offset(feeds[FIRST].position + count)
    progress.hand_out(before)


def test_what_is_in_hand_is_not_processed(feeds: dict[TopicPartition, Feed]) -> None:
    progress = Progress(feeds, lambda: None)
    hand_out(progress, feeds, 5)

    assert progress.processed() == {FIRST: 10}

    progress.came_back()

    assert progress.processed() == {FIRST: 15}


def test_only_what_changed_is_due(feeds: dict[TopicPartition, Feed]) -> None:
    progress = Progress(feeds, lambda: None)
    progress.committed({FIRST: Offset(10)})
    hand_out(progress, feeds, 5)

    assert progress.due() == {}

    progress.came_back()
    assert progress.due() == {FIRST: 15}
    progress.committed({FIRST: Offset(15)})

    assert progress.due() == {}


def test_a_seek_puts_down_what_was_in_hand(feeds: dict[TopicPartition, Feed]) -> None:
    progress = Progress(feeds, lambda: None)
    progress.committed({FIRST: Offset(10)})
    hand_out(progress, feeds, 5)
    feeds[FIRST].seek(Offset(3))
    progress.sought(FIRST)

    assert progress.due() == {FIRST: 3}


def test_an_application_that_is_done_need_not_poll_to_say_so(
    feeds: dict[TopicPartition, Feed],
) -> None:
    progress = Progress(feeds, lambda: None)
    hand_out(progress, feeds, 5)
    progress.finish()

    assert progress.processed() == {FIRST: 15}


def test_a_partition_that_comes_back_is_known_anew(feeds: dict[TopicPartition, Feed]) -> None:
    progress = Progress(feeds, lambda: None)
    progress.committed({FIRST: Offset(10), TopicPartition("others", 0): Offset(3)})
    progress.forget([FIRST])

    assert progress.due() == {FIRST: 10}


async def test_partitions_move_only_while_nothing_is_in_hand(
    feeds: dict[TopicPartition, Feed],
) -> None:
    progress = Progress(feeds, lambda: None)
    await progress.at_rest()
    hand_out(progress, feeds, 1)
    waiting = asyncio.ensure_future(progress.at_rest())
    await asyncio.sleep(0)

    assert not waiting.done()
    assert progress.rest_is_wanted

    progress.came_back()
    hand_out(progress, feeds, 1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done(), "at rest with a message in hand"

    progress.came_back()
    await waiting
    assert not progress.rest_is_wanted


def test_time_away_counts_from_the_last_poll(feeds: dict[TopicPartition, Feed]) -> None:
    progress = Progress(feeds, lambda: None)
    progress.came_back()
    assert progress.away_s(100.0) == 0.0
    progress.went_away(100.0)

    assert progress.away_s(103.5) == 3.5


@given(st.lists(st.sampled_from(["hand out", "come back", "commit", "finish"]), max_size=30))
def test_a_commit_never_covers_what_is_in_hand(steps: list[str]) -> None:
    feeds = {FIRST: Feed(FIRST, 1 << 20)}
    feeds[FIRST].seek(Offset(0))
    progress, processed, in_hand, committed = Progress(feeds, lambda: None), 0, 0, -1
    for step in steps:
        match step:
            case "hand out" if not in_hand:
                hand_out(progress, feeds, 3)
                in_hand = 3
            case "come back" | "finish":
                progress.came_back() if step == "come back" else progress.finish()
                processed, in_hand = processed + in_hand, 0
            case "commit":
                due = progress.due()
                assert due == ({} if committed == processed else {FIRST: processed})
                progress.committed(due)
                committed = processed
