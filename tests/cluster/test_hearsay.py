"""Words of other brokers: they move an image forward, never back, and make nobody leader."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.items import Items

from waystation.cluster.hearsay import Place, Word, corrected, newer, others
from waystation.cluster.image import ClusterImage
from waystation.cluster.topics import TopicSpec
from waystation.model.ids import LeaderEpoch, NodeId, TopicId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def cluster() -> ClusterImage:
    items = Items()
    items.join(1, 2, 3)
    items.create(TopicSpec("orders", 2, 3), TopicSpec("refunds", 1, 3))
    return items.image


IMAGE = cluster()
ORDERS, REFUNDS = IMAGE.topics["orders"], IMAGE.topics["refunds"]
PLACES = [(ORDERS.id, 0), (ORDERS.id, 1), (REFUNDS.id, 0)]


def word(leader: int | None, epoch: int) -> Word:
    return Word(None if leader is None else NodeId(leader), LeaderEpoch(epoch), (TWO, THREE))


def epoch_at(image: ClusterImage, place: Place) -> int:
    return image.topics_by_id[place[0]].partitions[place[1]].leader_epoch


words = st.dictionaries(
    st.sampled_from(PLACES),
    st.builds(word, st.sampled_from([None, 1, 2, 3]), st.integers(-1, 5)),
)


def test_a_higher_epoch_is_believed() -> None:
    image = corrected(IMAGE, {(ORDERS.id, 1): word(2, 7)})
    state = image.topics["orders"].partitions[1]

    assert (state.leader, state.leader_epoch, state.in_sync) == (2, 7, (2, 3))
    assert image.topics["orders"].partitions[0] is ORDERS.partitions[0]
    assert image.topics["refunds"] is REFUNDS
    assert image.topics_by_id[ORDERS.id] is image.topics["orders"]


def test_the_stored_version_stays_so_that_nothing_can_be_written_on_a_word() -> None:
    state = corrected(IMAGE, {(ORDERS.id, 1): word(2, 7)}).topics["orders"].partitions[1]

    assert state.version == ORDERS.partitions[1].version
    assert state.replicas == ORDERS.partitions[1].replicas


def test_an_image_that_knows_as_much_stays_itself() -> None:
    known = ORDERS.partitions[0]
    same = {(ORDERS.id, 0): Word(THREE, known.leader_epoch), (REFUNDS.id, 0): word(2, -1)}

    assert corrected(IMAGE, same) is IMAGE


def test_words_about_what_there_is_not_say_nothing() -> None:
    strange = {(ORDERS.id, 2): word(2, 9), (TopicId(UUID(int=3)), 0): word(2, 9)}

    assert newer(IMAGE, strange) == {}
    assert corrected(IMAGE, strange) is IMAGE


@given(words, words)
def test_the_highest_epoch_wins_in_whatever_order_words_come(
    some: dict[Place, Word], more: dict[Place, Word]
) -> None:
    one = corrected(corrected(IMAGE, some), more)
    other = corrected(corrected(IMAGE, more), some)

    for place in PLACES:
        told = [each[place].epoch for each in (some, more) if place in each]
        assert epoch_at(one, place) == epoch_at(other, place)
        assert epoch_at(one, place) == max([epoch_at(IMAGE, place), *told])


@given(words)
def test_nobody_becomes_leader_by_hearsay(some: dict[Place, Word]) -> None:
    before, after = IMAGE, corrected(IMAGE, others(some, ONE))

    for topic_id, number in PLACES:
        was = before.topics_by_id[topic_id].partitions[number]
        now = after.topics_by_id[topic_id].partitions[number]
        assert now.leader != ONE or now is was
