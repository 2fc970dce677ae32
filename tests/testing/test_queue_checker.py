"""The checker of queues finds what it looks for: each planted bug is one that it must see."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from waystation.testing.history import HistoryDamagedError, HistoryFile
from waystation.testing.queue_checker import Fault, QueueVerdict, Rules, check_queue, unsettled
from waystation.testing.queue_history import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Answer,
    Given,
    How,
    Marked,
    Placed,
    QueueDiary,
    QueueEvent,
    Sending,
    read_queue_histories,
)

LOCK_MS = 1_000
LIMIT = 5
RULES = Rules(LOCK_MS, LIMIT, hearsay_ms=200, dying_ms=0)
BY_KEY = RULES._replace(by_key=True)


@dataclass
class Story:
    """A history in the making, of one partition; a millisecond passes with every event."""

    now_ms: int = 0
    events: list[QueueEvent] = field(default_factory=list)
    diaries: dict[str, QueueDiary] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)

    def of(self, process: str) -> QueueDiary:
        if process not in self.diaries:
            self.diaries[process] = QueueDiary(process, self._write, self.now_ns)
        return self.diaries[process]

    def now_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def send(self, *keys: str | None, told: bool = True) -> None:
        """The next offsets are these keys'."""
        for value in self.of("w").sending(keys):
            offset = len(self.values)
            self.values[offset] = value.number
            if told:
                self.of("w").sent([Placed(value.number, 0, offset)])

    def give(self, consumer: str, count: int, *offsets: int, asked_ms: int | None = None) -> None:
        """A delivery, asked for just before or at ``asked_ms``."""
        asked_ns = self.now_ns() - 1 if asked_ms is None else asked_ms * 1_000_000
        rows = [Given(0, offset, count, "w", self.values[offset]) for offset in offsets]
        self.of(consumer).delivered(asked_ns, rows)

    def settle(
        self,
        consumer: str,
        count: int,
        *offsets: int,
        how: How = ACCEPT,
        answer: Answer | None = "yes",
    ) -> None:
        """Said, and (unless ``None``) answered a millisecond later."""
        rows = [Marked(0, offset, count) for offset in offsets]
        self.of(consumer).settling(how, rows)
        if answer is not None:
            self.of(consumer).settled(how, answer, rows)

    def led(self, epoch: int) -> None:
        self.of("watcher").led(0, epoch % 3, epoch)

    def _write(self, event: QueueEvent) -> None:
        self.events.append(event)
        self.now_ms += 1


def honest() -> Story:
    """Everything that a queue may do: each reason for another delivery, each kind of answer.

    0 is simply done; 1 is released and done by another; 2 is a hung consumer's, and late; 3 was a
    dead consumer's; 4 was out when the leader died, and counts anew; 5 is done, nobody knows; 6 is
    rejected; of 7 the sender does not know; 8 is renewed.
    """
    story = Story()
    story.led(1)
    story.send("a", "b", "c", "d")
    story.give("c1", 1, 0, 1)
    story.give("c2/1", 1, 2)
    story.give("c3/1", 1, 3)
    story.settle("c1", 1, 0)
    story.settle("c1", 1, 1, how=RELEASE)
    story.give("c4", 2, 1)
    story.settle("c4", 2, 1)
    story.of("fate").died("c3")
    story.give("c4", 2, 3)
    story.settle("c4", 2, 3)
    story.wait(LOCK_MS)
    story.give("c4", 2, 2)
    story.settle("c2/1", 1, 2, answer="not held")
    story.settle("c4", 2, 2)
    story.wait(1_000)
    story.send("e", "f", "g")
    story.give("c1", 1, 4, 5, 6)
    story.settle("c1", 1, 6, how=REJECT)
    story.settle("c1", 1, 5, answer=None)
    story.led(2)
    story.give("c5", 1, 4)
    story.settle("c5", 1, 4)
    story.wait(1_000)
    story.send("h", told=False)
    story.send("i")
    story.give("c5", 1, 8)
    story.wait(LOCK_MS - 10)
    story.settle("c5", 1, 8, how=RENEW)
    story.wait(LOCK_MS - 10)
    story.settle("c5", 1, 8)
    return story


def faults(verdict: QueueVerdict) -> set[Fault]:
    return {one.fault for one in verdict.findings}


def test_an_honest_history_passes() -> None:
    verdict = check_queue(honest().events, BY_KEY)

    assert verdict.findings == []
    assert (verdict.sent, verdict.done, verdict.in_doubt) == (8, 7, 1)
    assert verdict.again == {"release": 1, "death": 1, "time-out": 1, "change of leader": 1}
    assert "8 sent, 12 deliveries, 7 done" in str(verdict)


def test_the_order_of_files_does_not_matter() -> None:
    """Each process has its own file, and they are read one after the other."""
    events = sorted(honest().events, key=lambda event: event.process, reverse=True)

    assert check_queue(events, BY_KEY) == check_queue(honest().events, BY_KEY)


# --- planted bugs -----------------------------------------------------------------------------


def loses_a_message(story: Story) -> None:
    story.send("x")


def loses_what_was_refused(story: Story) -> None:
    """Its consumer was too late, and nobody got it again."""
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS)
    story.settle("c1", 1, 9, answer="not held")


def loses_what_was_released(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.settle("c1", 1, 9, how=RELEASE)


def lets_two_be_done(story: Story) -> None:
    """The second was given it after a time-out; the first is believed all the same."""
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS)
    story.give("c2", 2, 9)
    story.settle("c2", 2, 9)
    story.settle("c1", 1, 9)


def believes_who_holds_it_no_more(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS)
    story.give("c2", 2, 9)
    story.settle("c1", 1, 9)


def delivers_what_is_done(story: Story) -> None:
    story.give("c1", 2, 0)


def delivers_what_is_done_under_another_leader(story: Story) -> None:
    story.led(3)
    story.give("c1", 1, 0)


def delivers_what_was_rejected(story: Story) -> None:
    story.wait(LOCK_MS)
    story.give("c1", 2, 6)


def gives_it_to_two(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS - 10)
    story.give("c2", 2, 9)
    story.settle("c2", 2, 9)


def forgets_a_renewal(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS - 10)
    story.settle("c1", 1, 9, how=RENEW)
    story.wait(20)
    story.give("c2", 2, 9)
    story.settle("c2", 2, 9)


def takes_the_death_of_another_for_this_ones(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.of("fate").died("c11")
    story.give("c2", 2, 9)
    story.settle("c2", 2, 9)


def counts_one_twice(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS)
    story.give("c2", 1, 9)
    story.settle("c2", 1, 9)


def counts_backwards(story: Story) -> None:
    story.send("x")
    story.give("c1", 2, 9)
    story.wait(LOCK_MS)
    story.give("c2", 1, 9)
    story.settle("c2", 1, 9)


def counts_what_nobody_got(story: Story) -> None:
    """Deaths of long ago explain nothing."""
    story.send("x")
    story.give("c1", 3, 9)
    story.settle("c1", 3, 9)


def counts_on_too_far_under_another_leader(story: Story) -> None:
    """A change of leader forgets deliveries, and invents none."""
    story.send("x")
    story.give("c1", 1, 9)
    story.led(3)
    story.give("c2", 3, 9)
    story.settle("c2", 3, 9)


def counts_a_quick_one_by_a_later_death(story: Story) -> None:
    """Whoever has it holds it for as long as a lock lasts, and until it dies."""
    story.send("x")
    story.give("c1", 1, 9)
    story.settle("c1", 1, 9, how=RELEASE)
    story.give("c2", 3, 9)
    story.settle("c2", 3, 9)
    story.of("fate").died("c7", consumers=5)


def forgets_what_was_given_back(story: Story) -> None:
    """The count was not stored, though the consumer was told so: the next leader begins anew."""
    story.send("x")
    story.give("c1", 1, 9)
    story.settle("c1", 1, 9, how=RELEASE)
    story.led(3)
    story.give("c2", 1, 9)
    story.settle("c2", 1, 9)


def lets_two_be_done_beside_a_sleeper(story: Story) -> None:
    """That a leader was asleep excuses much, and not that both are believed."""
    story.send("x")
    story.give("c1", 1, 9)
    story.of("fate").slept("broker 1")
    story.led(3)
    story.give("c2", 1, 9)
    story.settle("c2", 1, 9)
    story.of("fate").woken("broker 1")
    story.settle("c1", 1, 9)


def delivers_too_often(story: Story) -> None:
    story.send("x")
    for count in range(1, LIMIT + 2):
        story.give("c1", count, 9)
        story.wait(LOCK_MS)
    story.settle("c1", LIMIT + 1, 9)


def refuses_who_holds_it(story: Story) -> None:
    story.send("x")
    story.give("c1", 1, 9)
    story.settle("c1", 1, 9, answer="not held")
    story.wait(LOCK_MS)
    story.give("c2", 2, 9)
    story.settle("c2", 2, 9)


def delivers_what_nobody_sent(story: Story) -> None:
    story.of("c1").delivered(story.now_ns(), [Given(0, 9, 1, "w", 99)])


def delivers_another(story: Story) -> None:
    story.send("x")
    story.of("c1").delivered(story.now_ns(), [Given(0, 9, 1, "w", 0)])
    story.settle("c1", 1, 9)


def lets_two_of_a_key_out(story: Story) -> None:
    story.send("x", "x")
    story.give("c1", 1, 9)
    story.give("c2", 1, 10)
    story.settle("c1", 1, 9)
    story.settle("c2", 1, 10)


def skips_one_of_a_key(story: Story) -> None:
    """The first was refused, so that its acceptance does not make way for the second."""
    story.send("x", "x")
    story.give("c1", 1, 9)
    story.wait(LOCK_MS)
    story.settle("c1", 1, 9, answer="not held")
    story.give("c2", 1, 10)
    story.settle("c2", 1, 10)
    story.give("c1", 2, 9)
    story.settle("c1", 2, 9)


def brings_one_of_a_key_back(story: Story) -> None:
    """The new leader forgot that the first was done, though it knew of the third."""
    story.send("x", "x", "x")
    for offset in (9, 10, 11):
        story.give("c1", 1, offset)
        story.settle("c1", 1, offset, answer="yes" if offset == 11 else None)
    story.led(3)
    story.give("c2", 1, 9)
    story.settle("c2", 1, 9)


BUGS: list[tuple[Callable[[Story], None], Fault]] = [
    (loses_a_message, Fault.LOST),
    (loses_what_was_refused, Fault.LOST),
    (loses_what_was_released, Fault.LOST),
    (lets_two_be_done, Fault.DONE_TWICE),
    (believes_who_holds_it_no_more, Fault.HELD_NO_MORE),
    (delivers_what_is_done, Fault.DELIVERED_WHEN_DONE),
    (delivers_what_is_done_under_another_leader, Fault.DELIVERED_WHEN_DONE),
    (delivers_what_was_rejected, Fault.DELIVERED_WHEN_DONE),
    (gives_it_to_two, Fault.DELIVERED_WHILE_HELD),
    (forgets_a_renewal, Fault.DELIVERED_WHILE_HELD),
    (takes_the_death_of_another_for_this_ones, Fault.DELIVERED_WHILE_HELD),
    (counts_one_twice, Fault.WRONG_COUNT),
    (counts_backwards, Fault.WRONG_COUNT),
    (counts_what_nobody_got, Fault.WRONG_COUNT),
    (counts_on_too_far_under_another_leader, Fault.WRONG_COUNT),
    (counts_a_quick_one_by_a_later_death, Fault.WRONG_COUNT),
    (forgets_what_was_given_back, Fault.WRONG_COUNT),
    (lets_two_be_done_beside_a_sleeper, Fault.DONE_TWICE),
    (delivers_too_often, Fault.WRONG_COUNT),
    (refuses_who_holds_it, Fault.REFUSED),
    (delivers_what_nobody_sent, Fault.PHANTOM),
    (delivers_another, Fault.PHANTOM),
    (lets_two_of_a_key_out, Fault.OUT_OF_ORDER),
    (skips_one_of_a_key, Fault.OUT_OF_ORDER),
    (brings_one_of_a_key_back, Fault.OUT_OF_ORDER),
]


@pytest.mark.parametrize(("bug", "fault"), BUGS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_bug_is_found(bug: Callable[[Story], None], fault: Fault) -> None:
    story = honest()
    story.wait(5_000)
    bug(story)

    assert fault in faults(check_queue(story.events, BY_KEY))


def test_a_queue_that_promises_no_order_is_not_held_to_it() -> None:
    story = honest()
    story.wait(5_000)
    lets_two_of_a_key_out(story)

    assert check_queue(story.events, RULES).findings == []


# --- what it may not take for a bug -----------------------------------------------------------


def test_what_was_asked_for_long_ago_may_have_been_given_long_ago() -> None:
    """A hung consumer finds an old delivery in its socket, once another has the message."""
    story = Story()
    story.send("a")
    story.wait(LOCK_MS + 10)
    story.give("c2", 2, 0)
    story.give("c1", 1, 0, asked_ms=0)
    story.settle("c1", 1, 0, answer="not held")
    story.settle("c2", 2, 0)

    assert check_queue(story.events, BY_KEY).findings == []


def test_who_died_may_have_got_what_it_did_not_write_down() -> None:
    story = Story()
    story.send("a")
    story.of("fate").died("c1", consumers=2)
    story.give("c2", 3, 0)
    story.settle("c2", 3, 0)

    assert check_queue(story.events, RULES).findings == []

    story.give("c2", 5, 0)

    assert Fault.WRONG_COUNT in faults(check_queue(story.events, RULES))


def test_who_dies_may_get_something_until_its_broker_knows() -> None:
    story = Story()
    story.of("fate").died("c1")
    story.send("a")
    story.give("c2", 2, 0)
    story.settle("c2", 2, 0)

    assert faults(check_queue(story.events, RULES)) == {Fault.WRONG_COUNT}
    assert check_queue(story.events, RULES._replace(dying_ms=10)).findings == []


def test_what_a_client_gives_back_unread_is_a_delivery_like_others() -> None:
    story = Story()
    story.send("a")
    story.give("c1", 1, 0)
    story.settle("c1", 1, 0, how=RELEASE, answer=None)
    story.give("c2", 2, 0)
    story.settle("c2", 2, 0)

    assert check_queue(story.events, RULES).findings == []


def test_who_was_slow_may_die_after_its_lock_was_over() -> None:
    story = Story()
    story.send("a")
    story.wait(LOCK_MS)
    story.give("c2", 2, 0)
    story.settle("c2", 2, 0)
    story.of("fate").died("c1")

    assert check_queue(story.events, RULES).findings == []
    assert faults(check_queue(story.events, RULES._replace(late_ms=1))) == {Fault.WRONG_COUNT}


def test_a_leader_that_slept_may_hand_out_what_is_done_until_it_knows() -> None:
    story = Story()
    story.led(1)
    story.send("a", "a")
    story.give("c1", 1, 0)
    story.of("fate").slept("broker 1")
    story.wait(LOCK_MS)
    story.led(2)
    story.give("c2", 1, 0)
    story.settle("c2", 1, 0)
    story.give("c2", 1, 1)
    story.settle("c2", 1, 1)
    story.of("fate").woken("broker 1")
    story.give("c3", 2, 0)
    story.settle("c3", 2, 0, answer="not held")

    assert check_queue(story.events, BY_KEY).findings == []

    story.wait(RULES.hearsay_ms)
    story.give("c3", 3, 0)

    assert faults(check_queue(story.events, BY_KEY)) >= {
        Fault.DELIVERED_WHEN_DONE,
        Fault.OUT_OF_ORDER,
    }


def test_a_change_of_leader_is_heard_of_late() -> None:
    """The new leader delivers before the watcher knows of it, but not long before."""
    story = Story()
    story.led(1)
    story.send("a")
    story.wait(500)
    story.give("c1", 1, 0)
    story.give("c2", 1, 0)
    story.settle("c2", 1, 0)
    story.led(2)

    assert check_queue(story.events, RULES).findings == []
    assert faults(check_queue(story.events, RULES._replace(hearsay_ms=1))) == {
        Fault.WRONG_COUNT,
    }


def test_one_that_was_tried_as_often_as_allowed_is_not_lost() -> None:
    story = Story()
    story.send("a", "a")
    for count in range(1, LIMIT + 1):
        story.give("c1", count, 0)
        story.settle("c1", count, 0, how=RELEASE)
    story.give("c2", 1, 1)
    story.settle("c2", 1, 1)

    assert check_queue(story.events, BY_KEY).findings == []


def test_a_history_is_whole_when_nothing_waits() -> None:
    story = honest()

    assert unsettled(story.events, RULES) == 0

    story.send("x", "x")

    assert unsettled(story.events, RULES) == 2


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    told = honest().events
    with HistoryFile(tmp_path / "all.jsonl") as file:
        for event in told:
            file.write(event)
    with (tmp_path / "all.jsonl").open("ab") as torn:
        torn.write(b'{"event":"died","at_ns":')

    assert list(read_queue_histories([tmp_path / "all.jsonl"])) == told
    assert isinstance(told[1], Sending)


def test_what_is_no_history_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"event":"eaten"}\n')

    with pytest.raises(HistoryDamagedError, match="line 1"):
        list(read_queue_histories([tmp_path / "bad.jsonl"]))
