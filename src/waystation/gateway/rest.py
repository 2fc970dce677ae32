"""All routes of the gateway, put together.

A further part of the interface is a list of routes in a file of its own, and a line here.
"""

from collections.abc import Iterable

from waystation.gateway.bulk_in import bulk_in_routes
from waystation.gateway.bulk_out import BULK_OUT
from waystation.gateway.cluster import CLUSTER
from waystation.gateway.dead_letters import DEAD_LETTERS
from waystation.gateway.groups import GROUPS
from waystation.gateway.inbox import inbox_routes
from waystation.gateway.openapi import openapi_routes
from waystation.gateway.producing import PRODUCING
from waystation.gateway.push import push_routes
from waystation.gateway.push_meters import PushMeters
from waystation.gateway.queue_holders import QueueHolders
from waystation.gateway.queue_messages import queue_message_routes
from waystation.gateway.queues import queue_routes
from waystation.gateway.reading import READING
from waystation.gateway.routes import Route, Routes
from waystation.gateway.schedule_many import MANY_SCHEDULES
from waystation.gateway.schedules import SCHEDULES
from waystation.gateway.settings import GatewaySettings
from waystation.gateway.topics import TOPICS
from waystation.gateway.transactions import transaction_routes
from waystation.gateway.views import VIEWS
from waystation.gateway.webhook_running import Webhooks
from waystation.gateway.webhooks import webhook_routes
from waystation.telemetry.metrics import Registry

__all__ = ["rest_routes"]


def rest_routes(
    health: Iterable[Route],
    settings: GatewaySettings,
    webhooks: Webhooks | None = None,
    pushing: PushMeters | None = None,
) -> Routes:
    """The table of routes; the last ones describe all the others."""
    inbox = inbox_routes(settings)
    routes = Routes([*inbox, *TOPICS, *PRODUCING, *READING, *GROUPS, *CLUSTER, *health])
    holders = QueueHolders()
    queues = [*queue_routes(holders), *queue_message_routes(holders), *DEAD_LETTERS]
    for route in [*queues, *SCHEDULES, *MANY_SCHEDULES, *VIEWS]:
        routes.add(route)
    for route in [*bulk_in_routes(), *BULK_OUT, *transaction_routes()]:
        routes.add(route)
    for route in push_routes(pushing or PushMeters(Registry())):
        routes.add(route)
    for route in [] if webhooks is None else webhook_routes(webhooks):
        routes.add(route)
    for route in openapi_routes(routes):
        routes.add(route)
    return routes
