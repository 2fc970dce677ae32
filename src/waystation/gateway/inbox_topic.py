"""The topic behind the inbox: made at the first use, and looked at now and then.

It may be someone else's, and it may have been changed since: a topic that could not keep what the
inbox promises is refused, with what to do about it.

1. It has an index of keys, for users would not be found without.
2. It is not compacted: of each user only the last message would be kept.
3. It has at least as many partitions as users are spread over.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.settings import GatewaySettings
from waystation.model.errors import TopicExistsError, UnknownTopicError
from waystation.model.ids import TopicId

if TYPE_CHECKING:
    from waystation.client.metadata import TopicView
    from waystation.gateway.clients import Clients

__all__ = ["InboxTopic", "unindexed"]

_CONFIG: Final = {"index.keys": "true", "cleanup.policy": "delete"}
_LOOK_EVERY_S: Final = 5.0


class InboxTopic:
    """The topic of the inbox, as one node knows it."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.name = settings.inbox_topic
        self.partitions = settings.inbox_partitions
        self._checked: TopicId | None = None
        self._check_at_s = 0.0
        self._making = asyncio.Lock()

    async def ready(self, clients: "Clients") -> None:
        """Returns once the topic is there and fit for an inbox.

        HOT: once per call.  While one of them looks again the others go on with what was found.
        """
        try:
            topic = await clients.topic(self.name)
        except UnknownTopicError:
            topic = await self._made(clients)
        now_s = asyncio.get_running_loop().time()
        if self._checked == topic.id and now_s < self._check_at_s:
            return
        self._check_at_s = now_s + _LOOK_EVERY_S
        try:
            await self._check(clients, topic)
        except BaseException:
            self._checked = None
            raise
        self._checked = topic.id

    async def _made(self, clients: "Clients") -> "TopicView":
        async with self._making:
            admin, router = await clients.admin(), await clients.router()
            with suppress(TopicExistsError):  # another call, or another node, was quicker
                await admin.create_topic(self.name, self.partitions, configs=_CONFIG)
            return await router.topic(self.name)

    async def _check(self, clients: "Clients", topic: "TopicView") -> None:
        name, there = self.name, len(topic.partitions)
        if there < self.partitions:
            raise _unfit(
                f"topic {name} has {there} partitions, the inbox uses {self.partitions}",
                f"the nodes' option inbox.partitions={there} while the inbox is empty, "
                "or another inbox.topic",
            )
        options = await (await clients.admin()).describe_configs(name)
        if options["index.keys"].value != "true":
            raise unindexed(name)
        if "compact" in (options["cleanup.policy"].value or ""):
            raise _unfit(
                f"topic {name} is compacted: of each user only the last message would be kept",
                f"`waystation topic alter {name} --set cleanup.policy=delete`, "
                "or another inbox.topic",
            )


def unindexed(name: str) -> ProblemError:
    """The problem of a topic without an index of keys."""
    return _unfit(
        f"topic {name} has no index of keys",
        f"`waystation topic alter {name} --set index.keys=true`, or another inbox.topic",
    )


def _unfit(detail: str, remedy: str) -> ProblemError:
    return refusal(409, "unfit-inbox-topic", detail, remedy=remedy)
