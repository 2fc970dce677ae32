"""LIKE: what has a pattern, and how long that takes to find out."""

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters.naive import is_like
from tests.support.soak import count
from waystation.filters.patterns import EscapeError, pattern_of
from waystation.filters.selecting import Filter


def has(text: str, pattern: str, escape: str | None = None) -> bool:
    found = pattern_of(pattern, escape)
    code = found.code("text")
    by_matcher = found.matcher()(text)
    if code is not None:
        assert eval(code, {"text": text}) is by_matcher
    return by_matcher


@settings(max_examples=count(200, 50_000), deadline=None)
@given(st.text("abä\n", max_size=9), st.text("aabä\n%_", max_size=7))
def test_a_text_has_a_pattern_by_definition(text: str, pattern: str) -> None:
    assert has(text, pattern) is is_like(text, pattern)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("100%", "100!%", True),
        ("1000", "100!%", False),
        ("a_b", "a!_b", True),
        ("axb", "a!_b", False),
        ("a!b", "a!!b", True),
        ("50% off", "%!%%", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
    ],
)
def test_an_escape_takes_the_meaning_away(text: str, pattern: str, expected: bool) -> None:
    assert has(text, pattern, "!") is expected


@pytest.mark.parametrize(
    ("text", "pattern"), [("aba", "ab%ba"), ("a", "a%a"), ("ab", "a%b%b"), ("a", "_%_")]
)
def test_no_character_stands_for_two(text: str, pattern: str) -> None:
    assert not has(text, pattern)


@pytest.mark.parametrize("pattern", ["a!", "!a", "%!x%"])
def test_an_escape_that_escapes_nothing_is_an_error(pattern: str) -> None:
    with pytest.raises(EscapeError):
        pattern_of(pattern, "!")


@pytest.mark.parametrize(
    "pattern",
    [
        "%a%a%a%a%a%a%a%a%a%a%b",
        "%" + "%".join(["aaaaaaaaaaaaaaaa"] * 200) + "%b%",
        "%aaaaaaaaaaaaaaa_aaaaaaaaaaab%",
        "%" + "_%" * 60 + "b",
    ],
)
def test_nothing_is_tried_again(pattern: str) -> None:
    chosen = Filter(f"value LIKE '{pattern}'")
    value = b"a" * 200_000
    began = process_time()

    assert not chosen.matches(None, value)
    assert process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "fragments"),
    [("abc%", ["abc"]), ("%a_bc%d", ["a", "bc", "d"]), ("%_%", []), ("", [])],
)
def test_what_a_match_must_hold(pattern: str, fragments: list[str]) -> None:
    assert pattern_of(pattern, None).fragments == fragments
