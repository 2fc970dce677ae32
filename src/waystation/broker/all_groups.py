"""The groups of one partition of ``__consumer_offsets``, of all kinds: share groups beside others.

``Groups`` and ``ShareGroups`` know nothing of each other; here they are one machine over one log.
An id belongs to one kind at a time.  It stays that kind's for as long as the group exists, with
members or without, and whoever comes with requests of another kind is told so in Kafka's codes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, get_args

from waystation.broker.group_records import GroupRecordReader, UnreadableRecordError, encode
from waystation.broker.share_records import UnreadableShareRecordError, encode_group, read_group
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Commit,
    ConsumerHeartbeat,
    DeleteOffsets,
    FetchOffsets,
    GroupListing,
    Heartbeat,
    Join,
    Leave,
    Left,
    ProducersSeen,
    Sync,
    TopicsSeen,
    TransactionalCommit,
)
from waystation.groups.machine import G, Groups
from waystation.groups.records import OffsetCommitted
from waystation.groups.settings import GroupSettings
from waystation.model.errors import (
    GroupNotFoundError,
    IllegalGenerationError,
    InconsistentProtocolError,
    UnknownMemberError,
    WaystationError,
)
from waystation.model.machines import Outcome, Reply, Waiter
from waystation.model.offsets import Millis
from waystation.sharing.group_commands import ShareHeartbeat
from waystation.sharing.group_machine import ShareGroups
from waystation.sharing.group_records import GroupRecord, Partitions

KIND: Final = "share"
"""The kind of share groups, and the type of their protocol."""

_SHARE_RECORDS: Final = frozenset(get_args(GroupRecord))
_SHARE_KEYS: Final = frozenset(kind.to_bytes(2, "big") for kind in (10, 11, 12, 13, 15))


class AllGroups(Groups):
    """Groups that look after offsets, and ``shares``, the share groups beside them."""

    __slots__ = ("_of_group", "shares")

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        topics: TopicsSeen,
        new_id: Callable[[], str],
        producers: ProducersSeen,
        shares: ShareGroups,
        of_group: Callable[[str], GroupSettings],
    ) -> None:
        """``of_group`` are the settings with what one group says otherwise."""
        super().__init__(settings, topics, new_id, producers)
        self.shares = shares
        self._of_group = of_group

    def _new_group(self, kind: type[G], group_id: str) -> G:
        settings = partial(self._of_group, group_id)
        if issubclass(kind, ClassicGroup):
            return kind(group_id, settings, self._new_id)
        return kind(group_id, settings, self._topics, self._new_id)

    # --- replay and time ----------------------------------------------------------------------

    def apply(self, record: Any) -> None:
        """Remember.  HOT: for offsets, once for each that was ever committed and not compacted."""
        if type(record) is not OffsetCommitted and type(record) in _SHARE_RECORDS:
            self.shares.apply(record)
        else:
            super().apply(record)

    def loaded(self, now: Millis) -> Outcome[Any]:
        """The replay is over."""
        return _together(super().loaded(now), self.shares.loaded(now))

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        deadlines = (super().next_deadline(), self.shares.next_deadline())
        return min((one for one in deadlines if one is not None), default=None)

    def tick(self, now: Millis) -> Outcome[Any]:
        """Do what has fallen due."""
        return _together(super().tick(now), self.shares.tick(now))

    def topics_changed(self, now: Millis) -> Outcome[Any]:
        """Follow topics that came, went or grew."""
        return _together(super().topics_changed(now), self.shares.topics_changed(now))

    # --- members of other groups --------------------------------------------------------------

    def join(self, now: Millis, command: Join, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says; so all that follows."""
        if command.group_id in self.shares:
            sentence = _is_share_group(command.group_id)
            return _refuse(to, InconsistentProtocolError(f"{sentence}: consumers need another id"))
        return super().join(now, command, to)

    def sync(self, now: Millis, command: Sync, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, UnknownMemberError(_is_share_group(command.group_id)))
        return super().sync(now, command, to)

    def heartbeat(self, now: Millis, command: Heartbeat, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, UnknownMemberError(_is_share_group(command.group_id)))
        return super().heartbeat(now, command, to)

    def leave(self, now: Millis, command: Leave, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            refusal = UnknownMemberError(_is_share_group(command.group_id))
            left = Left(tuple((leaving, refusal) for leaving in command.members))
            return Outcome((), [Reply(to, left)])
        return super().leave(now, command, to)

    def consumer_heartbeat(
        self, now: Millis, command: ConsumerHeartbeat, to: Waiter
    ) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, _no_consumer_group(command.group_id))
        return super().consumer_heartbeat(now, command, to)

    # --- offsets of other groups --------------------------------------------------------------

    def commit(self, now: Millis, command: Commit, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, _no_consumer_group(command.group_id))
        return super().commit(now, command, to)

    def commit_in_transaction(
        self, now: Millis, command: TransactionalCommit, to: Waiter
    ) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, IllegalGenerationError(_is_share_group(command.group_id)))
        return super().commit_in_transaction(now, command, to)

    def fetch_offsets(self, now: Millis, command: FetchOffsets, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, _no_consumer_group(command.group_id))
        return super().fetch_offsets(now, command, to)

    def delete_offsets(self, now: Millis, command: DeleteOffsets, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if command.group_id in self.shares:
            return _refuse(to, _no_consumer_group(command.group_id))
        return super().delete_offsets(now, command, to)

    # --- administration -----------------------------------------------------------------------

    def describe(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if group_id in self.shares:
            return _refuse(to, GroupNotFoundError(f"{_is_share_group(group_id)}, no classic one"))
        return super().describe(now, group_id, to)

    def describe_consumer(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says."""
        if group_id in self.shares:
            return _refuse(to, _no_consumer_group(group_id))
        return super().describe_consumer(now, group_id, to)

    def delete(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Any]:
        """As ``Groups`` says; of a share group, its queues' states must be deleted before."""
        if group_id in self.shares:
            return self.shares.delete(now, group_id, to)
        return super().delete(now, group_id, to)

    def list(self) -> list[GroupListing]:
        """Every group."""
        shares = [
            GroupListing(group_id, KIND, state, KIND, self.shares.size_of(group_id))
            for group_id, state in self.shares.listing()
        ]
        return [*super().list(), *shares]

    # --- share groups -------------------------------------------------------------------------

    def share_heartbeat(self, now: Millis, command: ShareHeartbeat, to: Waiter) -> Outcome[Any]:
        """As ``ShareGroups`` says."""
        if self.is_other(command.group_id):
            return _refuse(to, self.no_share_group(command.group_id))
        return self.shares.heartbeat(now, command, to)

    def describe_share(self, now: Millis, group_id: str, to: Waiter) -> Outcome[Any]:
        """Answered by ``ShareGroupDescription``."""
        if group_id not in self.shares:
            return _refuse(to, self.no_share_group(group_id))
        return self.shares.describe(now, group_id, to)

    def permit_alter(
        self, now: Millis, group_id: str, partitions: Partitions, to: Waiter
    ) -> Outcome[Any]:
        """As ``ShareGroups`` says."""
        if self.is_other(group_id):
            return _refuse(to, self.no_share_group(group_id))
        return self.shares.permit_alter(now, group_id, partitions, to)

    def is_other(self, group_id: str) -> bool:
        """Whether the id is a group's that is no share group."""
        return group_id in self._groups or group_id in self._commits

    def no_share_group(self, group_id: str) -> GroupNotFoundError:
        """The refusal for who takes it for one."""
        if not self.is_other(group_id):
            return GroupNotFoundError(f"there is no share group {group_id!r}")
        kind = self._groups[group_id].kind if group_id in self._groups else "classic"
        return GroupNotFoundError(
            f"group {group_id!r} is a {kind} group, no share group: queues need an id of their own"
        )


class AllGroupRecordReader(GroupRecordReader):
    """Reads the records of share groups, too."""

    def read(self, key: bytes, value: bytes | None) -> Any:
        """The record; none if its key is of a kind that is not known here."""
        if key[:2] not in _SHARE_KEYS:
            return super().read(key, value)
        try:
            return read_group(key, value)
        except UnreadableShareRecordError as fault:
            raise UnreadableRecordError(str(fault)) from fault


def encode_any(record: Any) -> tuple[bytes, bytes | None]:
    """The key and the value of ``record``, of whatever kind of group."""
    return encode_group(record) if type(record) in _SHARE_RECORDS else encode(record)


def _together(one: Outcome[Any], other: Outcome[Any]) -> Outcome[Any]:
    return Outcome([*one.records, *other.records], [*one.replies, *other.replies])


def _refuse(to: Waiter, error: WaystationError) -> Outcome[Any]:
    return Outcome((), [Reply(to, error)])


def _is_share_group(group_id: str) -> str:
    return f"group {group_id!r} is a share group"


def _no_consumer_group(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(f"{_is_share_group(group_id)}, no consumer group")
