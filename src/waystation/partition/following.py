"""A replica's copy of a log that another node leads.

1. The copy holds what the leader's log has, and nothing that was cut counts.
2. Its mark is the end of what is known here to be committed: never past the copy's end, and never
   moved back but by a cut.

What the leader's answers mean is decided in ``replication/follower.py`` and carried out by
``broker/copying.py``; how others copy this one's log is in ``partition.py``.
"""

from collections.abc import Iterator

from waystation.model.offsets import Millis, Offset
from waystation.partition.syncing import Syncing
from waystation.records.header import batches, is_one_batch

_MUCH_BYTES = 256 << 10


class Following:
    """What is done to the log, and known of it, while another leads; owns no log itself."""

    __slots__ = ("_known", "_syncing")

    def __init__(self, syncing: Syncing) -> None:
        self._syncing = syncing
        # The end of what a leader before called committed: never less than where the log begins.
        self._known = syncing.log.log_start

    @property
    def mark(self) -> Offset:
        """The end of what this replica knows to be committed."""
        log = self._syncing.log
        return min(max(self._known, log.log_start), log.log_end)

    def begin(self, mark: Offset) -> None:
        """Follow from now on; this node led, and committed everything before ``mark``."""
        self._known = mark

    def append(self, data: memoryview, now: Millis) -> None:
        """Append batches as the leader has them; one that the end of ``data`` cuts off is left.

        Raises at the first that cannot follow; what came before it stays.  Much at once, which is
        someone catching up, is synced in its own file: the journal is for who waits for little.

        HOT: once per answer that has something, mostly one batch (benchmarks/partition/serving.py).
        """
        syncing = self._syncing
        if len(data) >= _MUCH_BYTES and syncing.on_disk:
            self._append_much(data, now)
            return
        log = syncing.log
        for batch in (data,) if is_one_batch(data) else _split(data):
            end = log.log_end
            header = log.append_replicated(batch, now)
            if header.base_offset == end or not syncing.on_disk:
                syncing.appended(batch, end, header.records_count)
            else:
                # Behind a gap, which compaction left at the leader, the journal is not replayed.
                syncing.not_journaled()

    def _append_much(self, data: memoryview, now: Millis) -> None:
        log = self._syncing.log
        end = log.log_end
        try:
            for batch in _split(data):
                log.append_replicated(batch, now)
        finally:
            if log.log_end > end:
                self._syncing.not_journaled()

    def learn(self, mark: Offset, log_start: Offset) -> bool:
        """Take over what the leader says is committed, and its start; true if the mark moved."""
        log = self._syncing.log
        log.advance_log_start(min(log_start, log.log_end))
        known = min(mark, log.log_end)
        if known <= self._known:
            return False
        self._known = known
        return True

    def was_cut(self) -> None:
        """Whatever lay behind the log's new end is forgotten, in the journal too."""
        self._syncing.all_is_synced()
        self._known = self.mark


def _split(data: memoryview) -> Iterator[memoryview]:
    for at, header in batches(data):
        yield data[at : at + header.size_bytes]
