"""The port's own rules: what a key is and what a prefix means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.coordination.store import KEY_CHARACTERS_MAX, check_key, check_txn, under

segments = st.text("abc._-~09", min_size=1, max_size=6).filter(lambda s: s not in (".", ".."))
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(keys)
def test_paths_of_plain_segments_are_keys(key: str) -> None:
    check_key(key)


def test_a_key_has_a_limit() -> None:
    check_key("k" * KEY_CHARACTERS_MAX)
    with pytest.raises(AssertionError, match="513 characters"):
        check_key("k" * (KEY_CHARACTERS_MAX + 1))


@given(keys, keys)
def test_a_prefix_means_whole_segments(prefix: str, key: str) -> None:
    below = key.split("/")[: len(prefix.split("/"))] == prefix.split("/") and key != prefix

    assert under(prefix + "/", key) == below
    assert under(prefix, key) == (prefix == key)
    assert under("", key)


def test_putting_and_deleting_one_key_at_once_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="both put and deleted"):
        check_txn({}, {"a": b""}, ["a"], {})


def test_a_lease_for_a_key_that_is_not_put_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="not put"):
        check_txn({}, {"a": b""}, [], {"b": 1})  # type: ignore[dict-item]
