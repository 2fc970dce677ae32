"""Webhooks over HTTP: create, list, describe, change, pause, test and delete.

What a webhook is told is checked before anything is made.  A definition is kept before its group is
set up, and delivered only after that: two nodes that create one name at the same time cannot mix
their wishes.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waystation.client.admin import LATEST
from waystation.client.webhook_descriptions import (
    FormerSecret,
    SampleOutcome,
    Webhook,
    WebhookAndSecret,
    WebhookDetails,
    WebhookState,
    WebhookStatus,
)
from waystation.filters.selecting import Filter
from waystation.gateway.problems import ProblemError, refusal
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.webhook_bodies import (
    NewWebhook,
    WebhookChange,
    WebhookName,
    changed,
    defined,
)
from waystation.gateway.webhook_definitions import FORMER_SECRETS_MOST, Definition
from waystation.gateway.webhook_figures import Figures
from waystation.gateway.webhook_leaving import delete_group
from waystation.gateway.webhook_running import Webhooks
from waystation.gateway.webhook_signing import fingerprint, key_of, new_secret
from waystation.gateway.webhook_targets import TargetRefusedError, parse_target
from waystation.model.errors import InvalidFilterError, StoreUnavailableError, WaystationError
from waystation.telemetry.logs import get_logger

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = ["webhook_routes"]

_NODES_LEAVE_S: Final = 5.0
_DEAD_NODES_S: Final = 12.0

_SHOWN: Final = [
    name
    for name in Definition.__struct_fields__
    if name not in ("secret", "former_secrets", "is_ready", "leaving")
]

_events = get_logger("webhooks")


class WebhookParams(Params, frozen=True):
    """Which webhook."""

    name: WebhookName


class AllWebhooks(msgspec.Struct, frozen=True):
    """Webhooks by name."""

    webhooks: list[Webhook]


class WebhookCalls:
    """Answers calls about webhooks."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._all = webhooks
        self._store = webhooks.store

    async def create(self, call: Call[None, NewWebhook]) -> WebhookAndSecret:
        """Make a webhook; it delivers once this is answered."""
        wanted = call.body
        secret = wanted.secret or new_secret()
        webhook = defined(wanted, secret, self._all.clock.now())
        with _store_away():
            _check(webhook)
            await self._check_url(webhook.url)
            await call.clients.topic(webhook.topic)
            await self._store.add(webhook)
            try:
                await _set_up(await call.clients.admin(), webhook, wanted.begin)
            except BaseException:
                with suppress(ProblemError, WaystationError):
                    await self._leave(webhook.name)
                raise
            webhook = await self._store.change(webhook.name, _ready)
        _events.info("webhook.created", webhook=webhook.name, topic=webhook.topic)
        shown = self._shown(webhook, Figures())
        return WebhookAndSecret(**shown, secret=None if wanted.secret else secret)

    async def list_all(self, call: Call[None, None]) -> AllWebhooks:
        """Every webhook by name."""
        with _store_away():
            found = await self._store.all()
            figures = await self._all.figures_of_all(found.values())
        each = zip(found.values(), figures, strict=True)
        return AllWebhooks([Webhook(**self._shown(one, its)) for one, its in each])

    async def describe(self, call: Call[WebhookParams, None]) -> WebhookDetails:
        """One of them, and what waits for it."""
        with _store_away():
            webhook = (await self._store.find(call.parameters.name)).definition
            figures = await self._all.figures(webhook)
        pending = dead = None
        with suppress(WaystationError):
            admin = await call.clients.admin()
            queue = await admin.describe_queue(webhook.topic, group=webhook.group)
            pending, dead = queue.unsettled, queue.dead_letters
        return WebhookDetails(
            **self._shown(webhook, figures),
            pending=pending,
            dead_letters=dead,
            recently_given_up=figures.given_up,
        )

    async def change(self, call: Call[WebhookParams, WebhookChange]) -> WebhookAndSecret:
        """Change some of its fields."""
        said, now = call.body.said(), self._all.clock.now()
        is_made = said.get("secret", "") is None
        if is_made:
            said["secret"] = new_secret()

        def decided(one: Definition) -> Definition:
            return changed(one, said, now)

        with _store_away():
            known = (await self._store.find(call.parameters.name)).definition
            wanted = decided(known)
            _check(wanted)
            if wanted.url != known.url:
                await self._check_url(wanted.url)
            webhook = await self._store.change(known.name, decided)
            admin = await call.clients.admin()
            await admin.alter_configs(group=webhook.group, set=webhook.group_configs())
            shown = self._shown(webhook, await self._all.figures(webhook))
        return WebhookAndSecret(**shown, secret=webhook.secret if is_made else None)

    async def pause(self, call: Call[WebhookParams, None]) -> Webhook:
        """Deliver nothing until it is resumed; messages wait."""
        return await self._paused(call.parameters.name, paused=True)

    async def resume(self, call: Call[WebhookParams, None]) -> Webhook:
        """Deliver again."""
        return await self._paused(call.parameters.name, paused=False)

    async def test(self, call: Call[WebhookParams, None]) -> SampleOutcome:
        """Post a sample to the target, signed as everything else, and tell what it answered."""
        from waystation.gateway.webhook_requests import sample_request

        with _store_away():
            webhook = (await self._store.find(call.parameters.name)).definition
        sample = sample_request(webhook, secrets.token_hex(8), self._all.clock.now())
        poster = await self._all.poster()
        told = await poster.post(webhook.url, *sample, webhook.timeout_ms / 1_000)
        took_ms = round(told.took_s * 1_000)
        return SampleOutcome(told.error is None, told.status, told.error, took_ms)

    async def delete(self, call: Call[WebhookParams, None]) -> None:
        """Forget it, with what it has delivered; its dead letters stay."""
        with _store_away():
            leaving = await self._leave(call.parameters.name)
        _events.info("webhook.deleted", webhook=call.parameters.name)
        # As a rule it is gone by then; a node that was killed is a member of its group for longer.
        await asyncio.wait([leaving], timeout=_NODES_LEAVE_S)

    async def _leave(self, name: str) -> "asyncio.Task[None]":
        leavings = self._all.leavings
        await self._store.delete(name, leavings.claim())
        return leavings.see_to(name)

    async def _paused(self, name: str, *, paused: bool) -> Webhook:
        with _store_away():
            webhook = await self._store.change(
                name, lambda one: msgspec.structs.replace(one, paused=paused)
            )
            return Webhook(**self._shown(webhook, await self._all.figures(webhook)))

    def _shown(self, webhook: Definition, figures: Figures) -> dict[str, Any]:
        kept = {name: getattr(webhook, name) for name in _SHOWN}
        former = webhook.former_secrets_at(self._all.clock.now())
        return {
            **kept,
            "secret_fingerprint": fingerprint(webhook.secret),
            "former_secrets": [
                FormerSecret(fingerprint(one.secret), one.until_ms) for one in former
            ],
            "group": webhook.group,
            "state": WebhookState(
                _status(webhook, figures),
                figures.delivered,
                figures.failed,
                figures.dead,
                figures.skipped,
                figures.last_delivered_ms,
                figures.failing_since_ms,
                figures.last_error,
                figures.last_error_ms,
            ),
        }

    # --- checking -------------------------------------------------------------------------------

    async def _check_url(self, url: str) -> None:
        """Whether the target may be reached now; every connection is checked again."""
        try:
            target = parse_target(url)
        except ValueError as error:
            raise _wrong("url", str(error), "such as https://example.com/hooks") from None
        poster = await self._all.poster()
        try:
            await poster.check(target.host, target.port)
        except TargetRefusedError as error:
            raise refusal(
                400,
                "target-refused",
                f"url leads to an address that webhooks may not reach: {error}",
                field="url",
                remedy="a public address; or the nodes' option webhook.allow=NETWORK",
            ) from None
        except (OSError, UnicodeError, TimeoutError) as error:
            raise _wrong(
                "url",
                f"names the host {target.host}, whose address cannot be found: {error}",
                "check the name, and this node's name service",
            ) from None


def _check(webhook: Definition) -> None:
    """Whether what is wanted can be, its target aside."""
    try:
        key_of(webhook.secret)
    except ValueError as error:
        raise _wrong("secret", str(error), "leave it away to have one made") from None
    try:
        if webhook.where is not None:
            Filter(webhook.where)
    except InvalidFilterError as error:
        raise _wrong("where", str(error), "an SQL condition: docs/filters.md") from None
    if webhook.dead_letter_topic == webhook.topic:
        raise _wrong(
            "dead_letter_topic",
            "is the topic that the webhook reads: what fails would come again for ever",
            "name another topic",
        )
    if len(webhook.former_secrets) > FORMER_SECRETS_MOST:
        raise refusal(
            409,
            "too-many-secrets",
            f"{len(webhook.former_secrets)} secrets that were replaced would still sign, "
            f"at most {FORMER_SECRETS_MOST} may",
            field="secret",
            remedy='wait, or end them by {"secret_grace_ms": 0}',
        )


class _store_away:  # noqa: N801 - reads as the statement that it is
    """Within, a store that does not answer is a problem that is told."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StoreUnavailableError):
            raise refusal(
                503,
                "store-unavailable",
                f"webhooks are kept in the coordination store, which does not answer: {error}",
                remedy="try again; what was asked may have been done: look first",
            ) from None


async def _set_up(admin: "Admin", webhook: Definition, begin: str) -> None:
    """Tell the share group everything, before anybody joins it."""
    await delete_group(admin, webhook.group, _DEAD_NODES_S)  # left behind by a namesake
    await admin.create_queue(
        webhook.topic, group=webhook.group, group_configs=webhook.group_configs()
    )
    if begin == "latest":
        # Not by the group's own rule, which begins when the first node asks: that is later.
        topic = await admin.describe_topic(webhook.topic)
        every = [(webhook.topic, one.partition) for one in topic.partitions]
        ends = await admin.list_offsets(dict.fromkeys(every, LATEST))
        starts = {(where.topic, where.partition): int(one.offset) for where, one in ends.items()}
        await admin.alter_share_group_offsets(webhook.group, starts)


def _ready(webhook: Definition) -> Definition:
    return msgspec.structs.replace(webhook, is_ready=True)


def _status(webhook: Definition, figures: Figures) -> WebhookStatus:
    if not webhook.is_ready:
        return "creating"
    if webhook.paused:
        return "paused"
    return "delivering" if figures.failing_since_ms is None else "failing"


def _wrong(field: str, detail: str, remedy: str) -> ProblemError:
    return refusal(400, "invalid-field", f"{field} {detail}", field=field, remedy=remedy)


def webhook_routes(webhooks: Webhooks) -> list[Route]:
    """The calls about webhooks."""
    calls = WebhookCalls(webhooks)
    path = "/v1/webhooks/{name}"
    return [
        Route(
            method="POST",
            path="/v1/webhooks",
            summary="Create a webhook",
            tag="webhooks",
            handler=calls.create,
            body=NewWebhook,
            answer=WebhookAndSecret,
            status=201,
            errors=(409, 504),
        ),
        Route(
            method="GET",
            path="/v1/webhooks",
            summary="List webhooks",
            tag="webhooks",
            handler=calls.list_all,
            answer=AllWebhooks,
        ),
        Route(
            method="GET",
            path=path,
            summary="Describe a webhook: how it goes, and what waits",
            tag="webhooks",
            handler=calls.describe,
            parameters=WebhookParams,
            answer=WebhookDetails,
            errors=(504,),
        ),
        Route(
            method="PATCH",
            path=path,
            summary="Change a webhook",
            tag="webhooks",
            handler=calls.change,
            parameters=WebhookParams,
            body=WebhookChange,
            answer=WebhookAndSecret,
            errors=(409, 504),
        ),
        Route(
            method="DELETE",
            path=path,
            summary="Delete a webhook",
            tag="webhooks",
            handler=calls.delete,
            parameters=WebhookParams,
            status=204,
            errors=(504,),
        ),
        Route(
            method="POST",
            path=f"{path}/pause",
            summary="Deliver nothing until it is resumed",
            tag="webhooks",
            handler=calls.pause,
            parameters=WebhookParams,
            answer=Webhook,
        ),
        Route(
            method="POST",
            path=f"{path}/resume",
            summary="Deliver again",
            tag="webhooks",
            handler=calls.resume,
            parameters=WebhookParams,
            answer=Webhook,
        ),
        Route(
            method="POST",
            path=f"{path}/test",
            summary="Post a sample to the target of a webhook",
            tag="webhooks",
            handler=calls.test,
            parameters=WebhookParams,
            answer=SampleOutcome,
        ),
    ]
