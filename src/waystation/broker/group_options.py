"""The options of each group: its own, else what the broker's settings say for all.

They are configs of the group (resource type GROUP), may be set before the group exists, and count
from the moment the cluster knows them.
"""

from collections.abc import Callable
from dataclasses import replace

from waystation.cluster.effective import Explained, explain_group, group_settings
from waystation.cluster.image import ClusterImage
from waystation.groups.settings import GroupSettings, MemberSettings
from waystation.model.settings import Option, options_of
from waystation.sharing.settings import QueueSettings, ShareSettings


class GroupOptions:
    """What counts for which group, by the image that the broker acts on."""

    __slots__ = ("_groups", "_image", "_known", "_shares")

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        groups: Callable[[], GroupSettings],
        shares: Callable[[], ShareSettings],
    ) -> None:
        self._image, self._groups, self._shares = image, groups, shares
        self._known: tuple[ClusterImage, dict[str, QueueSettings]] = (ClusterImage(), {})

    @property
    def options(self) -> tuple[Option, ...]:
        """All that a group may be told."""
        return (*options_of(QueueSettings), *options_of(MemberSettings))

    def of_share_group(self, group_id: str) -> QueueSettings:
        """What a share group says about its members and queues.  HOT: once per fetch of it."""
        image, known = self._known
        if image is not self._image():
            self._known = image, known = self._image(), {}
        if group_id not in known:
            known[group_id] = group_settings(image, group_id, self._queue_base())
        return known[group_id]

    def of_consumer_group(self, group_id: str) -> GroupSettings:
        """The settings of groups, with what this one says about its members."""
        settings, image = self._groups(), self._image()
        if group_id not in image.group_configs:
            return settings
        own = group_settings(image, group_id, self._member_base())
        return replace(
            settings,
            group_consumer_session_timeout_ms=own.consumer_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=own.consumer_heartbeat_interval_ms,
        )

    def groups_with_dead_letters(self) -> list[str]:
        """The groups that name a topic for their dead letters."""
        groups = self._image().group_configs
        return [one for one in groups if self.of_share_group(one).dead_letter_topic]

    def explain(self, group_id: str) -> list[Explained]:
        """Every option of a group, its value, and who gave it."""
        return explain_group(self._image(), group_id, (self._queue_base(), self._member_base()))

    def _queue_base(self) -> QueueSettings:
        shares = self._shares()
        return QueueSettings(
            share_session_timeout_ms=shares.group_share_session_timeout_ms,
            share_heartbeat_interval_ms=shares.group_share_heartbeat_interval_ms,
        )

    def _member_base(self) -> MemberSettings:
        groups = self._groups()
        return MemberSettings(
            consumer_session_timeout_ms=groups.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=groups.group_consumer_heartbeat_interval_ms,
        )
