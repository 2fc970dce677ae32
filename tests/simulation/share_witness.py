"""What a queue did to its consumers, checked as it happens and at the end.

The witness stands at the leaders: it sees every delivery, every end of one, every acknowledgement
that a leader answered with yes, and every dead letter.  It knows nothing of how the
queue works, only what it promises:

- a message is accepted once, and no leader of the same or a later term delivers it again;
- under one leader a message is delivered again only after the last delivery has ended, by
  release, by a lock that is over, or because its consumer left; and counts one more;
- the first delivery under a leader counts one more than what was stored when it began;
- nobody holds more messages than may be out, and none is delivered more often than allowed;
- with order by key, one message per key is out, and they are accepted in the order of offsets;
- what is in the dead-letter topic is delivered no more, and was accepted by nobody;
- what is lost is forgotten: messages that get the offsets of others are new ones;
- in the end each message was accepted, rejected, or tried as often as allowed.
"""

from collections.abc import Mapping


class Witness:
    """The history of one queue."""

    def __init__(
        self, keys: Mapping[int, bytes | None], max_deliveries: int, locks: int, *, by_key: bool
    ) -> None:
        self.keys = keys
        self.max_deliveries, self.locks, self.by_key = max_deliveries, locks, by_key
        self.accepted: dict[int, int] = {}
        """The leader epoch in which a message was accepted, once that was answered."""
        self.in_doubt: dict[int, None] = {}
        """Messages whose acceptance was asked for: it may count although nobody was told so."""
        self.dead: dict[int, int] = {}
        """Messages that are in the dead-letter topic, and the epoch of who moved them first."""
        self.rejected: dict[int, None] = {}
        self.tried: dict[int, int] = {}
        self.deliveries = self.redeliveries = 0
        self._out: dict[int, dict[int, str]] = {}
        self._counts: dict[int, dict[int, int]] = {}
        self._last_accepted: dict[bytes, int] = {}

    def begins(self, epoch: int, stored: Mapping[int, int]) -> None:
        """A leader has loaded; ``stored`` are the deliveries it knows of."""
        self._out[epoch], self._counts[epoch] = {}, dict(stored)

    def delivered(self, epoch: int, member: str, offset: int, count: int) -> None:
        """A leader gives a message to a consumer."""
        out, counts = self._out[epoch], self._counts[epoch]
        assert offset not in out, f"{offset} goes to {member} while {out[offset]} holds it"
        expected = counts.get(offset, 0) + 1
        assert count == expected, f"{offset} is delivered as number {count}, not {expected}"
        assert count <= self.max_deliveries, f"{offset} is delivered {count} times"
        assert self.accepted.get(offset, epoch + 1) > epoch, f"{offset} again after its acceptance"
        assert self.dead.get(offset, epoch + 1) > epoch, f"{offset} again as a dead letter"
        if self.by_key:
            self._check_key(out, offset)
        counts[offset], out[offset] = count, member
        assert len(out) <= self.locks, f"{len(out)} messages are out"
        self.deliveries += 1
        self.redeliveries += count > 1
        self.tried[offset] = max(self.tried.get(offset, 0), count)

    def ended(self, epoch: int, member: str, offset: int) -> None:
        """A delivery is over, in whatever way."""
        holder = self._out[epoch].pop(offset, None)
        assert holder == member, f"{member} settled {offset}, which {holder} held"

    def asked_to_accept(self, offset: int) -> None:
        """A consumer says that it has processed a message; a leader believes it held it."""
        self.in_doubt[offset] = None

    def told_accepted(self, epoch: int, offset: int) -> None:
        """A leader answers that the acceptance counts."""
        assert offset not in self.accepted, f"{offset} is accepted twice"
        assert offset not in self.dead, f"{offset} is accepted and a dead letter"
        self.accepted[offset] = epoch
        key = self.keys.get(offset)
        if self.by_key and key is not None:
            last = self._last_accepted.get(key, -1)
            assert offset > last, f"{offset} of {key!r} is accepted after {last}"
            self._last_accepted[key] = offset

    def asked_to_reject(self, offset: int) -> None:
        """A consumer does not want a message to be delivered again."""
        self.rejected[offset] = None

    def moved(self, epoch: int, offset: int) -> None:
        """A message goes to the dead-letter topic."""
        assert offset not in self.accepted, f"{offset} is a dead letter, and was accepted"
        is_exhausted = self.tried.get(offset, 0) >= self.max_deliveries
        assert is_exhausted or offset in self.rejected, f"{offset} is a dead letter for no reason"
        self.dead.setdefault(offset, epoch)

    def lost(self, at: int) -> None:
        """The messages from an offset on are no more; others will stand there."""
        books = (self.accepted, self.in_doubt, self.dead, self.rejected, self.tried)
        for book in books:
            for offset in [offset for offset in book if offset >= at]:
                del book[offset]  # type: ignore[attr-defined]
        self._last_accepted = {
            key: max((one for one in self.accepted if self.keys.get(one) == key), default=-1)
            for key in self._last_accepted
        }

    def holds(self, epoch: int) -> Mapping[int, str]:
        """Who holds what under a leader."""
        return self._out[epoch]

    def over(self, end: int) -> None:
        """Everything is settled up to ``end``: nothing may have been lost on the way."""
        for offset in range(end):
            if offset not in self.keys:
                continue
            is_exhausted = self.tried.get(offset, 0) >= self.max_deliveries
            fate = offset in self.in_doubt or offset in self.rejected or is_exhausted
            assert fate, f"{offset} was settled, and nobody has settled it"

    def _check_key(self, out: Mapping[int, str], offset: int) -> None:
        key = self.keys[offset]
        if key is None:
            return
        beside = [other for other in out if self.keys[other] == key]
        assert not beside, f"{offset} and {beside} of {key!r} are out at once"
