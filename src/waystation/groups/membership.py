"""What happens to members, whichever protocol they speak: they come, change, step on and go.

Every method decides: it notes records in a draft.  Who is waited for, and how long, is kept in
``watch.py``; what is asked and answered, in ``consumer.py`` and ``classic_members.py``.
"""

from collections.abc import Callable, Sequence

from waystation.groups.book import Book, BookDraft
from waystation.groups.commands import TopicsSeen
from waystation.groups.migration import downgrade, may_downgrade
from waystation.groups.reconciliation import LEAVING_FOR_A_WHILE_EPOCH, Owned, reconcile, taken_over
from waystation.groups.records import (
    ConsumerMemberStored,
    MemberCurrentStored,
    MemberTargetStored,
)
from waystation.groups.settings import GroupSettings
from waystation.groups.targets import forget, preferred_assignor, resolve, share_out
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupFullError,
    InvalidRequestError,
    UnknownMemberError,
    UnreleasedInstanceIdError,
)
from waystation.model.offsets import Millis


class Membership:
    """The members of one group; raises the error that a member is told."""

    __slots__ = ("_settings", "_topics", "book")

    def __init__(
        self, book: Book, settings: Callable[[], GroupSettings], topics: TopicsSeen
    ) -> None:
        self.book, self._settings, self._topics = book, settings, topics

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMemberStored:
        """The member that speaks, which must bear the static name that it gives."""
        if instance_id is not None:
            holder = self.book.of_instance(instance_id)
            if holder is not None and holder != member_id:
                raise FencedInstanceIdError(
                    f"instance id {instance_id!r} of group {self.book.group_id!r} belongs to "
                    f"member {holder!r} now, not to {member_id!r}"
                )
            if holder is None:
                raise self.unknown(member_id)
        member = self.book.members.get(member_id)
        if member is None:
            raise self.unknown(member_id)
        return member

    def admit(
        self, draft: BookDraft, member_id: str, instance_id: str | None, *, is_classic: bool
    ) -> ConsumerMemberStored | None:
        """Let someone join: as the member it was, or in the place of the static member that it
        was; ``None`` if it is new.
        """
        holder = None if instance_id is None else self.book.of_instance(instance_id)
        if holder is not None and holder != member_id:
            self._take_over(draft, holder, member_id, is_classic=is_classic)
            return draft.book.members[member_id]
        member = self.book.members.get(member_id)
        most = self._settings().group_consumer_max_size
        if member is None and len(self.book.members) >= most:
            raise GroupFullError(f"group {self.book.group_id!r} has its {most} members")
        return member

    def subscribe(
        self,
        draft: BookDraft,
        now: Millis,
        before: ConsumerMemberStored | None,
        after: ConsumerMemberStored,
    ) -> None:
        """Note what the member says of itself, and share out anew if that needs it."""
        if after == before:
            return
        if after.topic_regex is not None:
            resolve(draft, after.topic_regex, now, self._topics)  # raises what the member is told
        assignors = self._settings().group_consumer_assignors
        asked_for = preferred_assignor(draft.book, assignors)
        draft.note(after)
        if (
            before is None
            or draft.book.target_epoch != draft.book.epoch  # just upgraded
            or (before.topics, before.topic_regex) != (after.topics, after.topic_regex)
            or preferred_assignor(draft.book, assignors) != asked_for
        ):
            self.share_out(draft, now)

    def step(self, draft: BookDraft, member_id: str, owned: Owned) -> MemberCurrentStored:
        """Take the member one step towards its target; where it stands then."""
        book = draft.book
        current = book.current(member_id)
        after = reconcile(
            current,
            book.targets.get(member_id, ()),
            book.target_epoch,
            owned,
            lambda partition: book.owner(partition) in (None, member_id),
        )
        if after != current:
            draft.note(after)
        return after

    def remove(self, draft: BookDraft, now: Millis, member_ids: Sequence[str]) -> None:
        """Let members go and share out what they held, at once for all of them.

        If only members of the classic protocol are left, that is up to them: the group becomes
        a classic one in the same event.
        """
        forget(draft, member_ids)
        if may_downgrade(draft.book, self._settings()):
            draft.records.extend(downgrade(draft.book, now, self._topics))
        else:
            self.share_out(draft, now)

    def share_out(self, draft: BookDraft, now: Millis) -> None:
        """Begin a new epoch."""
        share_out(draft, now, self._topics, self._settings().group_consumer_assignors)

    def unknown(self, member_id: str) -> UnknownMemberError:
        """What someone is told who is no member."""
        return UnknownMemberError(
            f"group {self.book.group_id!r} has no member {member_id!r}: join again"
        )

    def _take_over(
        self, draft: BookDraft, holder: str, member_id: str, *, is_classic: bool
    ) -> None:
        """Put a static member that came back in the place of its former self.

        Members of the new protocol say when they go.  Those of the classic one do not when they
        are static, so their name is taken from them, and they are fenced.
        """
        book = self.book
        former = book.members[holder]
        says_goodbye = former.classic is None and not is_classic
        if says_goodbye and book.current(holder).epoch != LEAVING_FOR_A_WHILE_EPOCH:
            raise UnreleasedInstanceIdError(
                f"instance id {former.instance_id!r} of group {book.group_id!r} still belongs to "
                f"member {holder!r}: let it leave, or wait until its session ends"
            )
        if member_id in book.members:
            raise InvalidRequestError(
                f"{member_id!r} is a member of group {book.group_id!r} without instance id "
                f"{former.instance_id!r}: join under another member id"
            )
        target, current = book.targets.get(holder, ()), book.current(holder)
        forget(draft, [holder])
        draft.note(former._replace(member_id=member_id))
        draft.note(MemberTargetStored(book.group_id, member_id, target))
        draft.note(taken_over(current, member_id))
