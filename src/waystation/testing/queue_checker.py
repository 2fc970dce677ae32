"""Whether a queue did what a queue may do, judged by what its clients saw: a total queue.

``check_queue`` takes the history of one queue (``queue_history.py``) and finds

=====================  ==========================================================================
lost                   acknowledged to its sender, and no consumer ever said that it is done
done twice             two consumers were told that their acknowledgement of it counts
delivered when done    delivered again although an acknowledgement of it was answered with yes
delivered while held   delivered again before its lock was over, without release, without death of
                       its consumer and without a change of leader
wrong count            a delivery that does not count one more than the one before it: one that
                       counts as another under the same leader, one that follows others that
                       nobody got, one that forgets what was given back and stored
held no more           an acknowledgement that counts, of somebody whose lock was over, after
                       another consumer had got the message
refused                an acknowledgement that does not count although the lock was not over
out of order           of one key, a message was out before the one before it was done, or came
                       back after a later one was done; looked at only if order by key is promised
phantom                a message that nobody sent, or another than stood there before
=====================  ==========================================================================

It is certain of what it finds.  When the broker gave a message away is known only to lie between
two moments, and so is when a partition changed its leader; whatever is possible within these is
taken for what happened.  A delivery that counts and that nobody wrote down is possible only where
a consumer died just then: one that was lost with its broker is counted by no other.  A leader that
was replaced in its sleep may hand out for a moment what is done: that is no finding, and that
somebody is told that it counts is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

from waystation.testing.queue_history import ACCEPT, REJECT, RELEASE, QueueEvent
from waystation.testing.queue_past import (
    NS_PER_MS,
    Fault,
    Got,
    Message,
    Past,
    QueueFinding,
)

__all__ = ["Fault", "QueueFinding", "QueueVerdict", "Rules", "check_queue", "unsettled"]


class Rules(NamedTuple):
    """What the queue was told to do, and how well its history knows who led."""

    lock_ms: int
    max_deliveries: int
    by_key: bool = False
    hearsay_ms: int = 5_000
    """A watcher is told of a change of leader at most so long after it came to be."""
    late_ms: int = 10_000
    """A consumer that lives has written down what it was given at most so long after."""
    dying_ms: int = 1_000
    """Whose death is written down is given nothing any more at most so long after."""


class QueueVerdict(NamedTuple):
    """What was found, and in how much."""

    findings: list[QueueFinding]
    sent: int
    """Messages that were acknowledged to their senders."""
    deliveries: int
    done: int
    """Messages of which a consumer was told that its acknowledgement counts."""
    in_doubt: int
    """Messages of which an acknowledgement was sent, and none answered with yes."""
    again: dict[str, int]
    """Deliveries after the first, by what allowed them."""

    def __str__(self) -> str:
        why = ", ".join(f"{count} after {reason}" for reason, count in sorted(self.again.items()))
        return (
            f"{self.sent} sent, {self.deliveries} deliveries, {self.done} done, "
            f"{self.in_doubt} in doubt; again: {why or 'none'}"
        )


def check_queue(events: Iterable[QueueEvent], rules: Rules) -> QueueVerdict:
    """Judge a history; its events may come in any order that keeps each process's own."""
    past = Past(events, rules.hearsay_ms)
    judge = _Judge(past, rules)
    findings = [*past.findings, *judge.findings()]
    messages = past.messages.values()
    return QueueVerdict(
        findings=list(dict.fromkeys(findings)),
        sent=len(past.sent),
        deliveries=sum(len(one.deliveries) for one in messages),
        done=sum(one.is_done for one in messages),
        in_doubt=sum(one.is_in_doubt and not one.is_done for one in messages),
        again=dict(judge.again),
    )


def unsettled(events: Iterable[QueueEvent], rules: Rules) -> int:
    """How many messages still wait for a consumer: a history is whole when none does."""
    past = Past(events, rules.hearsay_ms)
    return sum(1 for _ in _lost(past, rules))


# --- what may not be --------------------------------------------------------------------------


class _Judge:
    """Looks at each message; ``again`` counts what allowed its deliveries after the first."""

    def __init__(self, past: Past, rules: Rules) -> None:
        self._past, self._rules = past, rules
        self.again: Counter[str] = Counter()

    def findings(self) -> Iterator[QueueFinding]:
        """All that is wrong."""
        for message in self._past.messages.values():
            yield from self._done_once(message)
            yield from self._refused(message)
            yield from self._counts(message)
            for one, other in combinations(message.deliveries, 2):
                yield from self._beside(message, one, other)
            self._count_reasons(message)
        yield from _lost(self._past, self._rules)
        if self._rules.by_key:
            yield from _out_of_order(self._past, self._rules)

    def _done_once(self, message: Message) -> Iterator[QueueFinding]:
        done = [one for one in message.deliveries if one.done_ns is not None]
        if len(done) > 1:
            yield QueueFinding(Fault.DONE_TWICE, f"{message}: {' and '.join(map(str, done))}")
        for one in done:
            assert one.done_ns is not None
            for later in message.deliveries:
                if later.asked_ns > one.done_ns and not self._past.may_be_stale(later):
                    yield _when_done(message, one, later)

    def _refused(self, message: Message) -> Iterator[QueueFinding]:
        for one in message.deliveries:
            refused_ns = one.refused_ns
            if refused_ns is None or len(one.settling_ns) > 1 or one.done_ns is not None:
                continue
            if self._ended(one, refused_ns, unasked=True) or self._may_be_another(
                message, one.asked_ns, refused_ns
            ):
                continue
            yield QueueFinding(Fault.REFUSED, f"{message}: {one} was still held")

    def _counts(self, message: Message) -> Iterator[QueueFinding]:
        for one in message.deliveries:
            if not 1 <= one.count <= self._rules.max_deliveries:
                yield QueueFinding(Fault.WRONG_COUNT, f"{message}: {one}")
        yield from self._gaps(message)
        yield from self._forgotten(message)

    def _gaps(self, message: Message) -> Iterator[QueueFinding]:
        """Counts that nobody saw, whoever led: there must have been somebody who could not."""
        before, since_ns = 0, self._past.sending_ns.get(message.value, 0)
        for one in sorted(message.deliveries, key=lambda one: (one.count, one.got_ns)):
            missing = one.count - before - 1
            is_excused = self._past.may_be_stale(one)
            if missing > self._unseen(since_ns, one.got_ns) and not is_excused:
                what = f"{message}: {one}, and {missing} before it were never seen"
                yield QueueFinding(Fault.WRONG_COUNT, what)
            same = one.count == before
            before, since_ns = one.count, min(since_ns, one.asked_ns) if same else one.asked_ns

    def _unseen(self, from_ns: int, to_ns: int) -> int:
        """How many deliveries of a message may have been lost on their way to be written down.

        One that was lost with its consumer ended then, or was over before and too slow.
        """
        rules = self._rules
        is_long = to_ns - from_ns >= rules.lock_ms * NS_PER_MS
        early_ns = from_ns - rules.dying_ms * NS_PER_MS
        late_ns = to_ns + (rules.late_ms * NS_PER_MS if is_long else 0)
        deaths = (d for d in self._past.deaths.values() if early_ns <= d.at_ns <= late_ns)
        return sum(one.consumers for one in deaths)

    def _forgotten(self, message: Message) -> Iterator[QueueFinding]:
        """What was given back and stored counts, whoever leads next."""
        for one, later in permutations(message.deliveries, 2):
            if (
                one.released_ns is not None
                and later.asked_ns > one.released_ns
                and later.count <= one.count
                and not self._past.may_be_stale(later)
            ):
                what = f"{message}: {later}, after {one} was given back"
                yield QueueFinding(Fault.WRONG_COUNT, what)

    def _beside(self, message: Message, one: Got, other: Got) -> Iterator[QueueFinding]:
        """Two deliveries under one leader, in the order in which it counted them."""
        first, second = (one, other) if one.count <= other.count else (other, one)
        from_ns = min(first.asked_ns, second.asked_ns)
        if self._may_be_another(message, from_ns, max(first.got_ns, second.got_ns)):
            return
        if first.count == second.count:
            yield QueueFinding(Fault.WRONG_COUNT, f"{message}: {first} and {second}")
            return
        if second.got_ns < first.asked_ns:
            yield QueueFinding(Fault.WRONG_COUNT, f"{message}: {second} before {first}")
        elif not self._ended(first, second.got_ns):
            yield QueueFinding(Fault.DELIVERED_WHILE_HELD, f"{message}: {second}, during {first}")
        if first.done_ns is not None:
            said_ns = min(first.settling_ns.get(how, first.done_ns) for how in (ACCEPT, REJECT))
            if second.got_ns < said_ns:
                what = f"{message}: {first} counts although {second} came before"
                yield QueueFinding(Fault.HELD_NO_MORE, what)
            else:
                yield _when_done(message, first, second)

    def _ended(self, one: Got, by_ns: int, *, unasked: bool = False) -> str | None:
        """What may have ended a delivery by then, or nothing; ``unasked``: but its consumer."""
        if not unasked and one.settling_ns.get(RELEASE, by_ns) < by_ns:
            return "release"
        death_ns = self._past.death_ns(one.consumer)
        if death_ns is not None and death_ns <= by_ns:
            return "death"
        if by_ns - one.locked_ns >= self._rules.lock_ms * NS_PER_MS:
            return "time-out"
        return None

    def _count_reasons(self, message: Message) -> None:
        # One that was late on its way may arrive after the next.
        ordered = sorted(message.deliveries, key=lambda one: (one.count, one.got_ns))
        for before, after in pairwise(ordered):
            reason = self._ended(before, after.got_ns)
            from_ns, to_ns = sorted((before.asked_ns, after.got_ns))
            if reason in (None, "time-out") and self._may_be_another(message, from_ns, to_ns):
                reason = "change of leader"
            self.again[reason or "nothing"] += 1

    def _may_be_another(self, message: Message, from_ns: int, to_ns: int) -> bool:
        return self._past.leaders.may_have_changed(message.place.partition, from_ns, to_ns)


def _when_done(message: Message, done: Got, later: Got) -> QueueFinding:
    return QueueFinding(Fault.DELIVERED_WHEN_DONE, f"{message}: {later}, after {done} was done")


def _lost(past: Past, rules: Rules) -> Iterator[QueueFinding]:
    """Messages that no consumer has said to be done, though their senders may rely on it."""
    for value, place in past.sent.items():
        message = past.messages[place]
        if not message.is_in_doubt and not message.is_given_up(rules.max_deliveries):
            seen = ", ".join(map(str, message.deliveries)) or "never delivered"
            yield QueueFinding(Fault.LOST, f"{value} at {place}: {seen}")


def _out_of_order(past: Past, rules: Rules) -> Iterator[QueueFinding]:
    """Of each key: the next is out only once the one before is done, and none comes back."""
    by_key: dict[tuple[int, str], list[Message]] = defaultdict(list)
    for place, message in sorted(past.messages.items()):
        key = past.keys.get(message.value)
        if key is not None:
            by_key[place.partition, key].append(message)
    for (_, key), messages in by_key.items():
        for before, after in pairwise(messages):
            yield from _too_soon(key, before, after, rules)
        yield from _come_back(key, messages, past)


def _too_soon(key: str, before: Message, after: Message, rules: Rules) -> Iterator[QueueFinding]:
    if before.is_given_up(rules.max_deliveries):
        return
    said_ns = before.settling_ns
    for one in after.deliveries:
        if said_ns is None or one.got_ns < said_ns:
            what = f"{after} of {key}: {one}, before {before} was done"
            yield QueueFinding(Fault.OUT_OF_ORDER, what)


def _come_back(key: str, messages: list[Message], past: Past) -> Iterator[QueueFinding]:
    """Deliveries that were asked for once a later message of the key was known to be done."""
    later: Message | None = None
    for message in reversed(messages):
        if later is not None:
            assert later.done_ns is not None
            for one in message.deliveries:
                if one.asked_ns > later.done_ns and not past.may_be_stale(one):
                    what = f"{message} of {key}: {one}, after {later} was done"
                    yield QueueFinding(Fault.OUT_OF_ORDER, what)
        if message.done_ns is not None and (
            later is None or later.done_ns is None or message.done_ns < later.done_ns
        ):
            later = message
