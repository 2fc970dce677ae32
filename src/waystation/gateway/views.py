"""Views: read-only topics that show the messages of another for which a condition is true."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from waystation.client.admin_views import ViewDescription
from waystation.filters.lexing import EXPRESSION_CHARACTERS
from waystation.gateway.problems import refusal
from waystation.gateway.reading import filter_of
from waystation.gateway.routes import Call, Params, Route
from waystation.gateway.topics import TopicName
from waystation.model.errors import InvalidTopicError, UnknownTopicError

if TYPE_CHECKING:
    from waystation.client.admin import Admin

__all__ = ["VIEWS"]


class ViewParams(Params, frozen=True):
    """Which view."""

    view: TopicName


class NewView(Params, frozen=True):
    """A view to create."""

    name: TopicName
    on: Annotated[TopicName, Meta(description="The topic whose messages it shows.")]
    where: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=EXPRESSION_CHARACTERS,
            description="An SQL condition over key, headers.NAME, value.NAME and others.",
            examples=["value.country = 'DE'"],
        ),
    ]


class View(msgspec.Struct, frozen=True):
    """A view, the topic it reads, and which of its messages it shows."""

    name: str
    id: str
    on: str
    where: str
    partitions: int


class Views(msgspec.Struct, frozen=True):
    """Views by name."""

    views: list[View]


async def create_view(call: Call[None, NewView]) -> View:
    """Create a view; an expression that means nothing is told with the place of the mistake."""
    wanted, admin = call.body, await call.clients.admin()
    filter_of(wanted.where)
    try:
        await call.clients.topic(wanted.on)
    except UnknownTopicError:
        raise refusal(
            404,
            "unknown-topic",
            f"there is no topic {wanted.on} to have a view on",
            field="on",
            remedy="POST /v1/topics creates one",
        ) from None
    try:
        made = await admin.create_view(wanted.name, wanted.on, wanted.where)
    except InvalidTopicError as error:
        field = "on" if wanted.on in await _names(admin) else "name"
        remedy = "name a topic" if field == "on" else "another name, such as orders.large"
        raise refusal(400, "invalid-field", str(error), field=field, remedy=remedy) from None
    return View(made.name, str(made.id), wanted.on, wanted.where, made.partitions)


async def list_views(call: Call[None, None]) -> Views:
    """Every view by name."""
    admin = await call.clients.admin()
    return Views([_shown(one) for one in await admin.list_views()])


async def describe_view(call: Call[ViewParams, None]) -> View:
    """One view."""
    admin = await call.clients.admin()
    try:
        return _shown(await admin.describe_view(call.parameters.view))
    except UnknownTopicError as error:
        raise _unknown(error) from None


async def delete_view(call: Call[ViewParams, None]) -> None:
    """Delete a view; the topic it shows stays, and so does a topic of that name."""
    admin, name = await call.clients.admin(), call.parameters.view
    try:
        await admin.delete_view(name)
    except UnknownTopicError as error:
        raise _unknown(error) from None
    await call.clients.forget(name)


async def _names(admin: "Admin") -> set[str]:
    return {one.name for one in await admin.list_views()}


def _unknown(error: UnknownTopicError) -> Exception:
    return refusal(
        404,
        "unknown-view",
        str(error),
        field="view",
        remedy="GET /v1/views lists the views there are",
    )


def _shown(one: ViewDescription) -> View:
    return View(one.name, str(one.id), one.on, one.where, one.partitions)


VIEWS = [
    Route(
        method="POST",
        path="/v1/views",
        summary="Create a view on a topic",
        tag="views",
        handler=create_view,
        body=NewView,
        answer=View,
        status=201,
        errors=(403, 409, 504),
    ),
    Route(
        method="GET",
        path="/v1/views",
        summary="List views",
        tag="views",
        handler=list_views,
        answer=Views,
        errors=(504,),
    ),
    Route(
        method="GET",
        path="/v1/views/{view}",
        summary="Describe a view",
        tag="views",
        handler=describe_view,
        parameters=ViewParams,
        answer=View,
        errors=(504,),
    ),
    Route(
        method="DELETE",
        path="/v1/views/{view}",
        summary="Delete a view",
        tag="views",
        handler=delete_view,
        parameters=ViewParams,
        status=204,
        errors=(403, 409, 504),
    ),
]
