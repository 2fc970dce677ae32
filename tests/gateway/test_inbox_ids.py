"""What messages of the inbox are called."""

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.inbox_ids import NotAnIdError, Place, decode, encode

PLACE = Place(UUID(int=7), 3, 42)
PLACES = st.builds(Place, st.uuids(), st.integers(0, 2**16 - 1), st.integers(0, 2**63 - 2))


@given(PLACES, st.binary(min_size=1, max_size=40))
def test_an_id_leads_back_to_its_place(place: Place, user: bytes) -> None:
    assert decode(encode(place, user), user) == (place, True)


@given(PLACES)
def test_an_id_can_stand_in_an_address_as_it_is(place: Place) -> None:
    text = encode(place, b"ann")
    assert len(text) == 40
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.lists(PLACES, unique=True))
def test_places_have_ids_of_their_own(places: list[Place]) -> None:
    assert len({encode(place, b"ann") for place in places}) == len(places)


def test_the_id_of_another_user_is_noticed() -> None:
    assert decode(encode(PLACE, b"ann"), b"bob") == (PLACE, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "a" * 40,
        "=" * 40,
        "é" * 40,
        "+/" * 20,
        encode(PLACE, b"ann")[:-1],
        encode(PLACE, b"ann") + "A",
        encode(PLACE, b"ann")[:-2] + "==",
        encode(PLACE, b"ann").swapcase(),
        encode(Place(UUID(int=7), 3, -1), b"ann"),
        encode(Place(UUID(int=7), 3, 2**63 - 1), b"ann"),
    ],
)
def test_garbage_is_no_id(text: str) -> None:
    with pytest.raises(NotAnIdError):
        decode(text, b"ann")


def test_a_bit_that_was_turned_is_noticed() -> None:
    whole = bytearray(base64.urlsafe_b64decode(encode(PLACE, b"ann")))
    for at in range(28):
        whole[at] ^= 0x10
        with pytest.raises(NotAnIdError):
            decode(base64.urlsafe_b64encode(whole).decode(), b"ann")
        whole[at] ^= 0x10
