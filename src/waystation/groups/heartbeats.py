"""What a heartbeat of the server-side protocol may say, and what it changes of a member."""

from waystation.groups.commands import ConsumerHeartbeat
from waystation.groups.reconciliation import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_FOR_A_WHILE_EPOCH,
)
from waystation.groups.records import ConsumerMemberStored
from waystation.model.errors import InvalidRequestError, UnsupportedAssignorError

UNCHANGED_MS = -1
NAME_CHARACTERS_MAX = 8_000
SUBSCRIPTION_CHARACTERS_MAX = 256 * 1024
"""Of all names that a member subscribes to: a member is one record, which must fit its log."""


def is_leaving(command: ConsumerHeartbeat) -> bool:
    """Whether the member goes, for good or for a while."""
    return command.member_epoch < JOINING_EPOCH


def asks_for_all(command: ConsumerHeartbeat) -> bool:
    """Whether the member says all, as it does when it joins or may have missed an answer."""
    return command.member_epoch == JOINING_EPOCH or (
        command.rebalance_timeout_ms != UNCHANGED_MS
        and (command.topics is not None or command.topic_regex is not None)
        and command.owned is not None
    )


def check_heartbeat(command: ConsumerHeartbeat, assignors: tuple[str, ...]) -> None:
    """Refuse what contradicts the protocol, whoever says it."""
    epoch = command.member_epoch
    if not command.member_id and epoch != JOINING_EPOCH:
        raise InvalidRequestError("only who joins may come without a member id")
    if command.instance_id == "" or command.rack_id == "":
        raise InvalidRequestError("an instance id or rack id may be missing but not empty")
    if command.rebalance_timeout_ms < UNCHANGED_MS:
        raise InvalidRequestError(f"a rebalance time-out of {command.rebalance_timeout_ms} ms")
    _check_sizes(command)
    if epoch == JOINING_EPOCH:
        _check_join(command)
    elif epoch == LEAVING_FOR_A_WHILE_EPOCH and command.instance_id is None:
        raise InvalidRequestError(
            f"only a member with an instance id can leave for a while; "
            f"leave with epoch {LEAVING_EPOCH}"
        )
    elif epoch < LEAVING_FOR_A_WHILE_EPOCH:
        raise InvalidRequestError(f"member epoch {epoch}")
    if command.assignor is not None and command.assignor not in assignors:
        raise UnsupportedAssignorError(
            f"no assignor {command.assignor!r}; there are {', '.join(assignors)}"
        )


def subscription_after(
    before: ConsumerMemberStored | None, command: ConsumerHeartbeat, member_id: str
) -> ConsumerMemberStored:
    """The member with what the heartbeat says anew; what it leaves out stays."""
    known = before or ConsumerMemberStored(
        command.group_id, member_id, None, None, "", "", (), None, UNCHANGED_MS, None
    )
    topics, regex = command.topics, command.topic_regex
    timeout_ms = command.rebalance_timeout_ms
    return known._replace(
        instance_id=_or(command.instance_id, known.instance_id),
        rack_id=_or(command.rack_id, known.rack_id),
        client_id=command.client_id,
        client_host=command.client_host,
        topics=known.topics if topics is None else tuple(sorted(dict.fromkeys(topics))),
        topic_regex=known.topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        assignor=_or(command.assignor, known.assignor),
        classic=None,
    )


def _check_sizes(command: ConsumerHeartbeat) -> None:
    topics = command.topics or ()
    names = (command.member_id, command.instance_id or "", command.rack_id or "", *topics)
    if max(map(len, names)) > NAME_CHARACTERS_MAX:
        raise InvalidRequestError(f"an id or a name of more than {NAME_CHARACTERS_MAX} characters")
    if sum(map(len, topics)) > SUBSCRIPTION_CHARACTERS_MAX:
        raise InvalidRequestError(
            f"the names subscribed to have more than {SUBSCRIPTION_CHARACTERS_MAX} characters: "
            "subscribe by a regular expression"
        )


def _check_join(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == UNCHANGED_MS:
        raise InvalidRequestError("who joins must give its rebalance time-out")
    if command.owned is None or command.owned:
        raise InvalidRequestError("who joins must own no partitions, and say so")
    if command.topics is None and command.topic_regex is None:
        raise InvalidRequestError("who joins must subscribe to topics, by name or by expression")


def _or(said: str | None, known: str | None) -> str | None:
    return known if said is None else said
