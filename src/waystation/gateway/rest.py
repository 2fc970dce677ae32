"""All routes of the gateway, put together.

A further part of the interface is a list of routes in a file of its own, and a line here.
"""

from collections.abc import Iterable

from waystation.gateway.cluster import CLUSTER
from waystation.gateway.groups import GROUPS
from waystation.gateway.inbox import inbox_routes
from waystation.gateway.openapi import openapi_routes
from waystation.gateway.producing import PRODUCING
from waystation.gateway.reading import READING
from waystation.gateway.routes import Route, Routes
from waystation.gateway.settings import GatewaySettings
from waystation.gateway.topics import TOPICS
from waystation.gateway.webhook_running import Webhooks
from waystation.gateway.webhooks import webhook_routes

__all__ = ["rest_routes"]


def rest_routes(
    health: Iterable[Route], settings: GatewaySettings, webhooks: Webhooks | None = None
) -> Routes:
    """The table of routes; the last ones describe all the others."""
    inbox = inbox_routes(settings)
    routes = Routes([*inbox, *TOPICS, *PRODUCING, *READING, *GROUPS, *CLUSTER, *health])
    for route in [] if webhooks is None else webhook_routes(webhooks):
        routes.add(route)
    for route in openapi_routes(routes):
        routes.add(route)
    return routes
