"""DescribeViews: topics that show some of another's messages (``docs/protocol/views.md``)."""

from waystation.apis.call import Call
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.cluster.image import ClusterImage
from waystation.cluster.views import find_shown, orphans
from waystation.messages.describe_views import (
    DescribedView,
    DescribeViewsRequest,
    DescribeViewsResponse,
)
from waystation.model.errors import UnknownTopicError


def answer(broker: Broker, call: Call[DescribeViewsRequest]) -> DescribeViewsResponse:
    """Those asked for, or all."""
    image, names = broker.image, call.message.names
    if names is None:
        gone = {view.name for view in orphans(image)}
        names = sorted(name for name in image.views if name not in gone)
    return DescribeViewsResponse(views=[_described(image, name) for name in names])


def _described(image: ClusterImage, name: str) -> DescribedView:
    view, topic = image.views.get(name), find_shown(image, name)
    if view is None or topic is None:
        what = f"{name!r} is a topic, not a view" if topic else f"there is no view {name!r}"
        code, message = told(UnknownTopicError(what))
        return DescribedView(name=name, error_code=code, error_message=message)
    return DescribedView(
        name=name,
        view_id=view.id,
        topic=view.on,
        expression=view.where,
        partitions=len(topic.partitions),
    )
