"""What the members of a group shall read: a new epoch, and the partitions shared out for it.

A new epoch begins when someone comes or goes, when a subscription changes, and when the topics
subscribed to change, which a hash over them shows.  Its target is computed in the same event,
so no one ever waits for one; members find their way to it in ``reconciliation.py``.

Topics are subscribed to by name, by regular expression, or by both.  What an expression stands
for is remembered and resolved anew whenever topics change; internal topics never match.
"""

from collections.abc import Iterable
from hashlib import blake2b

from waystation.groups.assignors import ASSIGNORS, Subscriber
from waystation.groups.book import Book, BookDraft
from waystation.groups.commands import TopicSeen, TopicsSeen
from waystation.groups.patterns import pattern_of
from waystation.groups.records import (
    ConsumerGroupStored,
    ConsumerMemberForgotten,
    ConsumerMemberStored,
    MemberCurrentForgotten,
    MemberTargetForgotten,
    MemberTargetStored,
    RegexForgotten,
    RegexResolved,
    TargetStored,
)
from waystation.model.errors import InvalidRegexError
from waystation.model.ids import TopicId
from waystation.model.offsets import Millis

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def share_out(
    draft: BookDraft, now: Millis, topics: TopicsSeen, assignors: tuple[str, ...]
) -> None:
    """Begin a new epoch and note what its target changes."""
    _forget_unused_regexes(draft)
    draft.note(
        ConsumerGroupStored(
            draft.book.group_id, draft.book.epoch + 1, metadata_hash(draft.book, topics)
        )
    )
    retarget(draft, now, topics, assignors)


def retarget(draft: BookDraft, now: Millis, topics: TopicsSeen, assignors: tuple[str, ...]) -> None:
    """Note the target of the epoch that has begun."""
    book = draft.book
    counts = {topic.id: topic.partitions for topic in _subscribed(book, topics)}
    assign = ASSIGNORS[preferred_assignor(book, assignors)]
    for member_id, partitions in sorted(assign(_subscribers(book, topics), counts).items()):
        if book.targets.get(member_id) != partitions:
            draft.note(MemberTargetStored(book.group_id, member_id, partitions))
    draft.note(TargetStored(book.group_id, book.epoch, now))


def resolve(draft: BookDraft, regex: str, now: Millis, topics: TopicsSeen) -> None:
    """Note what an expression stands for, if it is new; ``InvalidRegexError`` if it is none, or
    takes too long.
    """
    if regex not in draft.book.regexes:
        found = pattern_of(regex).select(_names(topics))
        draft.note(_resolved(draft.book, regex, found, now, topics))


def resolve_again(draft: BookDraft, now: Millis, topics: TopicsSeen) -> None:
    """Note which expressions stand for other topics than before.

    One that has become too costly keeps what it stood for: its members go on as they are.
    """
    names = _names(topics)
    for regex, known in list(draft.book.regexes.items()):
        try:
            found = pattern_of(regex).select(names)
        except InvalidRegexError:
            continue
        if found != known.topics:
            draft.note(_resolved(draft.book, regex, found, now, topics))


def forget(draft: BookDraft, member_ids: Iterable[str]) -> None:
    """Note that members are gone: what they held is free."""
    group_id = draft.book.group_id
    for member_id in member_ids:
        draft.note(MemberCurrentForgotten(group_id, member_id))
        draft.note(MemberTargetForgotten(group_id, member_id))
        draft.note(ConsumerMemberForgotten(group_id, member_id))


def topics_of(book: Book, member: ConsumerMemberStored) -> tuple[str, ...]:
    """The names of the topics that the member subscribes to, whether they exist or not."""
    resolved = book.regexes.get(member.topic_regex or "")
    return member.topics if resolved is None else (*member.topics, *resolved.topics)


def metadata_hash(book: Book, topics: TopicsSeen) -> int:
    """A number that changes with the ids and sizes of the topics subscribed to."""
    digest = blake2b(digest_size=8)
    for topic in _subscribed(book, topics):
        digest.update(f"{topic.name} {topic.id} {topic.partitions}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def preferred_assignor(book: Book, assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; the server's first if none asks."""
    votes = dict.fromkeys(assignors, 0)
    for member in book.members.values():
        if member.assignor in votes:
            votes[member.assignor] += 1
    return max(votes, key=votes.__getitem__)


def _forget_unused_regexes(draft: BookDraft) -> None:
    used = {member.topic_regex for member in draft.book.members.values()}
    for regex in list(draft.book.regexes):
        if regex not in used:
            draft.note(RegexForgotten(draft.book.group_id, regex))


def _resolved(
    book: Book, regex: str, found: tuple[str, ...], now: Millis, topics: TopicsSeen
) -> RegexResolved:
    return RegexResolved(book.group_id, regex, found, topics.version, now)


def _names(topics: TopicsSeen) -> list[str]:
    return [name for name in topics.names() if name not in INTERNAL_TOPICS]


def _subscribed(book: Book, topics: TopicsSeen) -> list[TopicSeen]:
    """The topics that exist and that somebody subscribes to, by name."""
    names = {name for member in book.members.values() for name in member.topics}
    for resolved in book.regexes.values():
        names.update(resolved.topics)
    return [topic for name in sorted(names) if (topic := topics.named(name)) is not None]


def _subscribers(book: Book, topics: TopicsSeen) -> list[Subscriber]:
    """All members; those with equal subscriptions share one set, which is made once."""
    wanted: dict[tuple[str, ...], frozenset[TopicId]] = {}
    subscribers = []
    for member_id, member in book.members.items():
        names = topics_of(book, member)
        if names not in wanted:
            seen = (topics.named(name) for name in names)
            wanted[names] = frozenset(topic.id for topic in seen if topic is not None)
        held = book.targets.get(member_id, ())
        subscribers.append(Subscriber(member_id, member.instance_id, wanted[names], held))
    return subscribers
