"""Sharing out queues: everybody reads, everything is read, and who may keep keeps."""

import time
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.model.ids import TopicId
from waystation.sharing.assignor import Subscriber, share_out
from waystation.sharing.group_commands import flat

TOPICS = [TopicId(UUID(int=number)) for number in (1, 2, 3)]


def shares(targets: dict[str, object], topic: TopicId) -> list[list[str]]:
    """The readers of each partition of a topic."""
    readers: dict[int, list[str]] = {}
    for member, partitions in targets.items():
        for found, indexes in partitions:  # type: ignore[attr-defined]
            for index in indexes if found == topic else ():
                readers.setdefault(index, []).append(member)
    return [readers[index] for index in sorted(readers)]


def test_fifty_consumers_on_four_partitions() -> None:
    members = [Subscriber(f"m{number:02}", frozenset(TOPICS[:1]), ()) for number in range(50)]
    targets = share_out(members, {TOPICS[0]: range(4)})

    assert sorted(map(len, shares(targets, TOPICS[0]))) == [12, 12, 13, 13]  # type: ignore[arg-type]


def test_two_consumers_on_five_partitions() -> None:
    members = [Subscriber(name, frozenset(TOPICS[:2]), ()) for name in "ab"]
    targets = share_out(members, {TOPICS[0]: range(5), TOPICS[1]: range(1, 4)})

    assert sorted(len(flat(partitions)) for partitions in targets.values()) == [4, 4]


MEMBERS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS)), max_size=8
)
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6).map(range), max_size=3)


@settings(max_examples=150, deadline=None)
@given(MEMBERS, MEMBERS, COUNTS)
def test_everybody_reads_and_everything_is_read(
    before: dict[str, frozenset[TopicId]],
    wanted: dict[str, frozenset[TopicId]],
    counts: dict[TopicId, range],
) -> None:
    first = share_out([Subscriber(name, topics, ()) for name, topics in before.items()], counts)
    members = [Subscriber(name, topics, first.get(name, ())) for name, topics in wanted.items()]
    targets = share_out(members, counts)

    assert targets == share_out(members[::-1], counts)
    for topic, partitions in counts.items():
        subscribers = [name for name, topics in wanted.items() if topic in topics]
        read = shares(targets, topic)  # type: ignore[arg-type]
        assert len(read) == (len(partitions) if subscribers else 0)
        assert {member for readers in read for member in readers} == set(subscribers)
        if read:
            assert max(map(len, read)) - min(map(len, read)) <= 1
    kept = {name: targets[name] for name in wanted}
    again = share_out([one._replace(held=kept[one.member_id]) for one in members], counts)
    assert again == targets, "nobody moves without a reason"


def test_a_thousand_members_and_five_thousand_partitions_hold_nobody_up() -> None:
    """Not every reader is looked at for every partition: the loop waits for this."""
    members = [Subscriber(f"m{number:03}", frozenset(TOPICS[:1]), ()) for number in range(1_000)]
    began_s = time.thread_time()

    targets = share_out(members, {TOPICS[0]: range(5_000)})

    assert time.thread_time() - began_s < 0.3
    assert {len(flat(partitions)) for partitions in targets.values()} == {5}
