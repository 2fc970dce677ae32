"""The interface, described as OpenAPI 3.1 and served with a page to try it.

Everything here is derived from the declared routes and their structs.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from waystation.gateway.problems import PROBLEM_JSON, Problem
from waystation.gateway.routes import JSON, NDJSON, Call, HeaderField, Reply, Route, Routes
from waystation.version import VERSION

__all__ = ["described", "openapi_routes"]

_REF: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (400, 404, 405, 408, 421, 431, 500, 503)
_WITH_A_BODY: Final = (413, 415)
_WITH_FRAMES: Final = (403, 426)
_INTRODUCTION: Final = (
    "Topics, messages, groups and the cluster over HTTP. Any node answers any call. Every error "
    "is an application/problem+json body that names the field and the remedy."
)


def openapi_routes(routes: Routes) -> list[Route]:
    """The calls that describe ``routes``, themselves included."""
    from waystation.gateway.page import PAGE

    told: list[bytes] = []

    async def openapi(_: Call[Any, Any]) -> Reply:
        if not told:
            told.append(msgspec.json.encode(described(routes.all)))
        return Reply(told[0])

    async def docs(_: Call[Any, Any]) -> Reply:
        return Reply(PAGE, media_type="text/html; charset=utf-8")

    return [
        Route(
            method="GET",
            path="/openapi.json",
            summary="This interface, as OpenAPI 3.1",
            tag="docs",
            handler=openapi,
            answer=dict[str, Any],
        ),
        Route(
            method="GET",
            path="/docs",
            summary="A page that shows every call and lets you try it",
            tag="docs",
            handler=docs,
            answer=str,
            answer_types=("text/html",),
        ),
    ]


def described(routes: Iterable[Route]) -> dict[str, Any]:
    """The OpenAPI document of ``routes``."""
    routes = list(routes)
    schemas, components = msgspec.json.schema_components(
        [one for route in routes for one in _types(route)], ref_template=_REF
    )
    shapes = iter(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, lambda: next(shapes), components
        )
    parameters = {route.parameters.__name__ for route in routes if route.parameters is not None}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waystation", "version": VERSION, "description": _INTRODUCTION},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": paths,
        "components": {
            "schemas": {name: one for name, one in components.items() if name not in parameters}
        },
    }


def _types(route: Route) -> Iterable[Any]:
    """The types of a route whose schemas are needed, in the order in which they are used."""
    if route.parameters is not None:
        yield route.parameters
    if route.body is not None:
        yield route.body
    if route.lines is not None:
        yield route.lines
    if route.frames is not None:
        yield from route.frames
    if route.answer is not None:
        yield route.answer
    yield from (answer for answer in route.others.values() if answer is not None)
    yield Problem


def _operation(
    route: Route, shape: Callable[[], dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
    }
    if route.parameters is not None:
        declared = components[shape()["$ref"].rsplit("/", 1)[1]]
        operation["parameters"] = [
            _parameter(name, schema, route, name in declared.get("required", ()))
            for name, schema in declared["properties"].items()
        ]
    if route.header_fields:
        operation.setdefault("parameters", []).extend(map(_header_field, route.header_fields))
    if route.body is not None:
        content = {kind: {"schema": shape()} for kind in _body_types(route)[:1]}
        for kind in _body_types(route)[1:]:
            content[kind] = content[next(iter(content))]
        if route.lines is not None:
            content[NDJSON] = {"schema": {"type": "string", "description": "one per line"}}
            content[NDJSON]["x-line-schema"] = shape()
        operation["requestBody"] = {"required": not route.body_optional, "content": content}
    if route.frames is not None:
        operation["x-websocket"] = {"client-message": shape(), "server-message": shape()}
    responses: dict[str, Any] = {}
    answers = {route.status: route.answer, **route.others}
    for status, answer in answers.items():
        told: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        responses[str(status)] = told
        if answer is not None:
            schema = shape()
            told["content"] = {kind: {"schema": schema} for kind in route.answer_types}
    problem = {PROBLEM_JSON.decode(): {"schema": shape()}}
    for status in _problems(route):
        known = responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
        known.setdefault("content", {}).update(problem)
    operation["responses"] = responses
    return operation


def _parameter(name: str, schema: dict[str, Any], route: Route, required: bool) -> dict[str, Any]:
    in_path = name in route.names
    told = {
        "name": name,
        "in": "path" if in_path else "query",
        "required": in_path or required,
        "schema": {key: value for key, value in schema.items() if key != "description"},
    }
    if "description" in schema:
        told["description"] = schema["description"]
    return told


def _header_field(line: HeaderField) -> dict[str, Any]:
    return {
        "name": line.name,
        "in": "header",
        "required": False,
        "description": line.description,
        "schema": {"type": "string", "pattern": line.pattern},
    }


def _body_types(route: Route) -> tuple[str, ...]:
    return tuple(kind for kind in route.media_types if kind != "*/*") or (JSON,)


def _problems(route: Route) -> list[int]:
    with_body = _WITH_A_BODY if route.body is not None else ()
    with_frames = _WITH_FRAMES if route.frames is not None else ()
    return sorted({*_ALWAYS, *with_body, *with_frames, *route.errors})


def _operation_id(route: Route) -> str:
    handler = getattr(route.handler, "__name__", "call")
    return f"{route.tag}_{handler}".replace("-", "_")
