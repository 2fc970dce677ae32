"""What of a partition's log survives a crash: what its own files have synced, and the journal.

1. ``safe_end`` moves only after a disk said so.
2. The journal counts only if it holds everything that the files may still lose.
3. Everything that is appended becomes safe some time, without anybody asking for it again.
4. A log that was dropped is synced no more: its files are gone, and their names may already be
   another topic's.

What being safe means for those who wait is decided in ``partition.py``, which is told.
"""

from collections.abc import Callable

from waystation.model.errors import StorageError
from waystation.model.ids import TopicId, TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.replication.leader import DISK
from waystation.storage.flusher import Flusher
from waystation.storage.journal import Journal
from waystation.storage.log import Log

_EVERYTHING = Offset(1 << 63)


class Syncing:
    """The syncs of one log; to the journal, it is the partition."""

    __slots__ = (
        "_dropped",
        "_failed",
        "_flusher",
        "_journal",
        "_journal_from",
        "_journaled_end",
        "_linger_s",
        "_moved",
        "_name",
        "_settings",
        "_topic_id",
        "_unflushed_records",
        "log",
        "on_disk",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: Log,
        settings: TopicSettings,
        flusher: Flusher,
        journal: Journal | None,
        *,
        moved: Callable[[], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        """``moved`` is called when more may be safe, ``failed`` when nothing can be any more."""
        self.log = log
        self._name = name
        self._topic_id = topic_id
        self._flusher = flusher
        self._journal = journal
        self._journal_from = self._journaled_end = log.flushed_end
        self._unflushed_records = 0
        self._moved = moved
        self._failed = failed
        self._dropped = False
        self.reconfigure(settings)

    @property
    def log_end(self) -> Offset:
        """The end of what was appended."""
        return self.log.log_end

    @property
    def flushed_end(self) -> Offset:
        """The end of what the log's own files have safe; a dropped log needs nothing more."""
        return _EVERYTHING if self._dropped else self.log.flushed_end

    @property
    def safe_end(self) -> Offset:
        """The end of what survives a crash, in the log's files or in the journal."""
        flushed = self.log.flushed_end
        if self._journal_from <= flushed < self._journaled_end:
            return self._journaled_end
        return flushed

    def appended(self, batch: memoryview, base: Offset, records_count: int) -> None:
        """A batch was appended at ``base``, right behind the one before it.

        HOT: once per batch.  A small one goes into the journal, a large one is synced in its
        file.  A small one that follows a large one goes to the journal at once, although it is
        not safe before the other: else a partition that is busy would never get back to it.
        """
        if not self.on_disk:
            self._unflushed_records += records_count
            if self._unflushed_records >= self._settings.flush_messages:
                self._flush()
            return
        journal = self._journal
        if journal is not None and journal.takes(len(batch)):
            if self.log.flushed_end >= base:
                self._journal_from = base
            journal.add(self, self._topic_id, self._name.partition, batch, self._linger_s)
        else:
            self.not_journaled()

    def not_journaled(self) -> None:
        """What was appended so far is not in the journal: sync the log's own files."""
        self._journal_from = self.log.log_end
        self._flush()

    def secure_rest(self) -> None:
        """Sync what nobody has asked for so far."""
        if self.safe_end < self.log.log_end:
            self.not_journaled()

    def journaled(self, outcome: Offset | StorageError) -> None:
        """The journal has everything before an offset, or has failed."""
        if isinstance(outcome, StorageError):
            self._failed(outcome)
        else:
            self._journaled_end = outcome
            self.log.remember_end(outcome)
            self._moved()

    def flush(self) -> None:
        """Sync what is not synced yet, in the background."""
        if self.log.flushed_end < self.log.log_end:
            self._flush()

    def flush_if_due(self, now: Millis) -> None:
        """Sync a log with ``durability=memory`` that has waited for ``flush.ms``."""
        dirty_since = self.log.dirty_since
        if dirty_since is not None and now - dirty_since >= self._settings.flush_ms:
            self.flush()

    def _flush(self) -> None:
        if not self._dropped:
            self._unflushed_records = 0
            self._flusher.request(self.log, self._flushed, self._linger_s or 0.0)

    def _flushed(self, log: Log, outcome: Offset | StorageError) -> None:
        if log is not self.log:
            return
        if isinstance(outcome, StorageError):
            self._failed(outcome)
        else:
            self._moved()

    # --- changing -----------------------------------------------------------------------

    def all_is_synced(self) -> None:
        """The log was cut or exchanged: what the journal was still to say is about what is gone."""
        if self._journal is not None:
            self._journal.forget(self)
        self._journal_from = self._journaled_end = self.log.flushed_end

    def relocate(self, log: Log, journal: Journal | None) -> None:
        """Go on with ``log``, of which everything is safe."""
        self.log = log
        self.all_is_synced()
        self._journal = journal
        self._unflushed_records = 0

    def reconfigure(self, settings: TopicSettings) -> None:
        """Obey new topic settings from now on."""
        self._settings = settings
        self.on_disk = settings.durability == DISK
        """Whether a batch counts only once it is safe."""
        self._linger_s = settings.flush_linger_s

    def drop(self) -> None:
        """The log's files go: do nothing more for them."""
        self._dropped = True
