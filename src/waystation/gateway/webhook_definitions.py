"""What a webhook is: a share group over a topic, and where to push what it is given.

A ``Definition`` is what the cluster keeps.  The share group ``webhook.<name>`` does the rest: it
knows what was delivered, when to try again and what was given up, whichever node delivers.
"""

from typing import Final, Literal

import msgspec

from waystation.sharing.states import DELIVERIES_MAX

__all__ = ["FORMER_SECRETS_MOST", "Claim", "Definition", "ReplacedSecret", "group_of"]

FORMER_SECRETS_MOST: Final = 3
_LOCK_SPARE_MS: Final = 15_000
"""How much longer a message is locked than its request may take."""


class Claim(msgspec.Struct, frozen=True):
    """Which node works at something, and until when others leave it alone."""

    node: int
    until_ms: int


class ReplacedSecret(msgspec.Struct, frozen=True):
    """A secret that signs beside the newest one, for a while."""

    secret: str
    until_ms: int


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as it is kept; secrets are never shown."""

    name: str
    topic: str
    url: str
    secret: str
    where: str | None
    values: Literal["text", "json", "base64"]
    order: Literal["none", "key"]
    batch_size: int
    concurrency: int
    timeout_ms: int
    max_deliveries: int
    backoff_ms: int
    backoff_max_ms: int
    while_down: Literal["wait", "count"]
    dead_letter_topic: str
    paused: bool
    created_ms: int
    is_ready: bool = False
    """Whether its group was told everything: before, nobody delivers."""
    former_secrets: tuple[ReplacedSecret, ...] = ()
    """The newest first."""
    leaving: Claim | None = None
    """Who sees to it that it goes, once it was deleted (``webhook_leaving.py``)."""

    def __repr__(self) -> str:
        """Without the secret: whatever is logged shows no more."""
        return f"Definition({self.name!r})"

    @property
    def group(self) -> str:
        """The share group that reads for it."""
        return group_of(self.name)

    @property
    def runs(self) -> bool:
        """Whether nodes deliver."""
        return self.is_ready and not self.paused and self.leaving is None

    def former_secrets_at(self, now: int) -> tuple[ReplacedSecret, ...]:
        """The secrets that were replaced and still sign."""
        return tuple(one for one in self.former_secrets if one.until_ms > now)

    def secrets_at(self, now: int) -> list[str]:
        """The secrets that sign, the newest first."""
        return [self.secret, *(one.secret for one in self.former_secrets_at(now))]

    def with_secret(self, secret: str, grace_ms: int, now: int) -> "Definition":
        """Sign by ``secret``, and by none of the others for longer than ``grace_ms`` from now."""
        former = self.former_secrets_at(now)
        if secret != self.secret:
            former = (ReplacedSecret(self.secret, now + grace_ms), *former)
        kept = (
            ReplacedSecret(one.secret, min(one.until_ms, now + grace_ms))
            for one in former
            if grace_ms and one.secret != secret
        )
        return msgspec.structs.replace(self, secret=secret, former_secrets=tuple(kept))

    def left_by(self, claim: Claim) -> "Definition":
        """What is kept of it until everything else is gone, which is little."""
        return msgspec.structs.replace(
            self, secret="", former_secrets=(), is_ready=False, leaving=claim
        )

    def group_configs(self) -> dict[str, str]:
        """What the share group is told.

        Where messages wait for a target that is down, the nodes decide when one is given up
        (``webhook_breaker.py``), and the group's own limit is only the last resort.
        """
        most = self.max_deliveries if self.while_down == "count" else DELIVERIES_MAX
        return {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed",
            # A node that was killed is still a member, with partitions of its own, for so long.
            "share.session.timeout.ms": "9000",
            "share.heartbeat.interval.ms": "3000",
            "share.order": self.order,
            "share.record.lock.duration.ms": str(self.timeout_ms + _LOCK_SPARE_MS),
            "max.deliveries": str(most),
            "share.retry.backoff.ms": str(self.backoff_ms),
            "share.retry.backoff.factor": "2.0",
            "share.retry.backoff.max.ms": str(max(self.backoff_max_ms, self.backoff_ms)),
            "share.dead.letter.topic": self.dead_letter_topic,
        }


def group_of(name: str) -> str:
    """The share group of the webhook of that name."""
    return f"webhook.{name}"
