"""Views come, are shown and go with their topics, whoever else decides meanwhile."""

import pytest
from tests.cluster.items import Items, new_id

from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.topics import (
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    add_partitions,
    create_topics,
    delete,
    sweep,
)
from waystation.cluster.views import find_shown, find_shown_by_id, shown, shown_names
from waystation.model.errors import (
    InvalidFilterError,
    InvalidRequestError,
    IsViewError,
    TopicExistsError,
    UnknownTopicError,
    WaystationError,
)
from waystation.model.ids import TopicId

VIEW = TopicSpec("refunds", options={"view.on": "orders", "view.where": "key = 'r'"})


@pytest.fixture
def world() -> Items:
    world = Items()
    world.join(1, 2, 3)
    world.create(TopicSpec("orders", 4, 3))
    return world


def plan_of(world: Items, spec: TopicSpec) -> TopicPlan | WaystationError:
    return create_topics(world.image, [spec], TopicDefaults(), new_id)[spec.name]


def made(world: Items, spec: TopicSpec = VIEW) -> TopicPlan:
    plan = plan_of(world, spec)
    assert isinstance(plan, TopicPlan), plan
    assert world.commit(plan.changes)
    return plan


def test_a_view_is_shown_with_its_topics_partitions(world: Items) -> None:
    plan = made(world)
    orders, view = world.image.topic("orders"), shown(world.image, "refunds")

    assert view.partitions == orders.partitions
    assert (view.name, view.id) == ("refunds", plan.id)
    assert find_shown_by_id(world.image, plan.id) == view
    assert shown_names(world.image) == ["orders", "refunds"]
    assert "refunds" not in world.image.topics


def test_the_image_is_the_same_however_it_was_made(world: Items) -> None:
    made(world)

    assert ClusterImage.from_items(world.items, world.image.revision) == world.image

    world.commit(delete(world.image, "refunds"))

    assert ClusterImage.from_items(world.items, world.image.revision) == world.image
    assert not world.image.views_by_id


def test_it_grows_with_its_topic(world: Items) -> None:
    made(world)
    world.commit(add_partitions(world.image, "orders", 6))

    assert len(shown(world.image, "refunds").partitions) == 6
    with pytest.raises(IsViewError):
        add_partitions(world.image, "refunds", 7)


def test_a_topic_with_views_stays(world: Items) -> None:
    made(world)

    with pytest.raises(InvalidRequestError, match="delete them first: refunds"):
        delete(world.image, "orders")

    world.commit(delete(world.image, "refunds"))
    world.commit(delete(world.image, "orders"))

    assert shown_names(world.image) == []


def test_who_deletes_the_topic_meanwhile_loses_or_wins_but_not_both(world: Items) -> None:
    view, gone = plan_of(world, VIEW), delete(world.image, "orders")
    assert isinstance(view, TopicPlan)

    assert world.commit(view.changes)
    assert not world.commit(gone), "the topic of a view was deleted"

    other = TopicSpec("others", options=VIEW.options)
    late, gone = plan_of(world, other), delete(world.image, "refunds")
    world.commit(gone)
    world.commit(delete(world.image, "orders"))

    assert isinstance(late, TopicPlan)
    assert not world.commit(late.changes), "a view of nothing"


def test_a_namesake_that_comes_meanwhile_wins(world: Items) -> None:
    view, topic = plan_of(world, VIEW), plan_of(world, TopicSpec("refunds"))
    assert isinstance(view, TopicPlan)
    assert isinstance(topic, TopicPlan)

    assert world.commit(view.changes)
    assert not world.commit(topic.changes)
    assert isinstance(plan_of(world, TopicSpec("refunds")), TopicExistsError)

    world.commit(delete(world.image, "refunds"))
    world.create(TopicSpec("refunds"))

    assert not world.commit(view.changes)


def test_two_views_of_one_topic_are_made_at_once(world: Items) -> None:
    specs = [VIEW, TopicSpec("others", options=VIEW.options)]
    plans = create_topics(world.image, specs, TopicDefaults(), new_id).values()

    assert world.commit(*(plan.changes for plan in plans if isinstance(plan, TopicPlan)))
    assert list(world.image.views) == ["refunds", "others"]


def test_what_is_not_understood_is_refused(world: Items) -> None:
    def understand(expression: str) -> None:
        raise InvalidFilterError(expression, 4, 5, "no such thing")

    outcome = create_topics(world.image, [VIEW], TopicDefaults(), new_id, understand)["refunds"]

    assert isinstance(outcome, WaystationError)
    assert str(outcome).splitlines() == ["view.where: no such thing", "  key = 'r'", "      ^"]


def test_a_view_whose_topic_is_gone_all_the_same_is_shown_to_nobody_and_swept(
    world: Items,
) -> None:
    plan = made(world)
    del world.items[keys.topic("orders")]
    image = ClusterImage.from_items(world.items, world.image.revision)

    assert find_shown(image, "refunds") is None
    assert find_shown_by_id(image, TopicId(plan.id)) is None
    assert shown_names(image) == []
    assert keys.view("refunds") in sweep(image).after
    with pytest.raises(UnknownTopicError):
        shown(image, "refunds")
