"""Metadata made anew: who knows most leads, and nothing that was decided deletes anything."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.cluster import keys
from waystation.cluster.image import ClusterImage
from waystation.cluster.keepsakes import Keepsake, keepsake_of, read_keepsake
from waystation.cluster.rebuilding import (
    EPOCHS_LEFT_OUT,
    ContradictionError,
    FoundReplica,
    Rebuilt,
    Survey,
    rebuild,
)
from waystation.cluster.values import (
    ClusterValue,
    ConfigValue,
    TopicValue,
    ViewValue,
    encode,
)
from waystation.model.errors import MetadataFormatError
from waystation.model.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    ProducerId,
    TopicId,
    TopicPartition,
)
from waystation.model.offsets import Offset

ORDERS, REBORN = TopicId(UUID(int=7)), TopicId(UUID(int=8))


def _found(
    number: int, epoch: int, end: int, topic: str = "orders", topic_id: TopicId = ORDERS
) -> FoundReplica:
    where = TopicPartition(topic, number)
    return FoundReplica(where, topic_id, LeaderEpoch(epoch), Offset(0), Offset(end))


def _survey(node: int, *replicas: FoundReplica, cluster: str | None = "ours") -> Survey:
    return Survey(NodeId(node), cluster, BrokerEpoch(node * 10), replicas)


def _image(made: Rebuilt) -> ClusterImage:
    return ClusterImage.from_items({key: (value, 1) for key, value in made.items.items()}, 1)


def test_the_one_who_goes_furthest_leads_and_its_equals_are_in_sync() -> None:
    made = rebuild(
        [
            _survey(1, _found(0, 3, 90)),
            _survey(2, _found(0, 4, 80)),
            _survey(3, _found(0, 4, 80)),
            _survey(4, _found(0, 4, 70)),
        ],
        "new",
    )
    (partition,) = _image(made).topic("orders").partitions

    assert partition.in_sync == (2, 3)
    assert partition.replicas == (2, 3, 1, 4)
    assert partition.leader is None
    assert partition.leader_epoch == 4 + EPOCHS_LEFT_OUT
    assert made.cluster_id == "ours"
    assert any("node 2 goes furthest, to offset 80 of epoch 4" in note for note in made.notes)


def test_leaders_are_spread_over_equals() -> None:
    replicas = [_found(number, 1, 5) for number in range(6)]
    made = rebuild([_survey(node, *replicas) for node in (1, 2, 3)], "new")
    preferred = [one.replicas[0] for one in _image(made).topic("orders").partitions]

    assert sorted(preferred) == [1, 1, 2, 2, 3, 3]


def test_a_hole_is_made_anew_and_named() -> None:
    made = rebuild([_survey(1, _found(0, 1, 5), _found(2, 1, 5)), _survey(2)], "new")
    hole = _image(made).topic("orders").partitions[1]

    assert made.lost == (TopicPartition("orders", 1),)
    assert hole.replicas == (2,)
    assert any("orders-1 was found on no node" in note for note in made.notes)


def test_of_two_lives_of_a_topic_one_goes_on_and_the_other_is_named() -> None:
    old = _found(0, 9, 900)
    new = _found(0, 1, 5, topic_id=REBORN)
    made = rebuild([_survey(1, old), _survey(2, new), _survey(3, new)], "new")

    assert _image(made).topic("orders").id == REBORN
    assert _image(made).topic("orders").partitions[0].replicas == (2, 3)
    assert any(
        "orders-0 on node 1" in note and "move its directories" in note for note in made.notes
    )


def test_topics_keep_everything_until_somebody_sets_their_options() -> None:
    compacted = _found(0, 1, 5, "state", REBORN)._replace(compacted=True)
    offsets = _found(0, 1, 5, "__consumer_offsets", TopicId(UUID(int=9)))
    known = {ORDERS: {"retention.ms": "5", "segment.bytes": "1000000"}}
    made = rebuild([_survey(1, _found(0, 1, 5), compacted, offsets)], "new", known)
    image = _image(made)
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}

    assert image.topic_options("orders").options == {**kept, "segment.bytes": "1000000"}
    assert image.topic_options("state").options == {**kept, "cleanup.policy": "compact"}
    assert image.topic_options("__consumer_offsets").options["cleanup.policy"] == "compact"


# --- what brokers wrote down ------------------------------------------------------------------


def _kept(revision: int, *, where: str = "a = 1", cluster: str = "ours") -> Keepsake:
    items = {
        keys.CLUSTER: encode(ClusterValue(id=cluster)),
        keys.topic("orders"): encode(TopicValue(id=ORDERS, replicas=((NodeId(1),),))),
        keys.topic_config("orders"): encode(
            ConfigValue(options={"schedule.enable": "true", "retention.after.ack": "g"})
        ),
        keys.topic("gone"): encode(TopicValue(id=REBORN, replicas=((NodeId(1),),))),
        keys.group_config("g.1/x"): encode(ConfigValue(options={"share.order": "key"})),
        keys.broker_config("default"): encode(ConfigValue(options={"num.partitions": "4"})),
        keys.view("urgent"): encode(
            ViewValue(id=TopicId(UUID(int=20)), on="orders", on_id=ORDERS, where=where)
        ),
        keys.view("lost"): encode(
            ViewValue(id=TopicId(UUID(int=21)), on="gone", on_id=REBORN, where=where)
        ),
    }
    image = ClusterImage.from_items({key: (value, 1) for key, value in items.items()}, revision)
    return read_keepsake(keepsake_of(image).encoded(), "file")


def test_options_and_views_are_as_the_newest_copy_has_them() -> None:
    surveys = [
        _survey(1, _found(0, 1, 5))._replace(keepsake=_kept(7)),
        _survey(2, _found(0, 1, 5))._replace(keepsake=_kept(9, where="a = 2")),
        _survey(3, _found(0, 1, 5))._replace(keepsake=_kept(99, cluster="theirs")),
        _survey(4),
    ]
    made = rebuild(surveys, "new", {ORDERS: {"schedule.enable": "false"}})
    image = _image(made)

    assert image.topic_options("orders").options == {
        "schedule.enable": "true",
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    assert image.group_options("g.1/x").options == {"share.order": "key"}
    assert image.broker_options().options == {"num.partitions": "4"}
    assert [(view.name, view.on_id, view.where) for view in image.views.values()] == [
        ("urgent", ORDERS, "a = 2")
    ]
    assert any("at revision 9" in note for note in made.notes)
    assert any("were not found are lost: lost" in note for note in made.notes)


def test_options_of_an_earlier_life_of_a_topic_are_not_taken() -> None:
    reborn = _found(0, 1, 5, topic_id=REBORN)
    made = rebuild([_survey(1, reborn)._replace(keepsake=_kept(7))], "new")

    assert "schedule.enable" not in _image(made).topic_options("orders").options
    assert not _image(made).views


def test_a_copy_that_cannot_be_read_is_named() -> None:
    with pytest.raises(MetadataFormatError, match=r"broker-1/cluster-options\.json"):
        read_keepsake(b'{"v":1,"topics":3}', "broker-1/cluster-options.json")


def test_counters_go_on_above_all_that_was_found() -> None:
    seen = _found(0, 1, 5)._replace(last_producer=ProducerId(4_711))
    made = rebuild([_survey(1, seen), _survey(2)], "new")

    assert _image(made).counter(keys.PRODUCER_IDS).next > 4_711 + 1_000
    assert _image(made).counter(keys.BROKER_EPOCHS).next > 20


@pytest.mark.parametrize(
    ("surveys", "reason"),
    [
        ([], "nothing was found"),
        ([_survey(1), _survey(1)], "node 1 was found twice"),
        ([_survey(1), _survey(2, cluster="theirs")], "node 2 to cluster theirs"),
    ],
)
def test_what_is_not_one_cluster_is_refused(surveys: list[Survey], reason: str) -> None:
    with pytest.raises(ContradictionError, match=reason):
        rebuild(surveys, "new")


def test_directories_that_never_joined_a_cluster_get_a_new_one() -> None:
    assert rebuild([_survey(1, cluster=None)], "new").cluster_id == "new"
    assert rebuild([_survey(1, cluster=None), _survey(2)], "new").cluster_id == "ours"


ends = st.tuples(st.integers(0, 4), st.integers(0, 9))


@given(st.lists(st.dictionaries(st.integers(1, 4), ends, min_size=1), min_size=1, max_size=8))
def test_whatever_is_found_can_be_led_by_somebody_who_has_most(
    partitions: list[dict[int, tuple[int, int]]],
) -> None:
    surveys = [
        _survey(
            node,
            *(_found(n, *held[node]) for n, held in enumerate(partitions) if node in held),
        )
        for node in (1, 2, 3, 4)
    ]
    image = _image(rebuild(surveys, "new"))

    for number, held in enumerate(partitions):
        found = image.topic("orders").partitions[number]
        best = max(held.values())
        assert set(found.replicas) == set(held)
        assert {held[node] for node in found.in_sync} == {best}
        assert all(held[node] < best for node in found.replicas if node not in found.in_sync)
        assert found.leader_epoch > best[0]
